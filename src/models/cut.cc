#include "models/cut.h"

#include <algorithm>

#include "models/inventory.h"
#include "sys/error.h"

namespace braid::models {
namespace {

// The part of a block of `ranks` ranks; false: it stays whole.
struct Narrow {
  int64_t ranks;

  bool heads(int64_t units, int64_t shared) const {
    return shared >= ranks && divides({.axis = Shard::Axis::rows, .units = units, .shared = shared}, ranks);
  }
  bool channels(int64_t width) const {  // as load_mlp counts them
    return divides({.axis = Shard::Axis::rows, .units = width % 16 == 0 ? width / 16 : width}, ranks);
  }
  bool operator()(nn::Mamba2Spec& m) const {  // norms of groups do not span ranks
    if (!heads(m.heads, m.groups)) return false;
    m.heads /= ranks, m.groups /= ranks;
    return true;
  }
  bool operator()(nn::AttentionSpec& a) const {
    if (!heads(a.heads, a.kv_heads)) return false;
    a.heads /= ranks, a.kv_heads /= ranks;
    return true;
  }
  bool operator()(nn::MlpSpec& f) const {
    if (!channels(f.width)) return false;
    f.width /= ranks;
    return true;
  }
  bool operator()(nn::MoeSpec& e) const {
    if (!channels(e.width) || (e.shared_width > 0 && !channels(e.shared_width))) return false;
    e.width /= ranks, e.shared_width /= ranks;
    return true;
  }
  bool operator()(LinearSpec&) const { return false; }
};

template <class Of>
void each_part(Config& config, Of&& of) {
  for (LayerSpec& layer : config.layers) std::for_each(layer.parts.begin(), layer.parts.end(), of);
  if (!config.mtp) return;
  for (LayerSpec& layer : config.mtp->layers) std::for_each(layer.parts.begin(), layer.parts.end(), of);
}

}  // namespace

Config cut_config(const Config& whole, const Cut& cut) {
  Config config = whole;
  if (cut.ranks == 1) return config;
  if (whole.vocab < cut.ranks) {
    fail("parallel.tp", {.what = "the vocabulary has fewer rows than ranks",
                         .got = std::to_string(cut.ranks),
                         .expected = fmt::format("at most {}", whole.vocab)});
  }
  if (whole.loop) fail("parallel.tp", {.what = "cannot be used with recurrent depth", .hint = "parallel.tp=1"});
  each_part(config, [&](PartSpec& part) { part.cut = std::visit(Narrow{cut.ranks}, part.block); });
  config.cut = cut;
  const std::vector<std::string> prefixes = block_prefixes(config, true);
  for (const TensorSpec& t : inventory(whole)) {
    const bool inside =
        std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& p) { return t.name.starts_with(p); });
    if (!inside || t.role != ParamRole::bias || t.shard.axis != Shard::Axis::whole) continue;
    fail("parallel.tp", {.what = fmt::format("{} is added to a sum over ranks", printable(t.name)),
                         .expected = "blocks without biases on their outputs",
                         .hint = "parallel.tp=1"});
  }
  return config;
}

std::vector<std::string> block_prefixes(const Config& config, bool cut) {
  std::vector<std::string> prefixes;
  Config copy = config;
  each_part(copy, [&](const PartSpec& part) {
    if (part.cut == cut) prefixes.push_back(part.prefix);
  });
  return prefixes;
}

}  // namespace braid::models
