#include "models/cut.h"

#include <algorithm>

#include "models/inventory.h"
#include "sys/error.h"

namespace braid::models {
namespace {

// The part of a block of `ranks` ranks; false: it stays whole.
struct Narrow {
  const Cut& cut;
  ExpertCut experts;
  int64_t ranks = cut.ranks;

  // Equally many on every rank.
  template <class Spec>
  bool heads(Spec& spec, int64_t shared) const {
    if (!divides({.axis = Shard::Axis::rows, .units = spec.heads, .shared = shared}, ranks)) return false;
    take_heads(spec, cut);
    return true;
  }
  bool channels(int64_t width) const {  // as load_mlp counts them
    return divides({.axis = Shard::Axis::rows, .units = width % 16 == 0 ? width / 16 : width}, ranks);
  }
  bool operator()(nn::Mamba2Spec& m) const { return heads(m, m.groups); }
  bool operator()(nn::AttentionSpec& a) const { return heads(a, a.kv_heads); }
  bool operator()(nn::MlpSpec& f) const {
    if (!channels(f.width)) return false;
    f.width /= ranks;
    return true;
  }
  bool operator()(nn::MoeSpec& e) const {
    if (experts.divides()) return divided(e);
    if (!channels(e.width) || (e.shared_width > 0 && !channels(e.shared_width))) return false;
    e.width /= ranks, e.shared_width /= ranks;
    return true;
  }
  bool operator()(LinearSpec&) const { return false; }

  // Ranks that have tokens in common share them out (nn/expert_parallel.h): the outputs of a block add up.
  bool divided(nn::MoeSpec& e) const {
    refuse_unequal("parallel.ep", "the experts", e.experts, experts.ep.ranks);
    refuse_unequal("parallel.etp", "the experts' width", e.width % 16 == 0 ? e.width / 16 : e.width, experts.etp.ranks);
    if (e.shared_width > 0) {
      refuse_unequal("parallel.tp", "the shared expert's width",
                     e.shared_width % 16 == 0 ? e.shared_width / 16 : e.shared_width, ranks);
    }
    e.own = experts.ep.ranks > 1 ? experts.own(e.experts) : Range{};
    e.width /= experts.etp.ranks, e.shared_width /= ranks;
    return true;
  }
  static void refuse_unequal(const char* key, const char* of, int64_t units, int64_t parts) {
    if (units % parts == 0) return;
    const auto apart = [&](int64_t n) { return n > parts ? n - parts : parts - n; };
    int64_t nearest = 1;
    for (int64_t n = 1; n <= units; ++n) {
      if (units % n == 0 && apart(n) <= apart(nearest)) nearest = n;
    }
    fail(key, {.what = fmt::format("does not divide {}", of),
               .got = std::to_string(parts),
               .expected = fmt::format("a divisor of {}", units),
               .hint = fmt::format("{}={}", key, nearest)});
  }
};

// Blocks between which ranks have a share of the channels each (nn/hidden_parallel.h).
struct ShareHidden {
  const Cut& cut;
  bool divided;  // the block over Cut::ranks

  void operator()(nn::MoeSpec& e) const {
    const int64_t ranks = cut.hidden_ranks, whole = divided ? e.width * cut.ranks : e.width;
    const int64_t units = whole % 16 == 0 ? whole / 16 : whole;
    e.hidden /= ranks;
    e.hidden_ranks = ranks;
    e.over_hidden = (divided || cut.ranks == 1) && units % (ranks * cut.ranks) == 0;
    if (e.over_hidden) e.width /= ranks;
  }
  void operator()(LinearSpec&) const {
    fail("parallel.grid", {.what = "y cannot be used with linear maps in place of blocks", .hint = "y = 1"});
  }
  template <class Spec>
  void operator()(Spec& spec) const {
    spec.hidden /= cut.hidden_ranks;
  }
};

void share_hidden(Config& config, const Cut& cut) {
  if (cut.hidden_ranks == 1) return;
  if (config.norm != NormKind::rms) fail("parallel.grid", {.what = "y cannot be used with LayerNorm", .hint = "y = 1"});
  if (config.hidden % cut.hidden_ranks != 0) {
    int64_t nearest = cut.hidden_ranks;
    while (config.hidden % nearest != 0) --nearest;
    fail("parallel.grid", {.what = "y does not divide the width between blocks",
                           .got = std::to_string(cut.hidden_ranks),
                           .expected = fmt::format("a divisor of {}", config.hidden),
                           .hint = fmt::format("y = {}", nearest)});
  }
  config.hidden /= cut.hidden_ranks;
  each_part(config, [&](PartSpec& part) { std::visit(ShareHidden{cut, part.cut}, part.block); });
}

}  // namespace

HeadShare heads_of(int64_t heads, int64_t shared, const Cut& cut) {
  const int64_t each = heads / shared;
  HeadShare s{.heads = share_of(heads, cut.rank, cut.ranks)};
  const int64_t first = s.heads.begin, end = first + s.heads.count;
  s.shared = {first / each, (end + each - 1) / each - first / each};
  s.whole = first % each == 0 && end % each == 0;
  return s;
}

bool heads_fit(int64_t heads, int64_t shared, int64_t ranks) {
  if (heads < ranks) return false;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const HeadShare s = heads_of(heads, shared, {.rank = rank, .ranks = ranks});
    if (!s.whole && s.shared.count > 1) return false;
  }
  return true;
}

