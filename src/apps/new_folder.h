// A folder of random weights, as `braid new` writes it and `braid repro` measures it.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

namespace braid::apps {

struct NewFolder {
  std::string config;               // what `braid new` takes
  std::string format = "bf16";      // "bf16", "fp8" or "nvfp4", of the large matrices
  std::optional<int64_t> layers{};  // the first N; otherwise all
  int64_t seed = 0;
  bool legacy = false;  // config.json as the released files spell it
};

// Writes it behind a progress bar, then prints its layers and size as one line to `to`, or as JSON. Returns the exit
// code; 128 + N after signal N. Error where the folder exists or the disk has no room.
int write_new_folder(const NewFolder& what, const std::filesystem::path& folder, std::FILE* to, bool json = false);

}  // namespace braid::apps
