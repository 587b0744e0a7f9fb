#include "serve/chunk_framing.h"

#include <algorithm>

namespace braid::serve {
namespace {

constexpr int kDigitsMax = 8;

int value_of(char ch) {
  if (ch >= '0' && ch <= '9') return ch - '0';
  const char small = static_cast<char>(ch | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

}  // namespace

bool ChunkFraming::step(char ch) {
  switch (at_) {
    case At::size:
      if (const int digit = value_of(ch); digit >= 0) {
        left_ = left_ * 16 + static_cast<uint64_t>(digit);
        return ++digits_ <= kDigitsMax;
      }
      if (digits_ == 0) return false;
      [[fallthrough]];
    case At::space:
      at_ = ch == '\r' ? At::line_feed : ch == ';' ? At::extension : At::space;
      return ch == '\r' || ch == ';' || ch == ' ' || ch == '\t';
    case At::extension:
      if (ch == '\r') at_ = At::line_feed;
      return ch != '\n';
    case At::line_feed:
      at_ = left_ > 0 ? At::data : At::trailers;
      return ch == '\n';
    case At::data_end:
      at_ = At::data_line_feed;
      return ch == '\r';
    case At::data_line_feed:
      at_ = At::size;
      digits_ = 0;
      return ch == '\n';
    case At::data:
    case At::trailers:
      break;
  }
  return true;
}

bool ChunkFraming::take(std::string_view bytes) {
  while (!bytes.empty() && at_ != At::trailers) {
    if (at_ == At::data) {
      const auto n = std::min<uint64_t>(left_, bytes.size());
      bytes.remove_prefix(n);
      left_ -= n;
      if (left_ == 0) at_ = At::data_end;
      continue;
    }
    if (!step(bytes.front())) return false;
    bytes.remove_prefix(1);
  }
  return true;
}

}  // namespace braid::serve
