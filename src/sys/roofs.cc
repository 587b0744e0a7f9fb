#include "sys/roofs.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <vector>

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

// Sums all bytes, one stream a call. `ahead` bytes are prefetched by software; 0: the hardware alone.
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

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Best rate of a few rounds of about 30 ms each: a roof is what is possible, so the least disturbed round counts.
double best_rate(int threads, const std::function<double(int64_t, float*)>& unit) {
  float sink[16 * 16] = {};  // a line a thread: what a unit computed must go somewhere
  constexpr int64_t kProbe = 1 << 16;
  double probe = 1;
  for (int attempt = 0; attempt < 3; ++attempt) probe = std::min(probe, seconds_of([&] { unit(kProbe, sink); }));
  const auto rounds = static_cast<int64_t>(static_cast<double>(kProbe) * 0.03 / std::max(probe, 1e-6));
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::vector<double> done(static_cast<size_t>(threads));
    const double seconds = seconds_of([&] {
      parallel(threads,
               [&](int thread, int) { done[static_cast<size_t>(thread)] = unit(rounds, &sink[thread % 16 * 16]); });
    });
    double sum = 0;
    for (double n : done) sum += n;
    best = std::max(best, sum / seconds);
  }
  return best;
}

// A buffer that no cache holds, read in one part a thread.
double best_read(int threads) {
  constexpr int64_t kPart = int64_t{192} << 20;
  const auto size = static_cast<size_t>(kPart * threads);
  void* data = mmap(nullptr, size + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  madvise(data, size, MADV_HUGEPAGE);
  const auto* bytes = static_cast<std::byte*>(data);
  parallel(threads,
           [&](int thread, int) { std::fill_n(static_cast<std::byte*>(data) + kPart * thread, kPart, std::byte{1}); });
  double best = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    constexpr int64_t kAhead = 3072;  // bytes; on class B software prefetch reads 20% more
    const double seconds = seconds_of([&] {
      parallel(threads, [&](int thread, int) {
        volatile float keep =
            HWY_DYNAMIC_DISPATCH(read_stream)(bytes + kPart * thread, kPart, attempt % 2 ? kAhead : 0);
        static_cast<void>(keep);
      });
    });
    best = std::max(best, static_cast<double>(size) / seconds);
  }
  munmap(data, size + 8192);
  return best;
}

Roofs measure() {
  const Machine& m = machine();
  Roofs r;
  r.threads = default_threads();
  r.read_gbs_1 = best_read(1) / 1e9;
  r.read_gbs = r.threads > 1 ? best_read(r.threads) / 1e9 : r.read_gbs_1;
  r.fp32_gflops =
      best_rate(r.threads, [](int64_t n, float* sink) { return HWY_DYNAMIC_DISPATCH(fma_chains)(n, sink); }) / 1e9;
  if (m.amx) {
    r.bf16_gflops = best_rate(r.threads, [](int64_t n, float*) { return unit_amx_bf16(n / 16); }) / 1e9;
    r.int8_gops = best_rate(r.threads, [](int64_t n, float*) { return unit_amx_int8(n / 16); }) / 1e9;
    r.bf16_unit = r.int8_unit = "amx";
    return r;
  }
  if (m.bf16_dot_fast) {
    r.bf16_gflops = best_rate(r.threads, &unit_bf16_dot) / 1e9;
    r.bf16_unit = "avx512_bf16";
  }
  if (m.avx512_vnni) {
    r.int8_gops = best_rate(r.threads, &unit_int8_dot) / 1e9;
    r.int8_unit = "avx512_vnni";
  }
  return r;
}

}  // namespace

const Roofs& roofs() {
  static const Roofs r = measure();
  return r;
}

Roofs best_known_roofs() {
  // machines.md, two threads: class A is a Zen 5 server part, class B a Granite Rapids.
  constexpr int kThreads = 2;
  if (default_threads() != kThreads) return {};
  switch (machine().cpu_class) {
    case CpuClass::amx:
      return {.threads = kThreads,
              .read_gbs_1 = 16,
              .read_gbs = 37,
              .fp32_gflops = 420,
              .bf16_gflops = 6000,
              .int8_gops = 12400};
    case CpuClass::avx512:
      if (machine().bf16_dot_fast)
        return {.threads = kThreads,
                .read_gbs_1 = 40,
                .read_gbs = 48,
                .fp32_gflops = 508,
                .bf16_gflops = 919,
                .int8_gops = 2030};
      return {};
    default:
      return {};
  }
}

bool too_low(double measured, double best_known) {
  return measured > 0 && best_known > 0 && measured < 0.9 * best_known;
}

}  // namespace braid::sys
#endif
