// Reads tokenizer.json. The vocabulary and the merges (nearly all of a large file) are read in place by a cursor; what
// is left, with nulls in their place, is a small document.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/json.h"
#include "io/placeholder.h"
#include "sys/error.h"
#include "sys/mapped_file.h"
#include "sys/utf8.h"
#include "text/byte_alphabet.h"
#include "text/gguf_vocabulary.h"
#include "text/json_cursor.h"
#include "text/tokenizer.h"

namespace braid::text {

// Where the two large values of a tokenizer.json are.
struct TokenizerOutline {
  struct Span {
    size_t begin = 0, end = 0;
    bool found() const { return end > begin; }
  };
  Span vocab, merges;
};

namespace {

constexpr size_t kFileBytesMax = size_t{1} << 30;
constexpr size_t kAffixMax = 1024;  // tokens a post-processor may put around a text

// Finds the two large values, and checks that brackets match on the way.
TokenizerOutline outline_of(std::string_view json, const std::string& where) {
  TokenizerOutline outline;
  JsonCursor cursor(json, where);
  std::string scratch;
  const auto take = [&](TokenizerOutline::Span& span) {
    if (span.found()) cursor.refuse("a key is duplicated");
    cursor.peek();
    const size_t begin = cursor.at();
    cursor.skip_value();
    span = {begin, cursor.at()};
  };
  cursor.expect('{');
  for (bool first = true; cursor.more(first, '}');) {
    const bool model = cursor.string(scratch) == "model";
    cursor.expect(':');
    if (!model || !cursor.consume('{')) {
      cursor.skip_value();
      continue;
    }
    for (bool first_key = true; cursor.more(first_key, '}');) {
      const std::string key(cursor.string(scratch));
      cursor.expect(':');
      if (key == "vocab") {
        take(outline.vocab);
      } else if (key == "merges") {
        take(outline.merges);
      } else {
        cursor.skip_value();
      }
    }
  }
  if (cursor.peek() != '\0' || cursor.at() != json.size()) cursor.refuse("text after the document");
  return outline;
}

io::Json parse_rest(std::string_view json, const TokenizerOutline& outline, const std::string& where) {
  std::vector<TokenizerOutline::Span> cuts;
  for (const TokenizerOutline::Span& span : {outline.vocab, outline.merges}) {
    if (span.found()) cuts.push_back(span);
  }
  std::ranges::sort(cuts, {}, &TokenizerOutline::Span::begin);
  std::string rest;
  size_t copied = 0;
  for (const TokenizerOutline::Span& cut : cuts) {
    rest += json.substr(copied, cut.begin - copied);
    rest += "null";
    copied = cut.end;
  }
  rest += json.substr(copied);
  return io::Json::parse(rest, where);
}

}  // namespace

class TokenizerReader {
 public:
  TokenizerReader(std::string_view json, const std::string& where) : json_(json), where_(where) {}
  Tokenizer read();

 private:
  BpeOptions read_options(const io::Json& model) const;
  Vocabulary read_vocabulary(bool byte_level) const;
  MergeTable read_merges(const Vocabulary& vocabulary, const BpeOptions& options) const;
  std::string_view next_merge(JsonCursor& cursor, std::string& scratch, std::string& left, std::string& right) const;
  void check_merges_suffice(const Tokenizer& tokenizer) const;
  void read_added_tokens(const std::optional<io::Json>& list, Tokenizer& tokenizer) const;
  void read_post_processor(const io::Json& spec, Tokenizer& tokenizer) const;
  std::string_view json_;
  std::string where_;
  TokenizerOutline outline_;
};

Tokenizer TokenizerReader::read() {
  const size_t valid = sys::utf8_valid_prefix(json_);
  if (valid != json_.size()) fail(where_, {.what = fmt::format("the file is not UTF-8 at byte {}", valid)});
  outline_ = outline_of(json_, where_);
  const io::Json rest = parse_rest(json_, outline_, where_);

  if (!rest.get({"model"}))
    fail(where_, {.what = "is not a tokenizer: it has no model", .expected = "a tokenizer.json"});

  Tokenizer tokenizer;
  tokenizer.pre_tokenizer_ = PreTokenizer::read(rest.get({"pre_tokenizer"}));
  tokenizer.normalizer_ = Normalizer::read(rest.get({"normalizer"}));
  tokenizer.decoder_ = TokenDecoder::read(rest.get({"decoder"}));
  BpeOptions options = read_options(rest.need({"model"}));
  options.byte_level = tokenizer.pre_tokenizer_.byte_level();
  Vocabulary vocabulary = read_vocabulary(options.byte_level);
  MergeTable merges = read_merges(vocabulary, options);
  const bool without_merges = merges.size() == 0 && !options.ignore_merges;
  tokenizer.bpe_ = Bpe(std::move(options), std::move(vocabulary), std::move(merges), where_);
  read_added_tokens(rest.get({"added_tokens"}), tokenizer);
  if (without_merges) check_merges_suffice(tokenizer);
  if (const auto post_processor = rest.get({"post_processor"})) read_post_processor(*post_processor, tokenizer);
  return tokenizer;
}

BpeOptions TokenizerReader::read_options(const io::Json& model) const {
  const std::optional<io::Json> type = model.get({"type"});
  if (type && type->as_string() != "BPE") type->refuse("is not supported", "BPE");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::optional<io::Json> affix = model.get({key});
    if (affix && !affix->as_string().empty()) affix->refuse("is not supported", "null");
  }
  return {.byte_level = false,
          .ignore_merges = model.bool_of({"ignore_merges"}).value_or(false),
          .byte_fallback = model.bool_of({"byte_fallback"}).value_or(false),
          .fuse_unk = model.bool_of({"fuse_unk"}).value_or(false),
          .unk_token = model.string_of({"unk_token"}).value_or("")};
}

