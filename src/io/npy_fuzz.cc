// Any bytes parse as an npy file or give an Error; the values of an accepted one are what follows its header.
#include <cstdint>
#include <span>

#include "io/npy.h"
#include "sys/check.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const braid::io::NpyLayout layout = braid::io::parse_npy(file, "input");
    int64_t bytes = braid::size_of(layout.dtype);
    for (int i = 0; i < layout.shape.rank; ++i) {
      CHECK(layout.shape[i] >= 0, "{}", layout.shape[i]);
      bytes *= layout.shape[i];
    }
    CHECK(layout.offset >= 10 && layout.offset + bytes == std::ssize(file), "{} bytes at {} of {}", bytes,
          layout.offset, size);
  } catch (const braid::Error&) {
  }
  return 0;
}
