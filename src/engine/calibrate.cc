#include "engine/calibrate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "nn/calibration.h"
#include "sys/error.h"

namespace braid::engine {
namespace {

// The head reads a few rows of x at a time: the logits of a whole window are large.
void multiply_head(Runner& runner, const Tensor& x) {
  constexpr int64_t kRows = 64;
  for (int64_t begin = 0; begin < x.dim(0); begin += kRows) {
    std::vector<int64_t> rows(static_cast<size_t>(std::min(kRows, x.dim(0) - begin)));
    std::iota(rows.begin(), rows.end(), begin);
    runner.logits(runner.rows(x, rows));
  }
}

}  // namespace

std::map<std::string, float> input_amax(Runner& runner, std::span<const int32_t> ids,
                                        const sys::FunctionRef<bool(int64_t, int64_t)>& progress) {
  nn::Calibration seen;
  runner.observe(&seen);
  bool whole = true;
  for (int64_t done = 0; done < std::ssize(ids) && whole;) {
    const int64_t n = std::min(runner.options().context, std::ssize(ids) - done);
    runner.reset(0);
    const Piece piece{.sequence = 0, .tokens = n};
    const auto window = ids.subspan(static_cast<size_t>(done), static_cast<size_t>(n));
    multiply_head(runner, runner.forward(window, std::span(&piece, 1)));
    done += n;
    whole = progress(done, std::ssize(ids));
  }
  runner.observe(nullptr);
  if (!whole) return {};

  std::map<std::pair<int, ParamRole>, float> of_layer;  // of experts
  for (const auto& [p, amax] : seen.amax) {
    if (!std::isfinite(amax))
      fail(p->name, {.what = "its input has a value that is not finite", .hint = "another text, or a sound model"});
    float& most = of_layer[{p->layer, p->role}];
    if (p->expert >= 0) most = std::max(most, amax);
  }
  std::map<std::string, float> result;
  for (const Param* p : runner.model().params()) {
    const auto own = seen.amax.find(p);
    const auto others = of_layer.find({p->layer, p->role});
    if (p->expert >= 0 && others != of_layer.end() && (own == seen.amax.end() || own->second == 0)) {
      result[p->name] = others->second;
    } else if (own != seen.amax.end()) {
      result[p->name] = own->second;
    }
  }
  return result;
}

}  // namespace braid::engine
