// Rows that threads share: of more than kSpmmPiece edges. A task is a piece, whose result does not depend on who
// computes it; those of a row are joined in order, so that a hub is nobody's alone and threads change no bit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/view.h"

namespace braid {

struct SpmmLongRow {
  int64_t row, first;  // first: its first piece among those of all long rows
};
struct SpmmPiece {
  int64_t row, begin, end;  // edges
};
struct SpmmLongRows {
  std::span<const SpmmLongRow> list{};
  int64_t pieces = 0;

  SpmmPiece piece(const View& rowptr, int64_t k) const;
};

struct SpmmLongCount {
  int64_t rows = 0, pieces = 0;
};
SpmmLongCount count_long_rows(const View& rowptr);
// The list, in the first bytes of `space`, which is the rest then.
SpmmLongRows list_long_rows(const View& rowptr, std::span<std::byte>& space);

}  // namespace braid
