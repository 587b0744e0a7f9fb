#include "apps/huginn_study.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "apps/study.h"
#include "data/generated.h"
#include "engine/language_model.h"
#include "engine/scheduler.h"
#include "io/json.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kHopSymbols = 10, kHopQueries = 16, kHopLength = kHopSymbols + 2 * kHopQueries, kHopBatch = 48,
                  kLoopMean = 8;
constexpr int64_t kHopVocabulary = 1 + kHopSymbols * (kHopSymbols + kHopsMost + 1);
constexpr uint64_t kTrainedSeed = 0, kHeldOutSeed = 1;  // seeds of the source

data::GeneratorSpec source_spec() { return {.states = kHopSymbols, .hops = kHopsMost}; }

ordered_json config_of(const HuginnArm& arm) {
  constexpr int64_t kWidth = 64, kHeads = 4, kInner = 160;
  if (arm.layers > 0)
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"hidden_size", kWidth},
            {"num_hidden_layers", arm.layers},
            {"num_attention_heads", kHeads},
            {"num_key_value_heads", kHeads},
            {"intermediate_size", kInner},
            {"vocab_size", kHopVocabulary},
            {"max_position_embeddings", 2 * kHopLength},
            {"rms_norm_eps", 1e-6},
            {"rope_theta", 10000.0},
            {"hidden_act", "silu"},
            {"tie_word_embeddings", true}};
  return {{"architectures", {"RavenForCausalLM"}},
          {"model_type", "huginn_raven"},
          {"n_embd", kWidth},
          {"n_heads", kHeads},
          {"n_layers", 3},
          {"n_layers_in_prelude", 1},
          {"n_layers_in_recurrent_block", 1},
          {"n_layers_in_coda", 1},
          {"mean_recurrence", kLoopMean},
          {"mean_backprop_depth", kLoopMean},
          {"intermediate_size", kInner},
          {"vocab_size", kHopVocabulary},
          {"padded_vocab_size", kHopVocabulary},
          {"block_size", 2 * kHopLength}};
}

fs::path folder_of(const HuginnStudy& o, const HuginnArm& arm) {
  return fs::absolute(o.dir) / (arm.layers > 0 ? "layers-" + std::to_string(arm.layers) : "loop");
}

train::Recipe recipe_of(const HuginnStudy& o, const HuginnArm& arm) {
  ordered_json root = {{"config", config_of(arm)}, {"out", folder_of(o, arm).string()},
                       {"dtype", "f32"},           {"steps", o.steps},
                       {"batch", kHopBatch},       {"length", kHopLength},
                       {"seed", kTrainedSeed}};
  root["data"] = {{"kind", "hops"}, {"states", kHopSymbols}, {"hops", kHopsMost}};
  root["optimizer"] = {{"kind", "muon"}, {"lr", 4e-3}};
  root["schedule"] = {{"kind", "wsd"}, {"warmup", std::min<int64_t>(50, o.steps / 4)}, {"decay", o.steps / 5}};
  return train::read_recipe(io::Json::parse(root.dump(), "braid repro huginn"));
}

// Rows of the source that no training drew from: another seed. `visit` is given the tokens of each.
template <class Visit>
void each_row(int64_t rows, const Visit& visit) {
  const data::RowRules rules{.length = kHopLength, .vocabulary = kHopVocabulary};
  const auto source = data::make_generated("hops", source_spec(), rules, kHeldOutSeed);
  const std::string where = "hops";
  for (int64_t i = 0; i < rows && sys::caught_signal() == 0; ++i) {
    data::Batch batch;
    batch.clear();
    data::RowWriter writer(batch, rules, where, i * kHopLength);
    source->row(i, writer);
    std::vector<int32_t> ids = batch.ids;
    ids.push_back(batch.targets.back());
    visit(ids);
  }
}

