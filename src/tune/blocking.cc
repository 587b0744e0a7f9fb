#include "tune/blocking.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <numeric>

#include "core/philox.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_rows.h"
#include "tune/tune.h"

namespace braid::tune {
namespace {

using packed::Blocking, packed::Class, packed::Way;

double now(bool cpu) {
  timespec t{};
  clock_gettime(cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Tensor drawn(Arena& arena, DType type, const Shape& shape, uint64_t seed) {
  Tensor t(arena, type, shape);
  const MutView v = t.mut();
  for (int64_t i = 0; i < v.count(); ++i) {
    const float value = static_cast<float>(philox({.seed = seed}, static_cast<uint64_t>(i / 4))[i % 4] % 255) / 127.0f;
    v.dtype == DType::bf16 ? void(v.as<Bf16>()[i] = to_bf16(value - 1)) : void(v.as<float>()[i] = value - 1);
  }
  return t;
}

DType type_of(int64_t bytes) { return bytes == 2 ? DType::bf16 : DType::f32; }

}  // namespace

BlockingTimer::BlockingTimer(const PackedProduct& p)
    : p_(p),
      ctx_{.arena = arena_, .threads = p.threads, .forced_rows = {}, .preferred_rows = {}},
      tokens_(drawn(arena_, type_of(p.a_bytes), {p.tokens, p.way == Way::fwd ? p.w_cols : p.w_rows}, 1)),
      other_(drawn(arena_, type_of(p.b_bytes), {p.way == Way::weight ? p.tokens : p.w_rows, p.w_cols}, 2)),
      y_(arena_, type_of(p.y_bytes), {p.rows(), p.cols()}) {}

void BlockingTimer::call(const Blocking& b) {
  const auto run = [&](const auto& op) {
    const int64_t bytes = linear_packed_workspace(p_.c, op, p_.threads);
    if (!space_ || space_.view().bytes() < bytes) space_ = Tensor(arena_, DType::u8, {bytes});
    linear_packed(p_.c, ctx_, op, {space_.mut().data, static_cast<size_t>(space_.view().bytes())});
  };
  const View a = tokens_.view(), other = other_.view();
  if (p_.way == Way::fwd)
    run(LinearFwd{.x = a, .w = dense_weight(other), .y = y_.mut(), .train = true, .blocking = &b});
  if (p_.way == Way::data) run(LinearBwdData{.dy = a, .w = dense_weight(other), .dx = y_.mut(), .blocking = &b});
  if (p_.way == Way::weight) run(LinearBwdWeight{.dy = a, .x = other, .dw = y_.mut(), .blocking = &b});
}

double BlockingTimer::seconds(const Blocking& b) {
  constexpr double kLeast = 1e-3;
  const bool cpu = p_.threads == 1;
  const double begin = now(cpu);
  double taken = 0;
  int64_t calls = 0;
  for (; taken < kLeast; taken = now(cpu) - begin, ++calls) call(b);
  return taken / static_cast<double>(calls);
}

bool BlockingTimer::same_bits(const Blocking& b) {
  const MutView y = y_.mut();
  const auto bytes = static_cast<size_t>(y.bytes());
  const auto result = [&](const Blocking& of) {
    std::memset(y.data, 0, bytes);
    call(of);
    return std::vector<std::byte>(y.data, y.data + bytes);
  };
  return result(default_blocking(p_)) == result(b);
}

std::vector<double> blocking_medians(std::span<const Blocking> space, int rounds, const BlockingSeconds& seconds) {
  std::vector<std::vector<double>> times(space.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < space.size(); ++i) {
      const size_t at = round % 2 == 0 ? i : space.size() - 1 - i;
      times[at].push_back(seconds(space[at]));
    }
  }
  std::vector<double> medians;
  medians.reserve(times.size());
  for (std::vector<double>& t : times) medians.push_back(median(std::move(t)));
  return medians;
}

BlockingFinding search_blocking(const PackedProduct& p, const PackedLimits& limits, const BlockingSearch& options,
                                const BlockingSeconds& seconds) {
  constexpr int kRounds = 3, kFinalists = 3, kFinalRounds = 8;
  BlockingFinding found{.of = p, .initial = default_blocking(p)};
  found.chosen = found.initial;
  seconds(found.initial);  // pages and caches
  const double once = seconds(found.initial);
  const int calls_most = static_cast<int>(std::min(1e4, options.seconds_most / once));
  const int affordable = (calls_most - 2 * kFinalists * kFinalRounds) / kRounds;
  const int trials = std::min(options.trials, std::max(3, affordable));
  const std::vector<Blocking> space = blocking_space(p);
  std::vector<Blocking> tried = {found.initial};
  for (const int i : ranked_blockings(p, space, limits)) {
    const Blocking& b = space[static_cast<size_t>(i)];
    if (std::ssize(tried) <= trials && b != found.initial) tried.push_back(b);
  }
  found.trials = static_cast<int>(tried.size()) - 1;
  const std::vector<double> first = blocking_medians(tried, kRounds, seconds);
  std::vector<size_t> order(tried.size() - 1);
  std::iota(order.begin(), order.end(), size_t{1});
  std::ranges::sort(order, {}, [&](size_t i) { return first[i]; });
  order.resize(std::min<size_t>(order.size(), kFinalists));
  found.gflops = p.flops() / first[0] * 1e-9;
  for (const size_t i : order) {
    std::vector<double> logs, times;
    for (int round = 0; round < std::min(kFinalRounds, std::max(3, calls_most / (4 * kFinalists))); ++round) {
      const bool swapped = round % 2 != 0;
      const double one = seconds(swapped ? tried[i] : tried[0]), other = seconds(swapped ? tried[0] : tried[i]);
      logs.push_back(std::log(swapped ? other / one : one / other));
      times.push_back(swapped ? one : other);
    }
    const double gain = median(logs);
    std::ranges::sort(logs);
    const bool agree = logs[logs.size() / 4] > 0;  // three quarters of the turns
    if (!agree || gain < std::log(kLeastBlockingGain) || gain <= std::log(found.gain)) continue;
    found.chosen = tried[i], found.gain = std::exp(gain);
    found.gflops = p.flops() / median(std::move(times)) * 1e-9;
  }
  return found;
}

Class training_class(DType x) {
  if (x == DType::f32) return Class::f32;
  for (const Class c : {Class::bf16_tile, Class::bf16_dot}) {
    if (!packed::refusal(c)) return c;
  }
  return Class::bf16;
}

// Activations of that type, gradients of y in F32, as other ops pass them.
std::vector<PackedProduct> training_products(const TrainingMatrix& m, int64_t tokens, DType x, int threads) {
  const int64_t bytes = size_of(x);
  PackedProduct p{.c = training_class(x), .threads = threads, .tokens = tokens, .w_rows = m.w_rows, .w_cols = m.w_cols};
  std::vector<PackedProduct> all;
  p.way = Way::fwd, p.a_bytes = bytes, p.b_bytes = bytes, p.y_bytes = bytes;
  all.push_back(p);
  p.way = Way::data, p.a_bytes = 4;
  all.push_back(p);
  p.way = Way::weight, p.y_bytes = 4;
  all.push_back(p);
  return all;
}

}  // namespace braid::tune
