// Any safetensors file, in any layout, gives a matrix of the requested shape or an Error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "codec/codec.h"
#include "models/load.h"
#include "models/storage.h"
#include "sys/check.h"
#include "sys/error.h"

namespace {

// One file in memory, which every input replaces.
std::string file_of(const uint8_t* data, size_t size) {
  static const int file = memfd_create("weights.safetensors", 0);
  CHECK(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == static_cast<ssize_t>(size), "{} bytes",
        size);
  return "/proc/self/fd/" + std::to_string(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kRows = 3, kCols = 64;
  try {
    const std::string file = file_of(data, size);
    braid::models::bytes_by_format(braid::io::Safetensors(file));
    const auto folder = braid::models::open_folder({.name = "input", .folder = "/proc/self", .weights = file});
    braid::nn::ParamRequest request;
    request.name = "a.weight";
    request.role = braid::ParamRole::up;
    request.shape = {kRows, kCols};
    const braid::Param param = folder.source->get(request);
    const auto values = braid::decode(param.value);
    CHECK(std::ssize(values) == kRows * kCols, "{} values", values.size());
  } catch (const braid::Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos, "{}", error.what());
  }
  return 0;
}