engine::RunnerOptions options_of(const HuginnStudy& o, const engine::LoopOptions& loop) {
  return {.numerics = Numerics::serving(DType::f32),
          .context = 2 * kHopLength,
          .threads = static_cast<int>(o.threads),
          .loop = loop};
}

int32_t likeliest(const Tensor& logits) {
  const auto* first = logits.view().as<float>();
  return static_cast<int32_t>(std::max_element(first, first + logits.dim(1)) - first);
}

}  // namespace

double HopCounts::accuracy() const {
  const double all = static_cast<double>(std::accumulate(asked.begin(), asked.end(), int64_t{0}));
  return static_cast<double>(std::accumulate(right.begin(), right.end(), int64_t{0})) / all;
}

double HopCounts::accuracy(int64_t hops) const {
  const auto i = static_cast<size_t>(hops - 1);
  return static_cast<double>(right[i]) / static_cast<double>(asked[i]);
}

bool train_arm(const HuginnStudy& o, const HuginnArm& arm) {
  return train_for_study(recipe_of(o, arm), o.threads, fmt::format("training, {}", arm.name));
}

HopCounts count_right(const HuginnStudy& o, const HuginnArm& arm, int64_t steps, engine::Exit exit) {
  const engine::LoopOptions loop =
      steps > 0 ? engine::LoopOptions{.steps = steps, .exit = exit} : engine::LoopOptions{};
  engine::LanguageModel model(folder_of(o, arm).string(), options_of(o, loop));
  engine::Runner& runner = model.runner();
  HopCounts counts;
  int64_t questions = 0;
  each_row(o.rows, [&](const std::vector<int32_t>& ids) {
    runner.reset(0);
    const auto pairs = std::span(ids).first(1 + kHopSymbols);
    runner.prefill(0, pairs, [](const Tensor&) {});
    for (size_t i = pairs.size(); i + 1 < ids.size(); i += 2) {
      const auto hops = static_cast<size_t>((ids[i] - 1) / kHopSymbols - kHopSymbols);
      counts.right[hops] += likeliest(runner.step(0, ids[i])) == ids[i + 1];
      ++counts.asked[hops];
      if (steps > 0) counts.steps += static_cast<double>(runner.loop_steps());
      ++questions;
      runner.step(0, ids[i + 1]);
    }
  });
  counts.steps /= static_cast<double>(std::max<int64_t>(questions, 1));
  return counts;
}

DraftedText draft_texts(const HuginnStudy& o, const HuginnArm& arm, int64_t steps, int64_t draft_steps) {
  const std::string folder = folder_of(o, arm).string();
  DraftedText result;
  int64_t drafted = 0, accepted = 0;
  std::vector<std::vector<int32_t>> plain;
  for (const bool drafts : {false, true}) {
    engine::RunnerOptions options = options_of(o, {.steps = steps});
    options.spare_slots = 1;
    engine::LanguageModel model(folder, options);
    std::vector<engine::Request> requests;
    each_row(o.rows / 4, [&](const std::vector<int32_t>& ids) {
      requests.push_back({.prompt = {ids.begin(), ids.begin() + 1 + kHopSymbols},
                          .generate = {.tokens_max = 2 * kHopQueries, .ignore_eos = true}});
    });
    const auto answers = engine::generate_all(
        model.runner(), std::move(requests), [](int64_t) { return sys::caught_signal() == 0; },
        drafts ? engine::DraftOptions{.loop_steps = draft_steps, .tokens_max = 4, .always = true}
               : engine::DraftOptions{});
    for (size_t i = 0; i < answers.size(); ++i) {
      if (!drafts) {
        plain.push_back(answers[i].ids);
        continue;
      }
      result.same += answers[i].ids == plain[i];
      ++result.texts;
      drafted += answers[i].timings.drafted_tokens;
      accepted += answers[i].timings.accepted_tokens;
    }
  }
  result.accepted = static_cast<double>(accepted) / static_cast<double>(std::max<int64_t>(drafted, 1));
  return result;
}

}  // namespace braid::apps
