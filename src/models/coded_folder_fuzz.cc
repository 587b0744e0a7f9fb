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
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i) length |= size_t{data[i]} << 8 * i;
  const std::string_view all(reinterpret_cast<const char*>(data) + 4, size - 4);
  length = std::min(length, all.size());
  models::write_fuzzed(folder.path() / "config.json", all.substr(0, length));
  models::write_fuzzed(folder.path() / "model.safetensors", all.substr(length));
  models::load_and_read({.name = "input", .folder = folder.path(), .weights = folder.path()});
  return 0;
}
