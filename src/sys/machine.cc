#include "sys/machine.h"

#include <cpuid.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <hwy/targets.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "sys/detect.h"
#include "sys/env.h"

namespace braid::sys {
namespace {

std::string read_cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

// g++ 12 has no builtin name for the tile flags: CPUID leaf 7, EDX bits 22 (BF16), 24 (tiles), 25 (INT8); bit 23 is
// FP16, which every CPU with tiles has and their decoders use.
uint32_t leaf7_edx() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) ? d : 0;
}
// Leaf 1, ECX bit 29: a virtual machine may hide it even with AVX2.
bool has_f16c() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
// clang 14 has no name for AVX-VNNI either: leaf 7, subleaf 1, EAX bit 4.
bool has_avx_vnni() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

// Linux grants the 8 KiB of tile registers on request, once per process.
bool request_tiles() {
  constexpr long kArchReqXcompPerm = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

int64_t highway_cap(CpuClass c) {
  switch (c) {
    case CpuClass::baseline:
      return HWY_AVX3 | HWY_AVX2;
    case CpuClass::avx2:
      return HWY_AVX3;
    default:
      return 0;
  }
}

// Those that this process may use.
int count_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

Machine detect_machine(const std::string& cap) {
  Machine m;
  m.cpu_name = read_cpu_name();
  m.cores = count_cores();
  m.memory_gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30);
  __builtin_cpu_init();
  const uint32_t edx = leaf7_edx();
  m.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  m.avx512 = m.avx2 && cap != "avx2" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  m.avx_vnni = m.avx2 && has_avx_vnni();
  m.avx512_vnni = m.avx512 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
  m.avx512_bf16 = m.avx512 && __builtin_cpu_supports("avx512bf16");
  const bool has_tiles = (edx >> 22 & 1) && (edx >> 23 & 1) && (edx >> 24 & 1) && (edx >> 25 & 1);
  m.amx = m.avx512 && cap != "avx512" && has_tiles && request_tiles();
  m.cpu_class = m.amx ? CpuClass::amx : m.avx512_vnni ? CpuClass::avx512 : m.avx2 ? CpuClass::avx2 : CpuClass::baseline;
  // Measured: on AMD's Zen 5 the dot instruction runs at twice the FP32 rate, on Intel's server parts, with tiles or
  // with tiles hidden by a virtual machine, at half of it.
  m.bf16_dot_fast = m.avx512_bf16 && __builtin_cpu_is("amd");
  return m;
}

const char* name_of(CpuClass c) {
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512", "amx"};
  return kNames[static_cast<int>(c)];
}

const Machine& machine() {
  static const Machine m = [] {
    const Machine detected = detect_machine(env().cpu);
    hwy::DisableTargets(highway_cap(detected.cpu_class));
    return detected;
  }();
  return m;
}

std::string machine_id() {
  std::string id;
  if (std::ifstream file("/proc/sys/kernel/random/boot_id"); std::getline(file, id) && !id.empty()) return id;
  char name[64] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace braid::sys
