// Corpora of token ids on disk, mapped.
// Megatron's pair: PREFIX.bin holds the ids back to back; PREFIX.idx, all little-endian,
//   9 bytes "MMIDIDX\0\0", u64 version 1, u8 type (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16), u64 sequences, u64
//   documents, i32 length [sequences], i64 byte offset [sequences], i64 first sequence [documents]: 0, ..., sequences
//   and, in files with several modes, one byte per sequence
// llm.c's .bin: 256 i32, of which magic, version and the count of tokens are used (20240520, 1: u16; 20240801, 7: u32),
// then the ids; every document begins with the end-of-text token (50256, or 128000).
//   megatron/core/datasets/indexed_dataset.py; llm.c/dev/data/data_common.py
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "sys/mapped_file.h"

namespace braid::io {

enum class TokenType : uint8_t { u8, i8, i16, u16, i32, u32, i64 };
int64_t size_of(TokenType type);  // bytes

struct TokenIndex {
  TokenType type = TokenType::i32;
  std::vector<int64_t> documents;  // where each begins, in tokens; then the total
};

// Parses an .idx file; checks counts against its size, offsets against lengths. Error, naming the entry, otherwise.
TokenIndex parse_token_index(std::span<const std::byte> file, const std::string& where);

class TokenFile {
 public:
  // PREFIX, PREFIX.bin or PREFIX.idx of a pair, or llm.c's file. Error when a header or a size is wrong.
  explicit TokenFile(const std::filesystem::path& path);
  static bool exists(const std::filesystem::path& path);  // is there a .bin for `path`?

  int64_t documents() const { return std::ssize(index_.documents) - 1; }
  int64_t begin(int64_t document) const { return index_.documents[static_cast<size_t>(document)]; }
  int64_t tokens() const { return index_.documents.back(); }
  // Tokens [first, first + out.size()); an id outside int32 is read as -1.
  void read(int64_t first, std::span<int32_t> out) const;

 private:
  void read_llm_c(const std::string& where);

  sys::MappedFile bin_;
  TokenIndex index_;
  int64_t offset_ = 0;  // of the first token in bin_
};

// Writes a pair: u16 if the vocabulary allows it (fewer than 65,500 ids, as in Megatron), i32 otherwise. Both files
// appear at finish(), the index last; Error if either exists.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::filesystem::path& prefix, int64_t vocabulary);
  void add(std::span<const int32_t> document);  // ids in [0, vocabulary)
  void finish();
  int64_t documents() const { return std::ssize(lengths_); }
  int64_t tokens() const { return tokens_; }

 private:
  void flush();
  std::filesystem::path prefix_;
  TokenType type_;
  AtomicFile bin_;
  std::string buffer_;
  std::vector<int32_t> lengths_;
  int64_t tokens_ = 0;
};

}  // namespace braid::io
