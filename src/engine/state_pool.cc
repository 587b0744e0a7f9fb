#include "engine/state_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::engine {
namespace {

constexpr int64_t kPage = kPageTokens;

// [pages, G, page, P] as [pages, page, G, P]: what a head reads of a page is contiguous.
MutView head_by_head(const MutView& pages) {
  MutView v = pages;
  std::swap(v.shape[1], v.shape[2]);
  std::swap(v.strides[1], v.strides[2]);
  return v;
}

// Entries of a slot or page are contiguous, with their axes in any order.
std::span<std::byte> entry_of(const MutView& all, int64_t entry) {
  const int64_t bytes = all.bytes() / all.dim(0);
  return {all.data + entry * bytes, static_cast<size_t>(bytes)};
}

// To the system, as far as they are whole pages of it.
void give_back(std::span<std::byte> bytes) {
  constexpr uintptr_t kSystemPage = 4096;
  const size_t before = (kSystemPage - reinterpret_cast<uintptr_t>(bytes.data()) % kSystemPage) % kSystemPage;
  if (bytes.size() < before + kSystemPage) return;
  madvise(bytes.data() + before, (bytes.size() - before) / kSystemPage * kSystemPage, MADV_DONTNEED);
}

}  // namespace

SequenceBytes sequence_bytes(const std::vector<nn::StateShape>& shapes, const CacheTypes& types, bool exact) {
  SequenceBytes sum;
  for (const nn::StateShape& s : shapes) {
    sum.fixed += s.fixed_bytes(types.ssm) + (exact ? s.exact_bytes(types.kv) : 0);
    sum.per_token += s.kv_bytes_per_token(types.kv);
  }
  return sum;
}

StatePool::StatePool(const std::vector<nn::StateShape>& shapes, const PoolOptions& options) : options_(options) {
  pages_max_ = (options.context + kPage - 1) / kPage;
  const int64_t pages = options.pages > 0 ? options.pages : pages_max_ * options.sequences,
                slots = options.slots > 0 ? options.slots : options.sequences;
  CHECK(pages < (int64_t{1} << 31), "{} pages", pages);
  page_table_.assign(static_cast<size_t>(options.sequences * pages_max_), -1);
  for (int64_t i = pages; i-- > 0;) free_pages_.push_back(static_cast<int32_t>(i));
  for (int64_t i = slots; i-- > 0;) free_slots_.push_back(i);
  readers_.assign(static_cast<size_t>(pages), 0);
  slots_touched_.assign(static_cast<size_t>(slots), false);
  pages_touched_.assign(static_cast<size_t>(pages), false);
  const SequenceBytes bytes = sequence_bytes(shapes, options.types, options.exact);
  page_bytes_ = bytes.per_token * kPage;
  slot_bytes_ = bytes.fixed;
  pages_held_.assign(static_cast<size_t>(options.sequences), 0);
  view_.page_table = view_of(page_table_.data(), {options.sequences, pages_max_});
  for (const nn::StateShape& s : shapes) {
    nn::BlockState& block = view_.blocks.emplace_back();
    if (s.heads > 0) {
      block.conv = reserve(DType::f32, {slots, s.conv_columns, s.conv_channels});
      block.ssm = reserve(options.types.ssm, {slots, s.heads, s.head_dim, s.state});
      if (options.types.ssm == DType::i8) block.ssm_scales = reserve(DType::f32, {slots, s.heads, s.head_dim});
      if (options.exact) {
        block.chunk_ssm = reserve(DType::f32, {slots, s.heads, s.head_dim, s.state});
        block.chunk_inputs = reserve(options.types.kv, {slots, s.chunk, s.conv_channels + s.heads});
      }
    }
    if (s.kv_heads > 0) {
      for (MutView* v : {&block.k_pages, &block.v_pages})
        *v = head_by_head(reserve(options.types.kv, {pages, s.kv_heads, kPage, s.kv_dim}));
      if (options.types.kv == DType::i8) {
        block.k_scales = reserve(DType::f32, {pages, kPage, s.kv_heads});
        block.v_scales = reserve(DType::f32, {pages, kPage, s.kv_heads});
      }
    }
  }
}

StatePool::~StatePool() {
  for (const auto& m : mappings_) munmap(m.first, m.second);
}

MutView StatePool::reserve(DType dtype, const Shape& shape) {
  const auto bytes = static_cast<size_t>(std::max<int64_t>(shape.count() * size_of(dtype), 1));
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    fail_environment("memory", {.what = "not enough memory for the states of the sequences",
                                .got = fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)),
                                .hint = "a smaller context (-c)"});
  }
  madvise(data, bytes, MADV_HUGEPAGE);
  mappings_.emplace_back(data, bytes);
  return {static_cast<std::byte*>(data), dtype, shape};
}

