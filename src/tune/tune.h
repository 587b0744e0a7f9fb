// Which values of math/thresholds.h are fastest on this machine, for the matrices of a model: on both sides of every
// threshold the same products are timed in turns, at several numbers of rows. A value other than the default is chosen
// only if it gains more than noise, twice, and since the ways agree bit for bit, a choice never shows in a result.
// Rows of linear_fwd of another class give other bits: they are timed, so that one can read which unit is how fast, and
// not chosen.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/numerics.h"
#include "core/weight.h"
#include "math/thresholds.h"

namespace braid::tune {

double median(std::vector<double> values);

// Matrices of one shape and format, which take turns, so that they come from memory as they do in a model.
struct Matrices {
  std::vector<Weight> weights;
  bool experts = false;  // they are multiplied by experts_fwd, whose tasks are its own
};

struct Options {
  int threads = 1;
  int rounds = 7;  // of which the median counts
  DType x = DType::bf16;
  CodeDots codes = CodeDots::none;  // of prompts and batches
};

// At `rows` rows of x: how long the way above takes, over the one below, the median of the rounds; and the median
// deviation of a round from it, as a logarithm.
struct Point {
  int64_t rows = 0;
  double ratio = 1, noise = 0;
};

struct Finding {
  const Threshold* threshold = nullptr;
  std::vector<Point> points{};  // by rows; empty: no product here asks for it
  int64_t initial = 0, chosen = 0;
  double gain = 1;  // of what is chosen over the default, the geometric mean of the points where they differ
};

// A gain that is not noise: turns of equal work differ by 5 to 10% on shared machines.
inline constexpr double kLeastGain = 1.1;
// What a row of another class must gain to be worth other bits (it is named, not chosen).
inline constexpr double kClassGain = 1.3;

// The value with the least time over all points, or the default, unless that gains kLeastGain and more than the noise.
Finding choose(const Threshold& threshold, int64_t initial, std::vector<Point> points);

// One sentence: which thresholds were timed and what came of it, and which ones no product of the model asks for.
std::string summary_of(std::span<const Finding> findings);

// Seconds of one pass over some matrices, with `rows` rows of x.
using Seconds = std::function<double(const Thresholds&, int64_t rows)>;
// Times both ways of a threshold in turns at each number of rows, `rounds` times each and at least twice. Two turns,
// one from below and one from above first, are one ratio, so that a machine that slows down favours neither.
std::vector<Point> compare(const Threshold& threshold, std::span<const int64_t> rows, int rounds,
                           const Seconds& seconds);

// A choice measured again where it differs from the default, since the best of several values owes part of its gain to
// luck: with the gain found now, or withdrawn if that is too small.
Finding confirmed(Finding found, int rounds, const Seconds& seconds);

// `progress` gets steps done and in total.
using Progress = std::function<void(int64_t, int64_t)>;
std::vector<Finding> tune(std::span<const Matrices> model, const Options& options, const Progress& progress);

// Every row of linear_fwd that takes products of these matrices: `us` for one pass over them.
struct UnitTime {
  const char *row = nullptr, *numerics = nullptr;
  int64_t rows = 0;
  double us = 0;
  bool taken = false;  // the one that runs
};
std::vector<UnitTime> units(std::span<const Matrices> model, const Options& options, int64_t rows);

}  // namespace braid::tune
