// For every published shape, no op of a pass may fall back to its reference row: models of these sizes, with two layers
// of each kind, run their own forward code with Ctx::dry, which checks each problem and records the row that would run
// it. Weights and states are in inaccessible memory, so that half a tebibyte of model costs nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <deque>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/tape.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "models/family.h"
#include "models/inventory.h"
#include "models/model.h"
#include "models/presets.h"
#include "nn/balance.h"
#include "nn/precision.h"
#include "sys/machine.h"

namespace braid {
namespace {

// Ops that neither inference nor training of a published model uses, and why that is correct. Weights of 16 bits or
// fewer are no exception, in training either: a product decodes them block by block in the same rows.
struct Exception {
  const char* op;
  const char* reason;
};
constexpr Exception kExceptions[] = {
    {"adamw_step", "used by the optimiser, not the model"},
    {"bias_bwd", "used by graph networks"},
    {"bias_fwd", "used by graph networks"},
    {"copy_state", "used by the engine between passes"},
    {"cross_entropy_bwd", "training uses head_loss, which has its own gradient"},
    {"edge_gaussian_bwd", "used by graph networks"},
    {"edge_gaussian_fwd", "used by graph networks"},
    {"edge_softmax_bwd", "used by graph networks"},
    {"edge_softmax_fwd", "used by graph networks"},
    {"gat_bwd", "used by graph networks"},
    {"gat_fwd", "used by graph networks"},
    {"gat_scores_bwd", "used by graph networks"},
    {"gat_scores_fwd", "used by graph networks"},
    {"head_loss_bwd", "used by losses of pairs, over the rows of head_loss"},
    {"head_loss_fwd", "used by evaluation, over the rows of head_loss"},
    {"hidden_loss", "used by distillation that compares hidden states"},
    {"linear_grouped_fwd", "used by models that were pruned in groups, through linear_fwd"},
    {"muon_direction", "used by the optimiser, not the model"},
    {"orthogonalize", "used by the optimiser, not the model"},
    {"muon_apply", "used by the optimiser, not the model"},
    {"row_dots", "used by ranks that divide the residual stream"},
    {"sddmm_fwd", "used by graph networks"},
    {"spmm_bwd_arg", "used by graph networks"},
    {"spmm_fwd", "used by graph networks"},
};

constexpr int64_t kTokens = 512, kSequences = 4, kPage = 64;

// Larger than any one tensor; a row that reads or writes here crashes the test.
std::byte* nowhere() {
  static void* const data =
      mmap(nullptr, size_t{16} << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(data != MAP_FAILED, "no address space");
  return static_cast<std::byte*>(data);
}
MutView somewhere(DType dtype, const Shape& shape) { return {nowhere(), dtype, shape}; }

// The format of all matrices of a model; `ggml`: of the blocks of a GGUF file.
struct Stored {
  Format format = Format::bf16;
  GgmlType ggml = GgmlType::f32;

  bool has_codes() const { return format == Format::nvfp4 || format == Format::ggml; }
  std::string name() const {
    return format == Format::ggml ? ggml_type(static_cast<uint32_t>(ggml))->name : name_of(format);
  }
};
constexpr Stored kFormats[] = {{Format::f32}, {Format::f16}, {Format::bf16}, {Format::f8_e4m3}, {Format::nvfp4}};

// How a model of NowhereSource is trained: not at all, every parameter, or an adapter on every matrix whose product
// is a module, the rest frozen.
enum class Trained : uint8_t { nothing, all, adapters };

// Parameters of any format at an inaccessible address.
class NowhereSource final : public nn::ParamSource {
 public:
  explicit NowhereSource(const Stored& stored, Trained trained = Trained::nothing)
      : stored_(stored), format_(stored.format), trained_(trained) {}
  bool has(const std::string&) const override { return false; }

 protected:
  Param first(const nn::ParamRequest& r) override {
    const int64_t rows = r.rows(), cols = r.cols();
    Param p = r.param(weight(r));
    if (trained_ == Trained::all) p.grad = somewhere(DType::f32, {rows, cols});
    if (trained_ == Trained::adapters && is_matrix(r.role) && r.experts == 0 && r.role != ParamRole::qkv) {
      p.adapter = &adapters_.emplace_back(Adapter{.a = factor(kRank, cols), .b = factor(rows, kRank), .dropout = 0.1f});
    }
    return p;
  }

 private:
  static constexpr int64_t kRank = 16;

  // The type of weights that are not quantised: a depth that is not of whole blocks stays BF16.
  DType dense() const {
    return format_ == Format::f32 ? DType::f32 : format_ == Format::f16 ? DType::f16 : DType::bf16;
  }
  Weight weight(const nn::ParamRequest& r) const {
    const int64_t rows = r.rows(), cols = r.cols();
    if (!is_matrix(r.role)) return dense_weight(somewhere(DType::f32, {rows, cols}));
    if (format_ == Format::nvfp4 && cols % 16 == 0) {
      return {.rows = rows,
              .cols = cols,
              .spec = {.format = format_, .block = 16},
              .codes = somewhere(DType::u8, {rows, cols / 2}),
              .scales = somewhere(DType::f8_e4m3, {rows, cols / 16})};
    }
    if (format_ == Format::ggml) {
      const GgmlTypeRow& type = *ggml_type(static_cast<uint32_t>(stored_.ggml));
      if (cols % type.values == 0)
        return ggml_weight(type.type, somewhere(DType::u8, {rows, cols / type.values * type.bytes}), cols, 0.5f);
    }
    if (format_ == Format::f8_e4m3) {
      return {.rows = rows,
              .cols = cols,
              .spec = {.format = format_},
              .codes = somewhere(DType::f8_e4m3, {rows, cols}),
              .global = 0.5f};
    }
    return dense_weight(somewhere(dense(), {rows, cols}));
  }
  static Param factor(int64_t rows, int64_t cols) {
    return Param{{}, dense_weight(somewhere(DType::bf16, {rows, cols})), somewhere(DType::f32, {rows, cols})};
  }

  Stored stored_;
  Format format_;
  Trained trained_;
  std::deque<Adapter> adapters_;  // the model points to them
};

nn::StateView state_of(const models::Model& model, const Numerics& numerics) {
  nn::StateView state;
  const int64_t slots = kSequences, pages = slots * kTokens / kPage;
  for (const nn::StateShape& s : model.state_shapes()) {
    nn::BlockState block;
    if (s.heads > 0) {
      block.conv = somewhere(DType::f32, {slots, s.conv_columns, s.conv_channels});
      block.ssm = somewhere(DType::f32, {slots, s.heads, s.head_dim, s.state});
    }
    if (s.heads > 0 && numerics.exact) {
      block.chunk_ssm = block.ssm;
      block.chunk_inputs = somewhere(numerics.activations, {slots, s.chunk, s.conv_channels + s.heads});
    }
    if (s.kv_heads > 0) {
      block.k_pages = block.v_pages = somewhere(numerics.caches().kv, {pages, kPage, s.kv_heads, s.kv_dim});
    }
    state.blocks.push_back(block);
  }
  state.page_table = somewhere(DType::i32, {slots, kTokens / kPage});
  return state;
}

// Every choice of one pass: logits and losses of all tokens, prediction block included.
std::vector<Choice> choices(models::Model& model, const Numerics& numerics, Phase phase) {
  SeqMap seqs;
  const int64_t sequences = numerics.code_steps ? 1 : kSequences;
  for (int64_t i = 0; i < sequences; ++i) {
    phase == Phase::prefill ? seqs.add(kTokens / kSequences, 0, i) : seqs.add(1, kTokens - 1, i);
    seqs.seqs.back().phase = phase;
  }
  std::vector<Choice> list;
  Arena arena;
  Ctx ctx{.arena = arena, .forced_rows = {}, .preferred_rows = {}, .dry = &list};
  nn::StateView state = state_of(model, numerics);
  nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = numerics};
  const Tensor ids(arena, DType::i32, {seqs.tokens()}), x = model.forward(run, ids);
  const Tensor logits = model.logits(run, x), losses(arena, DType::f32, {seqs.tokens()});
  braid::run(ctx, CrossEntropyFwd{.logits = logits.view(), .targets = ids.view(), .loss = losses.mut()});
  if (model.mtp_steps() > 0) model.mtp_logits(run, model.mtp_step(run, ids, model.final_hidden(run, x)));
  return list;
}

// Predicting the next token, or following a teacher of the same shape.
enum class Objective : uint8_t { predict, distill };

// Every choice of one step of training, forward and backward.
std::vector<Choice> training_choices(models::Model& model, const Numerics& numerics, const char* recipe,
                                     Objective objective = Objective::predict) {
  SeqMap seqs;
  for (int64_t i = 0; i < kSequences; ++i) seqs.add(kTokens / kSequences, 0, i);
  std::vector<Choice> list;
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena, .tape = &tape, .forced_rows = {}, .preferred_rows = {}, .dry = &list};
  nn::StateView state;
  nn::RouterWatch routers;
  const nn::Draws draws;
  const nn::Precision precision(recipe, model.params(), 0);
  nn::Run run{.ctx = ctx,
              .seqs = seqs,
              .state = state,
              .numerics = numerics,
              .routers = &routers,
              .precision = &precision,
              .draws = &draws};
  const Tensor ids(arena, DType::i32, {seqs.tokens()}), targets(arena, DType::i32, {seqs.tokens()});
  if (objective == Objective::distill) {
    const Tensor weights(arena, DType::f32, {seqs.tokens()});
    const nn::Teacher self{.x = Tensor(arena, numerics.products, {seqs.tokens(), model.config().hidden}),
                           .head = model.head()};
    model.distill(run, ids, targets, weights, self);
  } else {
    models::Model::LossSums sums;
    models::Model::LossOptions options{.main_weight = 1};
    options.mtp_weight.fill(0.1);
    model.loss(run, ids, targets, options, sums);
  }
  tape.backward(ctx);
  tape.clear();
  return list;
}

// Without the layers after the second of a kind, whose ops are the same. (The first one's may differ: nothing before it
// trains.)
models::Config without_repeats(models::Config config) {
  std::map<int, std::string> kinds;
  for (const models::TensorSpec& t : models::inventory(config))
    kinds[t.layer] += fmt::format("{} {},", name_of(t.role), to_string(t.shape));
  std::map<std::string, int> seen;
  std::vector<models::LayerSpec> layers;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    std::string& kind = kinds[static_cast<int>(i)];
    for (const models::PartSpec& part : config.layers[i].parts) {
      const auto* moe = std::get_if<nn::MoeSpec>(&part.block);
      kind += fmt::format("{}{}", letter_of(part.block), moe ? moe->top_k : 0);
    }
    if (++seen[kind] <= 2) layers.push_back(std::move(config.layers[i]));
  }
  config.layers = std::move(layers);
  return config;
}

