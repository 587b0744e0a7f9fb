#include "train/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "models/config_file.h"
#include "models/count.h"
#include "models/family.h"
#include "models/load.h"
#include "models/presets.h"
#include "models/random_weights.h"
#include "models/save.h"
#include "sys/error.h"
#include "sys/roofs.h"
#include "train/rehearsal.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

// A second of measuring is much beside the steps of a toy.
constexpr int64_t kToy = 1'000'000;  // parameters

io::Json config_json(const Recipe& recipe) {
  const io::Json& config = *recipe.config;
  return config.is_string() ? models::find_config(config.as_string()).json : config;
}

// Random weights of the recipe's config in out/init; a resumed run finds them there.
fs::path make_origin(const Recipe& recipe, int threads) {
  const fs::path path = fs::path(recipe.out) / "init";
  if (io::is_complete(path)) return path;
  const io::Json json = config_json(recipe);
  const models::Config config = models::read_config(json);
  io::AtomicFolder folder(path);
  models::write_random_weights(config, folder.place(), {.seed = static_cast<uint64_t>(recipe.seed), .threads = threads},
                               [](int64_t) { return true; });
  io::write_text_file(folder.place() / "generation_config.json", models::generation_config_text(config));
  io::write_text_file(folder.place() / "config.json", models::config_text(json, DType::bf16));
  if (!recipe.tokenizer.empty()) models::copy_companions(io::find_model(recipe.tokenizer).folder, folder.place());
  folder.commit();
  return path;
}

void check(const Recipe& recipe) {
  if (recipe.init.empty() == !recipe.config) {
    fail("recipe", {.what = recipe.config ? "both init and config" : "neither init nor config",
                    .expected = "init = a model folder, or config = a config.json for random weights"});
  }
  if (recipe.out.empty()) fail("recipe", {.what = "has no out", .expected = "a folder for checkpoints and logs"});
  if (!nn::is_low_precision(recipe.precision) && recipe.precision == "bf16" && recipe.dtype != "bf16")
    fail("precision.recipe", {.what = "is not what products read", .got = "bf16", .expected = "dtype = \"bf16\""});
  parse_recompute(recipe.recompute);
  const LoraRecipe& lora = recipe.lora;
  const bool adapts = !lora.targets.empty() || !lora.target_parameters.empty();
  if (adapts != (lora.rank > 0)) {
    fail("lora", {.what = adapts ? "has no rank" : "names nothing to adapt",
                  .expected = "rank, and targets or target_parameters"});
  }
  const auto whole = [&](bool asked, const char* word) {
    if (adapts && asked) fail("lora", {.what = fmt::format("does not go with {}", word), .hint = "leaving one out"});
  };
  whole(nn::is_low_precision(recipe.precision), "precision.recipe");
  whole(recipe.loss.router_bias_rate > 0, "loss.router_bias_rate");
}

struct BlockFlops {  // besides products with parameters; forward, a token
  double length;

  double operator()(const nn::AttentionSpec& a) const {
    return 2 * length * static_cast<double>(a.heads * a.head_dim);  // scores and values over half the sequence
  }
  double operator()(const nn::Mamba2Spec& m) const {
    const auto q = static_cast<double>(m.chunk), n = static_cast<double>(m.state), d = static_cast<double>(m.inner());
    return q * n * static_cast<double>(m.groups) + 2 * q * d + 4 * d * n;
  }
  template <class Other>
  double operator()(const Other&) const {
    return 0;
  }
};

Tensor integers(Arena& arena, const std::vector<int32_t>& values) {
  const Tensor t(arena, DType::i32, {std::ssize(values)});
  std::memcpy(t.mut().data, values.data(), values.size() * sizeof(int32_t));
  return t;
}

}  // namespace

double flops_per_token(const models::Config& config, int64_t length) {
  const models::Parameters n = models::count_parameters(config);
  double flops = 6 * static_cast<double>(n.active - n.embedding);
  for (const models::LayerSpec& layer : config.layers) {
    for (const models::PartSpec& part : layer.parts)
      flops += 3 * std::visit(BlockFlops{static_cast<double>(length)}, part.block);
  }
  return flops;
}

models::Config config_of(const Recipe& recipe) {
  check(recipe);
  models::Config config =
      recipe.config ? models::read_config(config_json(recipe)) : models::load_config(io::find_model(recipe.init));
  if (config.mtp) config.mtp->steps = recipe.loss.mtp_steps;
  return config;
}

