#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "sys/utf8.h"
#include "text/character.h"

namespace braid::text {
namespace {

bool inside_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word(sys::utf8_step(text, sys::utf8_previous(text, begin)).value)) ||
         (end < text.size() && is_word(sys::utf8_step(text, end).value));
}

size_t spaces_before(std::string_view text, size_t at, size_t floor) {
  while (at > floor) {
    const size_t previous = sys::utf8_previous(text, at);
    if (previous < floor || !is_space(sys::utf8_step(text, previous).value)) break;
    at = previous;
  }
  return at;
}

size_t spaces_after(std::string_view text, size_t at) {
  while (at < text.size()) {
    const sys::Utf8Step step = sys::utf8_step(text, at);
    if (!is_space(step.value)) break;
    at += step.length;
  }
  return at;
}

}  // namespace

void AddedTokenFinder::add(const AddedToken& token, std::string content) {
  if (content.empty()) return;
  tokens_.push_back({.content = std::move(content),
                     .id = token.id,
                     .single_word = token.single_word,
                     .lstrip = token.lstrip,
                     .rstrip = token.rstrip});
}

void AddedTokenFinder::finish() {
  std::ranges::stable_sort(tokens_, {}, &Token::content);
  size_t at = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    first_byte_[byte] = static_cast<int32_t>(at);
    while (at < tokens_.size() && static_cast<unsigned char>(tokens_[at].content[0]) == byte) ++at;
  }
  first_byte_[256] = static_cast<int32_t>(at);
}

// Narrows the range of tokens that agree with the text, one byte at a time. Within a range the shortest comes first.
const AddedTokenFinder::Token* AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  const size_t byte = static_cast<unsigned char>(text[at]);
  auto begin = tokens_.begin() + first_byte_[byte];
  auto end = tokens_.begin() + first_byte_[byte + 1];
  const Token* best = nullptr;
  for (size_t depth = 1; begin != end; ++depth) {
    if (begin->content.size() == depth) best = &*begin;
    if (at + depth == text.size()) break;
    const auto next = static_cast<unsigned char>(text[at + depth]);
    const auto key = [&](const Token& token) {
      return token.content.size() > depth ? static_cast<int>(static_cast<unsigned char>(token.content[depth])) : -1;
    };
    std::tie(begin, end) = std::pair(std::partition_point(begin, end, [&](const Token& t) { return key(t) < next; }),
                                     std::partition_point(begin, end, [&](const Token& t) { return key(t) <= next; }));
  }
  return best;
}

void AddedTokenFinder::split(std::string_view text, Part part) const {
  size_t written = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t byte = static_cast<unsigned char>(text[at]);
    if (first_byte_[byte] == first_byte_[byte + 1]) {
      ++at;
      continue;
    }
    const Token* token = longest_at(text, at);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at += token->content.size();
    if (token->single_word && inside_word(text, begin, end)) continue;
    if (token->lstrip) begin = std::max(written, spaces_before(text, begin, 0));
    if (token->rstrip) end = spaces_after(text, end);
    if (written < begin) part(text.substr(written, begin - written), written, -1);
    part(text.substr(begin, std::max(end, begin) - begin), begin, token->id);
    written = end;
  }
  if (written < text.size()) part(text.substr(written), written, -1);
}

}  // namespace braid::text
