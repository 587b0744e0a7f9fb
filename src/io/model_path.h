// A model argument as users write it: a folder, a .safetensors file next to its config, a GGUF file, org/name[@rev] of
// the local Hugging Face cache, or `tiny`, the model that ships with Braid. Nothing is ever downloaded: the error on a
// miss says what to type.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace braid::io {

// What a folder with a LoRA adapter of PEFT has instead of a model's files.
constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kAdapterWeights = "adapter_model.safetensors";

// Where models are on this machine.
struct ModelPlaces {
  std::filesystem::path hub;   // $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub
  std::filesystem::path tiny;  // $BRAID_TINY, next to the installed program, in the source tree

  static ModelPlaces from_environment();
};

struct ModelPath {
  std::string name;               // for display: tiny, org/name, the folder's name
  std::filesystem::path folder;   // config, tokenizer and templates
  std::filesystem::path weights;  // what io::Safetensors opens: the folder, or the named file; or a GGUF file

  bool is_gguf() const { return weights.extension() == ".gguf"; }  // then `folder` is the file too
};

// Error for a GGUF file, where only a folder will do.
void need_folder(const ModelPath& model);

// Does it have the extension of a model file? Then a miss reports that file, not the Hugging Face cache.
bool names_a_file(const std::filesystem::path& path);

// check_new_folder for a model; also Error for `tiny`, a name that would then mean the model that ships.
void check_new_model(const std::filesystem::path& folder);

// One-line Error that says what to type when there is no such model.
ModelPath find_model(std::string_view argument, const ModelPlaces& places = ModelPlaces::from_environment());

enum class Fetched { complete, incomplete, lfs_pointers };

struct LocalModel {
  ModelPath path;
  int64_t bytes = 0;  // of the weight files that are there
  Fetched fetched = Fetched::complete;
};

// `tiny` and every model of the cache, by name.
std::vector<LocalModel> find_local_models(const ModelPlaces& places = ModelPlaces::from_environment());

}  // namespace braid::io