void take_heads(nn::Mamba2Spec& spec, const Cut& cut) {
  if (cut.ranks == 1) return;
  const HeadShare own = heads_of(spec.heads, spec.groups, cut);
  bool whole = true;
  for (int64_t r = 0; r < cut.ranks; ++r)
    whole = whole && heads_of(spec.heads, spec.groups, {.rank = r, .ranks = cut.ranks}).whole;
  if (!whole) spec.norm = {.groups = spec.groups, .first = own.shared.begin, .channels = spec.inner() / spec.groups};
  spec.heads = own.heads.count;
  spec.groups = own.shared.count;
}

void take_heads(nn::AttentionSpec& spec, const Cut& cut) {
  const HeadShare own = heads_of(spec.heads, spec.kv_heads, cut);
  spec.heads = own.heads.count;
  spec.kv_heads = own.shared.count;
}

bool has_experts(const Config& config) {
  bool any = false;
  each_part(config, [&](const PartSpec& part) { any = any || std::holds_alternative<nn::MoeSpec>(part.block); });
  return any;
}

Config cut_config(const Config& whole, const Cut& cut, const ExpertCut& experts) {
  Config config = whole;
  if (cut.ranks == 1 && cut.hidden_ranks == 1 && !experts.divides()) return config;
  if (whole.vocab < cut.ranks) {
    fail("parallel.tp", {.what = "the vocabulary has fewer rows than ranks",
                         .got = std::to_string(cut.ranks),
                         .expected = fmt::format("at most {}", whole.vocab)});
  }
  if (whole.loop) {
    const char* key = cut.ranks > 1 ? "parallel.tp" : cut.hidden_ranks > 1 ? "parallel.grid" : "parallel.ep";
    fail(key, {.what = "cannot be used with recurrent depth", .hint = fmt::format("{}=1", key)});
  }
  if (experts.divides() && !has_experts(config))
    fail("parallel.ep", {.what = "the model has no experts", .hint = "parallel.ep=1 parallel.etp=1"});
  each_part(config, [&](PartSpec& part) {
    const bool divided = std::visit(Narrow{cut, experts}, part.block);
    part.cut = divided && cut.ranks > 1;
  });
  share_hidden(config, cut);
  config.cut = cut;
  config.expert_cut = experts;
  for (const TensorSpec& t : inventory(whole)) {
    const PartSpec* block = block_of(config, t);
    if (!block || !block->cut || t.role != ParamRole::bias || t.shard.axis != Shard::Axis::whole) continue;
    fail("parallel.tp", {.what = fmt::format("{} is added to a sum over ranks", printable(t.name)),
                         .expected = "blocks without biases on their outputs",
                         .hint = "parallel.tp=1"});
  }
  return config;
}

Config stage_config(const Config& whole, const Stage& stage) {
  Config config = whole;
  if (stage.runs.empty()) return config;
  if (whole.loop) fail("parallel.pp", {.what = "cannot be used with recurrent depth", .hint = "parallel.pp=1"});
  config.stage = stage;
  config.stage.shares_table = whole.tied || whole.mtp;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const auto inside = [i = static_cast<int64_t>(i)](const Range& r) { return r.begin <= i && i < r.begin + r.count; };
    if (std::none_of(stage.runs.begin(), stage.runs.end(), inside)) config.layers[i].parts.clear();
  }
  if (!stage.last) config.mtp.reset();
  return config;
}

}  // namespace braid::models
