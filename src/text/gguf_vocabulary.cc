#include "text/gguf_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sys/error.h"
#include "sys/utf8.h"
#include "text/gguf_splittings.h"

namespace braid::text {
namespace {

const GgufSplitting& splitting_of(const io::Gguf& file) {
  const std::string name = file.string_of("tokenizer.ggml.pre").value_or("default");
  std::vector<std::string_view> known;
  for (const GgufSplitting& splitting : gguf_splittings()) {
    if (name == splitting.name) return splitting;
    known.emplace_back(splitting.name);
  }
  fail(file.where(), {.what = "tokenizer.ggml.pre names an unknown pre-tokenizer",
                      .got = printable(name),
                      .expected = fmt::format("one of {}", fmt::join(known, ", ")),
                      .hint = "token ids instead of text"});
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

// Appends text as a JSON string; the text is UTF-8.
void quote(std::string_view text, std::string& out) {
  out += '"';
  for (const char ch : text) {
    if (ch == '"' || ch == '\\') {
      out += '\\';
      out += ch;
    } else if (static_cast<unsigned char>(ch) < ' ') {
      out += fmt::format("\\u{:04x}", static_cast<int>(ch));
    } else {
      out += ch;
    }
  }
  out += '"';
}

// Appends `items` separated by commas; `item` appends one, or nothing for one that is left out.
template <class Items, class Item>
void list(const Items& items, std::string& out, Item item) {
  bool first = true;
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t before = out.size();
    if (!first) out += ',';
    const size_t begin = out.size();
    item(i);
    if (out.size() == begin) {
      out.resize(before);
    } else {
      first = false;
    }
  }
}

// ---- the vocabulary -------------------------------------------------------------------------------------------------

struct Tokens {
  const std::vector<std::string>* spelled = nullptr;
  std::vector<int64_t> kinds;

