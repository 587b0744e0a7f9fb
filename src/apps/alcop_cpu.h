// braid repro alcop --device cpu: every blocking of the products of training timed on one thread, and what a choice by
// the analytic model loses against trying all (kernels/linear/linear_blocking.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/linear/linear_blocking.h"

namespace braid::apps {

// Medians of rounds in turns over the space, of the fastest few over more of them.
struct BlockingTimes {
  PackedProduct of{};
  std::vector<packed::Blocking> space{};  // in the order of a grid
  std::vector<double> seconds{}, modelled{};
  std::vector<int> by_model{};
  packed::Blocking initial{};  // the default, which the space may lack
  double initial_seconds = 0;
  packed::Blocking searched{};  // what braid bench --tune would take, with its trials and its seconds
  double searched_seconds = 0, search_seconds = 0;

  double best() const;
};

struct BlockingStudy {
  std::string machine;
  int64_t rounds = 0;
  std::vector<BlockingTimes> products{};
};

// Products of GPT-2 124M, Nemotron 3 Nano and hybrid-8.5m in FP32 and in the BF16 class of this machine.
BlockingStudy study_blockings(int64_t rounds, bool quick);

std::string blocking_csv(const BlockingStudy& study);
std::string blocking_svg(const BlockingStudy& study);  // regret by trials
std::string blocking_json(const BlockingStudy& study);
std::string blocking_text(const BlockingStudy& study);  // tables

}  // namespace braid::apps
