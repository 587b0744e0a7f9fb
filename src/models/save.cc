#include "models/save.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "io/safetensors_write.h"
#include "models/adapter_file.h"
#include "models/config_file.h"
#include "models/folder_config.h"
#include "sys/mapped_file.h"

namespace braid::models {
namespace fs = std::filesystem;
namespace {

constexpr std::array kCompanions = {"generation_config.json", "tokenizer.json",      "tokenizer_config.json",
                                    "tokenizer.model",        "chat_template.jinja", "special_tokens_map.json",
                                    "added_tokens.json",      "vocab.json",          "merges.txt",
                                    "chat_template.json"};

constexpr const char* kTemplates = "additional_chat_templates";  // those of other names

// Through AtomicFile, so that a copy is durable when this returns.
void copy_across(const fs::path& from, const fs::path& to) {
  const sys::MappedFile source(from);
  io::AtomicFile file(to);
  file.write(source.bytes());
  file.commit();
}

std::vector<io::TensorSpec> specs_of(const MasterWeights& masters) {
  std::vector<io::TensorSpec> specs;
  for (const MasterTensor& t : masters.tensors()) {
    if (t.beside) continue;
    // As the passes read them: only operands of products were rounded.
    specs.push_back({t.name, masters.adapters() || !t.matrix ? DType::f32 : masters.products(), t.shape});
  }
  return specs;
}

// All but the weights.
void write_others(const MasterWeights& masters, const fs::path& origin, const fs::path& folder) {
  if (const Adapters* adapters = masters.adapters()) {
    io::write_text_file(folder / kAdapterConfig,
                        adapter_config_text(masters.adapter_spec(), adapters->sites(), fs::absolute(origin).string()));
  } else {
    io::write_text_file(folder / "config.json", config_text(folder_config(origin), masters.products()));
  }
  copy_companions(origin, folder);
}

}  // namespace

void save_model(const MasterWeights& masters, std::span<const float> values, const fs::path& origin,
                const fs::path& folder) {
  fs::create_directories(folder);
  io::SafetensorsWriter writer(weights_in(masters, folder), specs_of(masters));
  std::vector<std::byte> bytes;
  for (const io::TensorSpec& spec : writer.order()) {
    bytes.resize(static_cast<size_t>(spec.bytes()));
    to_stored(masters.tensor(spec.name), values, true, spec.dtype, bytes);
    writer.write(spec.name, bytes);
  }
  writer.finish();
  write_others(masters, origin, folder);
}

void lay_out_model(const MasterWeights& masters, const fs::path& origin, const fs::path& folder) {
  fs::create_directories(folder);
  io::lay_out_safetensors(weights_in(masters, folder), specs_of(masters));
  write_others(masters, origin, folder);
}

fs::path weights_in(const MasterWeights& masters, const fs::path& folder) {
  return masters.adapters() ? folder / kAdapterWeights : folder;
}

void copy_config(const fs::path& from, const fs::path& to) { copy_across(from / "config.json", to / "config.json"); }

void copy_nested(const fs::path& from, const fs::path& to) {
  if (fs::exists(from / kNestedFile)) copy_across(from / kNestedFile, to / kNestedFile);
}

void copy_companions(const fs::path& from, const fs::path& to) {
  for (const char* name : kCompanions) {
    if (fs::exists(from / name)) copy_across(from / name, to / name);
  }
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(from / kTemplates, none)) {
    if (entry.path().extension() != ".jinja") continue;
    fs::create_directories(to / kTemplates);
    copy_across(entry.path(), to / kTemplates / entry.path().filename());
  }
}

bool comes_saved(std::string_view entry) {
  constexpr std::string_view kOthers[] = {"config.json", kAdapterConfig, kNestedFile, kTemplates,
                                          "model.safetensors.index.json"};
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), entry) != std::end(names);
  };
  return fs::path(entry).extension() == ".safetensors" || among(kCompanions) || among(kOthers);
}

}  // namespace braid::models
