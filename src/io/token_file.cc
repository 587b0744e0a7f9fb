#include "io/token_file.h"

#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kIndexMagic{"MMIDIDX\0\0", 9};
constexpr size_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
constexpr size_t kFlushBytes = size_t{1} << 20;
constexpr int64_t kTokensMax = int64_t{1} << 50;  // more than any disk holds, and no product below overflows
constexpr int64_t kU16Vocabulary = 65'500;

struct TypeRow {
  TokenType type;
  uint8_t code;  // in an .idx; 0: none
  int64_t bytes;
};
constexpr TypeRow kTypes[] = {{TokenType::u8, 1, 1},  {TokenType::i8, 2, 1},  {TokenType::i16, 3, 2},
                              {TokenType::i32, 4, 4}, {TokenType::i64, 5, 8}, {TokenType::u16, 8, 2},
                              {TokenType::u32, 0, 4}};

template <class Num>
Num value_at(std::span<const std::byte> file, size_t offset) {  // the tables of an .idx are not aligned
  Num value{};
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

template <class Num>
void widen(const std::byte* from, std::span<int32_t> out) {
  for (int32_t& id : out) {
    Num value{};
    std::memcpy(&value, from, sizeof value);
    from += sizeof value;
    id = std::in_range<int32_t>(value) ? static_cast<int32_t>(value) : -1;
  }
}

// PREFIX of PREFIX, PREFIX.bin or PREFIX.idx.
fs::path prefix_of(const fs::path& path) {
  const fs::path extension = path.extension();
  return extension == ".bin" || extension == ".idx" ? fs::path(path).replace_extension() : path;
}
fs::path with(fs::path prefix, const char* extension) { return prefix += extension; }

// Error if PREFIX.bin or PREFIX.idx cannot be new files.
fs::path new_prefix_of(const fs::path& path) {
  check_new_files(prefix_of(path), {".bin", ".idx"}, false);
  return prefix_of(path);
}

}  // namespace

int64_t size_of(TokenType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.bytes;
  }
  CHECK(false, "type {}", static_cast<int>(type));
}

TokenIndex parse_token_index(std::span<const std::byte> file, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kIndexMagic))
    fail(where, {.what = "is not the index of a Megatron corpus", .expected = "MMIDIDX"});
  if (file.size() < kHeaderBytes)
    fail(where, {.what = "is truncated within its header", .got = fmt::format("{} bytes", file.size())});
  if (const auto version = value_at<uint64_t>(file, 9); version != 1)
    fail(where, {.what = "unknown version", .got = std::to_string(version), .expected = "1"});
  TokenIndex index;
  const auto code = value_at<uint8_t>(file, 17);
  const TypeRow* type = nullptr;
  for (const TypeRow& row : kTypes) {
    if (code != 0 && row.code == code) type = &row;
  }
  if (type == nullptr) fail(where, {.what = "its tokens are not integers", .got = fmt::format("type {}", code)});
  index.type = type->type;

  const auto sequences = value_at<uint64_t>(file, 18), bounds = value_at<uint64_t>(file, 26);
  const size_t rest = file.size() - kHeaderBytes;
  const bool possible = sequences <= rest / 12 && bounds <= rest / 8;
  const size_t tables = possible ? sequences * 12 + bounds * 8 : 0;
  if (!possible || (rest != tables && rest != tables + sequences)) {
    fail(where, {.what = "its size does not match its header",
                 .got = fmt::format("{} bytes of tables", rest),
                 .expected = fmt::format("room for {} sequences and {} documents", sequences, bounds)});
  }
  const size_t offsets = kHeaderBytes + sequences * 4, documents = offsets + sequences * 8;
  std::vector<int64_t> begins{0};  // of sequences, in tokens
  begins.reserve(sequences + 1);
  for (size_t i = 0; i < sequences; ++i) {
    const auto length = value_at<int32_t>(file, kHeaderBytes + i * 4);
    const auto offset = value_at<int64_t>(file, offsets + i * 8);
    if (length < 0 || begins.back() > kTokensMax || offset != begins.back() * type->bytes) {
      fail(where, {.what = fmt::format("sequence {} does not follow the one before it", i),
                   .got = fmt::format("length {} at byte {}", length, offset),
                   .expected = fmt::format("byte {}", begins.back() * type->bytes)});
    }
    begins.push_back(begins.back() + length);
  }
  for (size_t i = 0; i < bounds; ++i) {
    const auto first = value_at<uint64_t>(file, documents + i * 8);
    const bool ends = i == 0 ? first == 0 : i + 1 < bounds || first == sequences;
    if (first > sequences || !ends || (i > 0 && begins[first] < index.documents.back())) {
      fail(where, {.what = fmt::format("document {} begins at a wrong sequence", i), .got = std::to_string(first)});
    }
    index.documents.push_back(begins[first]);
  }
  if (bounds == 0 || (bounds == 1 && sequences != 0))
    fail(where, {.what = "it lists no documents", .expected = "their first sequences, from 0 to all"});
  return index;
}

bool TokenFile::exists(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(with(prefix_of(path), ".bin"), none);
}

