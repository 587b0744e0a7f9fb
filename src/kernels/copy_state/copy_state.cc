#include "kernels/copy_state/copy_state.h"

#include <algorithm>
#include <cstring>

#include "kernels/copy_state/copy_state_ref.h"
#include "sys/parallel.h"

namespace braid {
namespace {

void check_copies(const CopyState& op) {
  const int64_t entries = op.state.dim(0);
  const auto inside = [entries](int64_t i) { return i >= 0 && i < entries; };
  for (size_t i = 0; i < op.copies.size(); ++i) {
    const int64_t from = op.copies[i].from, to = op.copies[i].to;
    CHECK(inside(from) && inside(to), "copy_state: {} to {} of {}", from, to, entries);
    for (size_t j = 0; j < op.copies.size(); ++j) {
      CHECK(to != op.copies[j].from && (i == j || to != op.copies[j].to),
            "copy_state: entry {} is written and used again", to);
    }
  }
}

void copy_ref(Ctx&, const CopyState& op, std::span<std::byte>) {
  check_copies(op);
  copy_state_ref(op.state, op.copies);
}

// Each 256 KiB are worth a thread: about 20 us of one core's bandwidth.
void copy_bytes(Ctx& ctx, const CopyState& op, std::span<std::byte>) {
  check_copies(op);
  constexpr int64_t kPiece = 1 << 18;
  const int64_t bytes = op.state.dim(1) * size_of(op.state.dtype), pieces = (bytes + kPiece - 1) / kPiece,
                tasks = pieces * static_cast<int64_t>(op.copies.size());
  const auto copy = [&](int64_t i) {
    const auto& c = op.copies[static_cast<size_t>(i / pieces)];
    const int64_t begin = i % pieces * kPiece, n = std::min(kPiece, bytes - begin);
    std::memcpy(op.state.data + c.to * bytes + begin, op.state.data + c.from * bytes + begin, static_cast<size_t>(n));
  };
  sys::parallel_tasks(static_cast<int>(std::min<int64_t>(ctx.threads, std::max<int64_t>(tasks, 1))), tasks, copy);
}

const char* bytes_supports(const CopyState& op) { return op.state.contiguous() ? nullptr : "strided"; }

}  // namespace

std::span<const Row<CopyState>> CopyState::rows() {
  static constexpr Row<CopyState> kRows[] = {
      {.name = "bytes", .numerics = "copy", .supports = &bytes_supports, .run = &copy_bytes},
      {.name = "ref", .numerics = "copy", .run = &copy_ref},
  };
  return kRows;
}

}  // namespace braid
