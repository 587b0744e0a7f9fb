// Peak rates of this machine, measured in a few seconds on first use and kept for the process: the roofs that speeds
// are compared with (docs/internals/cpu.md, Roofs). On a shared machine a roof can come out low; the best known of the
// CPU's class is listed with it, and a roof more than 10% below or above that voids a benchmark.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace braid::sys {

struct Roofs {
  int threads = 1;
  double read_gbs_1 = 0, read_gbs = 0;  // GB/s, sequential, one thread and all
  double fp32_gflops = 0;               // all threads, like the rest
  double bf16_gflops = 0;               // of the best BF16 unit; 0 where there is none
  double int8_gops = 0;
  std::string bf16_unit = "none", int8_unit = "none";
};

// Of at most as many threads as there are cores: threads that share a core time each other's waiting.
const Roofs& roofs(int threads);
const Roofs& roofs();  // of default_threads()

// One of them alone, in a fraction of the time, with default_threads(): products in the best BF16 unit, or in FP32
// (also where there is no such unit), FLOP/s; reading, bytes/s.
double product_roof(bool bf16);
double read_roof();

// The read rate of all threads right now, GB/s. Memory bandwidth on a shared host varies from moment to moment, so a
// benchmark measures it before every run. Keeps a buffer that fits in no cache.
class ReadRate {
 public:
  ReadRate();
  ReadRate(const ReadRate&) = delete;
  ReadRate& operator=(const ReadRate&) = delete;
  ~ReadRate();
  // `seconds` for each of two ways to read; in less than kShortest, idle memory shows a rate it cannot sustain.
  double measure(int threads, double seconds = kLongest) const;
  // The best rate of one thread over the first `bytes` of the buffer again and again, with plain loads; at most all of
  // it.
  double measure_part(int64_t bytes) const;
  // `seconds` to use before each run of that length: reading then takes at most half as long as the run.
  static double seconds_before(double run_seconds) { return std::clamp(run_seconds / 4, kShortest, kLongest); }
  static constexpr double kShortest = 0.05, kLongest = 0.2;

 private:
  std::byte* data_ = nullptr;
};

// Sizes of the caches that a core reaches, bytes: typical ones where the system names none. L3 is what all cores of its
// die share, on a virtual machine also with others.
struct Caches {
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 32 << 20;
};
Caches caches();

// What one core reads in a second from each level, sequentially, with plain loads: from half of L1, half of L2, as much
// of L3 as eight times L2, and memory. Measured in 0.1 s on first use.
struct CacheRates {
  double l1_gbs = 0, l2_gbs = 0, l3_gbs = 0, memory_gbs = 0;
};
const CacheRates& cache_rates();

// Best known of this CPU class (best_known.h); zeros if unknown, or for another number of threads.
Roofs best_known_roofs(int threads);
// Its row of the table, "" without one.
const char* best_known_row();

// More than a tenth below or above what is known; false if either is zero. Too low means a loaded machine, too high a
// machine outside its class or an outdated table: neither gives a valid figure.
bool too_low(double measured, double best_known);
bool too_high(double measured, double best_known);

}  // namespace braid::sys
