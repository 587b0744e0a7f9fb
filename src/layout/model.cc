#include "layout/model.h"

#include <algorithm>
#include <variant>

#include "kernels/experts/experts.h"
#include "models/cut.h"
#include "models/division.h"
#include "models/inventory.h"
#include "sys/error.h"
#include "train/origin.h"
#include "train/pipeline.h"
#include "train/token_shares.h"

namespace braid::layout {
namespace {

// Equal for blocks of equal shapes.
struct Signature {
  std::string operator()(const nn::Mamba2Spec& m) const {
    return fmt::format("M{},{},{},{},{},{},{}{}", m.heads, m.head_dim, m.state, m.groups, m.conv_width, m.chunk,
                       m.conv_bias, m.proj_bias);
  }
  std::string operator()(const nn::AttentionSpec& a) const {
    return fmt::format("*{},{},{},{}{}{}{}", a.heads, a.kv_heads, a.head_dim, a.bias, a.out_bias, a.qk_bias, a.qk_norm);
  }
  std::string operator()(const nn::MlpSpec& f) const { return fmt::format("-{},{}{}", f.width, f.gated, f.bias); }
  std::string operator()(const nn::MoeSpec& e) const {
    return fmt::format("E{},{},{},{},{}{}", e.experts, e.top_k, e.width, e.latent, e.shared_width, e.gated);
  }
  std::string operator()(const models::LinearSpec&) const { return "L"; }
};

std::string signature_of(const models::LayerSpec& layer) {
  std::string text;
  for (const models::PartSpec& part : layer.parts) text += std::visit(Signature(), part.block) + ";";
  return text;
}

void add(LayerPart& to, const models::TensorSpec& tensor) {
  const bool expert = tensor.experts > 0;
  const auto n = static_cast<double>(tensor.shape.count());
  (expert ? to.experts : to.dense) += n;
  const bool multiplied = is_matrix(tensor.role) && tensor.role != ParamRole::conv &&
                          tensor.role != ParamRole::embedding && tensor.role != ParamRole::positions;
  if (!multiplied) return;
  const auto stack = static_cast<double>(tensor.shape.rank == 3 ? tensor.shape[0] : 1);
  const auto rows = static_cast<double>(tensor.rows()), cols = static_cast<double>(tensor.cols());
  for (Matrices& p : to.products) {
    if (p.role == tensor.role && p.rows == rows && p.cols == cols) {
      p.count += stack;
      return;
    }
  }
  to.products.push_back({.role = tensor.role, .rows = rows, .cols = cols, .count = stack, .expert = expert});
}

int64_t extent_of(const models::TensorSpec& t) { return t.rows() == 1 && !is_matrix(t.role) ? t.cols() : t.rows(); }

// As MasterTensor::shared and ::partial say it for a rank: units that are fewer than the ranks, B and C together, and
// what all have whole in a block that divides, or see with other tokens.
void add_shared(LayerPart& to, const models::TensorSpec& whole, const models::TensorSpec& own, const RankModel& rank,
                const ExpertCut& experts) {
  const Cut& cut = rank.config.cut;
  if (cut.ranks == 1 || (whole.experts > 0 && experts.divides())) return;
  const bool by_rows = whole.shard.axis == Shard::Axis::rows && extent_of(own) < extent_of(whole),
             by_cols = whole.shard.axis == Shard::Axis::cols && own.cols() < whole.cols();
  if (!by_rows && !by_cols) {
    const models::PartSpec* block = models::block_of(rank.config, own);
    if (block ? block->cut : cut.sequence) to.shared.push_back({static_cast<double>(own.shape.count()), cut.ranks});
    return;
  }
  const double width = static_cast<double>(own.shape.count()) / static_cast<double>(extent_of(own));
  bool together = false;  // with the segment before
  for (const Segment& s : whole.segments) {
    const bool shares = by_rows && s.units < cut.ranks;
    const int64_t of_unit = s.rows / s.units;
    const double count = static_cast<double>(of_unit) * width;
    if (shares && together) to.shared.back().count += count;
    if (shares && !together) to.shared.push_back({count, cut.ranks / s.units});
    together = shares;
    if (shares && whole.role == ParamRole::conv) to.norm_ranks = cut.ranks / s.units;
  }
}

std::unique_ptr<RankModel> rank_model(const models::Config& digest, const Cut& cut, const ExpertCut& experts) {
  auto model = std::make_unique<RankModel>();
  model->config = models::cut_config(digest, cut, experts);
  for (const models::LayerSpec& layer : model->config.layers) model->kinds.push_back({.parts = layer.parts});
  if (model->config.mtp) {
    for (const models::LayerSpec& layer : model->config.mtp->layers) model->mtp.push_back({.parts = layer.parts});
  }
  const auto layers = static_cast<int>(model->kinds.size());
  std::map<std::string, models::TensorSpec> whole;
  for (const models::TensorSpec& tensor : models::inventory(digest)) whole.emplace(tensor.name, tensor);
  for (const models::TensorSpec& tensor : models::inventory(model->config)) {
    const bool table = tensor.role == ParamRole::embedding || tensor.role == ParamRole::positions;
    LayerPart& to = tensor.mtp         ? model->mtp.at(static_cast<size_t>(std::max(0, tensor.layer - layers)))
                    : tensor.layer < 0 ? (table ? model->table : model->head)
                                       : model->kinds.at(static_cast<size_t>(tensor.layer));
    add(to, tensor);
    add_shared(to, whole.at(tensor.name), tensor, *model, experts);
  }
  // A tied head multiplies the rows of the table.
  if (model->config.tied) {
    const auto cols = static_cast<double>(model->config.hidden);
    model->head.products.push_back({.role = ParamRole::head, .rows = model->table.dense / cols, .cols = cols});
  }
  return model;
}

double workspace_of(const nn::MoeSpec& spec, int64_t experts, const ExpertRows& of) {
  std::byte nothing{};  // is read
  const auto view = [&](DType type, const Shape& shape) { return MutView(&nothing, type, shape); };
  const int64_t width = spec.expert_hidden();
  const std::vector<Weight> up(static_cast<size_t>(experts), dense_weight(view(of.type, {spec.width, width}))),
      down(static_cast<size_t>(experts), dense_weight(view(of.type, {width, spec.width})));
  SeqMap seqs;
  for (int64_t i = 0; i < of.sequences; ++i) seqs.add(share_of(of.rows, i, of.sequences).count);
  const ExpertsBwd op{.dy = view(DType::f32, {of.rows, width}),
                      .x = view(of.type, {of.rows, width}),
                      .experts = view(DType::i32, {of.rows, of.top_k}),
                      .weights = view(DType::f32, {of.rows, of.top_k}),
                      .up = up,
                      .gate = spec.gated ? std::span(up) : std::span<const Weight>(),
                      .down = down,
                      .dx = view(DType::f32, {of.rows, width}),
                      .dweights = view(DType::f32, {of.rows, of.top_k}),
                      .seqs = &seqs,
                      .train = true};
  Arena none;
  Ctx ctx{.arena = none};
  if (!of.here) ctx.preferred_rows[ExpertsBwd::name] = of.type == DType::bf16 ? "packed_bf16" : "packed_f32";
  const auto& row = choose(ctx, op);
  return row.workspace ? static_cast<double>(row.workspace(op, 1)) : 0;
}

}  // namespace

double Model::experts_workspace(const nn::MoeSpec& spec, const ExpertRows& of) const {
  const int64_t experts = spec.own.count > 0 ? spec.own.count : spec.experts;
  const std::array<int64_t, 9> key{experts,  spec.width,   spec.expert_hidden(), spec.gated ? 1 : 0, of.rows,
                                   of.top_k, of.sequences, size_of(of.type),     of.here ? 1 : 0};
  const auto [at, fresh] = workspaces_.try_emplace(key);
  if (fresh) at->second = workspace_of(spec, experts, of);
  return at->second;
}

Model::Model(models::Config config, train::Recipe recipe, int64_t length)
    : config_(std::move(config)), digest_(config_), recipe_(std::move(recipe)), length_(length) {
  if (config_.loop) {
    fail("plan layout", {.what = "recurrent depth is not planned",
                         .expected = "a model whose layers run once",
                         .hint = "parallel.zero, the one word that goes with it"});
  }
  digest_.layers.clear();
  std::map<std::string, size_t> known;
  for (const models::LayerSpec& layer : config_.layers) {
    const auto [at, fresh] = known.try_emplace(signature_of(layer), digest_.layers.size());
    if (fresh) digest_.layers.push_back(layer);
    kinds_.push_back(at->second);
  }
  models::each_part(config_, [&](const models::PartSpec& part) {
    experts_ = experts_ || std::holds_alternative<nn::MoeSpec>(part.block);
  });
  flops_per_token_ = train::flops_per_token(config_, length_);
  costs_ = train::layer_costs(recipe_, config_, length_);
}

const RankModel* Model::rank(const train::ParallelRecipe& parallel, std::string* why) const {
  const train::Grid axes = parallel.axes();
  const bool divides = parallel.divides_experts();
  const Key key{axes.x, axes.y, divides ? parallel.ep : 1, divides ? parallel.etp : 1, parallel.sp};
  auto at = cuts_.find(key);
  if (at == cuts_.end()) {
    Entry entry;
    const ExpertCut experts =
        divides ? ExpertCut{.ep = {.ranks = parallel.ep}, .etp = {.ranks = parallel.etp}} : ExpertCut();
    try {
      entry.model = rank_model(digest_, {.ranks = axes.x, .sequence = parallel.sp, .hidden_ranks = axes.y}, experts);
    } catch (const Error& error) {
      entry.why = error.what();
    }
    at = cuts_.emplace(key, std::move(entry)).first;
  }
  if (why) *why = at->second.why;
  if (!at->second.model || parallel.cp == 1) return at->second.model.get();
  try {
    (void)train::context_modes(parallel, at->second.model->config);
  } catch (const Error& error) {
    if (why) *why = error.what();
    return nullptr;
  }
  return at->second.model.get();
}

const std::vector<Range>& Model::runs(int64_t count) const {
  const auto [at, fresh] = runs_.try_emplace(count);
  if (fresh && count <= layers()) at->second = models::split_layers(costs_.layers, costs_.last, count);
  return at->second;
}

}  // namespace braid::layout
