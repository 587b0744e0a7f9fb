// One number for all weights: two runs that print the same one hold the same bits. Not for security.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "data/loader.h"

namespace braid::train {

// Parts of a fixed size are hashed in parallel and combined in order: the same on any number of threads.
uint64_t weight_hash(std::span<const float> values, int threads);

// A hash of the sizes of a model's files and a sample of their bytes: of a file, or the safetensors of a folder.
uint64_t sample_hash(const std::filesystem::path& path);
// The same of a few batches of the data.
uint64_t sample_hash(const data::Loader& data);

}  // namespace braid::train
