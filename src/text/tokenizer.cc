#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "sys/error.h"
#include "sys/utf8.h"

namespace braid::text {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;  // positions are 32 bits wide

void check_text(std::string_view text) {
  if (text.size() > kTextBytesMax) {
    fail("tokenizer",
         {.what = "text too long", .got = fmt::format("{} bytes", text.size()), .expected = "at most 1 GiB"});
  }
  const size_t valid = sys::utf8_valid_prefix(text);
  if (valid == text.size()) return;
  fail("tokenizer",
       {.what = fmt::format("the text is not UTF-8 at byte {}", valid), .got = printable(text.substr(valid, 4))});
}

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  return encode(text, add_special, nullptr);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special, Memo& memo) const {
  return encode(text, add_special, &memo);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special, Memo* memo) const {
  check_text(text);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  if (add_special) ids = before_;
  PreTokenizer::Scratch pre_scratch(pre_tokenizer_);
  Bpe::Scratch bpe_scratch(text.size());
  const auto encode_plain = [&](std::string_view plain, bool first) {
    pre_tokenizer_.split(plain, first, pre_scratch,
                         [&](std::string_view piece) { bpe_.encode(piece, bpe_scratch, ids); });
  };
  const auto encode_normalized = [&](std::string_view normalized, bool first) {
    normalized_finder_.split(normalized, [&](std::string_view part, size_t offset, int32_t id) {
      if (id >= 0) {
        ids.push_back(id);
      } else {
        encode_plain(part, first && offset == 0);
      }
    });
  };
  const auto encode_part = [&](std::string_view part, bool first) {
    encode_normalized(normalizer_.empty() ? part : std::string_view(normalizer_.apply(part)), first);
  };
  raw_finder_.split(text, [&](std::string_view part, size_t offset, int32_t id) {
    if (id >= 0) {
      ids.push_back(id);
    } else if (memo == nullptr || offset == 0) {  // the first part may have a prefix of its own
      encode_part(part, offset == 0);
    } else if (const auto [entry, added] = memo->try_emplace(std::string(part)); added) {
      const auto begin = std::ssize(ids);
      encode_part(part, false);
      entry->second.assign(ids.begin() + begin, ids.end());
    } else {
      ids.insert(ids.end(), entry->second.begin(), entry->second.end());
    }
  });
  if (add_special) ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  TokenDecoder::Stream stream(decoder_, false);
  for (const int32_t id : ids) {
    if (skip_special && is_special(id)) continue;
    if (const std::optional<std::string> token = decoded(id)) stream.push(*token, text);
  }
  stream.finish(text);
  return text;
}

std::string Tokenizer::bytes_of(int32_t id) const {
  const std::optional<std::string> token = decoded(id);
  return token ? decoder_.bytes_of(*token) : "";
}

const AddedToken* Tokenizer::added(int32_t id) const {
  const auto it = std::ranges::lower_bound(added_, id, {}, &AddedToken::id);
  return it != added_.end() && it->id == id ? &*it : nullptr;
}

int32_t Tokenizer::vocab_size() const {
  const int32_t limit = bpe_.vocabulary().id_limit();
  return added_.empty() ? limit : std::max(limit, added_.back().id + 1);
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const auto it = std::ranges::find(added_, token, &AddedToken::content);
  return it != added_.end() ? it->id : bpe_.find_token(token);
}

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  if (const AddedToken* token = added(id)) return token->content;
  if (!bpe_.vocabulary().has(id)) return std::nullopt;
  return bpe_.token(id);
}

std::optional<std::string> Tokenizer::decoded(int32_t id) const {
  const AddedToken* token = added(id);
  return token ? token->decoded : id_to_token(id);
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* token = added(id);
  return token && token->special;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), stream_(tokenizer.decoder_, true), skip_special_(skip_special) {}

std::string StreamDecoder::push(int32_t id) {
  std::string text;
  if (skip_special_ && tokenizer_->is_special(id)) return text;
  if (const std::optional<std::string> token = tokenizer_->decoded(id)) stream_.push(*token, text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  stream_.finish(text);
  return text;
}

}  // namespace braid::text
