#include "comm/frames.h"

#include <fmt/format.h>

#include "sys/error.h"

namespace braid::comm {

std::span<const std::byte> FrameWriter::pending() {
  if (queue_.empty()) return {};
  const Message& m = *queue_.front();
  if (at_ < sizeof(FrameHeader)) {
    header_ = {m.tag, m.check, m.bytes};
    return std::as_bytes(std::span(&header_, 1)).subspan(at_);
  }
  const size_t done = at_ - sizeof(FrameHeader);
  return {m.data + done, static_cast<size_t>(m.bytes) - done};
}

void FrameWriter::sent(size_t n) {
  at_ += n;
  Message& m = *queue_.front();
  if (at_ < sizeof(FrameHeader) + static_cast<size_t>(m.bytes)) return;
  m.done = true;
  queue_.pop_front();
  at_ = 0;
}

std::span<std::byte> FrameReader::room() {
  if (at_ < sizeof(FrameHeader)) return std::as_writable_bytes(std::span(&header_, 1)).subspan(at_);
  const size_t done = at_ - sizeof(FrameHeader);
  return {(target_ ? target_->data : mail_.data.data()) + done, static_cast<size_t>(header_.bytes) - done};
}

void FrameReader::got(size_t n) {
  at_ += n;
  if (at_ < sizeof(FrameHeader)) return;
  if (at_ == sizeof(FrameHeader)) begin_payload();
  if (at_ == sizeof(FrameHeader) + static_cast<size_t>(header_.bytes)) end_payload();
}

void FrameReader::begin_payload() {
  if (header_.bytes < 0 || header_.bytes > kFrameMost)
    fail_environment("comm", {.what = fmt::format("the stream from rank {} is not one of frames", from_)});
  target_ = mailbox_->claim(from_, header_.tag);
  if (target_ && target_->bytes == header_.bytes) return;
  // Nobody waits for it, or for another size: that receive will report it.
  mail_ = {from_, header_.tag, header_.check, std::vector<std::byte>(static_cast<size_t>(header_.bytes))};
  if (target_) mailbox_->unclaim(*target_);
  target_ = nullptr;
}

void FrameReader::end_payload() {
  if (target_) {
    target_->got_bytes = header_.bytes;
    target_->got_check = header_.check;
    target_->done = true;
  } else {
    mailbox_->arrive(std::move(mail_));
  }
  target_ = nullptr;
  mail_ = {};
  at_ = 0;
}

void FrameReader::forget() noexcept {
  if (!target_) return;
  mail_.data.resize(static_cast<size_t>(header_.bytes));
  mail_.tag = header_.tag;
  target_ = nullptr;
}

}  // namespace braid::comm
