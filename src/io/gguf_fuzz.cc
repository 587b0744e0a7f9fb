// Any bytes parse as a GGUF file or give an Error; every tensor of an accepted one lies inside the bytes.
#include <cstdint>

#include "io/gguf.h"
#include "sys/check.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    size_t covered = 0;
    for (const auto& tensor : braid::io::parse_gguf(file, "input").tensors) {
      const auto offset = static_cast<size_t>(tensor.bytes.data() - file.data());
      CHECK(offset <= size && tensor.bytes.size() <= size - offset, "{} bytes at {} of {}", tensor.bytes.size(), offset,
            size);
      const int64_t blocks = tensor.shape.count() / tensor.type->values;
      CHECK(blocks * tensor.type->bytes == std::ssize(tensor.bytes), "{} blocks", blocks);
      covered += tensor.bytes.size();
    }
    CHECK(covered <= size, "{} of {}", covered, size);
  } catch (const braid::Error&) {
  }
  return 0;
}
