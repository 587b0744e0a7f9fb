// One number for all weights: two runs that print the same one hold the same bits. Not for security.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "data/loader.h"

namespace braid::train {

// Parts of a fixed size are hashed in parallel and combined in order: the same on any number of threads.
uint64_t weight_hash(std::span<const float> values, int threads);

// A hash of the sizes of a model's files and a sample of their bytes: of a file, or the safetensors of a folder.
uint64_t sample_hash(const std::filesystem::path& path);
// The same of a model, with every byte of its config.json, where it has one.
uint64_t model_hash(const std::filesystem::path& weights);
// Of data: "all 0123456789abcdef" of files, every token, mark and rating of which counts, in one pass at the rate of
// the disk or of memory; "0123456789abcdef" where all is generated. A few batches count in both: they show how rows are
// made of it.
std::string content_of(const data::Loader& data, int threads);

}  // namespace braid::train
