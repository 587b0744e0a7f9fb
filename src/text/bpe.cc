#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include "sys/error.h"
#include "sys/utf8.h"
#include "text/byte_alphabet.h"

namespace braid::text {
namespace {

constexpr std::string_view kWordMark = "\u2581";  // what SentencePiece writes for a space

}  // namespace

size_t MergeTable::hash_of(int32_t left, int32_t right) {
  uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  key *= 0x9e3779b97f4a7c15;
  key ^= key >> 32;
  return key * 0x9e3779b97f4a7c15 >> 24;
}

void MergeTable::reserve(int64_t count) {
  slots_.assign(std::bit_ceil(static_cast<size_t>(count) * 4 / 3 + 2), Merge{});  // never full: probing always ends
}

void MergeTable::set(const Merge& merge) {
  const size_t mask = slots_.size() - 1;
  size_t i = hash_of(merge.left, merge.right) & mask;
  while (slots_[i].rank >= 0 && (slots_[i].left != merge.left || slots_[i].right != merge.right)) i = (i + 1) & mask;
  if (slots_[i].rank < 0) ++count_;
  slots_[i] = merge;
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  if (slots_.empty()) return nullptr;
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash_of(left, right) & mask; slots_[i].rank >= 0; i = (i + 1) & mask) {
    if (slots_[i].left == left && slots_[i].right == right) return &slots_[i];
  }
  return nullptr;
}

Bpe::Bpe(BpeOptions options, Vocabulary vocabulary, MergeTable merges, const std::string& where)
    : options_(std::move(options)), vocabulary_(std::move(vocabulary)), merges_(std::move(merges)) {
  for (int byte = 0; byte < 256; ++byte) {
    int32_t& id = byte_ids_[static_cast<size_t>(byte)];
    const char ch = static_cast<char>(byte);
    if (options_.byte_level) {
      id = vocabulary_.find({&ch, 1}, Script::bytes).value_or(-1);
    } else {
      id = options_.byte_fallback ? vocabulary_.find(fmt::format("<0x{:02X}>", byte), Script::text).value_or(-1) : -1;
    }
  }
  if (!options_.unk_token.empty()) {
    const std::optional<int32_t> id = find_token(options_.unk_token);
    if (!id) {
      fail(where, {.what = "the unknown token is not in the vocabulary", .got = printable(options_.unk_token, 60)});
    }
    unk_id_ = *id;
  }
  splits_words_ = !options_.byte_level && !options_.ignore_merges && words_are_apart();
}

// SentencePiece's models have no pre-tokenizer: a whole text is one piece. If the word mark is a symbol and no merge
// has a mark at the start of its right half and another character at the end of its left half, no merge crosses a word
// boundary, and words can be encoded one by one. (A run of unknown characters ends at the mark too: the mark is known.)
bool Bpe::words_are_apart() const {
  if (!vocabulary_.find(kWordMark, Script::text) || options_.unk_token.ends_with(kWordMark)) return false;
  return std::ranges::none_of(merges_.slots(), [&](const MergeTable::Merge& merge) {
    return merge.rank >= 0 && vocabulary_.spelling(merge.right).starts_with(kWordMark) &&
           !vocabulary_.spelling(merge.left).ends_with(kWordMark);
  });
}

std::optional<int32_t> Bpe::find_token(std::string_view token) const {
  std::string bytes;
  const bool spelled = options_.byte_level && bytes_of_spelling(token, bytes);
  return spelled ? vocabulary_.find(bytes, Script::bytes) : vocabulary_.find(token, Script::text);
}

std::string Bpe::token(int32_t id) const {
  std::string token;
  if (vocabulary_.script(id) == Script::bytes) {
    append_spelling(vocabulary_.spelling(id), token);
  } else {
    token = vocabulary_.spelling(id);
  }
  return token;
}

Bpe::Scratch::Scratch(size_t text_bytes) : words(std::bit_ceil(std::clamp<size_t>(text_bytes / 16, 16, 16384))) {}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  size_t begin = 0;
  size_t at = splits_words_ ? piece.find(kWordMark, 1) : std::string_view::npos;
  for (; at != std::string_view::npos; at = piece.find(kWordMark, at + kWordMark.size())) {
    if (piece.substr(0, at).ends_with(kWordMark)) continue;
    encode_word(piece.substr(begin, at - begin), scratch, ids);
    begin = at;
  }
  encode_word(piece.substr(begin), scratch, ids);
}

