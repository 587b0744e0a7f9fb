#include "train/distill.h"

#include <nlohmann/json.hpp>

#include "models/empty_model.h"
#include "models/load.h"
#include "models/presets.h"
#include "sys/error.h"
#include "sys/parallel.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer.h"
#include "train/origin.h"
#include "train/weight_hash.h"

namespace braid::train {
namespace {

nn::Teacher weights_of(const DistillRecipe& recipe) {
  return {.temperature = static_cast<float>(recipe.temperature),
          .kl_weight = static_cast<float>(recipe.weight),
          .ce_weight = static_cast<float>(recipe.ce)};
}

// What the entries of a cache depend on, as JSON.
std::string made_of(const Recipe& recipe, const data::Loader& data) {
  const nlohmann::ordered_json j = {
      {"teacher", fmt::format("{:016x}", sample_hash(models::find_weights(recipe.distill.teacher).weights))},
      {"data", content_of(data, sys::default_threads())},
      {"temperature", recipe.distill.temperature},
      {"top_k", recipe.distill.top_k},
      {"dtype", recipe.dtype}};
  return j.dump(1) + "\n";
}

models::Config config_of_teacher(const Recipe& recipe, int64_t vocab) {
  models::Config config = models::load_config(models::find_weights(recipe.distill.teacher));
  if (config.loop)
    fail("distill.teacher", {.what = "a model of recurrent depth cannot teach: its distribution depends on its steps",
                             .got = config.family,
                             .hint = "a model without recurrent depth"});
  if (config.vocab == vocab) return config;
  fail("distill.teacher", {.what = "has another vocabulary",
                           .got = fmt::format("{} tokens", config.vocab),
                           .expected = fmt::format("{}, as the student has", vocab)});
}

// Two vocabularies of one size may still differ in a token.
void check_tokens(const std::filesystem::path& teacher, const std::filesystem::path& student) {
  if (student.empty() || !text::has_tokenizer(teacher) || !text::has_tokenizer(student)) return;
  const text::Tokenizer theirs = text::Tokenizer::load(teacher), ours = text::Tokenizer::load(student);
  for (int32_t id = 0; id < std::max(theirs.vocab_size(), ours.vocab_size()); ++id) {
    const auto a = theirs.id_to_token(id), b = ours.id_to_token(id);
    if (a == b) continue;
    const auto shown = [](const std::optional<std::string>& t) { return t ? printable(*t, 40) : "none"; };
    fail("distill.teacher", {.what = fmt::format("has another vocabulary: token {} differs", id),
                             .got = shown(a),
                             .expected = fmt::format("{}, as the student has it", shown(b))});
  }
}

}  // namespace

std::unique_ptr<Frozen> load_teacher(const Recipe& recipe, const models::Config& config,
                                     const std::filesystem::path& student) {
  const io::ModelPath path = models::find_weights(recipe.distill.teacher);
  (void)config_of_teacher(recipe, config.vocab);
  check_tokens(path.folder, student);
  return std::make_unique<Frozen>(path, numerics_of(recipe));
}

namespace {

// A row's entries are those of its tokens alone, whatever batch it is in and whichever of its targets are left out: a
// cache outlives a change of both.
data::DataSpec spec_of_cache(const Recipe& recipe) {
  constexpr int64_t kRows = 16;  // of a batch that the hash of the data samples
  data::DataSpec spec = data_spec(recipe);
  spec.shuffle = false;
  spec.seed = 0;
  spec.goldfish = {};
  spec.batch = data::has_batches(spec) ? 0 : kRows;
  return spec;
}

}  // namespace

Distill::Distill(const Recipe& recipe, const models::Config& config, std::unique_ptr<Frozen> teacher,
                 std::span<Param> maps, Ctx& ctx)
    : recipe_(recipe.distill), teacher_(std::move(teacher)), maps_(maps) {
  if (recipe_.hidden > 0)
    ends_ = matched_layers(std::ssize(config.layers), std::ssize(teacher_->model().config().layers));
  if (recipe_.cache.empty()) return;
  const data::Loader data = data::open(spec_of_cache(recipe), language_folder(recipe), config.vocab);
  const std::string facts = made_of(recipe, data);
  if (!std::filesystem::exists(recipe_.cache))
    EntriesCache::make(recipe_.cache, facts, ctx, *teacher_, data, recipe_.top_k, recipe_.temperature);
  cache_.emplace(recipe_.cache, facts, recipe_.top_k, config.vocab);
}

void Distill::look(Ctx& ctx, const TaskPart& part) {
  taught_ = weights_of(recipe_);
  states_.clear();
  Tensor head_input;
  if (!ends_.empty()) states_ = teacher_->states(ctx, part.rows, ends_, head_input);
  if (recipe_.top_k == 0) {
    taught_.x = head_input ? head_input : teacher_->head_input(ctx, part.rows);
    taught_.head = teacher_->model().head();
    return;
  }
  const Entries entries = cache_ && !part.held_out
                              ? cache_->read(ctx, part.rows)
                              : entries_of(ctx, *teacher_, part.rows, recipe_.top_k, recipe_.temperature);
  taught_.top_ids = entries.ids;
  taught_.top_logprobs = entries.logprobs;
}

void Distill::run(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets, const TaskPart& part,
                  Sums& sums) {
  for (const char* name : {"loss", "kl", "ce"}) sums.add(name, 0, 0);
  if (!ends_.empty()) sums.add("hidden", 0, 0);
  const Tensor weights(run.ctx.arena, DType::f32, {ids.dim(0)});
  const double mean = 1 / std::max(1.0, static_cast<double>(part.whole.trained));
  fill(weights.mut(), mean);
  HiddenLosses losses;
  if (ends_.empty()) {
    losses.head = model.distill(run, ids, targets, weights, taught_);
  } else {
    const Tensor of_layers(run.ctx.arena, DType::f32, {ids.dim(0)});
    for (int64_t t = 0; t < ids.dim(0); ++t) {
      const bool masked = part.rows.targets[static_cast<size_t>(t)] == data::kMasked;
      of_layers.mut().as<float>()[t] = masked ? 0 : static_cast<float>(layer_share() * mean);
    }
    losses = distill_with_states(run, model, ids, targets, weights, taught_,
                                 {.states = states_, .token_weight = of_layers, .maps = maps_});
  }
  const auto at = [](const Tensor& of, int64_t t) { return static_cast<double>(of.view().as<float>()[t]); };
  const double share = ends_.empty() ? 0 : layer_share();
  const double scale = recipe_.weight * recipe_.temperature * recipe_.temperature;
  for (int64_t t = 0; t < ids.dim(0); ++t) {
    if (part.rows.targets[static_cast<size_t>(t)] == data::kMasked) continue;
    const double kl = at(losses.head.kl, t), ce = at(losses.head.ce, t);
    double apart = 0;
    for (const Tensor& layer : losses.layers) apart += at(layer, t);
    sums.add("loss", scale * kl + recipe_.ce * ce + share * apart, 1);
    sums.add("kl", kl, 1);
    sums.add("ce", ce, 1);
    if (!ends_.empty()) sums.add("hidden", apart / static_cast<double>(std::ssize(ends_)), 1);
  }
}

void reserve_map(const Recipe& recipe, const models::Config& config, models::MasterWeights& masters) {
  if (recipe.distill.teacher.empty() || recipe.distill.hidden == 0) return;
  const int64_t width = config_of_teacher(recipe, config.vocab).hidden;
  if (width != config.hidden) reserve_map(masters, width, config.hidden, std::ssize(config.layers));
}

void rehearse_distill(const Recipe& recipe, Arena& beside, DryMap& map, nn::Run& run, models::Model& model,
                      const Tensor& ids, const Tensor& targets) {
  const models::Config config = config_of_teacher(recipe, model.config().vocab);
  const DType products = numerics_of(recipe).products;
  const models::Model teacher = models::empty_model(config, products);
  nn::Teacher taught = weights_of(recipe.distill);
  if (const int64_t count = recipe.distill.top_k; count > 0) {
    taught.top_ids = Tensor(beside, DType::i32, {ids.dim(0), count});
    taught.top_logprobs = Tensor(beside, DType::f32, {ids.dim(0), count});
  } else {
    taught.x = Tensor(beside, products, {ids.dim(0), config.hidden});
    taught.head = teacher.head();
  }
  const Tensor weights(run.ctx.arena, DType::f32, {ids.dim(0)});
  if (recipe.distill.hidden == 0) {
    model.distill(run, ids, targets, weights, taught);
    return;
  }
  const auto layers = static_cast<size_t>(std::ssize(model.config().layers));
  const Shape shape{config.hidden, model.config().hidden};
  if (shape[0] != shape[1] && map.uses.empty()) {
    map.value = Tensor(beside, products, shape);
    map.grad = Tensor(beside, DType::f32, shape);
    map.uses.resize(layers);
    for (Param& use : map.uses) use.value = dense_weight(map.value.view()), use.grad = map.grad.mut();
  }
  const std::vector<Tensor> states(layers, Tensor(beside, DType::f32, {ids.dim(0), config.hidden}));
  const Tensor of_layers(run.ctx.arena, DType::f32, {ids.dim(0)});
  distill_with_states(run, model, ids, targets, weights, taught,
                      {.states = states, .token_weight = of_layers, .maps = map.uses});
}

}  // namespace braid::train
