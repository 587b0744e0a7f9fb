// What the variants of every block cost in time, measured: a step of `batch` sequences that have read `length` tokens,
// and a pass over a prompt of `length` tokens. Passes go through all blocks in order, so that the caches hold what they
// do in a whole model, some steps over the same variants and then over others; all rounds visit all variants, so that
// what else the machine does falls on all alike. Blocks of one shape share their times: the median over rounds and
// layers.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "puzzle/judge.h"

namespace braid::puzzle {

struct TimeOptions {
  int64_t batch = 1, length = 512;
  int64_t rounds = 7;
  int threads = 1;
};

// Milliseconds.
struct Times {
  double decode = 0, prefill = 0;
};

// The streams before each site that passes read: of real tokens, as experts are chosen by them.
class TimeInputs {
 public:
  explicit TimeInputs(const TimeOptions& options) : options_(options) {}
  // Of the current site, from the rows of a judge.
  void take(const Judge& judge);
  const std::vector<float>& step(size_t site) const { return step_[site]; }      // [batch, D]
  const std::vector<float>& prompt(size_t site) const { return prompt_[site]; }  // [length, D]

 private:
  const TimeOptions& options_;
  std::vector<std::vector<float>> step_, prompt_;
};

struct TimeTable {
  Times rest{};                          // embedding and head
  std::vector<std::vector<Times>> of{};  // by site and variant; without a block nothing
};

// Empty: stopped by `progress`, which gets passes done and in total. All variants are in memory at once.
TimeTable measure_times(Parent& parent, std::span<const Site> sites, const TimeInputs& inputs,
                        const TimeOptions& options, const sys::FunctionRef<bool(int64_t, int64_t)>& progress);

double median(std::vector<double> values);

}  // namespace braid::puzzle