  bool special(size_t i) const { return kinds[i] == GgufToken::control || kinds[i] == GgufToken::unknown; }
  bool added(size_t i) const { return special(i) || kinds[i] == GgufToken::user_defined; }
};

const std::vector<std::string>& utf8_list(const io::Gguf& file, const char* key) {
  const std::vector<std::string>* found = file.strings_of(key);
  if (!found) fail(file.where(), {.what = std::string(key) + " is missing"});
  for (size_t i = 0; i < found->size(); ++i) {
    const std::string& text = (*found)[i];
    if (sys::utf8_valid_prefix(text) != text.size())
      fail(file.where(), {.what = fmt::format("entry {} of {} is not UTF-8", i, key), .got = printable(text, 60)});
  }
  return *found;
}

Tokens read_tokens(const io::Gguf& file) {
  Tokens tokens{.spelled = &utf8_list(file, "tokenizer.ggml.tokens"), .kinds = {}};
  const size_t count = tokens.spelled->size();
  tokens.kinds = file.ints_of("tokenizer.ggml.token_type", count)
                     .value_or(std::vector<int64_t>(count, int64_t{GgufToken::normal}));
  return tokens;
}

// A token that a key names by its id.
struct Named {
  int64_t id = 0;
  std::string_view token;
};
std::optional<Named> named(const io::Gguf& file, const char* key) {
  const auto id = file.int_of(key);
  const std::vector<std::string>* tokens = file.strings_of("tokenizer.ggml.tokens");
  if (!id || !tokens || *id == UINT32_MAX) return std::nullopt;  // some files mean "none" by it
  if (*id < 0 || *id >= std::ssize(*tokens))
    fail(file.where(), {.what = std::string(key) + " is not a token",
                        .got = std::to_string(*id),
                        .expected = fmt::format("below {}", tokens->size())});
  return Named{*id, (*tokens)[static_cast<size_t>(*id)]};
}

std::string pre_tokenizer(const GgufSplitting& splitting) {
  std::string out = R"({"type":"Sequence","pretokenizers":[)";
  for (const char* pattern : splitting.patterns) {
    if (!pattern) break;
    out += R"({"type":"Split","pattern":{"Regex":)";
    quote(pattern, out);
    out += R"(},"behavior":"Isolated","invert":false},)";
  }
  return out + R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
}

// The tokens added around a text.
std::string post_processor(const io::Gguf& file, bool bos_by_default) {
  std::string single = R"({"Sequence":{"id":"A"}})", special;
  const auto add = [&](const char* key, const char* id_key, bool by_default, bool before) {
    if (!file.bool_of(key).value_or(by_default)) return;
    const auto token = named(file, id_key);
    if (!token && file.bool_of(key)) fail(file.where(), {.what = fmt::format("{} without {}", key, id_key)});
    if (!token) return;
    std::string name;
    quote(id_key, name);  // not the token itself: several tokens may be spelled alike
    const std::string piece = fmt::format(R"({{"SpecialToken":{{"id":{}}}}})", name);
    single = before ? piece + "," + single : single + "," + piece;
    special += fmt::format(R"({}{}:{{"ids":[{}]}})", special.empty() ? "" : ",", name, token->id);
  };
  add("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", bos_by_default, true);
  add("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false, false);
  return fmt::format(R"({{"type":"TemplateProcessing","single":[{}],"special_tokens":{{{}}}}})", single, special);
}

// The part of tokenizer.json that lists tokens matched verbatim in the text.
std::string added_tokens(const Tokens& tokens) {
  std::string out = R"("added_tokens":[)";
  list(*tokens.spelled, out, [&](size_t i) {
    if (!tokens.added(i)) return;
    out += fmt::format(R"({{"id":{},"special":{},"normalized":false,"content":)", i, tokens.special(i));
    quote((*tokens.spelled)[i], out);
    out += '}';
  });
  return out + "]";
}

std::string vocabulary(const Tokens& tokens) {
  std::string out = R"("vocab":{)";
  list(*tokens.spelled, out, [&](size_t i) {
    if (tokens.kinds[i] == GgufToken::unused) return;
    quote((*tokens.spelled)[i], out);
    out += fmt::format(":{}", i);
  });
  return out + "}";
}

std::string byte_level_json(const io::Gguf& file) {
  const GgufSplitting& splitting = splitting_of(file);
  const Tokens tokens = read_tokens(file);
  const std::vector<std::string>& merges = utf8_list(file, "tokenizer.ggml.merges");
  std::string out = "{" + added_tokens(tokens);
  out += fmt::format(R"(,"normalizer":{},"pre_tokenizer":{},"post_processor":{},"decoder":{{"type":"ByteLevel"}},)",
                     splitting.nfc ? R"({"type":"NFC"})" : "null", pre_tokenizer(splitting),
                     post_processor(file, splitting.bos));
  out += fmt::format(R"("model":{{"type":"BPE","ignore_merges":{},{},"merges":[)", splitting.ignore_merges,
                     vocabulary(tokens));
  list(merges, out, [&](size_t i) { quote(merges[i], out); });
  return out + "]}}";
}

// ---- SentencePiece --------------------------------------------------------------------------------------------------

// The merges equivalent to SentencePiece's scores: any two pieces that spell a piece, highest score first.
std::vector<std::pair<std::string_view, std::string_view>> merges_of_scores(const io::Gguf& file,
                                                                            const Tokens& tokens) {
  constexpr size_t kWordBytesMax = 128;  // SentencePiece's own have up to 16 characters; all cuts of each are tried
  constexpr size_t kMergesMax = 16;      // per piece, on average; real vocabularies have two
  const std::vector<std::string>& spelled = *tokens.spelled;
  const std::vector<double>* scores = file.numbers_of("tokenizer.ggml.scores");
  if (!scores || scores->size() != spelled.size())
    fail(file.where(), {.what = "tokenizer.ggml.scores does not match the tokens",
                        .got = fmt::format("{} scores", scores ? scores->size() : 0),
                        .expected = fmt::format("{}", spelled.size())});
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < spelled.size(); ++i) {
    if (tokens.kinds[i] == GgufToken::normal) ids.emplace(spelled[i], i);
  }
  struct Merge {
    double score;
    size_t left, right;
  };
  std::vector<Merge> merges;
  for (size_t i = 0; i < spelled.size(); ++i) {
    const std::string_view piece = spelled[i];
    if (tokens.kinds[i] != GgufToken::normal) continue;
    if (piece.size() > kWordBytesMax || std::isnan((*scores)[i]))
      fail(file.where(),
           {.what = fmt::format("token {} is not a piece of SentencePiece", i), .got = printable(piece, 60)});
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if (sys::utf8_continues(piece[cut])) continue;  // inside a character
      const auto left = ids.find(piece.substr(0, cut)), right = ids.find(piece.substr(cut));
      if (left != ids.end() && right != ids.end()) merges.push_back({(*scores)[i], left->second, right->second});
    }
    if (merges.size() > kMergesMax * spelled.size())
      fail(file.where(), {.what = "the pieces of the vocabulary can be merged in too many ways",
                          .got = fmt::format("{} merges of {} tokens", merges.size(), i + 1),
                          .expected = fmt::format("at most {} per token", kMergesMax)});
  }
  std::ranges::stable_sort(merges, std::ranges::greater(), &Merge::score);
  std::vector<std::pair<std::string_view, std::string_view>> out;
  out.reserve(merges.size());
  for (const Merge& m : merges) out.emplace_back(spelled[m.left], spelled[m.right]);
  return out;
}

std::string sentence_piece_json(const io::Gguf& file) {
  const Tokens tokens = read_tokens(file);
  const auto merges = merges_of_scores(file, tokens);
  const bool space = file.bool_of("tokenizer.ggml.add_space_prefix").value_or(true);
  std::string out = "{" + added_tokens(tokens);
  out += fmt::format(R"(,"normalizer":{{"type":"Sequence","normalizers":[{}{}]}},"pre_tokenizer":null,)",
                     space ? R"({"type":"Prepend","prepend":"\u2581"},)" : "",
                     R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})");
  out += fmt::format(
      R"("post_processor":{},"decoder":{{"type":"Sequence","decoders":[{}{}]}},)", post_processor(file, true),
      R"({"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"})",
      space ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "");
  const auto unknown = named(file, "tokenizer.ggml.unknown_token_id");
  out += R"("model":{"type":"BPE","byte_fallback":true,"fuse_unk":true,"unk_token":)";
  if (unknown) quote(unknown->token, out);
  out += fmt::format(R"({}{},"merges":[)", unknown ? "," : "null,", vocabulary(tokens));
  list(merges, out, [&](size_t i) {
    out += '[';
    quote(merges[i].first, out);
    out += ',';
    quote(merges[i].second, out);
    out += ']';
  });
  return out + "]}}";
}

}  // namespace

