#include "data/read_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "data/chat.h"
#include "data/content.h"
#include "data/lines.h"
#include "io/ordered_json.h"
#include "io/token_file.h"
#include "sys/error.h"
#include "sys/mapped_file.h"
#include "sys/utf8.h"

namespace braid::data {
namespace fs = std::filesystem;
namespace {

using nlohmann::ordered_json;
using Extensions = std::vector<std::string>;

const Extensions kText{".txt", ".md"}, kJsonl{".jsonl"};

const text::Tokenizer& tokenizer_of(const Language& language, const std::string& where) {
  if (language.tokenizer == nullptr)
    fail(where,
         {.what = "text needs a tokenizer", .hint = "a model that has one (-m MODEL, or tokenizer in a recipe)"});
  return *language.tokenizer;
}

// What the tokenizer puts before a text: BOS, or nothing. End-of-text is none of it: it separates already.
std::vector<int32_t> opening_of(const text::Tokenizer& tokenizer, int32_t end_of_text) {
  std::vector<int32_t> opening = tokenizer.opening();
  opening.erase(std::ranges::find(opening, end_of_text), opening.end());
  return opening;
}

// `text` as documents: each ends with end-of-text, if the tokenizer has one, and begins as the first one does.
void add_documents(std::string_view text, const text::Tokenizer& tokenizer, const Language& language,
                   DocumentSink sink) {
  std::vector<int32_t> ids = tokenizer.encode(text, true);
  if (ids.empty()) return;
  if (!language.end_of_text) return sink(ids, {}, false);
  if (ids.back() != *language.end_of_text) ids.push_back(*language.end_of_text);
  auto begin = ids.begin(), end = std::find(begin, ids.end(), *language.end_of_text) + 1;
  sink({begin, end}, {}, false);
  if (end == ids.end()) return;
  const std::vector<int32_t> opening = opening_of(tokenizer, *language.end_of_text);
  std::vector<int32_t> document;
  while (end != ids.end()) {
    begin = end;
    end = std::find(begin, ids.end(), *language.end_of_text) + 1;
    document.clear();
    if (std::mismatch(opening.begin(), opening.end(), begin, end).first != opening.end()) document = opening;
    document.insert(document.end(), begin, end);
    sink(document, {}, false);
  }
}

// The documents of a line: Error, naming it, when there are none.
std::vector<Example> documents_of(const Line& line, const Language& language, const ThoughtRules& thoughts) {
  const std::string& where = line.where;
  constexpr int64_t kTextMax = int64_t{1} << 30;  // a document may be long
  const ordered_json json = io::parse_ordered(line.text, where, {}, {.bytes = kTextMax, .string_bytes = kTextMax});
  if (!json.is_object()) fail(where, {.what = "the line is not a JSON object", .got = printable(line.text, 60)});
  const text::Tokenizer& tokenizer = tokenizer_of(language, where);
  if (json.contains("messages")) {
    if (language.chat == nullptr)
      fail(where, {.what = "a conversation needs a chat template, and the model has none", .hint = "lines of text"});
    const uint64_t hash = hash_of(std::as_bytes(std::span(line.text)));
    return examples_of(json, *language.chat, tokenizer, where, drawn_thoughts(thoughts, hash), hash);
  }
  const auto text = json.find("text");
  if (text == json.end() || !text->is_string())
    fail(where, {.what = "the line is not a document", .expected = "a member 'text' or 'messages'"});
  std::vector<Example> out;
  add_documents(text->get_ref<const std::string&>(), tokenizer, language,
                [&](std::span<const int32_t> ids, std::span<const uint8_t>, bool) {
                  out.push_back({{ids.begin(), ids.end()}, {}});
                });
  return out;
}

// Rendered and tokenised in parallel.
void add_lines(const fs::path& path, const Language& language, DocumentSink sink, const Reading& reading,
               const ThoughtRules& thoughts) {
  each_line(
      path, [&](const Line& line) { return documents_of(line, language, thoughts); },
      [&](const std::vector<Example>& documents) {
        for (size_t i = 0; i < documents.size(); ++i) sink(documents[i].ids, documents[i].trained, i > 0);
      },
      reading);
}

// Calls `read` with a sink that records whether there was any document.
void read_some(const fs::path& path, const char* expected, DocumentSink sink,
               sys::FunctionRef<void(DocumentSink)> read) {
  bool any = false;
  read([&](std::span<const int32_t> ids, std::span<const uint8_t> trained, bool continues) {
    any = true;
    sink(ids, trained, continues);
  });
  if (!any) fail(printable(path.string()), {.what = "holds no documents", .expected = expected});
}

}  // namespace

void read_text(const fs::path& path, const Language& language, DocumentSink sink) {
  read_some(path, "text: a file, or a folder of *.txt and *.md", sink, [&](DocumentSink counted) {
    for (const fs::path& name : files_of(path, kText)) {
      const sys::MappedFile file(name);
      const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
      const text::Tokenizer& tokenizer = tokenizer_of(language, printable(name.string()));
      if (const size_t valid = sys::utf8_valid_prefix(text); valid != text.size())
        fail(printable(name.string()), {.what = fmt::format("the text is not UTF-8 at byte {}", valid),
                                        .got = printable(text.substr(valid, 4)),
                                        .hint = "iconv -t utf-8"});
      if (!text.empty()) add_documents(text, tokenizer, language, counted);
    }
  });
}

void read_jsonl(const fs::path& path, const Language& language, DocumentSink sink, const Reading& reading,
                const ThoughtRules& thoughts) {
  read_some(path, "lines of JSON: a file, or a folder of *.jsonl", sink, [&](DocumentSink counted) {
    for (const fs::path& name : files_of(path, kJsonl)) add_lines(name, language, counted, reading, thoughts);
  });
}

std::string kind_of(const fs::path& path) {
  std::error_code none;
  if (path.extension() == ".safetensors") return "ids";
  if (path.extension() == ".jsonl") return "jsonl";
  if (io::TokenFile::exists(path)) return "indexed";
  return fs::is_directory(path, none) && !files_of(path, kJsonl).empty() ? "jsonl" : "text";
}

}  // namespace braid::data
