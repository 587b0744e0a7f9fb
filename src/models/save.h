// From a model in training back to a Hugging Face folder, which Braid, transformers and llama.cpp's converter read:
// config.json and the weights under the names that the files it came from had, and the other files of that folder
// (tokenizer, chat template, generation settings).
#pragma once
#include <filesystem>
#include <span>

#include "models/masters.h"

namespace braid::models {

// Writes into `folder`, which is made. `values` is an array of the masters' size: themselves, or a mean of them.
// `origin` is the folder that the masters were loaded from. The router's correction stays FP32 in files of BF16.
// Adapters alone are a folder as PEFT writes it (models/adapter_file.h), always in F32.
void save_model(const Masters& masters, std::span<const float> values, const std::filesystem::path& origin,
                const std::filesystem::path& folder);

// Where in such a folder the numbers are: what io::Safetensors opens.
std::filesystem::path weights_in(const Masters& masters, const std::filesystem::path& folder);

// Tokenizer, chat template and generation settings, what there is of them.
void copy_companions(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace braid::models
