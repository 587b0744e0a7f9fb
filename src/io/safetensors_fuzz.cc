// Any bytes parse as a safetensors file or give an Error; every tensor of an accepted one lies inside the bytes.
#include <cstdint>
#include <memory>

#include "io/safetensors.h"
#include "sys/check.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    int64_t covered = 0;
    for (const auto& tensor : braid::io::parse_safetensors(file, "input")) {
      const int64_t offset = tensor.view.data - file.data(), bytes = tensor.view.bytes();
      CHECK(offset >= 8 && bytes >= 0 && bytes <= std::ssize(file) - offset, "{} bytes at {} of {}", bytes, offset,
            size);
      covered += bytes;
    }
    CHECK(covered <= std::ssize(file) - 8, "{} of {}", covered, size);
  } catch (const braid::Error&) {
  }
  return 0;
}
