// The steps of repro shfl-bw: the same pruned model twice in one process, once with products that skip zeros.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "apps/shfl_bw_study.h"
#include "core/grouped_rows.h"
#include "engine/language_model.h"
#include "sparse/race.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

constexpr int32_t kPrompt = 16, kLongest = 256;  // tokens

engine::RunnerOptions options_of(models::Zeros zeros) { return {.context = kLongest, .threads = 1, .zeros = zeros}; }

// The next token of an answer, which begins anew when the context ends.
void step(engine::Runner& runner) {
  if (runner.length(0) + 1 >= kLongest) runner.reset(0);
  if (runner.length(0) == 0) {
    std::vector<int32_t> ids(kPrompt);
    for (int32_t i = 0; i < kPrompt; ++i) ids[static_cast<size_t>(i)] = 1 + i;
    runner.prefill(0, ids, [](const Tensor&) {});
  }
  runner.step(0, 1);
}

}  // namespace

std::vector<DecodeSpeed> time_steps(const ShflBwStudy& study, const PrunedStudy& pruned, int64_t rounds) {
  std::vector<DecodeSpeed> out;
  for (const PrunedOutcome& c : pruned.outcomes) {
    if (c.folder.empty() || c.pattern == masks::Pattern::unstructured || c.pattern == masks::Pattern::two_four)
      continue;
    if (sys::caught_signal() != 0) return out;
    engine::LanguageModel skips(c.folder, options_of(models::Zeros::skipped)),
        whole(c.folder, options_of(models::Zeros::multiplied));
    DecodeSpeed speed{.pattern = c.pattern, .density = c.density};
    for (const Param* p : skips.runner().model().params()) {
      if (!p->value.groups) continue;
      ++speed.matrices;
      speed.bytes += p->value.product_bytes();
      speed.dense_bytes += p->value.bytes();
    }
    const double least = study.quick ? 1e-4 : 2e-2;
    const auto seconds =
        sparse::race({[&] { step(whole.runner()); }, [&] { step(skips.runner()); }}, static_cast<int>(rounds), least);
    speed.tokens_s = 1 / sparse::median(seconds[1]);
    speed.ratio = sparse::median_ratio(seconds[0], seconds[1]);
    out.push_back(speed);
  }
  return out;
}

}  // namespace braid::apps
