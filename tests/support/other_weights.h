// A copy of a model's folder with other weights: a part of them has other mantissas.
#pragma once
#include <filesystem>
#include <random>

#include "support/folder.h"
#include "sys/read.h"

namespace braid::support {

// `one_of`: of so many weights one differs, by a factor of at most two.
inline void write_with_other_weights(const std::filesystem::path& model, const Folder& into, unsigned one_of) {
  for (const auto& entry : std::filesystem::directory_iterator(model))
    if (entry.path().filename() != "model.safetensors")
      std::filesystem::copy_file(entry.path(), into.path() / entry.path().filename());
  std::string bytes = sys::read_file(model / "model.safetensors");
  const size_t begin =
      8 + static_cast<unsigned char>(bytes[0]) + 256 * static_cast<size_t>(static_cast<unsigned char>(bytes[1]));
  std::mt19937 random(5);
  for (size_t i = begin; i < bytes.size(); i += 2) {
    if (random() % one_of == 0) bytes[i] = static_cast<char>(bytes[i] ^ static_cast<char>(random() & 0x7f));
  }
  into.write("model.safetensors", bytes);
}

}  // namespace braid::support
