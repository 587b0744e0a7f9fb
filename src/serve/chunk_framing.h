// The framing of a chunked body (RFC 9112, 7.1), checked byte by byte beside the library, which reads a size as strtoul
// does: 1dzz, +1d and -5 pass there, and what follows a chunk need not be the end of a line.
#pragma once
#include <cstdint>
#include <string_view>

namespace braid::serve {

class ChunkFraming {
 public:
  // The next bytes of the body; false: they are not framed so.
  bool take(std::string_view bytes);

 private:
  enum class At { size, space, extension, line_feed, data, data_end, data_line_feed, trailers };
  bool step(char ch);

  At at_ = At::size;
  int digits_ = 0;
  uint64_t left_ = 0;  // bytes of the chunk
};

}  // namespace braid::serve
