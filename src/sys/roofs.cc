#include "sys/roofs.h"

#include <cpuid.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/best_known.h"
#include "sys/machine.h"
#include "sys/parallel.h"
#include "sys/roofs_units.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sys/roofs.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace braid::sys {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sums all bytes, one stream per call. `ahead` bytes are prefetched by software; 0: the hardware alone.
float read_stream(const std::byte* data, int64_t bytes, int64_t ahead) {
  const hn::ScalableTag<uint64_t> d;
  const auto step = static_cast<int64_t>(4 * hn::Lanes(d));
  const auto* p = reinterpret_cast<const uint64_t*>(data);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (int64_t i = 0; i < bytes / 8; i += step) {
    if (ahead > 0) {
      for (int64_t line = 0; line < step / 8; ++line) {
        const std::byte* at = data + i * 8 + ahead + line * 64;
        asm volatile("prefetcht0 %0" : : "m"(*at));
      }
    }
    const auto n = static_cast<int64_t>(hn::Lanes(d));
    a = hn::Xor(a, hn::LoadU(d, p + i));
    b = hn::Xor(b, hn::LoadU(d, p + i + n));
    c = hn::Xor(c, hn::LoadU(d, p + i + 2 * n));
    e = hn::Xor(e, hn::LoadU(d, p + i + 3 * n));
  }
  return static_cast<float>(hn::GetLane(hn::Xor(hn::Xor(a, b), hn::Xor(c, e))) & 1);
}

