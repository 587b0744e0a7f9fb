// One layer of a model by itself, over the mapped weights of a folder, of which some may be replaced.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/ctx.h"
#include "models/load.h"
#include "models/model.h"

namespace braid::quant {

// The parameters of a source, but for those that have another value here, by name.
class ReplacedSource final : public nn::ParamSource {
 public:
  ReplacedSource(nn::ParamSource& whole, const std::map<std::string, Weight>& values)
      : whole_(whole), values_(values) {}
  bool has(const std::string& name) const override { return whole_.has(name); }

 protected:
  Param first(const nn::ParamRequest& request) override {
    Param p = whole_.get(request);
    if (const auto found = values_.find(p.name); found != values_.end()) p.value = found->second;
    return p;
  }

 private:
  nn::ParamSource& whole_;
  const std::map<std::string, Weight>& values_;
};

class LayerModel {
 public:
  // The first layer has the embedding, the last one the head.
  LayerModel(const models::Config& config, int64_t layer, nn::ParamSource& whole,
             const std::map<std::string, Weight>& values);

  // x [T, D] of one sequence before the layer, unused by the first, to x after it.
  void forward(Ctx& ctx, std::span<const int32_t> ids, std::vector<float>& x, nn::Observer* observer);
  // What the head reads, of x after the last layer.
  Tensor head_input(Ctx& ctx, const std::vector<float>& x, int64_t tokens);

 private:
  ReplacedSource source_;
  int64_t layer_;
  std::unique_ptr<models::Model> model_;
};

}  // namespace braid::quant
