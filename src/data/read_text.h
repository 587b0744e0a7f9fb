// Tokenizes text into documents: plain files and JSON lines. A run does this when it starts; for corpora of gigabytes,
// `braid data tokenize` does it once.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "data/loader.h"
#include "data/reading.h"
#include "data/thoughts.h"
#include "sys/function_ref.h"

namespace braid::data {

// Takes a document; `trained` is its mask, empty if all tokens are trained. `continues`: it comes from the same line as
// the one before, as examples of one conversation do.
using DocumentSink =
    sys::FunctionRef<void(std::span<const int32_t> ids, std::span<const uint8_t> trained, bool continues)>;

// A file, or the files of a folder and those below, sorted by name. A document is a file, or the text between
// end-of-text tokens; each begins as the tokenizer begins a text. Error when there is no document, or no tokenizer.
void read_text(const std::filesystem::path& path, const Language& language, DocumentSink sink);

// One document per line: `text`, or `messages` (chat.h), some with fewer thoughts. Error names the line. `reading` may
// be empty.
void read_jsonl(const std::filesystem::path& path, const Language& language, DocumentSink sink,
                const Reading& reading = {}, const ThoughtRules& thoughts = {});

// The kind of a path when none is given: text, jsonl, indexed or ids.
std::string kind_of(const std::filesystem::path& path);

}  // namespace braid::data