// Twelve independent chains hide the latency of the multiply-add. Returns operations done.
double fma_chains(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  constexpr int kChains = 12;
  hn::VFromD<decltype(d)> acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = hn::Set(d, 0.001f * static_cast<float>(i));
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  for (int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], x, y);
  }
  for (int i = 1; i < kChains; ++i) acc[0] = hn::Add(acc[0], acc[i]);
  *sink = hn::GetLane(acc[0]);
  return 2.0 * kChains * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace braid::sys
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid::sys {
namespace {

HWY_EXPORT(read_stream);
HWY_EXPORT(fma_chains);

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A roof is a rate sustained for as long as a token or a layer takes, so samples last tens of milliseconds: in shorter
// ones, memory that was idle gives nearly twice its sustained rate. The best sample of kBudget seconds counts, or of
// kSamplesMin samples if they take at most four times as long, as under other load.
constexpr double kBudget = 0.2;

// Sum of each thread's best sample, in operations per second.
double best_rate(int threads, double (*unit)(int64_t, float*)) {
  constexpr int64_t kRounds = 1 << 22;  // about 10 ms
  std::vector<double> best(static_cast<size_t>(threads));
  parallel(threads, [&](int thread, int) {
    float sink[16] = {};  // keeps the result of a unit alive
    double& most = best[static_cast<size_t>(thread)];
    constexpr int kSamplesMin = 32;
    const double begin = now();
    for (int sample = 0; now() < begin + (sample < kSamplesMin ? 4 : 1) * kBudget; ++sample) {
      const double start = now();
      const double done = unit(kRounds, sink);
      most = std::max(most, done / (now() - start));
    }
  });
  return std::accumulate(best.begin(), best.end(), 0.0);
}

// The buffer of ReadRate, and what a thread reads between two clock reads.
constexpr int64_t kBytes = int64_t{384} << 20, kChunk = int64_t{1} << 20, kAhead = 3072;

// Each thread reads its own part repeatedly for `seconds`; total bytes per second.
double read_rate(const std::byte* data, int threads, int64_t ahead, double seconds) {
  std::vector<double> rate(static_cast<size_t>(threads));
  parallel(threads, [&](int thread, int members) {
    const int64_t chunks = kBytes / kChunk, first = chunks * thread / members, last = chunks * (thread + 1) / members;
    int64_t chunk = first, done = 0;
    const double start = now();
    for (; now() < start + seconds; ++done) {
      volatile float keep = HWY_DYNAMIC_DISPATCH(read_stream)(data + chunk * kChunk, kChunk, ahead);
      static_cast<void>(keep);
      chunk = chunk + 1 < last ? chunk + 1 : first;
    }
    rate[static_cast<size_t>(thread)] = static_cast<double>(done * kChunk) / (now() - start);
  });
  return std::accumulate(rate.begin(), rate.end(), 0.0);
}

// What multiplies in a format here; neither: nothing does.
struct Unit {
  const char* name = "none";
  double (*rounds)(int64_t, float*) = nullptr;
};

Unit bf16_unit() {
  const Machine& m = machine();
  if (m.amx) return {"amx", [](int64_t n, float*) { return unit_amx_bf16(n / 16); }};
  return m.bf16_dot_fast ? Unit{"avx512_bf16", &unit_bf16_dot} : Unit{};
}

Unit int8_unit() {
  const Machine& m = machine();
  if (m.amx) return {"amx", [](int64_t n, float*) { return unit_amx_int8(n / 16); }};
  if (m.avx512_vnni) return {"avx512_vnni", &unit_int8_dot};
  if (m.avx_vnni) return {"avx_vnni", &unit_int8_dot_256};
  return m.avx2 ? Unit{"avx2", &unit_int8_pairs} : Unit{};
}

Unit fp32_unit() {
  return {"fma", [](int64_t n, float* sink) { return HWY_DYNAMIC_DISPATCH(fma_chains)(n, sink); }};
}

double best_of_two_reads(const ReadRate& read, int threads) {
  return std::max(read.measure(threads), read.measure(threads));
}

// The roofs of a number of threads, each measured on first use.
class Lazy {
 public:
  explicit Lazy(int threads) : threads_(threads) {}
  double fp32() { return once(fp32_, fp32_unit()); }
  double bf16() { return once(bf16_, bf16_unit()); }
  double read() {
    if (!read_) read_ = best_of_two_reads(ReadRate(), threads_);
    return *read_;
  }
  const Roofs& all() {
    if (all_) return *all_;
    Roofs r{.threads = threads_};
    {
      const ReadRate buffer;
      r.read_gbs_1 = best_of_two_reads(buffer, 1);
      if (!read_) read_ = best_of_two_reads(buffer, threads_);
    }
    r.read_gbs = *read_;
    r.fp32_gflops = fp32();
    r.bf16_gflops = bf16();
    r.int8_gops = once(int8_, int8_unit());
    r.bf16_unit = bf16_unit().name;
    r.int8_unit = int8_unit().name;
    return all_.emplace(std::move(r));
  }

 private:
  double once(std::optional<double>& kept, const Unit& unit) const {
    if (!kept) kept = unit.rounds ? best_rate(threads_, unit.rounds) / 1e9 : 0;
    return *kept;
  }
  int threads_;
  std::optional<double> fp32_, bf16_, int8_, read_;
  std::optional<Roofs> all_;
};

// Those of so many threads, for one caller at a time.
class Shared {
 public:
  explicit Shared(int threads) : lock_(mutex()) {
    static std::map<int, Lazy> measured;
    threads = std::min(threads, machine().cores);
    roofs_ = &measured.try_emplace(threads, threads).first->second;
  }
  Lazy* operator->() const { return roofs_; }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  std::lock_guard<std::mutex> lock_;
  Lazy* roofs_ = nullptr;
};

}  // namespace

ReadRate::ReadRate() {
  void* p = mmap(nullptr, kBytes + kAhead, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(p);
  madvise(p, kBytes, MADV_HUGEPAGE);
  parallel_for(default_threads(), kBytes, int64_t{1} << 21,
               [&](int64_t begin, int64_t end) { std::fill(data_ + begin, data_ + end, std::byte{1}); });
}
ReadRate::~ReadRate() { munmap(data_, kBytes + kAhead); }

// Better of plain loads and software prefetch: on Intel's server parts prefetch reads 20% more.
double ReadRate::measure(int threads, double seconds) const {
  threads = std::min(threads, machine().cores);
  return std::max(read_rate(data_, threads, 0, seconds), read_rate(data_, threads, kAhead, seconds)) / 1e9;
}

double ReadRate::measure_part(int64_t bytes) const {
  constexpr double kSeconds = 0.025;
  bytes = std::min(bytes, kBytes);
  const int64_t times = std::max<int64_t>(1, kChunk / bytes);
  double best = 0;
  for (const double begin = now(); now() < begin + kSeconds;) {
    const double start = now();
    for (int64_t i = 0; i < times; ++i) {
      volatile float keep = HWY_DYNAMIC_DISPATCH(read_stream)(data_, bytes, 0);
      static_cast<void>(keep);
    }
    best = std::max(best, static_cast<double>(times * bytes) / (now() - start));
  }
  return best / 1e9;
}

Caches caches() {
  Caches c;
  const auto take = [](int name, int64_t& bytes) {
    if (const long size = sysconf(name); size > 0) bytes = size;
  };
  take(_SC_LEVEL1_DCACHE_SIZE, c.l1_bytes);
  take(_SC_LEVEL2_CACHE_SIZE, c.l2_bytes);
  take(_SC_LEVEL3_CACHE_SIZE, c.l3_bytes);
  return c;
}

const CacheRates& cache_rates() {
  static const CacheRates measured = [] {
    const Caches sizes = caches();
    const ReadRate buffer;
    const auto rate = [&](int64_t bytes) { return buffer.measure_part(bytes); };
    return CacheRates{.l1_gbs = rate(sizes.l1_bytes / 2),
                      .l2_gbs = rate(sizes.l2_bytes / 2),
                      .l3_gbs = rate(8 * sizes.l2_bytes),
                      .memory_gbs = rate(kBytes)};
  }();
  return measured;
}

const Roofs& roofs(int threads) { return Shared(threads)->all(); }

double product_roof(bool bf16) {
  const Shared roofs(default_threads());
  return 1e9 * (bf16 && bf16_unit().rounds ? roofs->bf16() : roofs->fp32());
}

double read_roof() { return 1e9 * Shared(default_threads())->read(); }

const Roofs& roofs() { return roofs(default_threads()); }

// AMD's family of CPUs that the table's row was measured on: Zen 4 has the same instructions at half the rate.
constexpr unsigned kZen5 = 0x1a;

unsigned cpu_family() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const unsigned family = (a >> 8) & 15;
  return family == 15 ? family + ((a >> 20) & 255) : family;
}

const char* best_known_row() {
  const Machine& m = machine();
  if (m.cpu_class == CpuClass::amx) return "amx";
  if (__builtin_cpu_is("amd")) return m.bf16_dot_fast && cpu_family() == kZen5 ? "avx512_bf16" : "";
  return m.avx512_vnni && __builtin_cpu_is("intel") ? "avx512_vnni" : "";
}

Roofs best_known_roofs(int threads) {
  for (const BestKnown& k : kBestKnown) {
    if (threads != k.threads || std::string_view(best_known_row()) != k.row) continue;
    return {.threads = k.threads,
            .read_gbs_1 = k.read_gbs_1,
            .read_gbs = k.read_gbs,
            .fp32_gflops = k.fp32_gflops,
            .bf16_gflops = k.bf16_gflops,
            .int8_gops = k.int8_gops};
  }
  return {};
}

bool too_low(double measured, double best_known) {
  return measured > 0 && best_known > 0 && measured < 0.9 * best_known;
}

bool too_high(double measured, double best_known) { return best_known > 0 && measured > 1.1 * best_known; }

}  // namespace braid::sys
#endif
