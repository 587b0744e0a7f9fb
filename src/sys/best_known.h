// The best known roofs of each CPU class, measured by `braid info --machine` on quiet machines: the only table of them.
// A row is raised when the same run measures a higher roof both before and after: `bench/versus.py ... --raise` writes
// it here.
#pragma once

namespace braid::sys {

struct BestKnown {
  const char* row;
  int threads;
  double read_gbs_1, read_gbs;  // GB/s
  double fp32_gflops, bf16_gflops, int8_gops;
};

inline constexpr BestKnown kBestKnown[] = {
    // Intel Granite Rapids and Sapphire Rapids server parts, two cores.
    {.row = "amx",
     .threads = 2,
     .read_gbs_1 = 16,
     .read_gbs = 37,
     .fp32_gflops = 420,
     .bf16_gflops = 6000,
     .int8_gops = 12400},
    // AMD Zen 5 server parts, two cores.
    {.row = "avx512_bf16",
     .threads = 2,
     .read_gbs_1 = 40,
     .read_gbs = 48,
     .fp32_gflops = 508,
     .bf16_gflops = 1050,
     .int8_gops = 2030},
    // Intel server parts whose tiles a virtual machine hides, two cores; their BF16 dot product is slower than FP32.
    {.row = "avx512_vnni",
     .threads = 2,
     .read_gbs_1 = 17,
     .read_gbs = 37,
     .fp32_gflops = 400,
     .bf16_gflops = 0,
     .int8_gops = 1575},
};

}  // namespace braid::sys
