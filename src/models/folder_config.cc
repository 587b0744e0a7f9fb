#include "models/folder_config.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "models/config_file.h"
#include "models/family.h"

namespace braid::models {
namespace fs = std::filesystem;
namespace {

// Spellings in files of a prefix that family files spell as in the first column.
constexpr std::array<std::array<const char*, 5>, 3> kPrefixes = {{
    {"backbone.", "model.", "language_model.backbone.", "language_model.model.", nullptr},
    {"model.", "language_model.model.", nullptr, nullptr, nullptr},
    {"transformer.", "", nullptr, nullptr, nullptr},
}};

bool all_there(const io::ModelPath& path) {
  std::error_code none;
  if (!fs::is_directory(path.weights, none)) return fs::exists(path.weights, none);
  const std::vector<fs::path> files = io::weight_files(path.weights);
  return !files.empty() && std::ranges::all_of(files, [&](const fs::path& file) { return fs::exists(file, none); });
}

bool same(const View& a, const View* b) {
  return b && a.dtype == b->dtype && a.shape == b->shape &&
         std::memcmp(a.data, b->data, static_cast<size_t>(a.bytes())) == 0;
}

// With its scales, if it is quantised.
bool has_own_head(const io::Safetensors& files, const Config& config) {
  const StoredAs table = find_stored(files, config.embedding);
  if (!table.view) return false;
  return std::ranges::any_of(files.tensors(), [&](const io::StoredTensor& tensor) {
    return tensor.name.starts_with(config.head) &&
           !same(tensor.view, files.find(table.name + tensor.name.substr(config.head.size())));
  });
}

bool has_attention_biases(const io::Safetensors& files, const Config& config) {
  bool found = false;
  each_part(config, [&](const PartSpec& part) {
    if (!std::holds_alternative<nn::AttentionSpec>(part.block)) return;
    for (const char* matrix : {"q_proj", "k_proj", "v_proj", "o_proj"})
      found = found || find_stored(files, part.prefix + matrix + ".bias").view;
  });
  return found;
}

// Of several shared experts, in every layer.
bool shares_one_width(const io::Safetensors& files, const Config& config, int64_t experts) {
  int64_t layers = 0, narrow = 0;
  each_part(config, [&](const PartSpec& part) {
    const auto* moe = std::get_if<nn::MoeSpec>(&part.block);
    if (!moe || moe->shared_width == 0) return;
    ++layers;
    const std::string up = part.prefix + "shared_experts.up_proj.weight";
    StoredAs stored = find_stored(files, up);
    if (!stored.view) stored = find_stored(files, up + "_packed");
    if (stored.view && stored.view->shape.rank == 2 && stored.view->dim(0) * experts == moe->shared_width) ++narrow;
  });
  return layers > 0 && narrow == layers;
}

}  // namespace

StoredAs find_stored(const io::Safetensors& files, const std::string& name) {
  if (const View* view = files.find(name)) return {view, name};
  for (const auto& spellings : kPrefixes) {
    if (!name.starts_with(spellings[0])) continue;
    for (size_t i = 1; i < spellings.size() && spellings[i]; ++i) {
      std::string other = spellings[i] + name.substr(std::string_view(spellings[0]).size());
      if (const View* view = files.find(other)) return {view, std::move(other)};
    }
  }
  return {};
}

io::Json folder_config(const io::ModelPath& path) {
  constexpr const char* kBias = "attention_bias";
  constexpr const char* kShared = "n_shared_experts";
  io::Json json = io::Json::read(path.folder / "config.json");
  const Config config = read_config(json);
  const bool hybrid = config.family.starts_with("nemotron_h");
  const bool biased = hybrid && json.bool_of({kBias}).value_or(false);
  const int64_t shared = hybrid ? json.int_of({kShared}).value_or(1) : 1;
  if ((!config.tied && !biased && shared < 2) || !all_there(path)) return json;
  const io::Safetensors files(path.weights);
  nlohmann::json corrected = json.raw();
  if (config.tied && has_own_head(files, config)) {
    corrected["tie_word_embeddings"] = false;
    if (corrected.contains("tie_embeddings")) corrected["tie_embeddings"] = false;
  }
  if (biased && !has_attention_biases(files, config)) corrected[kBias] = false;
  if (shared > 1 && shares_one_width(files, config, shared)) corrected[kShared] = 1;
  if (corrected == json.raw()) return json;
  return io::Json::parse(config_text(std::move(corrected)), json.document());
}

io::Json folder_config(const fs::path& folder) {
  io::ModelPath path;
  path.folder = path.weights = folder;
  return folder_config(path);
}

}  // namespace braid::models
