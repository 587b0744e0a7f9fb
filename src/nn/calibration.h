// Calibration of quantised activations for a model and a text: the largest magnitude that each matrix is multiplied by
// (amax; docs/internals/formats.md, FP8 and NVFP4).
#pragma once
#include <map>

#include "nn/observer.h"

namespace braid::nn {

struct Calibration final : Observer {
  std::map<const Param*, float> amax{};  // NaN and infinity count as infinity

  void product(const Param& w, const View& x, const View& y) override;
  void norm(const Param&, const View&, const View&, const View&) override {}
  void experts(Ctx& ctx, const ExpertsSeen& seen) override;
};

}  // namespace braid::nn
