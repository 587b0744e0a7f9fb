#include "engine/draft_loop.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sys/error.h"

namespace braid::engine {

LoopDrafter::LoopDrafter(Runner& runner, int64_t steps) : runner_(runner), steps_(steps) {
  const auto refuse = [](const char* what, std::string got, std::string expected) {
    fail("--self-speculate", {.what = what, .got = std::move(got), .expected = std::move(expected)});
  };
  if (!runner.config().loop) refuse("this model has no recurrent depth", runner.config().family, "");
  if (runner.pool().slot_bytes() > 0) refuse("the model's recurrent states cannot be undone", "Mamba layers", "");
  const int64_t all = runner.options().loop.steps;
  if (steps < 1 || steps >= all)
    refuse("not fewer steps than without drafts", fmt::format("{} of {}", steps, all), fmt::format("1 to {}", all - 1));
}

// One token further each time, all answers at once.
std::vector<std::vector<int32_t>> LoopDrafter::draft(std::span<const Wanted> wanted) {
  std::vector<std::vector<int32_t>> drafts(wanted.size());
  std::vector<size_t> drafting;  // of wanted
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].tokens > 0) drafting.push_back(i);
  }
  for (int64_t ahead = 0; !drafting.empty(); ++ahead) {
    std::vector<int64_t> sequences;
    std::vector<int32_t> ids;
    for (const size_t i : drafting) {
      sequences.push_back(wanted[i].sequence);
      ids.push_back(ahead == 0 ? wanted[i].picker->text().back() : drafts[i].back());
    }
    const Tensor logits = runner_.logits(runner_.loop_guess(ids, sequences, ahead, steps_), Phase::step);
    const auto width = static_cast<size_t>(logits.dim(1));
    std::vector<size_t> further;
    for (size_t row = 0; row < drafting.size(); ++row) {
      const size_t i = drafting[row];
      const auto next = wanted[i].picker->guess({logits.view().as<float>() + row * width, width}, drafts[i]);
      if (!next) continue;
      drafts[i].push_back(*next);
      if (std::ssize(drafts[i]) < wanted[i].tokens) further.push_back(i);
    }
    drafting = std::move(further);
  }
  return drafts;
}

}  // namespace braid::engine