TokenFile::TokenFile(const fs::path& path) : bin_(with(prefix_of(path), ".bin")) {
  const std::string where = printable(bin_.path().string());
  const fs::path idx = with(prefix_of(path), ".idx");
  std::error_code none;
  if (fs::exists(idx, none)) {
    const sys::MappedFile file(idx);
    index_ = parse_token_index(file.bytes(), printable(idx.string()));
  } else {
    read_llm_c(where);
  }
  const int64_t bytes = std::ssize(bin_.bytes()) - offset_;
  int64_t expected = 0;
  if (__builtin_mul_overflow(tokens(), size_of(index_.type), &expected) || bytes != expected) {
    fail(where, {.what = bytes < expected ? "is truncated" : "does not have the size that its index gives",
                 .got = fmt::format("{} bytes of tokens", bytes),
                 .expected = fmt::format("{}", expected)});
  }
}

void TokenFile::read_llm_c(const std::string& where) {
  constexpr size_t kHeader = 256 * sizeof(int32_t);
  const std::span<const std::byte> file = bin_.bytes();
  const bool header = file.size() >= kHeader;
  const int32_t magic = header ? value_at<int32_t>(file, 0) : 0, version = header ? value_at<int32_t>(file, 4) : 0;
  const bool gpt2 = magic == 20240520 && version == 1, llama = magic == 20240801 && version == 7;
  if (!gpt2 && !llama)
    fail(where, {.what = "has neither an .idx next to it nor an llm.c header", .hint = "braid data tokenize"});
  offset_ = kHeader;
  index_.type = gpt2 ? TokenType::u16 : TokenType::u32;
  const int64_t count = value_at<int32_t>(file, 8);
  if (count < 0 || (std::ssize(file) - offset_) / size_of(index_.type) < count) {
    fail(where, {.what = "is truncated",
                 .got = fmt::format("{} bytes of tokens", std::ssize(file) - offset_),
                 .expected = fmt::format("{} tokens", count)});
  }
  const int32_t end_of_text = gpt2 ? 50'256 : 128'000;
  index_.documents = {0};
  std::array<int32_t, 4096> ids{};
  for (int64_t at = 0; at < count; at += std::ssize(ids)) {
    const std::span<int32_t> some(ids.data(), static_cast<size_t>(std::min(count - at, std::ssize(ids))));
    read(at, some);
    for (size_t i = 0; i < some.size(); ++i) {
      const int64_t token = at + static_cast<int64_t>(i);
      if (some[i] == end_of_text && token > 0) index_.documents.push_back(token);
    }
  }
  index_.documents.push_back(count);
}

void TokenFile::read(int64_t first, std::span<int32_t> out) const {
  const int64_t bytes = size_of(index_.type), begin = offset_ + first * bytes;
  CHECK(first >= 0 && begin + std::ssize(out) * bytes <= std::ssize(bin_.bytes()), "{}+{}", first, out.size());
  const std::byte* from = bin_.bytes().data() + begin;
  switch (index_.type) {
    case TokenType::u8:
      return widen<uint8_t>(from, out);
    case TokenType::i8:
      return widen<int8_t>(from, out);
    case TokenType::i16:
      return widen<int16_t>(from, out);
    case TokenType::u16:
      return widen<uint16_t>(from, out);
    case TokenType::i32:
      return widen<int32_t>(from, out);
    case TokenType::u32:
      return widen<uint32_t>(from, out);
    case TokenType::i64:
      return widen<int64_t>(from, out);
  }
}

TokenFileWriter::TokenFileWriter(const fs::path& prefix, int64_t vocabulary)
    : prefix_(new_prefix_of(prefix)),
      type_(vocabulary < kU16Vocabulary ? TokenType::u16 : TokenType::i32),
      bin_(with(prefix_, ".bin")) {}

void TokenFileWriter::add(std::span<const int32_t> document) {
  if (document.size() > std::numeric_limits<int32_t>::max())
    fail(printable(prefix_.string()), {.what = "a document has more than 2^31 tokens", .hint = "shorter documents"});
  const auto bytes = static_cast<size_t>(size_of(type_));
  for (const int32_t id : document) {
    CHECK(id >= 0 && (bytes == 4 || id <= 0xffff), "id {}", id);
    buffer_.append(reinterpret_cast<const char*>(&id), bytes);  // little-endian: the low bytes come first
  }
  lengths_.push_back(static_cast<int32_t>(document.size()));
  tokens_ += std::ssize(document);
  if (buffer_.size() >= kFlushBytes) flush();
}

void TokenFileWriter::flush() {
  bin_.write(std::string_view(buffer_));
  buffer_.clear();
}

void TokenFileWriter::finish() {
  flush();
  bin_.commit();
  std::string index(kIndexMagic);
  const auto put = [&](auto value) { index.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(uint64_t{1});
  put(static_cast<uint8_t>(type_ == TokenType::u16 ? 8 : 4));
  put(static_cast<uint64_t>(lengths_.size()));
  put(static_cast<uint64_t>(lengths_.size() + 1));
  for (const int32_t length : lengths_) put(length);
  int64_t offset = 0;
  for (const int32_t length : lengths_) {
    put(offset);
    offset += length * size_of(type_);
  }
  for (size_t i = 0; i <= lengths_.size(); ++i) put(static_cast<int64_t>(i));
  write_text_file(with(prefix_, ".idx"), index);
}

}  // namespace braid::io
