// Any GGUF file is a model that reads tokens, or an Error.
#include <cstdint>
#include <string_view>

#include "models/model_fuzz.h"
#include "support/folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const support::Folder folder;
  if (size > models::kFuzzedBytes) return 0;
  const auto file = folder.path() / "input.gguf";
  models::write_fuzzed(file, {reinterpret_cast<const char*>(data), size});
  models::load_and_read({.name = "input", .folder = file, .weights = file});
  return 0;
}