bool StatePool::make_room(const sys::FunctionRef<bool()>& none_free, int64_t bytes) {
  while (none_free() || (options_.budget > 0 && bytes_in_use() + bytes > options_.budget)) {
    if (!reclaim_ || !reclaim_()) return false;
  }
  return true;
}

bool StatePool::charge(int64_t bytes) {
  if (!make_room([] { return false; }, bytes)) return false;
  if (options_.budget > 0 && resident_ + charged_ + bytes > options_.budget) give_back_memory();
  charged_ += bytes;
  return true;
}

void StatePool::touch(std::vector<bool>& touched, int64_t entry, int64_t bytes) {
  if (options_.budget == 0 || touched[static_cast<size_t>(entry)]) return;
  if (resident_ + charged_ + bytes > options_.budget) give_back_memory();
  touched[static_cast<size_t>(entry)] = true;
  resident_ += bytes;
}

void StatePool::for_each_part_of_page(int32_t page, const sys::FunctionRef<void(std::span<std::byte>)>& body) const {
  for (const nn::BlockState& block : view_.blocks) {
    for (const MutView& v : block.by_page()) {
      if (v) body(entry_of(v, page));
    }
  }
}

void StatePool::for_each_part_of_slot(int64_t slot, const sys::FunctionRef<void(std::span<std::byte>)>& body) const {
  for (const nn::BlockState& block : view_.blocks) {
    for (const MutView& v : block.by_slot()) {
      if (v) body(entry_of(v, slot));
    }
  }
}

// Of all free entries: what one kind has freed, the other kind needs.
void StatePool::give_back_memory() {
  const auto give = [](std::span<std::byte> bytes) { give_back(bytes); };
  for (const int64_t slot : free_slots_) {
    if (!slots_touched_[static_cast<size_t>(slot)]) continue;
    for_each_part_of_slot(slot, give);
    slots_touched_[static_cast<size_t>(slot)] = false;
    resident_ -= slot_bytes_;
  }
  for (const int32_t page : free_pages_) {
    if (!pages_touched_[static_cast<size_t>(page)]) continue;
    for_each_part_of_page(page, give);
    pages_touched_[static_cast<size_t>(page)] = false;
    resident_ -= page_bytes_;
  }
}

int64_t StatePool::take_slot() {
  if (!make_room([&] { return free_slots_.empty(); }, slot_bytes_)) return -1;
  const int64_t slot = free_slots_.back();
  touch(slots_touched_, slot, slot_bytes_);
  free_slots_.pop_back();
  return slot;
}

void StatePool::give_slot(int64_t slot) { free_slots_.push_back(slot); }

void StatePool::clear_slot(int64_t slot) {
  for (const nn::BlockState& block : view_.blocks) {
    for (const MutView& v :
         {block.conv, block.ssm, block.ssm_scales, block.chunk_ssm}) {  // chunk_inputs is written before it is read
      if (!v) continue;
      const MutView own = v.slice(0, slot, 1);
      std::memset(own.data, 0, static_cast<size_t>(own.bytes()));
    }
  }
}

void StatePool::copy_slot(Ctx& ctx, int64_t from, int64_t to) {
  const std::array<CopyState::Copy, 1> copy = {{{.from = from, .to = to}}};
  for (const nn::BlockState& block : view_.blocks) {
    for (const MutView& v : block.by_slot()) {
      if (v) run(ctx, CopyState{.state = CopyState::entries(v), .copies = copy});
    }
  }
}

void StatePool::copy_page(Ctx& ctx, int32_t from, int32_t to) {
  const std::array<CopyState::Copy, 1> copy = {{{.from = from, .to = to}}};
  for (const nn::BlockState& block : view_.blocks) {
    for (const MutView& v : block.by_page()) {
      if (v) run(ctx, CopyState{.state = CopyState::entries(v), .copies = copy});
    }
  }
}

int32_t StatePool::take_page() {
  if (!make_room([&] { return free_pages_.empty(); }, page_bytes_)) return -1;
  const int32_t page = free_pages_.back();
  touch(pages_touched_, page, page_bytes_);
  free_pages_.pop_back();
  retain(page);
  return page;
}

int32_t StatePool::need_page() {
  const int32_t page = take_page();
  if (page >= 0) return page;
  fail_environment("memory", {.what = "no page is left for keys and values",
                              .got = fmt::format("{} pages of {} tokens in use", pages_in_use(), kPage),
                              .hint = "fewer or shorter sequences at once"});
}

void StatePool::retain(int32_t page) {
  ++readers_[static_cast<size_t>(page)];
  ++references_;
}

void StatePool::release(int32_t page) {
  --references_;
  if (--readers_[static_cast<size_t>(page)] == 0) free_pages_.push_back(page);
}

void StatePool::give_page(int32_t& page) {
  release(page);
  page = -1;
}