void Bpe::encode_word(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  const uint64_t hash = Vocabulary::hash_of(piece);
  Scratch::Word& word = scratch.words[hash >> 32 & (scratch.words.size() - 1)];
  if (word.size == piece.size() && std::memcmp(word.piece, piece.data(), word.size) == 0) {
    ids.insert(ids.end(), word.ids, word.ids + word.count);
    return;
  }
  const size_t before = ids.size();
  encode_uncached(piece, hash, scratch, ids);
  const size_t count = ids.size() - before;
  if (piece.size() > std::size(word.piece) || count > std::size(word.ids)) return;
  word.size = static_cast<uint8_t>(piece.size());
  word.count = static_cast<uint8_t>(count);
  std::ranges::copy(piece, word.piece);
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), word.ids);
}

void Bpe::encode_uncached(std::string_view piece, uint64_t hash, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const auto whole = vocabulary_.find(piece, options_.byte_level ? Script::bytes : Script::text, hash)) {
      ids.push_back(*whole);
      return;
    }
  }
  scratch.symbols.clear();
  add_symbols(piece, scratch.symbols);
  merge(scratch);
  for (int32_t at = scratch.symbols.empty() ? -1 : 0; at >= 0; at = scratch.symbols[static_cast<size_t>(at)].next) {
    ids.push_back(scratch.symbols[static_cast<size_t>(at)].id);
  }
}

namespace {

void push_symbol(int32_t id, std::vector<Bpe::Scratch::Symbol>& symbols) {
  const auto at = static_cast<int32_t>(symbols.size());
  symbols.push_back({.id = id, .prev = at - 1, .next = at + 1, .rank = -1, .merged = -1});
}

}  // namespace

void Bpe::add_symbols(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const {
  bool unknown = false;  // an unknown token is pending: more of them may fuse with it
  const auto flush = [&] {
    if (unknown) push_symbol(unk_id_, symbols);
    unknown = false;
  };
  if (options_.byte_level) {
    for (const char ch : piece) {
      const int32_t id = byte_ids_[static_cast<unsigned char>(ch)];
      if (id >= 0) {
        flush();
        push_symbol(id, symbols);
      } else {
        add_fallback({}, unknown, symbols);
      }
    }
  } else {
    for (size_t at = 0; at < piece.size();) {
      const std::string_view character = piece.substr(at, sys::utf8_step(piece, at).length);
      at += character.size();
      if (const std::optional<int32_t> id = vocabulary_.find(character, Script::text)) {
        flush();
        push_symbol(*id, symbols);
      } else {
        add_fallback(character, unknown, symbols);
      }
    }
  }
  flush();
  if (!symbols.empty()) symbols.back().next = -1;
}

// Hugging Face's library writes fallback bytes without first writing pending unknown tokens; so do we.
void Bpe::add_fallback(std::string_view character, bool& unknown, std::vector<Scratch::Symbol>& symbols) const {
  const auto id_of = [&](char ch) { return byte_ids_[static_cast<unsigned char>(ch)]; };
  if (!character.empty() && std::ranges::all_of(character, [&](char ch) { return id_of(ch) >= 0; })) {
    for (const char ch : character) push_symbol(id_of(ch), symbols);
  } else if (unk_id_ >= 0) {
    if (unknown && !options_.fuse_unk) push_symbol(unk_id_, symbols);
    unknown = true;
  }
}

void Bpe::rank_pair(Scratch& scratch, int32_t at) const {
  Scratch::Symbol& symbol = scratch.symbols[static_cast<size_t>(at)];
  symbol.rank = -1;
  if (symbol.next < 0) return;
  const MergeTable::Merge* found = merges_.find(symbol.id, scratch.symbols[static_cast<size_t>(symbol.next)].id);
  if (!found) return;
  symbol.rank = found->rank;
  symbol.merged = found->merged;
  scratch.queue.push_back(static_cast<uint64_t>(found->rank) << 32 | static_cast<uint32_t>(at));
}

void Bpe::merge(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  queue.clear();
  for (size_t at = 0; at < symbols.size(); ++at) rank_pair(scratch, static_cast<int32_t>(at));
  std::ranges::make_heap(queue, std::greater<>{});
  const auto push_pair = [&](int32_t at) {
    const size_t before = queue.size();
    rank_pair(scratch, at);
    if (queue.size() > before) std::ranges::push_heap(queue, std::greater<>{});
  };
  while (!queue.empty()) {
    std::ranges::pop_heap(queue, std::greater<>{});
    const auto rank = static_cast<int32_t>(queue.back() >> 32);
    const auto at = static_cast<int32_t>(queue.back() & 0xffffffffu);
    queue.pop_back();
    Scratch::Symbol& left = symbols[static_cast<size_t>(at)];
    if (left.rank != rank) continue;  // one of the two was merged elsewhere since
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = left.merged;
    left.next = right.next;
    right.rank = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].prev = at;
    push_pair(at);
    if (left.prev >= 0) push_pair(left.prev);
  }
}

}  // namespace braid::text
