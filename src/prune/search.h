// Which sizes to cut to. Single cuts first: the loss with one axis at a time at a few sizes. Then all combinations of
// those sizes that meet the target, ordered by the sum of their single losses; and last the loss of the best few,
// measured whole, because cuts do not add up exactly (the search of Minitron, arXiv 2407.14679, section 2.4, with
// measured losses in place of a short training).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "prune/axes.h"
#include "prune/cost.h"

namespace braid::prune {

// params, active and gib are limits from above, tok_s from below.
enum class Measure : uint8_t { params, active, gib, tok_s };

struct Target {
  Measure what = Measure::params;
  double value = 0;
  bool share = false;  // of the whole model's, in place of a number
};
// "params=0.75", "active=2e9", "gib=75%", "tok_s=1.3x". A number up to 1 of parameters is a share, as is one with % or
// x. Error for anything else, or a target that the whole model meets.
Target parse_target(const std::string& text);

struct Candidate {
  Sizes sizes{};
  Cost cost{};
  int64_t bytes = 0;     // of the files
  double predicted = 0;  // the sum of the losses that its cuts add, each alone
  double loss = 0, tokens_s = 0;
};

struct SingleCut {
  Axis axis = Axis::hidden;
  int64_t size = 0;
  double loss = 0;
};

struct SearchOptions {
  Target target{};
  std::vector<Axis> axes{};
  int64_t candidates = 8;          // measured whole
  Sizes base{};                    // where nothing is cut; 0: all of it
  const char* asked = "--target";  // in messages: where the target is from
};

// What a search asks of the models that it considers.
struct Trials {
  std::function<double(const Sizes&)> loss;      // per token of calibration data
  std::function<double(const Sizes&)> tokens_s;  // of decoding; for a speed also of the smallest combination
  std::function<int64_t(const Sizes&)> bytes{};  // of the files; may be empty where no target is in GiB
};

struct Found {
  std::vector<SingleCut> single{};
  std::vector<Candidate> tried{};  // the best first; all meet the target
};

// `whole` is the model itself, measured. `progress` gets the number of models measured, and about how many there will
// be; if it returns false the search stops, and nothing is found. Error when no combination meets the target, with the
// nearest. Tokens/s are estimated from the active parameters until they are measured: where all candidates turn out too
// slow, the estimate is corrected and smaller ones are measured, at last the smallest.
Found search(const std::array<AxisRange, kAxes>& ranges, const Candidate& whole, const CostModel& costs,
             const SearchOptions& options, const Trials& trials, const std::function<bool(int64_t, int64_t)>& progress);

// Before anything is measured: Error, as that of `search`, for a target that the whole model meets, or that not even
// the smallest combination does, whichever layers will turn out to matter; of speeds the former alone is known. `order`
// is what `costs` and `bytes` read; its content is lost.
void check_target(const std::array<AxisRange, kAxes>& ranges, const Candidate& whole, const CostModel& costs,
                  std::span<int64_t> order, const SearchOptions& options,
                  const std::function<int64_t(const Sizes&)>& bytes);

// Sizes of an axis that are tried: at most `most`, evenly spaced from the least to the whole, the whole first.
std::vector<int64_t> sizes_of(const AxisRange& range, int64_t most);

}  // namespace braid::prune
