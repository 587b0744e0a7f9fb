#include "apps/bench_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/philox.h"
#include "plan/floor.h"
#include "report/progress.h"

namespace braid::apps {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<int32_t> random_ids(int64_t n, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(philox({.seed = seed}, i)[0] % static_cast<uint64_t>(vocab));
  return ids;
}

class Bench {
 public:
  Bench(engine::Runner& runner, int64_t sequences) : runner_(runner), sequences_(sequences) {}

  void reset() {
    for (int64_t s = 0; s < sequences_; ++s) runner_.reset(s);
  }
  // `n` tokens of every sequence in passes of at most the runner's chunk per sequence; only the last rows go through
  // the head.
  void prefill(int64_t n) {
    const int64_t chunk = runner_.options().chunk;
    for (int64_t done = 0; done < n; done += chunk) pass(std::min(chunk, n - done), Phase::prefill, done + chunk >= n);
  }
  // `n` tokens of every sequence: a few by passes, so that the rest is whole chunks of any scan, that by copies of
  // them.
  void deepen(int64_t n) {
    constexpr int64_t kGrain = 512, kLeast = 64;
    const int64_t read = n <= kGrain ? n : n % kGrain >= kLeast ? n % kGrain : n % kGrain + kGrain;
    prefill(read);
    for (int64_t s = 0; s < sequences_ && read < n; ++s) runner_.pretend(s, n);
  }
  void step() { pass(1, Phase::step, true); }

 private:
  void pass(int64_t tokens, Phase phase, bool with_head) {
    std::vector<engine::Piece> pieces;
    for (int64_t s = 0; s < sequences_; ++s) pieces.push_back({.sequence = s, .tokens = tokens, .phase = phase});
    const Tensor x = runner_.forward(random_ids(tokens * sequences_, runner_.config().vocab, seed_++), pieces);
    if (!with_head) return;
    std::vector<int64_t> last;
    for (int64_t s = 0; s < sequences_; ++s) last.push_back((s + 1) * tokens - 1);
    runner_.logits(runner_.rows(x, last), phase);
  }
  engine::Runner& runner_;
  int64_t sequences_;
  uint64_t seed_ = 1;
};

}  // namespace

double floor_of(engine::Runner& runner, const BenchRow& row) {
  const plan::Rates rates = rates_of(row.roofs, runner.options().numerics, row.on_bytes);
  const auto seconds = [&](const plan::Pass& pass) {
    return plan::floor_seconds(plan::total(plan::work_of(runner.model(), pass)), rates);
  };
  plan::Pass pass{.sequences = row.sequences, .depth = row.depth, .caches = runner.options().numerics.caches()};
  if (row.generate > 0) {
    pass.depth += row.generate / 2;
    pass.logits_rows = row.sequences;
    return seconds(pass) * static_cast<double>(row.generate);
  }
  double sum = 0;
  for (int64_t done = 0; done < row.prompt; done += runner.options().chunk) {
    pass.tokens = std::min(runner.options().chunk, row.prompt - done);
    pass.depth = row.depth + done;
    pass.logits_rows = done + pass.tokens == row.prompt ? row.sequences : 0;
    sum += seconds(pass);
  }
  return sum;
}

void measure(engine::Runner& runner, BenchRow& row, const sys::ReadRate* memory, const Repeats& repeats) {
  Bench bench(runner, row.sequences);
  const std::string label = row.test();
  std::optional<report::Progress> bar;
  if (!repeats.lines) bar.emplace(label, repeats.count + 1);
  engine::Ranks* const ranks = runner.options().ranks;
  if (memory) row.roofs = sys::roofs(runner.ctx().threads);
  std::vector<double> reads;
  double read_seconds = 0;
  for (int64_t r = 0; r <= repeats.count; ++r) {  // the first warms caches and page tables and is not counted
    bench.reset();
    if (row.depth > 0) bench.deepen(row.depth);
    if (row.generate > 0 && row.depth == 0) bench.prefill(1);
    if (r > 0 && memory) reads.push_back(memory->measure(runner.ctx().threads, read_seconds));
    const int64_t sent = ranks ? ranks->bytes_sent() : 0;
    const auto start = Clock::now();
    if (row.generate > 0) {
      for (int64_t i = 0; i < row.generate; ++i) bench.step();
    } else {
      bench.prefill(row.prompt);
    }
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    if (ranks) row.sent_bytes = static_cast<double>(ranks->total(ranks->bytes_sent() - sent)) / row.tokens();
    if (r == 0) read_seconds = sys::ReadRate::seconds_before(1e-9 * static_cast<double>(ns));
    if (r > 0) row.samples_ns.push_back(ns);
    if (bar) bar->at(r + 1);
    if (repeats.lines) fmt::print(stderr, "bench: {} run {}/{}: {} ns\n", label, r, repeats.count, ns);
  }
  row.on_bytes = on_bytes(runner, row.generate > 0);
  if (!memory) return;
  // The floor is that of the memory as it was during the runs.
  std::sort(reads.begin(), reads.end());
  row.roofs.read_gbs = reads[(reads.size() - 1) / 2];
  row.floor_seconds = floor_of(runner, row);
}

}  // namespace braid::apps
