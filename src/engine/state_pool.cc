#include "engine/state_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::engine {
namespace {

constexpr int64_t kPage = 64;  // tokens: small enough to waste little, large enough to stream

}  // namespace

SequenceBytes sequence_bytes(const std::vector<nn::StateShape>& shapes, DType kv, bool exact) {
  SequenceBytes sum;
  for (const nn::StateShape& s : shapes) {
    sum.fixed += s.fixed_bytes() + (exact ? s.exact_bytes(kv) : 0);
    sum.per_token += s.kv_values_per_token() * size_of(kv);
  }
  return sum;
}

StatePool::StatePool(const std::vector<nn::StateShape>& shapes, const PoolOptions& options) : options_(options) {
  pages_max_ = (options.context + kPage - 1) / kPage;
  const int64_t pages = pages_max_ * options.slots;
  CHECK(pages < (int64_t{1} << 31), "{} pages", pages);
  page_table_.assign(static_cast<size_t>(pages), -1);
  for (int64_t i = pages; i-- > 0;) free_pages_.push_back(static_cast<int32_t>(i));
  pages_held_.assign(static_cast<size_t>(options.slots), 0);
  view_.page_table = view_of(page_table_.data(), {options.slots, pages_max_});
  for (const nn::StateShape& s : shapes) {
    nn::BlockState& block = view_.blocks.emplace_back();
    if (s.heads > 0) {
      block.conv = reserve(DType::f32, {options.slots, s.conv_columns, s.conv_channels});
      block.ssm = reserve(DType::f32, {options.slots, s.heads, s.head_dim, s.state});
      if (options.exact) {
        block.chunk_ssm = reserve(DType::f32, {options.slots, s.heads, s.head_dim, s.state});
        block.chunk_inputs = reserve(options.kv, {options.slots, s.chunk, s.conv_channels + s.heads});
      }
    }
    if (s.kv_heads > 0) {
      block.k_pages = reserve(options.kv, {pages, kPage, s.kv_heads, s.kv_dim});
      block.v_pages = reserve(options.kv, {pages, kPage, s.kv_heads, s.kv_dim});
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
    fail_environment("memory", {.what = "no room for the states of the sequences",
                                .got = fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)),
                                .hint = "a smaller context (-c)"});
  }
  mappings_.emplace_back(data, bytes);
  return {static_cast<std::byte*>(data), dtype, shape};
}

void StatePool::grow(int64_t slot, int64_t tokens) {
  if (tokens > options_.context) {
    fail("context", {.what = "the sequence is longer than the context",
                     .got = fmt::format("{} tokens", tokens),
                     .expected = fmt::format("at most {}", options_.context),
                     .hint = "a larger -c, or a shorter prompt"});
  }
  int64_t& held = pages_held_[static_cast<size_t>(slot)];
  for (; held * kPage < tokens; ++held) {
    page_table_[static_cast<size_t>(slot * pages_max_ + held)] = free_pages_.back();
    free_pages_.pop_back();
  }
}

void StatePool::reset(int64_t slot) {
  int64_t& held = pages_held_[static_cast<size_t>(slot)];
  while (held > 0) {
    int32_t& entry = page_table_[static_cast<size_t>(slot * pages_max_ + --held)];
    free_pages_.push_back(entry);
    entry = -1;
  }
  for (const nn::BlockState& block : view_.blocks) {
    for (const MutView& v : {block.conv, block.ssm, block.chunk_ssm}) {
      if (!v) continue;
      const MutView own = v.slice(0, slot, 1);
      std::memset(own.data, 0, static_cast<size_t>(own.bytes()));
    }
  }
}

}  // namespace braid::engine