std::map<std::string, models::Config> published() {
  std::map<std::string, models::Config> list;
  for (const std::string& name : models::preset_names()) list[name] = models::read_config(*models::find_preset(name));
  // Nemotron-Labs-3-Puzzle-75B-A9B is Super with 96 states and with experts that differ from layer to layer.
  models::Config puzzle = list.at("nemotron-3-super-120b-a12b");
  int64_t layer = 0;
  for (models::LayerSpec& spec : puzzle.layers) {
    for (models::PartSpec& part : spec.parts) {
      if (auto* mamba = std::get_if<nn::Mamba2Spec>(&part.block)) mamba->state = 96;
      if (auto* moe = std::get_if<nn::MoeSpec>(&part.block)) {
        moe->width = 1280 + layer % 12 * 128;
        moe->top_k = 4 + layer % 15;
      }
    }
    ++layer;
  }
  list["nemotron-labs-3-puzzle-75b-a9b"] = puzzle;
  for (auto& [name, config] : list) config = without_repeats(std::move(config));
  return list;
}

using Rows = std::map<std::string, std::set<std::string>>;  // op -> rows that were chosen, over all models

void note(const std::string& what, const std::vector<Choice>& list, Rows& seen) {
  Rows taken;
  for (const Choice& choice : list) taken[choice.op].insert(choice.row);
  for (const auto& [op, rows] : taken) {
    EXPECT_FALSE(rows.contains("ref")) << what << ": " << op << " falls back to ref";
    seen[op].insert(rows.begin(), rows.end());
  }
}

