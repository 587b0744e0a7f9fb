#include "nn/param_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace braid::nn {

Param ParamSource::get(const ParamRequest& request) {
  const auto found = given_.find(request.name);
  if (found != given_.end()) return again(request, found->second);
  return given_[request.name] = first(request);
}

const Spelling::Name* Spelling::find(ParamRole role) const {
  const auto found = std::find_if(names.begin(), names.end(), [&](const Name& name) { return name.role == role; });
  return found == names.end() ? nullptr : &*found;
}

ParamRequest BlockSource::request(ParamRole role, const Shard& shard, std::vector<Segment> segments) const {
  const Spelling::Name* spelled = spelling.find(role);
  CHECK(spelled, "no name for {}", name_of(role));
  ParamRequest r;
  r.name = prefix + spelled->leaf;
  r.role = role;
  r.layer = layer;
  r.part = part;
  r.mtp = mtp;
  r.segments = std::move(segments);
  r.shard = shard;
  r.keys = keys ? keys : spelled->keys;
  return r;
}

Param BlockSource::get(ParamRole role, const Shape& shape, const Shard& shard, std::vector<Segment> segments,
                       ParamRole of) const {
  ParamRequest r = request(role, shard, std::move(segments));
  r.of = of;
  r.transposed = spelling.transposed && is_matrix(role);
  r.shape = r.transposed ? Shape{shape[1], shape[0]} : shape;
  return source.get(r);
}

Param BlockSource::bias(ParamRole role, int64_t n, const Shard& shard, std::vector<Segment> segments) const {
  constexpr std::string_view kWeight = "weight";
  ParamRequest r = request(role, shard, std::move(segments));
  r.name.replace(r.name.size() - kWeight.size(), kWeight.size(), "bias");
  r.role = ParamRole::bias;
  r.of = role;
  r.shape = {n};
  return source.get(r);
}

std::vector<Param> BlockSource::experts(ParamRole role, const Experts& experts, int64_t rows, int64_t cols,
                                        const Shard& shard) const {
  const Range own = experts.own;
  ParamRequest r = request(role, shard, {});  // "experts.up_proj"; one by one "experts.7.up_proj.weight"
  r.experts = static_cast<int>(experts.count);
  r.stack = r.name;
  std::vector<Param> list;
  if (source.has(r.name)) {
    r.shape = {own.count, rows, cols};
    for (int64_t e = 0; e < own.count; ++e) r.segments.push_back({"expert", e * rows, rows, shard.units});
    const Param whole = source.get(r);
    auto number = static_cast<int>(own.begin);
    for (const Segment& segment : r.segments) {
      list.push_back(part_of(whole, segment, fmt::format("{}[{}]", whole.name, number), role));
      list.back().expert = number++;
    }
    return list;
  }
  r.shape = {rows, cols};
  const size_t dot = r.stack.rfind('.');
  const auto end = static_cast<int>(own.begin + own.count);
  for (r.expert = static_cast<int>(own.begin); r.expert < end; ++r.expert) {
    r.name = fmt::format("{}.{}{}.weight", r.stack.substr(0, dot), r.expert, r.stack.substr(dot));
    list.push_back(source.get(r));
  }
  return list;
}

float BlockSource::cache_factor(ParamRole role) const {
  const char* name = role == ParamRole::k ? "k_scale" : "v_scale";
  // ModelOpt has it beside the weight, compressed-tensors beside the block's products.
  float factor = source.cache_factor(prefix + name);
  if (const Spelling::Name* spelled = spelling.find(role)) {
    const std::string weight = prefix + spelled->leaf;
    if (factor == 1) factor = source.cache_factor(weight.substr(0, weight.rfind('.') + 1) + name);
  }
  return factor;
}

BlockSource BlockSource::shared() const {
  BlockSource other = *this;
  other.prefix += spelling.shared;
  other.keys = spelling.shared_keys;
  return other;
}

}  // namespace braid::nn