Vocabulary TokenizerReader::read_vocabulary(bool byte_level) const {
  if (!outline_.vocab.found()) fail(where_, {.what = "the model has no vocabulary", .expected = "model.vocab"});
  Vocabulary vocabulary;
  JsonCursor cursor(json_.substr(0, outline_.vocab.end), where_, outline_.vocab.begin);
  std::string scratch;
  std::string bytes;
  cursor.expect('{');
  for (bool first = true; cursor.more(first, '}');) {
    const std::string_view token = cursor.string(scratch);
    cursor.expect(':');
    const int64_t id = cursor.integer();
    bytes.clear();
    if (byte_level && bytes_of_spelling(token, bytes)) {
      vocabulary.add(bytes, Script::bytes, id, where_);
    } else {
      vocabulary.add(token, Script::text, id, where_);
    }
  }
  if (vocabulary.size() == 0) fail(where_, {.what = "the vocabulary is empty"});
  return vocabulary;
}

// Reads "left right" or ["left", "right"] into `left` and `right`.
std::string_view TokenizerReader::next_merge(JsonCursor& cursor, std::string& scratch, std::string& left,
                                             std::string& right) const {
  if (cursor.consume('[')) {
    left = cursor.string(scratch);
    cursor.expect(',');
    right = cursor.string(scratch);
    cursor.expect(']');
    return {};
  }
  const std::string_view line = cursor.string(scratch);
  const size_t space = line.find(' ');
  if (line.starts_with("#version")) return line;
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    fail(where_, {.what = "a merge is not two tokens", .got = printable(line, 60)});
  }
  left = line.substr(0, space);
  right = line.substr(space + 1);
  return {};
}

MergeTable TokenizerReader::read_merges(const Vocabulary& vocabulary, const BpeOptions& options) const {
  if (!outline_.merges.found() || json_[outline_.merges.begin] != '[') {
    fail(where_, {.what = "the BPE model has no merges", .expected = "an array 'merges' next to 'vocab'"});
  }
  std::vector<MergeTable::Merge> merges;
  JsonCursor cursor(json_.substr(0, outline_.merges.end), where_, outline_.merges.begin);
  std::string scratch;
  std::string left;
  std::string right;
  std::string joined;
  cursor.expect('[');
  for (bool first = true; cursor.more(first, ']');) {
    if (!next_merge(cursor, scratch, left, right).empty()) continue;
    // Both halves and the whole are looked up in one buffer.
    const auto rank = static_cast<int32_t>(merges.size());
    joined.clear();
    Script script = options.byte_level ? Script::bytes : Script::text;
    size_t split = 0;
    if (script == Script::bytes && bytes_of_spelling(left, joined)) {
      split = joined.size();
      if (!bytes_of_spelling(right, joined)) script = Script::text;
    } else {
      script = Script::text;
    }
    if (script == Script::text) {
      split = left.size();
      joined = left + right;
    }
    const std::string_view whole = joined;
    const auto id_of = [&](std::string_view token) {
      const std::optional<int32_t> id = vocabulary.find(token, script);
      if (!id) {
        fail(where_, {.what = fmt::format("merge {} names a token that the vocabulary lacks", rank),
                      .got = fmt::format("'{}' '{}'", printable(left, 60), printable(right, 60))});
      }
      return *id;
    };
    if (left.empty() || right.empty()) fail(where_, {.what = fmt::format("merge {} has an empty half", rank)});
    merges.push_back({id_of(whole.substr(0, split)), id_of(whole.substr(split)), rank, id_of(whole)});
  }
  MergeTable table;
  table.reserve(static_cast<int64_t>(merges.size()));
  for (const MergeTable::Merge& merge : merges) table.set(merge);
  return table;
}

// An empty list of merges is valid only for a vocabulary of single symbols.
void TokenizerReader::check_merges_suffice(const Tokenizer& tokenizer) const {
  const Vocabulary& vocabulary = tokenizer.bpe_.vocabulary();
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id) {
    if (!vocabulary.has(id) || tokenizer.added(id)) continue;
    const std::string token = tokenizer.bpe_.token(id);
    if (token.empty() || token.size() == sys::utf8_step(token, 0).length) continue;
    if (token == tokenizer.bpe_.options().unk_token || (token.starts_with("<0x") && token.size() == 6)) continue;
    fail(where_, {.what = "the BPE model has no merges",
                  .got = fmt::format("an empty list, and the token '{}'", printable(token, 60))});
  }
}

