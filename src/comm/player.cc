#include "comm/player.h"

#include <cstring>
#include <utility>

#include "sys/check.h"

namespace braid::comm {

Player::Player(Schedule schedule, const Buffers& buffers, DType type, Reduction reduction)
    : schedule_(std::move(schedule)),
      buffers_(buffers),
      type_(type),
      reduction_(reduction),
      element_(size_of(type)),
      scratch_(new std::byte[static_cast<size_t>(schedule_.scratch * element_)]) {}

Player::Player(Schedule schedule, DType type, Reduction reduction)
    : schedule_(std::move(schedule)), type_(type), reduction_(reduction), element_(size_of(type)), moves_(false) {}

bool Player::next() {
  for (; stage_ < schedule_.stages.size(); ++stage_, next_round_ = 0) {
    const Stage& stage = schedule_.stages[stage_];
    while (next_round_ < stage.rounds) {
      round_.clear();
      stage.emit(next_round_++, round_);
      if (!round_.empty()) return true;
    }
  }
  round_.clear();
  return false;
}

void Player::finish_round() {
  for (const Local& local : round_.locals()) {
    const int64_t bytes = local.dst.count * element_;
    if (local.kind == Local::Kind::copy) {
      if (moves_) std::memmove(at_mutable(local.dst), at(local.src), static_cast<size_t>(bytes));
      copied_ += bytes;
    } else {
      if (moves_) combine(type_, reduction_, at_mutable(local.dst), at(local.src), local.dst.count);
      reduced_ += bytes;
    }
  }
}

const std::byte* Player::at(const Range& r) const {
  const std::byte* base = r.space == Space::in ? buffers_.in : r.space == Space::out ? buffers_.out : scratch_.get();
  return base + r.at * element_;
}

std::byte* Player::at_mutable(const Range& r) {
  CHECK(r.space != Space::in, "a step writes to the input");
  return (r.space == Space::out ? buffers_.out : scratch_.get()) + r.at * element_;
}

const std::byte* Player::source(const Transfer& t) const { return t.ranges == 1 ? at(round_.ranges(t)[0]) : nullptr; }
std::byte* Player::target(const Transfer& t) { return t.ranges == 1 ? at_mutable(round_.ranges(t)[0]) : nullptr; }

void Player::gather(const Transfer& t, std::byte* to) const {
  for (const Range& r : round_.ranges(t)) {
    std::memcpy(to, at(r), static_cast<size_t>(r.count * element_));
    to += r.count * element_;
  }
}

void Player::scatter(const Transfer& t, const std::byte* from) {
  for (const Range& r : round_.ranges(t)) {
    std::memcpy(at_mutable(r), from, static_cast<size_t>(r.count * element_));
    from += r.count * element_;
  }
}

}  // namespace braid::comm