bool has_tokenizer(const std::filesystem::path& folder_or_gguf) {
  if (!io::is_gguf(folder_or_gguf)) return std::filesystem::exists(folder_or_gguf / "tokenizer.json");
  const io::Gguf file(folder_or_gguf);
  return file.strings_of("tokenizer.ggml.tokens") || file.string_of("tokenizer.huggingface.json");
}

std::string tokenizer_json(const io::Gguf& file) {
  if (auto json = file.string_of("tokenizer.huggingface.json")) return *json;
  const std::string model = file.string_of("tokenizer.ggml.model").value_or("no_vocab");
  if (!file.strings_of("tokenizer.ggml.tokens"))
    fail(file.where(),
         {.what = "the file has no tokenizer", .got = printable(model), .hint = "token ids instead of text"});
  if (model == "gpt2") return byte_level_json(file);
  if (model == "llama") return sentence_piece_json(file);
  fail(file.where(), {.what = "tokenizer.ggml.model is an unknown kind of tokenizer",
                      .got = printable(model),
                      .expected = "gpt2 or llama",
                      .hint = "token ids instead of text"});
}

TokenizerConfig tokenizer_config(const io::Gguf& file) {
  constexpr size_t kTemplateBytesMax = size_t{4} << 20;  // as for folders
  TokenizerConfig out;
  const auto token = [&](const char* key) {
    const auto found = named(file, key);
    return found ? std::optional(std::string(found->token)) : std::nullopt;
  };
  const auto source_of = [&](const std::string& key) {
    auto source = file.string_of(key);
    if (source && (source->size() > kTemplateBytesMax || sys::utf8_valid_prefix(*source) != source->size()))
      fail(file.where(), {.what = printable(key) + " is not a chat template",
                          .got = fmt::format("{} bytes", source->size()),
                          .expected = "UTF-8, at most 4 MiB"});
    return source;
  };
  out.bos_token = token("tokenizer.ggml.bos_token_id");
  out.eos_token = token("tokenizer.ggml.eos_token_id");
  out.pad_token = token("tokenizer.ggml.padding_token_id");
  out.unk_token = token("tokenizer.ggml.unknown_token_id");
  out.chat_template = source_of("tokenizer.chat_template");
  out.template_name = "tokenizer.chat_template";
  if (const auto* names = file.strings_of("tokenizer.chat_templates")) {
    for (const std::string& name : *names) {
      if (auto source = source_of("tokenizer.chat_template." + name))
        out.named_templates.push_back({name, std::move(*source)});
    }
  }
  return out;
}

}  // namespace braid::text
