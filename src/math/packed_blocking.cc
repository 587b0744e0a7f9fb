#include "math/packed_blocking.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "sys/env.h"
#include "sys/error.h"
#include "sys/profile.h"

namespace braid::packed {
namespace {

constexpr std::string_view kPrefix = "packed_";
constexpr std::array<std::string_view, 4> kClasses = {"f32", "bf16", "dot", "tile"};
constexpr std::array<std::string_view, 3> kWays = {"fwd", "data", "weight"};
constexpr int64_t kTokensLeast = 32, kTokensMost = 2048;

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

bool take(std::string_view& text, int64_t& number) {
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return true;
}

// Numbers with an x between them.
bool take(std::string_view& text, std::initializer_list<int64_t*> numbers) {
  bool first = true;
  for (int64_t* number : numbers) {
    if (!std::exchange(first, false) && !take(text, "x")) return false;
    if (!take(text, *number)) return false;
  }
  return true;
}

template <size_t kCount>
std::optional<size_t> take_one(std::string_view& text, const std::array<std::string_view, kCount>& words) {
  for (size_t i = 0; i < kCount; ++i) {
    std::string_view rest = text;
    if (take(rest, words[i]) && take(rest, "_")) {
      text = rest;
      return i;
    }
  }
  return std::nullopt;
}

bool is_size(int64_t value, int64_t grain, int64_t most) {
  return value >= grain && value % grain == 0 && value <= most;
}

}  // namespace

ProductKey key_of(Class c, Way way, int threads, int64_t tokens, int64_t w_rows, int64_t w_cols) {
  const auto bounded = static_cast<uint64_t>(std::clamp(tokens, kTokensLeast, kTokensMost));
  return {c, way, threads, static_cast<int64_t>(std::bit_ceil(bounded)), w_rows, w_cols};
}

std::string name_of(const ProductKey& k) {
  return fmt::format("{}{}_{}_{}x{}x{}_t{}", kPrefix, kClasses[static_cast<size_t>(k.c)],
                     kWays[static_cast<size_t>(k.way)], k.tokens, k.w_rows, k.w_cols, k.threads);
}

std::string text_of(const Blocking& b) {
  std::string text = fmt::format("{}x{}x{}", b.rows, b.cols, b.depth);
  if (b.ahead > 0) text += fmt::format("_ahead_{}", b.ahead);
  return text;
}

std::optional<ProductKey> parse_key(std::string_view name) {
  ProductKey k;
  if (!take(name, kPrefix)) return std::nullopt;
  const auto c = take_one(name, kClasses);
  const auto way = c ? take_one(name, kWays) : std::nullopt;
  int64_t threads = 0;
  if (!way || !take(name, {&k.tokens, &k.w_rows, &k.w_cols}) || !take(name, "_t") || !take(name, threads) ||
      !name.empty() || threads < 1 || threads > 1024)
    return std::nullopt;
  k.c = static_cast<Class>(*c), k.way = static_cast<Way>(*way), k.threads = static_cast<int>(threads);
  if (k != key_of(k.c, k.way, k.threads, k.tokens, k.w_rows, k.w_cols)) return std::nullopt;  // of no product
  return k;
}

std::optional<Blocking> parse_blocking(std::string_view text) {
  Blocking b;
  if (!take(text, {&b.rows, &b.cols, &b.depth})) return std::nullopt;
  if (take(text, "_ahead_") && (!take(text, b.ahead) || !is_size(b.ahead, kAheadGrain, kAheadMax))) return std::nullopt;
  const bool right = text.empty() && is_size(b.rows, kRowGrain, kTaskRowsMax) &&
                     is_size(b.cols, kColGrain, kTaskColsMax) && is_size(b.depth, kDepthGrain, kBlockDepthMax);
  return right ? std::optional(b) : std::nullopt;
}

Blockings blockings_of(const std::map<std::string, std::string>& choices, Blockings list, const std::string& where) {
  for (const auto& [name, text] : choices) {
    const std::optional<ProductKey> key = parse_key(name);
    if (!key) continue;
    const std::optional<Blocking> blocking = parse_blocking(text);
    if (!blocking)
      fail(where, {.what = fmt::format("{} has no such blocking", name),
                   .got = printable(text),
                   .expected = fmt::format("ROWSxCOLSxDEPTH in multiples of {}, {} and {}, or that and _ahead_BYTES",
                                           kRowGrain, kColGrain, kDepthGrain),
                   .hint = "leaving it out"});
    const auto same = std::ranges::find(list, *key, &Blockings::value_type::first);
    same == list.end() ? list.emplace_back(*key, *blocking).second : same->second = *blocking;
  }
  return list;
}

const Blockings& blockings() {
  static const Blockings list =
      blockings_of(sys::env().forced_rows, blockings_of(sys::env().profile_rows, {}, printable(sys::profile_path())));
  return list;
}

const Blocking* chosen_blocking(const ProductKey& key) {
  const Blockings& all = blockings();
  const auto found = std::ranges::find(all, key, &Blockings::value_type::first);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace braid::packed
