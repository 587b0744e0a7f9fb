// Text becomes documents of token ids: plain files and JSON lines. A run reads them when it begins; for corpora of
// gigabytes, `braid data tokenize` does it once.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "data/loader.h"
#include "sys/function_ref.h"

namespace braid::data {

// Takes a document; `trained` marks its tokens, and is empty where all of them are.
using DocumentSink = sys::FunctionRef<void(std::span<const int32_t> ids, std::span<const uint8_t> trained)>;

// A file, or the files of a folder and those below, sorted by name. A document is a file, or what lies between
// end-of-text tokens. Error when there is no document, or no tokenizer.
void read_text(const std::filesystem::path& path, const Language& language, DocumentSink sink);

// A document a line: `text`, or `messages` (chat.h). Error names the line.
void read_jsonl(const std::filesystem::path& path, const Language& language, DocumentSink sink);

// The kind of a path when none is given: text, jsonl, indexed or ids.
std::string kind_of(const std::filesystem::path& path);

}  // namespace braid::data