void TokenizerReader::read_added_tokens(const std::optional<io::Json>& list, Tokenizer& tokenizer) const {
  if (!list) return;
  const Vocabulary& vocabulary = tokenizer.bpe_.vocabulary();
  for (const io::Json& entry : list->items()) {
    AddedToken token{.id = static_cast<int32_t>(entry.need({"id"}).as_int({.min = 0, .max = kTokenIdMax})),
                     .content = entry.need({"content"}).as_string(),
                     .special = entry.bool_of({"special"}).value_or(false),
                     .single_word = entry.bool_of({"single_word"}).value_or(false),
                     .lstrip = entry.bool_of({"lstrip"}).value_or(false),
                     .rstrip = entry.bool_of({"rstrip"}).value_or(false),
                     .normalized = entry.bool_of({"normalized"}).value_or(true)};
    if (token.content.empty()) continue;
    const std::optional<int32_t> known = tokenizer.bpe_.find_token(token.content);
    if (known ? *known != token.id : vocabulary.has(token.id)) {
      entry.refuse("contradicts the vocabulary",
                   known ? fmt::format("id {}", *known) : "an id that no other token has");
    }
    const bool changed = token.normalized && !tokenizer.normalizer_.empty();
    token.decoded = changed ? tokenizer.normalizer_.apply(token.content) : token.content;
    (token.normalized ? tokenizer.normalized_finder_ : tokenizer.raw_finder_).add(token, token.decoded);
    tokenizer.added_.push_back(std::move(token));
  }
  std::ranges::sort(tokenizer.added_, {}, &AddedToken::id);
  const auto twice = std::ranges::adjacent_find(tokenizer.added_, {}, &AddedToken::id);
  if (twice != tokenizer.added_.end()) {
    fail(where_, {.what = fmt::format("token id {} is given twice in added_tokens", twice->id),
                  .got = printable(twice->content, 60)});
  }
  tokenizer.raw_finder_.finish();
  tokenizer.normalized_finder_.finish();
}

void TokenizerReader::read_post_processor(const io::Json& spec, Tokenizer& tokenizer) const {
  const std::string type = spec.need({"type"}).as_string();
  if (type == "ByteLevel") return;  // it trims offsets, which are not kept here
  if (type == "Sequence") {
    for (const io::Json& step : spec.need({"processors"}).items()) read_post_processor(step, tokenizer);
    return;
  }
  if (type != "TemplateProcessing") {
    spec.need({"type"}).refuse("is not supported", "TemplateProcessing, ByteLevel or Sequence");
  }
  const io::Json single = spec.need({"single"});
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  bool seen = false;
  for (const io::Json& piece : single.items()) {
    if (piece.get({"Sequence"})) {
      if (std::exchange(seen, true)) single.refuse("repeats the text", "one Sequence");
      continue;
    }
    const std::string name = piece.need({"SpecialToken"}).need({"id"}).as_string();
    for (const io::Json& id : spec.need({"special_tokens"}).need({name}).need({"ids"}).items()) {
      (seen ? after : before).push_back(static_cast<int32_t>(id.as_int({.min = 0, .max = kTokenIdMax})));
    }
  }
  if (!seen) single.refuse("leaves the text out", "one Sequence");
  tokenizer.before_.insert(tokenizer.before_.begin(), before.begin(), before.end());
  tokenizer.after_.insert(tokenizer.after_.end(), after.begin(), after.end());
  if (tokenizer.before_.size() + tokenizer.after_.size() > kAffixMax) {
    spec.refuse("adds too many tokens to the text", fmt::format("at most {}", kAffixMax));
  }
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& where) {
  return TokenizerReader(json, where).read();
}

Tokenizer Tokenizer::load(const std::filesystem::path& folder_or_file) {
  std::filesystem::path path = folder_or_file;
  if (io::is_gguf(path)) {
    const io::Gguf file(path);
    return parse(tokenizer_json(file), file.where());
  }
  const std::string where = printable(path.string());
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) {
    path /= "tokenizer.json";
    io::refuse_missing(path);
  } else if (!std::filesystem::exists(path, none)) {
    fail(where, {.what = "no such file", .expected = "a tokenizer.json"});
  }
  const sys::MappedFile file(path);
  if (file.bytes().size() > kFileBytesMax)
    fail(printable(path.string()), {.what = "the file is too large", .expected = "at most 1 GiB"});
  io::refuse_lfs_pointer(path, file.bytes());
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (const size_t begin = text.find_first_not_of(" \t\r\n"); begin != text.npos && text[begin] != '{')
    fail(where, {.what = "is not a tokenizer", .expected = "a tokenizer.json"});
  return parse(text, printable(path.string()));
}

}  // namespace braid::text
