// Any config.json with any weights, quantised or not, is a model that reads tokens, or an Error. An input is the length
// of the config in four bytes, least first, the config, and model.safetensors.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "models/model_fuzz.h"
#include "support/folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const support::Folder folder;
  if (size < 4 || size > models::kFuzzedBytes) return 0;
  const size_t stated = size_t{data[0]} | size_t{data[1]} << 8 | size_t{data[2]} << 16 | size_t{data[3]} << 24;
  const std::string_view all(reinterpret_cast<const char*>(data) + 4, size - 4);
  const size_t length = std::min(stated, all.size());
  models::write_fuzzed(folder.path() / "config.json", all.substr(0, length));
  models::write_fuzzed(folder.path() / "model.safetensors", all.substr(length));
  models::load_and_read({.name = "input", .folder = folder.path(), .weights = folder.path()});
  return 0;
}
