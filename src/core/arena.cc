#include "core/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <new>

#include "core/arena_plan.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/memory.h"

namespace braid {
namespace {

constexpr int64_t kAlign = 64;  // a cache line, and an AVX-512 vector
constexpr int64_t kPage = 4096;
constexpr int64_t kMapping = int64_t{64} << 20;  // grow in multiples of huge pages

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

Arena::~Arena() {
  for (const auto& m : mappings_) munmap(m.first, static_cast<size_t>(m.second));
}

std::byte* Arena::map(int64_t size) {
  const bool dry = plan_ && plan_->dry;
  void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | (dry ? MAP_NORESERVE : 0), -1, 0);
  if (data == MAP_FAILED && dry) throw std::bad_alloc();  // the planner knows of how much
  if (data == MAP_FAILED) {
    const auto gib = [](int64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); };
    fail_environment("memory", {.what = "out of memory",
                                .got = gib(sys::memory_available()) + " free",
                                .expected = fmt::format("{} besides {} in use", gib(size), gib(mapped_)),
                                .hint = "a smaller model, context or batch, or a larger accumulate"});
  }
  madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);
  mappings_.emplace_back(static_cast<std::byte*>(data), size);
  mapped_ += size;
  return static_cast<std::byte*>(data);
}

// A block of `need` bytes, a multiple of kAlign.
std::byte* Arena::first_fit(int64_t need) {
  auto fits = [need](const Block& b) { return b.free && b.bytes >= need; };
  auto block = std::find_if(blocks_.begin(), blocks_.end(), fits);
  if (block == blocks_.end()) {
    const int64_t size = round_up(need, kMapping);
    blocks_.push_back({map(size), size, true, true});
    block = blocks_.end() - 1;
  }
  if (block->bytes > need) {
    const Block rest{block->data + need, block->bytes - need, true, false};
    block->bytes = need;
    block = blocks_.insert(block + 1, rest) - 1;
  }
  block->free = false;
  return block->data;
}

std::byte* Arena::place(Slot* slot) {
  in_use_ += slot->bytes;
  peak_ = std::max(peak_, in_use_);
  slot->block = -1;
  if (mode_ == Mode::records) {
    slot->block = static_cast<int>(plan_->blocks.size());
    slot->pass = pass_;
    plan_->blocks.push_back({.bytes = slot->bytes, .end = std::numeric_limits<int32_t>::max()});
    plan_->events.push_back(slot->block);
  }
  if (mode_ != Mode::follows) return first_fit(slot->bytes);
  const int32_t next = event_ < plan_->events.size() ? plan_->events[event_] : -1;
  if (next < 0) {
    stray();
    return first_fit(slot->bytes);
  }
  ++event_;
  slot->block = next;
  slot->pass = pass_;
  ArenaPlan::Block& block = plan_->blocks[static_cast<size_t>(next)];
  if (slot->bytes > block.bytes || outgrown_) {
    // The plan is renewed from what this pass requests; until then the rest is placed first-fit.
    plan_->outgrown += slot->bytes > block.bytes ? 1 : 0;
    outgrown_ = outgrown_ || slot->bytes > block.bytes;
    block.bytes = std::max(block.bytes, slot->bytes);
    return first_fit(slot->bytes);
  }
  ++plan_live_;
  return plan_data_ + block.offset;
}

void Arena::stray() {
  mode_ = Mode::strays;
  ++plan_->outgrown;
}

void Arena::begin_pass(ArenaPlan& plan) {
  CHECK(mode_ == Mode::free, "a pass within a pass");
  plan_ = &plan;
  ++pass_;
  event_ = 0;
  outgrown_ = false;
  mode_ = plan.made == 0 ? Mode::records : Mode::follows;
  if (mode_ == Mode::records) return;
  if (plan_live_ > 0) return stray();  // something from the last pass is still held
  if (plan.bytes <= plan_bytes_) return;
  std::erase_if(mappings_, [this](const auto& m) { return m.first == plan_data_; });
  if (plan_data_) munmap(plan_data_, static_cast<size_t>(plan_bytes_));
  mapped_ -= plan_bytes_;
  plan_bytes_ = round_up(plan.bytes, kPage);
  plan_data_ = map(plan_bytes_);
}

void Arena::end_pass() {
  if (mode_ == Mode::strays) *plan_ = {.made = 0, .outgrown = plan_->outgrown};
  if (mode_ == Mode::records || (mode_ == Mode::follows && outgrown_)) plan_->place();
  mode_ = Mode::free;
}

Arena::Slot* Arena::take(int64_t bytes) {
  CHECK(bytes >= 0, "{} bytes", bytes);
  const int64_t need = round_up(std::max<int64_t>(bytes, 1), kAlign);
  Slot* slot = nullptr;
  if (free_slots_.empty()) {
    slot = &slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  *slot = {.arena = this, .bytes = need, .asked = bytes, .refs = 1};
  slot->data = place(slot);
  return slot;
}

void Arena::retake(Slot* slot) {
  CHECK(!slot->data, "a slot of {} bytes already has its bytes", slot->bytes);
  slot->data = place(slot);
}

void Arena::release(Slot* slot) {
  in_use_ -= slot->bytes;
  if (slot->block >= 0 && slot->pass == pass_) {
    if (mode_ == Mode::records) plan_->events.push_back(-1 - slot->block);
    if (mode_ == Mode::follows) {
      const bool expected = event_ < plan_->events.size() && plan_->events[event_] == -1 - slot->block;
      ++event_;
      if (!expected) stray();
    }
  }
  if (slot->data >= plan_data_ && slot->data < plan_data_ + plan_bytes_) {
    --plan_live_;
  } else {
    free_block(slot->data);
  }
  slot->data = nullptr;
  if (slot->names == 0) recycle(slot);
}

void Arena::free_block(std::byte* data) {
  auto block = std::find_if(blocks_.begin(), blocks_.end(), [data](const Block& b) { return b.data == data; });
  CHECK(block != blocks_.end() && !block->free, "bytes that are not in use");
  block->free = true;
  if (block + 1 != blocks_.end() && (block + 1)->free && !(block + 1)->first) {
    block->bytes += (block + 1)->bytes;
    block = blocks_.erase(block + 1) - 1;
  }
  if (!block->first && (block - 1)->free) {
    (block - 1)->bytes += block->bytes;
    blocks_.erase(block);
  }
}

void Arena::forget(Slot* slot) {
  if (slot->refs == 0) recycle(slot);
}

void Arena::recycle(Slot* slot) { free_slots_.push_back(slot); }

}  // namespace braid
