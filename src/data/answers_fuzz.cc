// Any bytes are read as pairs and as rollouts, or give an Error; every row of an accepted file can be written to a
// batch.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "data/loader.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("braid_answers_fuzz_" + std::to_string(getpid()) + ".jsonl")).string();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  for (const char* kind : {"preference", "rollouts"}) {
    for (const bool rated : {false, true}) {
      try {
        const braid::data::Loader loader = braid::data::open({.kind = kind, .path = path, .batch = 1, .rated = rated},
                                                             braid::data::Language{.vocabulary = 64});
        for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) (void)loader.batch(step);
      } catch (const braid::Error&) {
      }
    }
  }
  std::filesystem::remove(path);
  return 0;
}
