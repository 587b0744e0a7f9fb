#include "apps/goldfish_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/study.h"
#include "data/generated.h"
#include "data/shuffle.h"
#include "engine/language_model.h"
#include "engine/scheduler.h"
#include "io/json.h"
#include "io/token_file.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kHeldOut = 512, kSymbols = 256;
constexpr int64_t kRows = 16, kRowTokens = 128;  // of a batch
constexpr const char* kModel = R"({"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h",
  "dtype": "bfloat16", "hybrid_override_pattern": "M-*-M-*-", "hidden_size": 128, "vocab_size": 257,
  "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "mamba_num_heads": 8,
  "mamba_head_dim": 32, "ssm_state_size": 32, "n_groups": 2, "conv_kernel": 4, "chunk_size": 32,
  "intermediate_size": 384, "mlp_hidden_act": "relu2", "max_position_embeddings": 128, "pad_token_id": 0,
  "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": false, "layer_norm_epsilon": 1e-5})";

// Documents of the source by number. A document keeps its text whatever else is read.
class Documents {
 public:
  explicit Documents(int64_t length)
      : rules_{.length = length, .vocabulary = kSymbols + 1},
        source_(data::make_generated("markov", {.states = kSymbols}, rules_, 0)) {}
  std::vector<int32_t> operator[](int64_t number) const {
    data::Batch batch;
    batch.clear();
    data::RowWriter row(batch, rules_, "markov", number * rules_.length);
    source_->row(number, row);
    return batch.ids;
  }

 private:
  data::RowRules rules_;
  std::unique_ptr<data::Source> source_;
};

// Canaries are the first documents of the source; what is held out comes before the background, and what no model saw
// before that.
struct Numbers {
  const GoldfishStudy& o;
  int64_t unseen() const { return o.canaries; }
  int64_t held_out() const { return 2 * o.canaries; }
  int64_t background() const { return held_out() + kHeldOut; }
};

int64_t documents_of(const GoldfishStudy& o, const GoldfishArm& arm) {
  const int64_t copies = arm.canaries ? o.canaries * o.repeats : 0, all = o.canaries * o.repeats + o.background;
  return (arm.k > 1 ? all * arm.k / (arm.k - 1) : all) - copies;
}

void write_documents(const Documents& documents, const fs::path& prefix, const std::vector<int64_t>& numbers) {
  io::TokenFileWriter writer(prefix, kSymbols + 1);
  for (int64_t i = 0; i < std::ssize(numbers); ++i)
    writer.add(documents[numbers[static_cast<size_t>(data::shuffled(i, std::ssize(numbers), 1))]]);
  writer.finish();
}

// The tokens of the corpus.
int64_t write_corpus(const GoldfishStudy& o, const Documents& documents, const GoldfishArm& arm,
                     const fs::path& prefix) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; arm.canaries && i < o.canaries * o.repeats; ++i) numbers.push_back(i % o.canaries);
  for (int64_t i = 0; i < documents_of(o, arm); ++i) numbers.push_back(Numbers{o}.background() + i);
  write_documents(documents, prefix, numbers);
  return std::ssize(numbers) * o.length;
}

train::Recipe recipe_of(const GoldfishStudy& o, const GoldfishArm& arm, const fs::path& corpus, int64_t tokens) {
  const int64_t steps = std::max<int64_t>(1, tokens / (kRows * kRowTokens));
  const fs::path dir = fs::absolute(o.dir);
  ordered_json root = {{"config", ordered_json::parse(kModel)},
                       {"out", corpus.string() + ".run"},
                       {"dtype", "bf16"},
                       {"steps", steps},
                       {"batch", kRows},
                       {"length", kRowTokens}};
  root["data"] = {{"kind", "indexed"}, {"path", corpus.string()}};
  root["eval"] = {{"every", steps}, {"batches", 8}, {"data", (dir / "held-out").string()}};
  root["optimizer"] = {{"kind", "muon"}, {"lr", 3e-3}};
  root["schedule"] = {{"kind", "wsd"}, {"warmup", std::min<int64_t>(50, steps / 4)}, {"decay", steps / 2}};
  root["loss"] = {{"goldfish_k", arm.k}, {"goldfish", arm.by_position ? "place" : "hash"}};
  return train::read_recipe(io::Json::parse(root.dump(), "braid repro goldfish"));
}

// Longest common subsequence over the length: both texts have it.
double rouge_l(std::span<const int32_t> a, std::span<const int32_t> b) {
  std::vector<int64_t> row(b.size() + 1, 0);
  for (const int32_t x : a) {
    int64_t diagonal = 0;
    for (size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], x == b[j] ? diagonal + 1 : std::max(row[j], row[j + 1]));
  }
  return static_cast<double>(row.back()) / static_cast<double>(b.size());
}

// Continues documents [first, first + count) from their first halves: the shares of those that come out whole, and of
// their tokens in order.
std::pair<double, double> recall(const GoldfishStudy& o, engine::Runner& runner, const Documents& documents,
                                 int64_t first) {
  const auto half = static_cast<size_t>(o.length / 2);
  std::vector<engine::Request> requests;
  for (int64_t i = 0; i < o.canaries; ++i) {
    std::vector<int32_t> prompt = documents[first + i];
    prompt.resize(half);
    requests.push_back(
        {.prompt = std::move(prompt), .generate = {.tokens_max = o.length - o.length / 2, .ignore_eos = true}});
  }
  const std::vector<engine::Generated> answers =
      engine::generate_all(runner, std::move(requests), [](int64_t) { return true; });
  double whole = 0, common = 0;
  for (int64_t i = 0; i < o.canaries; ++i) {
    const std::vector<int32_t> text = documents[first + i], &answer = answers[static_cast<size_t>(i)].ids;
    const auto rest = std::span(text).subspan(half);
    whole += std::equal(rest.begin(), rest.end(), answer.begin(), answer.end()) ? 1 : 0;
    common += rouge_l(answer, rest);
  }
  return {whole / static_cast<double>(o.canaries), common / static_cast<double>(o.canaries)};
}

}  // namespace

void write_held_out(const GoldfishStudy& o) {
  std::vector<int64_t> numbers(kHeldOut);
  std::iota(numbers.begin(), numbers.end(), Numbers{o}.held_out());
  write_documents(Documents(o.length), fs::path(o.dir) / "held-out", numbers);
}

GoldfishOutcome train_arm(const GoldfishStudy& o, const GoldfishArm& arm) {
  const Documents documents(o.length);
  const fs::path corpus =
      fs::absolute(o.dir) / fmt::format("k{}{}{}", arm.k, arm.by_position ? "-place" : "", arm.canaries ? "" : "-none");
  const train::Recipe recipe = recipe_of(o, arm, corpus, write_corpus(o, documents, arm, corpus));
  GoldfishOutcome outcome;
  const bool finished = train_for_study(recipe, o.threads, fmt::format("training, {}", arm.name),
                                        {.held_out = [&](const train::HeldOutLog& log) { outcome.loss = log.loss; }});
  if (!finished) return outcome;
  engine::LanguageModel model(recipe.out,
                              {.context = 2 * o.length, .sequences = 16, .threads = static_cast<int>(o.threads)});
  std::tie(outcome.exact, outcome.rouge) = recall(o, model.runner(), documents, 0);
  outcome.unseen_rouge = recall(o, model.runner(), documents, Numbers{o}.unseen()).second;
  return outcome;
}

}  // namespace braid::apps
