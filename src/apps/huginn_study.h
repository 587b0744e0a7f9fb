// Small models on a task with a depth dial (`hops` of data/generated.h): one with recurrent depth and two of fixed
// depth, and what each gets right by the number of hops (repro_huginn.cc).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/exit_rule.h"

namespace braid::apps {

constexpr int64_t kHopsMost = 8;

struct HuginnStudy {
  std::string dir = "huginn";  // exists
  int64_t steps = 3000, rows = 128, threads = 0;
};

struct HuginnArm {
  const char* name;
  int64_t layers;  // of fixed depth; 0: recurrent depth, a layer on each side of the loop's one
};

// Right answers by hops, from 1, and how many questions there were.
struct HopCounts {
  std::array<int64_t, kHopsMost> right{}, asked{};
  double steps = 0;  // of the loop, a token's mean

  double accuracy() const;  // of all
  double accuracy(int64_t hops) const;
};

struct DraftedText {
  int64_t texts = 0, same = 0;  // answers, and those that drafts left as they were
  double accepted = 0;          // share of the drafts
};

// Trains the model of an arm into dir/name -> false when a signal stopped it.
bool train_arm(const HuginnStudy& study, const HuginnArm& arm);
// Held-out rows, one token at a time. `steps` 0: a model of fixed depth.
HopCounts count_right(const HuginnStudy& study, const HuginnArm& arm, int64_t steps,
                      engine::Exit exit = engine::Exit::never);
// Greedy continuations with `steps`, and with drafts of `draft_steps` that they verify.
DraftedText draft_texts(const HuginnStudy& study, const HuginnArm& arm, int64_t steps, int64_t draft_steps);

}  // namespace braid::apps
