#include "text/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace braid::text {
namespace {

constexpr size_t kSplitsMax = 32;  // the chain is walked recursively

// What ByteLevel splits with when the file gives no pattern: the one GPT-2 was trained with.
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Part {
  size_t begin, end;
  bool match;
};

// The text as matches and the gaps between them.
std::vector<Part> parts_of(Matcher& matcher, std::string_view text) {
  std::vector<Part> parts;
  Matches matches(matcher, text);
  size_t written = 0;
  for (Match match; matches.next(match); written = match.end) {
    if (written < match.begin) parts.push_back({written, match.begin, false});
    parts.push_back({match.begin, match.end, true});
  }
  if (written < text.size()) parts.push_back({written, text.size(), false});
  return parts;
}

}  // namespace

PrependScheme read_prepend_scheme(const io::Json& spec) {
  const bool add = spec.bool_of({"add_prefix_space"}).value_or(true);
  const std::string scheme = spec.string_of({"prepend_scheme"}).value_or(add ? "always" : "never");
  if (scheme == "first") return PrependScheme::first;
  if (scheme == "always") return PrependScheme::always;
  if (scheme == "never") return PrependScheme::never;
  spec.need({"prepend_scheme"}).refuse("is unknown", "first, always or never");
}

PreTokenizer PreTokenizer::read(const std::optional<io::Json>& spec) {
  PreTokenizer pre_tokenizer;
  if (spec) pre_tokenizer.add(*spec);
  return pre_tokenizer;
}

PreTokenizer::Behavior PreTokenizer::read_behavior(const io::Json& spec) {
  const io::Json name = spec.need({"behavior"});
  if (name.as_string() == "Isolated") return Behavior::isolated;
  if (name.as_string() == "Removed") return Behavior::removed;
  if (name.as_string() == "Contiguous") return Behavior::contiguous;
  if (name.as_string() == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name.as_string() == "MergedWithNext") return Behavior::merged_with_next;
  name.refuse("is unknown", "Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext");
}

void PreTokenizer::add_split(Regex pattern, Behavior behavior, bool invert) {
  steps_.emplace_back(Split{std::move(pattern), behavior, invert, matcher_count_++});
}

void PreTokenizer::add(const io::Json& spec) {  // Sequences nest no deeper than io::JsonLimits allows
  const std::string type = spec.need({"type"}).as_string();
  const std::string& where = spec.document();
  if (steps_.size() >= kSplitsMax) spec.refuse("is one step too many", fmt::format("at most {}", kSplitsMax));
  if (byte_level_) spec.refuse("comes after ByteLevel, which is not supported", "ByteLevel as the last step");
  if (type == "Sequence") {
    for (const io::Json& step : spec.need({"pretokenizers"}).items()) add(step);
  } else if (type == "Split") {
    add_split(Regex::read(spec.need({"pattern"})), read_behavior(spec), spec.bool_of({"invert"}).value_or(false));
  } else if (type == "ByteLevel") {
    if (spec.bool_of({"add_prefix_space"}).value_or(true)) steps_.emplace_back(PrefixSpace{});
    if (spec.bool_of({"use_regex"}).value_or(true)) add_split(Regex(kGpt2, where), Behavior::isolated, false);
    byte_level_ = true;
  } else if (type == "Metaspace") {
    const std::string mark = spec.string_of({"replacement"}).value_or("\u2581");
    steps_.emplace_back(Metaspace{mark, read_prepend_scheme(spec)});
    if (spec.bool_of({"split"}).value_or(true))
      add_split(Regex::literal(mark, where), Behavior::merged_with_next, false);
  } else if (type == "Digits") {
    const bool each = spec.bool_of({"individual_digits"}).value_or(false);
    add_split(Regex(R"(\p{N})", where), each ? Behavior::isolated : Behavior::contiguous, false);
  } else if (type == "Punctuation") {
    add_split(Regex(R"([!-/:-@\[-`{-~\p{P}])", where), read_behavior(spec), false);
  } else if (type == "Whitespace") {
    add_split(Regex(R"([\w\x{200c}\x{200d}]+|[^\w\s\x{200c}\x{200d}]+)", where), Behavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    add_split(Regex(R"(\s)", where), Behavior::removed, false);
  } else if (type == "CharDelimiterSplit") {
    add_split(Regex::literal(spec.need({"delimiter"}).as_string(), where), Behavior::removed, false);
  } else {
    spec.need({"type"}).refuse("is not supported",
                               "Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
                               "WhitespaceSplit, CharDelimiterSplit or Sequence");
  }
}

PreTokenizer::Scratch::Scratch(const PreTokenizer& pre_tokenizer) {
  for (const Step& step : pre_tokenizer.steps_) {
    if (const Split* split = std::get_if<Split>(&step)) matchers_.emplace_back(split->pattern);
  }
}

void PreTokenizer::split(std::string_view text, bool first, Scratch& scratch, Piece piece) const {
  if (!text.empty()) run(text, first, 0, scratch, piece);
}

void PreTokenizer::run(std::string_view text, bool first, size_t step, Scratch& scratch, Piece piece) const {
  if (step == steps_.size()) {
    piece(text);
  } else if (const Split* split = std::get_if<Split>(&steps_[step])) {
    run_split(*split, text, first, step, scratch, piece);
  } else if (const Metaspace* meta = std::get_if<Metaspace>(&steps_[step])) {
    std::string changed;
    for (const char ch : text) ch == ' ' ? changed += meta->replacement : changed += ch;
    const bool prepend = meta->scheme == PrependScheme::always || (meta->scheme == PrependScheme::first && first);
    if (prepend && !changed.starts_with(meta->replacement)) changed.insert(0, meta->replacement);
    if (!changed.empty()) run(changed, first, step + 1, scratch, piece);
  } else if (text.starts_with(' ')) {
    run(text, first, step + 1, scratch, piece);
  } else {
    run(' ' + std::string(text), first, step + 1, scratch, piece);
  }
}

void PreTokenizer::run_split(const Split& split, std::string_view text, bool first, size_t step, Scratch& scratch,
                             Piece piece) const {
  Matcher& matcher = scratch.matchers_[split.matcher];
  const auto next = [&](size_t begin, size_t end) {
    if (begin < end) run(text.substr(begin, end - begin), first && begin == 0, step + 1, scratch, piece);
  };
  if (split.behavior == Behavior::isolated) {  // every match and every gap is a piece: no state needed
    Matches matches(matcher, text);
    size_t written = 0;
    for (Match match; matches.next(match); written = match.end) {
      next(written, match.begin);
      next(match.begin, match.end);
    }
    next(written, text.size());
    return;
  }
  std::vector<Part> parts = parts_of(matcher, text);
  const bool backwards = split.behavior == Behavior::merged_with_next;
  if (backwards) std::ranges::reverse(parts);
  std::vector<Part> pieces;
  bool previous = false;
  for (Part part : parts) {
    part.match = part.match != split.invert;
    const bool joins = split.behavior == Behavior::contiguous
                           ? part.match == previous
                           : split.behavior != Behavior::removed && part.match && !previous;
    previous = part.match;
    if (joins && !pieces.empty()) {
      pieces.back().begin = std::min(pieces.back().begin, part.begin);
      pieces.back().end = std::max(pieces.back().end, part.end);
    } else if (split.behavior != Behavior::removed || !part.match) {
      pieces.push_back(part);
    }
  }
  if (backwards) std::ranges::reverse(pieces);
  for (const Part& part : pieces) next(part.begin, part.end);
}

}  // namespace braid::text
