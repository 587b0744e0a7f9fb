#include "comm/steps.h"

#include <utility>

#include "sys/check.h"

namespace braid::comm {

void Round::clear() {
  transfers_.clear();
  locals_.clear();
  ranges_.clear();
}

void Round::add(Transfer::Kind kind, int peer, const Ranges& ranges, uint8_t lane) {
  if (ranges.count() == 0) return;
  transfers_.push_back({.kind = kind,
                        .lane = lane,
                        .peer = peer,
                        .count = ranges.count(),
                        .first_range = static_cast<int32_t>(ranges_.size()),
                        .ranges = static_cast<int32_t>(ranges.list().size())});
  ranges_.insert(ranges_.end(), ranges.list().begin(), ranges.list().end());
}

void Round::signal(int peer) { transfers_.push_back({.kind = Transfer::Kind::send, .peer = peer}); }
void Round::await(int peer) { transfers_.push_back({.kind = Transfer::Kind::recv, .peer = peer}); }

void Round::add_cells(Transfer::Kind kind, int peer, const Range& range, int32_t slot, uint32_t number) {
  if (range.count == 0) return;
  add(kind, peer, range, 0);
  transfers_.back().slot = slot;
  transfers_.back().cell_number = number;
}
void Round::send_cells(int peer, const Range& range, int32_t slot, uint32_t number) {
  add_cells(Transfer::Kind::send, peer, range, slot, number);
}
void Round::recv_cells(int peer, const Range& range, int32_t slot, uint32_t number) {
  add_cells(Transfer::Kind::recv, peer, range, slot, number);
}

void Round::copy(const Range& dst, const Range& src) {
  CHECK(dst.count == src.count, "{} and {} elements", dst.count, src.count);
  if (dst.count > 0) locals_.push_back({Local::Kind::copy, dst, src});
}
void Round::reduce(const Range& dst, const Range& src) {
  CHECK(dst.count == src.count, "{} and {} elements", dst.count, src.count);
  if (dst.count > 0) locals_.push_back({Local::Kind::reduce, dst, src});
}

void Round::recv_reduce(int peer, const Ranges& dst, int64_t landing, uint8_t lane) {
  recv(peer, Range{Space::scratch, landing, dst.count()}, lane);
  for (const Range& range : dst.list()) {
    reduce(range, {Space::scratch, landing, range.count});
    landing += range.count;
  }
}

void Schedule::then(int64_t rounds, std::function<void(int64_t, Round&)> emit) {
  if (rounds > 0) stages.push_back({rounds, std::move(emit)});
}
void Schedule::once(const std::function<void(Round&)>& emit) {
  then(1, [emit](int64_t, Round& out) { emit(out); });
}
void Schedule::copy(const Range& dst, const Range& src) {
  if (dst.count > 0) once([dst, src](Round& out) { out.copy(dst, src); });
}
int64_t Schedule::reserve(int64_t count) { return std::exchange(scratch, scratch + count); }

}  // namespace braid::comm
