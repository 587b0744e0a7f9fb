#include "text/gguf_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
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
  fail(file.where(), {.what = "tokenizer.ggml.pre is a splitting of text that is not known",
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

// Kinds of tokens as files number them.
enum Kind : int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Tokens {
  const std::vector<std::string>* spelled = nullptr;
  std::vector<int64_t> kinds;

  bool special(size_t i) const { return kinds[i] == control || kinds[i] == unknown; }
  bool added(size_t i) const { return special(i) || kinds[i] == user_defined; }
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
  tokens.kinds =
      file.ints_of("tokenizer.ggml.token_type", count).value_or(std::vector<int64_t>(count, int64_t{normal}));
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
  if (!id || !tokens || *id == UINT32_MAX) return std::nullopt;  // how some files say that there is none
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

// What goes around a text.
std::string post_processor(const io::Gguf& file, bool bos_by_default) {
  std::string single = R"({"Sequence":{"id":"A"}})", special;
  const auto add = [&](const char* key, const char* id_key, bool by_default, bool before) {
    if (!file.bool_of(key).value_or(by_default)) return;
    const auto token = named(file, id_key);
    if (!token && file.bool_of(key)) fail(file.where(), {.what = fmt::format("{} without {}", key, id_key)});
    if (!token) return;
    std::string name;
    quote(id_key, name);  // a name of our own: tokens themselves may be spelled alike
    const std::string piece = fmt::format(R"({{"SpecialToken":{{"id":{}}}}})", name);
    single = before ? piece + "," + single : single + "," + piece;
    special += fmt::format(R"({}{}:{{"ids":[{}]}})", special.empty() ? "" : ",", name, token->id);
  };
  add("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", bos_by_default, true);
  add("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false, false);
  return fmt::format(R"({{"type":"TemplateProcessing","single":[{}],"special_tokens":{{{}}}}})", single, special);
}

std::string byte_level_json(const io::Gguf& file) {
  const GgufSplitting& splitting = splitting_of(file);
  const Tokens tokens = read_tokens(file);
  const std::vector<std::string>& spelled = *tokens.spelled;
  const std::vector<std::string>& merges = utf8_list(file, "tokenizer.ggml.merges");
  std::string out = R"({"added_tokens":[)";
  list(spelled, out, [&](size_t i) {
    if (!tokens.added(i)) return;
    out += fmt::format(R"({{"id":{},"special":{},"normalized":false,"content":)", i, tokens.special(i));
    quote(spelled[i], out);
    out += '}';
  });
  out += fmt::format(R"(],"normalizer":{},"pre_tokenizer":{},"post_processor":{},"decoder":{{"type":"ByteLevel"}},)",
                     splitting.nfc ? R"({"type":"NFC"})" : "null", pre_tokenizer(splitting),
                     post_processor(file, splitting.bos));
  out += fmt::format(R"("model":{{"type":"BPE","ignore_merges":{},"vocab":{{)", splitting.ignore_merges);
  list(spelled, out, [&](size_t i) {
    if (tokens.kinds[i] == unused) return;
    quote(spelled[i], out);
    out += fmt::format(":{}", i);
  });
  out += R"(},"merges":[)";
  list(merges, out, [&](size_t i) { quote(merges[i], out); });
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
  fail(file.where(), {.what = "tokenizer.ggml.model is a kind of tokenizer that is not known",
                      .got = printable(model),
                      .expected = "gpt2",
                      .hint = "token ids instead of text"});
}

TokenizerConfig tokenizer_config(const io::Gguf& file) {
  constexpr size_t kTemplateBytesMax = size_t{4} << 20;  // as of folders
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
