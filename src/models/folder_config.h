// config.json of a folder as its weights are to be read. transformers loads what the files have and ignores some of
// what the config says; here the config is corrected instead, so that all who read or write it agree:
//   a head of its own, with other bytes than the embedding, is used, whatever tie_word_embeddings says;
//   Nemotron-H's attention has no biases but those that are stored, whatever attention_bias says;
//   its shared experts are as wide as they are stored: moe_shared_expert_intermediate_size may be the width of all.
#pragma once
#include <string>

#include "io/json.h"
#include "io/model_path.h"
#include "io/safetensors.h"

namespace braid::models {

// Only config.json where the weights are not there. The weights of a folder are read as far as equal bytes demand it.
io::Json folder_config(const io::ModelPath& path);
io::Json folder_config(const std::filesystem::path& folder);

// A tensor of the files by the name that a Config has for it; files may spell a prefix otherwise.
struct StoredAs {
  const View* view = nullptr;  // null: there is no such tensor
  std::string name{};          // as the files spell it
};
StoredAs find_stored(const io::Safetensors& files, const std::string& name);

}  // namespace braid::models