// As the engine serves a model: with --exact too, and weights in codes by integer sums.
void check_inference(const std::string& name, const models::Config& config, const Stored& stored, Rows& seen) {
  NowhereSource source(stored);
  models::Model model(config, source);
  for (const DType act : {DType::f32, DType::bf16}) {
    Numerics steps = Numerics::serving(act), int8 = steps;
    steps.code_steps = true;
    int8.int8 = true;
    std::vector<std::pair<const char*, Numerics>> all = {{"", Numerics::serving(act)},
                                                         {", exact", Numerics::serving(act, true)}};
    if (stored.has_codes() && act == DType::bf16) all.insert(all.end(), {{", code steps", steps}, {", int8", int8}});
    for (const auto& [how, numerics] : all) {
      const std::string what = fmt::format("{}, weights {}, activations {}{}", name, stored.name(), name_of(act), how);
      if (!numerics.code_steps) note(what + ", prefill", choices(model, numerics, Phase::prefill), seen);
      note(what + ", step", choices(model, numerics, Phase::step), seen);
    }
  }
}

// Adapters over weights of every format, and full training if products read the weights as they are.
void check_training(const std::string& name, const models::Config& config, Rows& seen) {
  for (const Stored& stored : kFormats) {
    for (const Trained trained : {Trained::all, Trained::adapters}) {
      for (const DType act : {DType::f32, DType::bf16}) {
        const bool masters = stored.format == (act == DType::f32 ? Format::f32 : Format::bf16);
        if (trained == Trained::all && !masters) continue;
        NowhereSource source(stored, trained);
        models::Model model(config, source);
        const std::string what = fmt::format("{}, training {}, weights {}, activations {}", name,
                                             trained == Trained::all ? "all" : "adapters", stored.name(), name_of(act));
        const Numerics usual = Numerics::training(act);
        note(what, training_choices(model, usual, "none"), seen);
        note(what + ", exact", training_choices(model, Numerics::training(act, true), "none"), seen);
        if (trained != Trained::all) continue;
        note(what + ", emulated", training_choices(model, usual, "nvfp4"), seen);
        note(what + ", distilled", training_choices(model, usual, "none", Objective::distill), seen);
      }
    }
  }
}

