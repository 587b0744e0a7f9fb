#include "train/distill.h"

#include "models/empty_model.h"
#include "models/load.h"
#include "models/presets.h"
#include "sys/error.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer.h"

namespace braid::train {
namespace {

nn::Teacher teacher_of(const DistillRecipe& recipe, const Tensor& x, const models::Model& model) {
  return {.x = x,
          .head = model.head(),
          .temperature = static_cast<float>(recipe.temperature),
          .kl_weight = static_cast<float>(recipe.weight),
          .ce_weight = static_cast<float>(recipe.ce)};
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
  const int64_t vocab = models::load_config(path).vocab;
  if (vocab != config.vocab) {
    fail("distill.teacher", {.what = "has another vocabulary",
                             .got = fmt::format("{} tokens", vocab),
                             .expected = fmt::format("{}, as the student has", config.vocab)});
  }
  check_tokens(path.folder, student);
  return std::make_unique<Frozen>(path, numerics_of(recipe));
}

void Distill::look(Ctx& ctx, const TaskPart& part) { taught_ = teacher_->head_input(ctx, part.rows); }

void Distill::run(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets, const TaskPart& part,
                  Sums& sums) {
  const Tensor weights(run.ctx.arena, DType::f32, {ids.dim(0)});
  fill(weights.mut(), 1 / std::max(1.0, static_cast<double>(part.whole.trained)));
  const nn::DistillLosses losses =
      model.distill(run, ids, targets, weights, teacher_of(recipe_, taught_, teacher_->model()));
  const double scale = recipe_.weight * recipe_.temperature * recipe_.temperature;
  for (int64_t t = 0; t < ids.dim(0); ++t) {
    if (part.rows.targets[static_cast<size_t>(t)] == data::kMasked) continue;
    const auto kl = static_cast<double>(losses.kl.view().as<float>()[t]),
               ce = static_cast<double>(losses.ce.view().as<float>()[t]);
    sums.add("loss", scale * kl + recipe_.ce * ce, 1);
    sums.add("kl", kl, 1);
    sums.add("ce", ce, 1);
  }
}

void rehearse_distill(const Recipe& recipe, Arena& beside, nn::Run& run, models::Model& model, const Tensor& ids,
                      const Tensor& targets) {
  const models::Config config = models::load_config(models::find_weights(recipe.distill.teacher));
  const DType products = numerics_of(recipe).products;
  const models::Model teacher = models::empty_model(config, products);
  const Tensor taught(beside, products, {ids.dim(0), config.hidden}), weights(run.ctx.arena, DType::f32, {ids.dim(0)});
  model.distill(run, ids, targets, weights, teacher_of(recipe.distill, taught, teacher));
}

}  // namespace braid::train
