// Saves a model in training as a Hugging Face folder, which Braid, transformers and llama.cpp's converter read:
// config.json, the weights under the names of the original files, and the other files of that folder (tokenizer, chat
// template, generation settings).
#pragma once
#include <filesystem>
#include <span>

#include "models/master_weights.h"

namespace braid::models {

// Of a nested folder (prune/nested.h): the models inside it.
inline constexpr const char* kNestedFile = "nested.json";

// Creates `folder` and writes into it. `values` is an array of the masters' size: the masters, or a mean of them.
// `origin` is the folder that the masters were loaded from. The router's correction stays FP32 in files of BF16.
// Adapters alone are a folder as PEFT writes it (models/adapter_file.h), always in F32.
void save_model(const MasterWeights& masters, std::span<const float> values, const std::filesystem::path& origin,
                const std::filesystem::path& folder);
// The same folder without the values, for ranks that write them (io/tensor_files.h).
void lay_out_model(const MasterWeights& masters, const std::filesystem::path& origin,
                   const std::filesystem::path& folder);

// Path of the weights in such a folder, for io::Safetensors.
std::filesystem::path weights_in(const MasterWeights& masters, const std::filesystem::path& folder);

// Copies config.json.
void copy_config(const std::filesystem::path& from, const std::filesystem::path& to);
// Copies nested.json, if there is one.
void copy_nested(const std::filesystem::path& from, const std::filesystem::path& to);
// Copies tokenizer, chat template and generation settings, as far as present.
void copy_companions(const std::filesystem::path& from, const std::filesystem::path& to);

// May a saved model have an entry of this name in its folder?
bool comes_saved(std::string_view entry);

}  // namespace braid::models