// All ops: the first column of docs/ops.md, which the test ops_doc checks against the tables.
std::set<std::string> all_ops() {
  std::set<std::string> ops;
  std::ifstream file(BRAID_OPS_DOC);
  for (std::string line, bar, op; std::getline(file, line) && line != "## Thresholds";) {
    std::istringstream words(line);
    if (words >> bar >> op && bar == "|" && op != "op" && op[0] != '-') ops.insert(op);
  }
  return ops;
}

TEST(PublishedRows, NoOpOfAPublishedModelFallsBackToItsReference) {
  Rows seen;
  for (const auto& [name, config] : published()) {
    for (const Stored& stored : kFormats) check_inference(name, config, stored, seen);
    for (const GgmlTypeRow& type : ggml_types()) {
      if (type.values > 1) check_inference(name, config, {Format::ggml, type.type}, seen);
    }
    check_training(name, config, seen);
  }
  fmt::print("rows taken by published models on {}:\n", sys::name_of(sys::machine().cpu_class));
  for (const auto& [op, rows] : seen) fmt::print("  {:<18} {}\n", op, fmt::join(rows, ", "));
  std::set<std::string> accounted;
  for (const auto& [op, rows] : seen) accounted.insert(op);
  for (const Exception& e : kExceptions) {
    fmt::print("  {:<18} not checked: {}\n", e.op, e.reason);
    EXPECT_TRUE(accounted.insert(e.op).second) << e.op << " is used by a model: no longer an exception";
  }
  EXPECT_EQ(accounted, all_ops()) << "an op that no model uses needs an exception with its reason";
}

}  // namespace
}  // namespace braid