void StatePool::check_fits(int64_t tokens) const {
  if (tokens <= options_.context) return;
  const bool may_grow = options_.context_may_grow;
  fail("context",
       {.what = "the sequence is longer than the context",
        .got = fmt::format("{} tokens", tokens),
        .expected = fmt::format("at most {}{}", options_.context, may_grow ? "" : ", all that the model allows"),
        .hint = may_grow ? "a larger -c, or a shorter prompt" : "a shorter prompt"});
}

void StatePool::prepare(Ctx& ctx, int64_t sequence, int64_t begin, int64_t end) {
  check_fits(end);
  int64_t& held = pages_held_[static_cast<size_t>(sequence)];
  CHECK(begin <= held * kPage, "position {} of a sequence of {} pages", begin, held);
  for (int64_t i = begin / kPage; i * kPage < end; ++i) {
    if (i == held) {
      entry(sequence, i) = need_page();
      ++held;
    } else if (readers(entry(sequence, i)) > 1) {
      const int32_t page = take_page();  // to make room, the other reader may have been evicted
      if (readers(entry(sequence, i)) == 1) {
        if (page >= 0) release(page);
        continue;
      }
      if (page < 0) need_page();
      try {
        if (i * kPage < begin) copy_page(ctx, entry(sequence, i), page);
      } catch (...) {
        release(page);
        throw;
      }
      give_page(entry(sequence, i));
      entry(sequence, i) = page;
    }
  }
}

bool StatePool::owns(int64_t sequence, int64_t begin, int64_t end) const {
  const int64_t held = pages_held_[static_cast<size_t>(sequence)], needed = (end + kPage - 1) / kPage;
  const int64_t others = std::ssize(pages_held_) - 1;  // one is left for each
  if (end > options_.context || (needed > held && needed - held + others > pages_free())) return false;
  for (int64_t i = begin / kPage; i < std::min(held, needed); ++i) {
    if (readers(page_table_[static_cast<size_t>(sequence * pages_max_ + i)]) > 1) return false;
  }
  return true;
}

void StatePool::repeat_page(Ctx& ctx, int64_t sequence, int64_t begin, int64_t end) {
  CHECK(begin >= kPage, "no whole page in {} tokens", begin);
  prepare(ctx, sequence, begin, end);
  std::vector<CopyState::Copy> copies;
  for (int64_t i = begin / kPage; begin < end && i * kPage < end; ++i)
    copies.push_back({.from = entry(sequence, 0), .to = entry(sequence, i)});
  for (const nn::BlockState& block : view_.blocks) {
    for (const MutView& v : block.by_page()) {
      if (v) run(ctx, CopyState{.state = CopyState::entries(v), .copies = copies});
    }
  }
}

void StatePool::copy_token(int64_t sequence, int64_t position, int64_t from, int64_t to) {
  const int64_t page = entry(sequence, position / kPage);
  const auto source = view_.blocks[static_cast<size_t>(from)].by_page(),
             target = view_.blocks[static_cast<size_t>(to)].by_page();
  for (size_t i = 0; i < source.size(); ++i) {
    if (!source[i]) continue;
    // [G, P], or [G] of scales; a head's values are contiguous.
    const MutView values = source[i].slice(0, page, 1).slice(1, position % kPage, 1),
                  copy = target[i].slice(0, page, 1).slice(1, position % kPage, 1);
    const int64_t bytes = values.bytes() / values.dim(2), step = values.stride(2) * size_of(values.dtype);
    for (int64_t head = 0; head < values.dim(2); ++head)
      std::memcpy(copy.data + head * step, values.data + head * step, static_cast<size_t>(bytes));
  }
}

void StatePool::share(int64_t from, int64_t to, int64_t tokens) {
  int64_t& held = pages_held_[static_cast<size_t>(to)];
  CHECK(held == 0 && tokens <= pages_held_[static_cast<size_t>(from)] * kPage,
        "{} tokens of sequence {} for {}, which has {} pages", tokens, from, to, held);
  for (; held * kPage < tokens; ++held) {
    entry(to, held) = entry(from, held);
    retain(entry(to, held));
  }
}

void StatePool::share(std::span<const int32_t> pages, int64_t to) {
  int64_t& held = pages_held_[static_cast<size_t>(to)];
  CHECK(held == 0 && std::ssize(pages) <= pages_max_, "{} pages for sequence {}, which has {}", pages.size(), to, held);
  for (const int32_t page : pages) {
    entry(to, held++) = page;
    retain(page);
  }
}

void StatePool::truncate(int64_t sequence, int64_t tokens) {
  int64_t& held = pages_held_[static_cast<size_t>(sequence)];
  while ((held - 1) * kPage >= tokens) give_page(entry(sequence, --held));
}

}  // namespace braid::engine
