#include "apps/convert_sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "engine/language_model.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "io/ordered_json.h"

namespace braid::apps {
namespace {

// A number of generation_config.json, and its key in GGUF.
struct SamplingWord {
  const char *folder, *gguf;
  double value, otherwise;
};

std::vector<SamplingWord> sampling_words(const io::ModelPath& model) {
  const engine::SamplingOptions otherwise, s = engine::sampling_of(model, otherwise);
  const std::vector<SamplingWord> all = {
      {"temperature", "general.sampling.temp", s.temperature, otherwise.temperature},
      {"top_k", "general.sampling.top_k", static_cast<double>(s.top_k), static_cast<double>(otherwise.top_k)},
      {"top_p", "general.sampling.top_p", s.top_p, otherwise.top_p},
      {"min_p", "general.sampling.min_p", s.min_p, otherwise.min_p},
      {"repetition_penalty", "general.sampling.penalty_repeat", s.repeat_penalty, otherwise.repeat_penalty}};
  std::vector<SamplingWord> set;
  std::ranges::copy_if(all, std::back_inserter(set), [](const auto& word) { return word.value != word.otherwise; });
  return set;
}

}  // namespace

void add_sampling(const io::ModelPath& model, io::GgufFields& fields) {
  for (const SamplingWord& word : sampling_words(model)) {
    if (std::string_view(word.folder) == "top_k")
      fields.emplace_back(word.gguf, static_cast<uint32_t>(word.value));
    else
      fields.emplace_back(word.gguf, static_cast<float>(word.value));
  }
}

void add_sampling(const io::ModelPath& model, const std::filesystem::path& generation_config) {
  const std::vector<SamplingWord> words = sampling_words(model);
  if (words.empty()) return;
  nlohmann::ordered_json json = io::Json::read(generation_config).raw();
  // A temperature means drawing, which transformers wants to be told; without one the file says nothing of it.
  if (std::ranges::any_of(words, [](const auto& w) { return std::string_view(w.folder) == "temperature"; }))
    json["do_sample"] = true;
  for (const SamplingWord& word : words) {
    if (std::string_view(word.folder) == "top_k")
      json[word.folder] = static_cast<int64_t>(word.value);
    else
      json[word.folder] =
          std::strtod(fmt::format("{}", static_cast<float>(word.value)).c_str(), nullptr);  // 0.95, not 0.949999988
  }
  io::write_text_file(generation_config, io::dumped(json, 2) + "\n");
}

}  // namespace braid::apps
