#include "apps/alcop_cpu.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

#include "report/progress.h"
#include "sys/check.h"
#include "sys/env.h"
#include "sys/profile.h"
#include "tune/blocking.h"

namespace braid::apps {
namespace {

using packed::Blocking, packed::Way;

struct AlcopLayer {
  int64_t w_rows, w_cols;
};
// Projections of GPT-2 124M (768 wide), of an expert and the shared expert of Nemotron 3 Nano (2688), of hybrid-8.5m.
constexpr AlcopLayer kAlcopLayers[] = {{768, 768},   {2304, 768},  {3072, 768},  {768, 3072}, {1856, 2688},
                                       {2688, 1856}, {3712, 2688}, {2688, 3712}, {1096, 256}, {256, 512}};

// FP32 products of wide layers take as long as ten BF16 ones on tiles.
int64_t alcop_tokens(const AlcopLayer& l, DType x) {
  return x == DType::f32 && l.w_rows * l.w_cols > 1'000'000 ? 256 : 1024;
}

std::vector<PackedProduct> alcop_products(bool quick) {
  std::vector<PackedProduct> all;
  for (const DType x : {DType::f32, DType::bf16}) {
    int64_t i = 0;
    for (const AlcopLayer& l : kAlcopLayers) {
      const int64_t tokens = quick ? 64 : alcop_tokens(l, x);
      const std::vector<PackedProduct> three = tune::training_products({l.w_rows, l.w_cols}, tokens, x, 1);
      // Two of the three products of a layer, so that each way has as many.
      for (const int64_t way : {i % 3, (i + 1) % 3}) all.push_back(three[static_cast<size_t>(way)]);
      ++i;
      if (quick) break;
    }
  }
  return all;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

BlockingTimes blocking_times(const PackedProduct& p, int rounds) {
  constexpr size_t kFinalists = 8;
  BlockingTimes t{.of = p, .space = blocking_space(p), .initial = default_blocking(p)};
  const PackedLimits limits = packed_limits(p.c, p.threads);
  const packed::Kernel kernel = packed::kernel_of(p.c);
  for (const Blocking& b : t.space) t.modelled.push_back(packed_seconds(kernel, p, b, limits));
  t.by_model = ranked_blockings(p, t.space, limits);

  tune::BlockingTimer timer(p);
  const auto seconds = [&](const Blocking& b) { return timer.seconds(b); };
  const double begin = seconds_now();
  t.searched = tune::search_blocking(p, limits, {}, seconds).chosen;
  t.search_seconds = seconds_now() - begin;
  CHECK(timer.same_bits(t.searched), "{} has other bits than the default", text_of(t.searched));
  std::vector<Blocking> all = t.space;
  all.push_back(t.initial);
  std::vector<double> medians = tune::blocking_medians(all, rounds, seconds);
  // The fastest again, with the default and what the search took: the best of many owes part of its time to luck.
  std::vector<size_t> order(t.space.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return medians[i]; });
  order.resize(std::min(order.size(), kFinalists));
  order.push_back(t.space.size());
  std::vector<Blocking> finalists;
  finalists.reserve(order.size() + 1);
  for (const size_t i : order) finalists.push_back(all[i]);
  finalists.push_back(t.searched);
  const std::vector<double> again = tune::blocking_medians(finalists, 3 * rounds, seconds);
  for (size_t i = 0; i < order.size(); ++i) medians[order[i]] = again[i];
  t.searched_seconds = again.back();
  t.initial_seconds = medians.back();
  medians.pop_back();
  t.seconds = std::move(medians);
  return t;
}

}  // namespace

double BlockingTimes::best() const { return *std::ranges::min_element(seconds); }

BlockingStudy study_blockings(int64_t rounds, bool quick) {
  const std::vector<PackedProduct> products = alcop_products(quick);
  BlockingStudy study{.machine = sys::machine_line(sys::env().cpu), .rounds = rounds};
  report::Progress progress("timing", std::ssize(products));
  for (const PackedProduct& p : products) {
    study.products.push_back(blocking_times(p, static_cast<int>(rounds)));
    progress.at(std::ssize(study.products));
  }
  return study;
}

}  // namespace braid::apps
