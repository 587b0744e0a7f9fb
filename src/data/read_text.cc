#include "data/read_text.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>

#include "data/chat.h"
#include "io/token_file.h"
#include "sys/error.h"
#include "sys/mapped_file.h"
#include "sys/parallel.h"
#include "sys/utf8.h"

namespace braid::data {
namespace fs = std::filesystem;
namespace {

using nlohmann::ordered_json;
using Extensions = std::vector<std::string>;

const Extensions kText{".txt", ".md"}, kJsonl{".jsonl"};
constexpr int64_t kLinesAtOnce = 4096;

// The file itself, whatever its name, or the files of a folder with these extensions.
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
         {.what = "text needs a tokenizer, and the model has none", .hint = "a tokenizer.json next to config.json"});
  return *language.tokenizer;
}

// `ids` as documents: each ends with end-of-text, if the tokenizer has one.
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

struct Line {
  std::string_view text;
  int64_t number;
};

// The documents of a line: Error, naming it, when there are none.
std::vector<Example> documents_of(const Line& line, const fs::path& path, const Language& language) {
  const std::string where = fmt::format("{} line {}", printable(path.string()), line.number);
  const ordered_json json = ordered_json::parse(line.text, nullptr, false);
  if (!json.is_object()) fail(where, {.what = "the line is not a JSON object", .got = printable(line.text, 60)});
  const text::Tokenizer& tokenizer = tokenizer_of(language, where);
  if (json.contains("messages")) {
    if (language.chat == nullptr) fail(where, {.what = "a conversation needs a chat template, and the model has none"});
    return examples_of(json, *language.chat, tokenizer, where);
  }
  const auto text = json.find("text");
  if (text == json.end() || !text->is_string())
    fail(where, {.what = "the line is not a document", .expected = "a member 'text' or 'messages'"});
  std::vector<Example> out;
  add_documents(tokenizer.encode(text->get_ref<const std::string&>(), true), language,
                [&](std::span<const int32_t> ids, std::span<const uint8_t>) {
                  out.push_back({{ids.begin(), ids.end()}, {}});
                });
  return out;
}

// The next lines that are not blank; `number` counts all of them.
std::vector<Line> next_lines(std::string_view& rest, int64_t& number) {
  std::vector<Line> lines;
  while (!rest.empty() && std::ssize(lines) < kLinesAtOnce) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") != line.npos) lines.push_back({line, number});
  }
  return lines;
}

// Lines are rendered and tokenised in parallel, and passed on in their order, as is the first error.
void add_lines(const fs::path& path, const Language& language, DocumentSink sink) {
  const sys::MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  int64_t number = 0;
  while (!rest.empty()) {
    const std::vector<Line> lines = next_lines(rest, number);
    std::vector<std::vector<Example>> documents(lines.size());
    std::vector<std::exception_ptr> errors(lines.size());
    sys::parallel_tasks(sys::default_threads(), std::ssize(lines), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      try {
        documents[at] = documents_of(lines[at], path, language);
      } catch (...) {
        errors[at] = std::current_exception();
      }
    });
    for (size_t i = 0; i < lines.size(); ++i) {
      if (errors[i]) std::rethrow_exception(errors[i]);
      for (const Example& document : documents[i]) sink(document.ids, document.trained);
    }
  }
}

// Calls `read` with a sink that records whether there was any document.
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
      if (const size_t valid = sys::utf8_valid_prefix(text); valid != text.size())
        fail(printable(name.string()), {.what = fmt::format("the text is not UTF-8 at byte {}", valid)});
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
