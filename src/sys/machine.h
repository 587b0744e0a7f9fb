// What this CPU can do, detected once. Variants are chosen by CPU class, not by single flags: Intel's server parts have
// the AVX-512 BF16 flag and are slower with it than with FP32 (docs/internals/cpu.md, Classes). BRAID_CPU caps the
// class, and Highway with it.
#pragma once
#include <string>

namespace braid::sys {

enum class CpuClass { baseline, avx2, avx512, amx };
const char* name_of(CpuClass c);

struct Machine {
  std::string cpu_name;
  CpuClass cpu_class = CpuClass::baseline;
  bool avx2 = false;           // with FMA and F16C
  bool avx512 = false;         // F, BW, CD, DQ, VL
  bool avx_vnni = false;       // byte dot products on 256-bit vectors
  bool avx512_vnni = false;    // with VBMI
  bool avx512_bf16 = false;    // the instruction works
  bool bf16_dot_fast = false;  // ... and is faster than FP32: AMD only
  bool amx = false;            // tiles with BF16 and INT8, and the kernel's permission to use them
  int cores = 1;
  double memory_gib = 0;
};

// First call detects, requests tiles from the kernel if there are any, and caps Highway's dispatch.
const Machine& machine();

// Of the running machine, the same in all of its containers: that of its boot, or its name.
std::string machine_id();

}  // namespace braid::sys