models::AdapterSpec adapter_spec(const Recipe& recipe) {
  const LoraRecipe& lora = recipe.lora;
  return {.rank = lora.rank,
          .alpha = lora.alpha,
          .dropout = lora.dropout,
          .targets = lora.targets,
          .target_parameters = lora.target_parameters};
}

Session::Session(const Recipe& recipe, Ctx& ctx)
    : recipe_(recipe),
      masters_(recipe.dtype == "bf16" ? DType::bf16 : DType::f32),
      draws_{.seed = static_cast<uint64_t>(recipe.seed)} {
  check(recipe);
  const io::ModelPath path = io::find_model(recipe.config ? make_origin(recipe, ctx.threads).string() : recipe.init);
  origin_ = path.folder;
  model_ = recipe.lora.rank == 0 ? masters_.load(path, recipe.loss.mtp_steps)
                                 : masters_.adapt(path, adapter_spec(recipe), draws_.seed);
  precision_.emplace(recipe.precision, model_->params(), static_cast<uint64_t>(recipe.seed), precision_parts(recipe));
  if (!nn::is_low_precision(recipe.precision)) precision_.reset();
  if (recipe.loss.mtp_scale > 0 && model_->mtp_steps() == 0)
    fail("loss.mtp_scale", {.what = "the model has no block that predicts further", .hint = "leaving it out"});
  open_data();
  plan_ = rehearse(recipe, *model_, ctx, data_->rows(), data_->length());
  tape_.drop = [this](Cost, size_t node) { return plan_.drops(node); };
}

void Session::open_data() {
  const int64_t vocabulary = model_->config().vocab;
  data::DataSpec spec = data_spec(recipe_);
  data_ = data::open(spec, origin_, vocabulary);
  if (recipe_.eval.every == 0) return;
  if (recipe_.eval.data.empty()) {
    spec.held_out = true;
  } else {
    spec.path = recipe_.eval.data;
    spec.blend.clear();
    spec.validation = 0;
  }
  spec.goldfish.k = 0;
  held_out_ = data::open(spec, origin_, vocabulary);
}

Run Session::run() {
  Run run{.recipe = recipe_,
          .masters = masters_,
          .params = masters_.params(*model_),
          .origin = origin_,
          .loss = [this](Ctx& ctx, const data::Batch& part, const Totals& totals, bool backward,
                         LossSums& sums) { loss(ctx, part, totals, backward, sums); },
          .batch =
              [this](int64_t step, data::Batch& batch) {
                if (precision_) precision_->begin_step(step);
                draws_.step = static_cast<uint64_t>(step);
                data_->batch(step, batch);
              },
          .held_out = {},
          .routers = &routers_,
          .flops_per_token = flops_per_token(model_->config(), data_->length())};
  if (held_out_) run.held_out = [this](int64_t step, data::Batch& batch) { held_out_->batch(step, batch); };
  if (masters_.size() > kToy) {
    const sys::Roofs& roofs = sys::roofs();
    run.roof_flops =
        1e9 * (masters_.products() == DType::bf16 ? std::max(roofs.bf16_gflops, roofs.fp32_gflops) : roofs.fp32_gflops);
  }
  return run;
}

void Session::loss(Ctx& ctx, const data::Batch& part, const Totals& totals, bool backward, LossSums& sums) {
  models::Model::LossOptions options{.main_weight = 1.0 / static_cast<double>(totals.main),
                                     .z = static_cast<float>(recipe_.loss.z)};
  // The mean over the steps of the mean over the targets of each (nemotron.md 7.3).
  for (size_t i = 0; i < static_cast<size_t>(recipe_.loss.mtp_steps) && totals.mtp[i] > 0; ++i)
    options.mtp_weight[i] = recipe_.loss.mtp_scale / static_cast<double>(recipe_.loss.mtp_steps * totals.mtp[i]);
  ctx.tape = backward ? &tape_ : nullptr;
  if (backward) ctx.arena.begin_pass(plan_.arena);
  {
    nn::StateView state;
    nn::Run run{.ctx = ctx, .seqs = part.seqs, .state = state, .numerics = Numerics::training(masters_.products())};
    if (precision_) run.precision = &*precision_;
    routers_.balance = static_cast<float>(recipe_.loss.aux / static_cast<double>(std::max<int64_t>(1, totals.tokens)));
    if (backward) run.routers = &routers_;
    if (backward) run.draws = &draws_;
    model_->loss(run, integers(ctx.arena, part.ids), integers(ctx.arena, part.targets), options, sums);
    if (backward) tape_.backward(ctx);
    tape_.clear();
  }
  if (backward) ctx.arena.end_pass();
  ctx.tape = nullptr;
}

}  // namespace braid::train
