#include "data/read_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "data/chat.h"
#include "io/token_file.h"
#include "sys/error.h"
#include "sys/mapped_file.h"

namespace braid::data {
namespace fs = std::filesystem;
namespace {

using nlohmann::ordered_json;
using Extensions = std::vector<std::string>;

const Extensions kText{".txt", ".md"}, kJsonl{".jsonl"};

// The file itself, whatever it is called, or what a folder holds of these kinds.
std::vector<fs::path> files_of(const fs::path& path, const Extensions& extensions) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) return {path};
  std::vector<fs::path> files;
  for (auto it = fs::recursive_directory_iterator(path, failed); !failed && it != fs::recursive_directory_iterator();
       it.increment(failed)) {
    std::error_code none;
    const bool hidden = it->path().filename().string().starts_with('.');
    if (!hidden && it->is_regular_file(none) && std::ranges::count(extensions, it->path().extension().string()) > 0) {
      files.push_back(it->path());
    }
  }
  if (failed) fail(printable(path.string()), {.what = "the folder cannot be read", .got = failed.message()});
  std::ranges::sort(files);
  return files;
}

const text::Tokenizer& tokenizer_of(const Language& language, const std::string& where) {
  if (language.tokenizer == nullptr)
    fail(where,
         {.what = "text needs a tokenizer, and the model has none", .hint = "a tokenizer.json beside config.json"});
  return *language.tokenizer;
}

// `ids` as documents: each ends with end-of-text, where there is one.
void add_documents(std::vector<int32_t> ids, const Language& language, DocumentSink sink) {
  if (ids.empty()) return;
  if (!language.end_of_text) return sink(ids, {});
  if (ids.back() != *language.end_of_text) ids.push_back(*language.end_of_text);
  for (auto begin = ids.begin(); begin != ids.end();) {
    const auto end = std::find(begin, ids.end(), *language.end_of_text) + 1;
    sink({begin, end}, {});
    begin = end;
  }
}

void add_line(const ordered_json& line, const Language& language, const std::string& where, DocumentSink sink) {
  const text::Tokenizer& tokenizer = tokenizer_of(language, where);
  if (const auto text = line.find("text"); text != line.end() && text->is_string()) {
    add_documents(tokenizer.encode(text->get_ref<const std::string&>(), true), language, sink);
  } else if (line.contains("messages")) {
    if (language.chat == nullptr) fail(where, {.what = "a conversation needs a chat template, and the model has none"});
    for (const Example& example : examples_of(line, *language.chat, tokenizer, where)) {
      sink(example.ids, example.trained);
    }
  } else {
    fail(where, {.what = "the line is no document", .expected = "a member 'text' or 'messages'"});
  }
}

void add_lines(const fs::path& path, const Language& language, DocumentSink sink) {
  const sys::MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = fmt::format("{} line {}", printable(path.string()), number);
    const ordered_json document = ordered_json::parse(line, nullptr, false);
    if (!document.is_object()) fail(where, {.what = "the line is no JSON object", .got = printable(line, 60)});
    add_line(document, language, where, sink);
  }
}

// Calls `read` with a sink that notices whether any document came.
void read_some(const fs::path& path, const char* expected, DocumentSink sink,
               sys::FunctionRef<void(DocumentSink)> read) {
  bool any = false;
  read([&](std::span<const int32_t> ids, std::span<const uint8_t> trained) {
    any = true;
    sink(ids, trained);
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
      if (!text.empty()) add_documents(tokenizer.encode(text, true), language, counted);
    }
  });
}

void read_jsonl(const fs::path& path, const Language& language, DocumentSink sink) {
  read_some(path, "lines of JSON: a file, or a folder of *.jsonl", sink, [&](DocumentSink counted) {
    for (const fs::path& name : files_of(path, kJsonl)) add_lines(name, language, counted);
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
