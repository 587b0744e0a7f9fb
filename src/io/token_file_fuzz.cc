// Any bytes parse as an index or give an Error; the documents of an accepted one follow one another.
#include <cstdint>
#include <span>

#include "io/token_file.h"
#include "sys/check.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto index = braid::io::parse_token_index(std::as_bytes(std::span(data, size)), "input");
    CHECK(!index.documents.empty() && index.documents.front() == 0, "{} documents", index.documents.size());
    for (size_t i = 1; i < index.documents.size(); ++i) {
      CHECK(index.documents[i - 1] <= index.documents[i], "document {}", i);
    }
  } catch (const braid::Error&) {
  }
  return 0;
}
