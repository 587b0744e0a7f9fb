// How far the reading of text is. Rendering and tokenizing the conversations of a corpus takes minutes.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace braid::data {

// Called with the bytes of a file of JSON lines that are read: 0 first, then now and then, and at the end all of them.
using Reading = std::function<void(const std::string& file, int64_t done, int64_t total)>;

}  // namespace braid::data
