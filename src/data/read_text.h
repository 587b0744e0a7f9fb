// Text becomes a Corpus: plain files and JSON lines, tokenised when a run begins. For corpora of gigabytes,
// `braid data tokenize` does it once.
#pragma once
#include <filesystem>

#include "data/corpus.h"
#include "data/loader.h"

namespace braid::data {

// A file, or the files of a folder and those below, sorted by name. A document is a file, or what lies between
// end-of-text tokens. Error when there is no document, or no tokenizer.
Corpus read_text(const std::filesystem::path& path, const Language& language);

// A document a line: `text`, or `messages` (chat.h). Error names the line.
Corpus read_jsonl(const std::filesystem::path& path, const Language& language);

// The files of a folder that read_text or read_jsonl takes.
bool has_jsonl(const std::filesystem::path& folder);

}  // namespace braid::data
