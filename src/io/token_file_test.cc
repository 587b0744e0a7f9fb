#include "io/token_file.h"

#include <numeric>

#include "support/error_of.h"
#include "support/folder.h"

namespace braid::io {
namespace {

using support::error_of;

class TokenFileTest : public support::FolderTest {
 protected:
  std::vector<int32_t> all(const TokenFile& file) const {
    std::vector<int32_t> ids(static_cast<size_t>(file.tokens()));
    file.read(0, ids);
    return ids;
  }
};

template <class Num>
std::string bytes_of(const std::vector<Num>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Num)};
}

// An index by hand: `modes` appends one byte per sequence.
std::string index_of(const std::vector<int32_t>& lengths, const std::vector<int64_t>& offsets,
                     const std::vector<int64_t>& documents, char type = 8, bool modes = false) {
  std::string out("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17);
  out += type;
  out += bytes_of<uint64_t>({lengths.size(), documents.size()});
  out += bytes_of(lengths) + bytes_of(offsets) + bytes_of(documents);
  return out + std::string(modes ? lengths.size() : 0, '\0');
}

std::string index_error(const std::string& bytes) {
  const std::vector<char> copy(bytes.begin(), bytes.end());
  return error_of([&] { parse_token_index(std::as_bytes(std::span(copy)), "f"); });
}

TEST_F(TokenFileTest, ReadsWhatItWrote) {
  for (const int64_t vocabulary : {65'499, 65'500}) {
    TokenFileWriter writer(folder_ / "corpus", vocabulary);
    writer.add(std::vector<int32_t>{1, 2, 65'498});
    writer.add({});
    writer.add(std::vector<int32_t>{7});
    EXPECT_FALSE(TokenFile::exists(folder_ / "corpus"));
    writer.finish();
    EXPECT_EQ(std::filesystem::file_size(folder_ / "corpus.bin"), vocabulary == 65'499 ? 8u : 16u);
    for (const char* name : {"corpus", "corpus.bin", "corpus.idx"}) {
      const TokenFile file(folder_ / name);
      EXPECT_EQ(file.documents(), 3);
      EXPECT_EQ(file.begin(1), 3);
      EXPECT_EQ(file.begin(2), 3);
      EXPECT_EQ(all(file), (std::vector<int32_t>{1, 2, 65'498, 7}));
    }
    for (const char* name : {"corpus.bin", "corpus.idx"}) {
      const std::string message = error_of([&] { TokenFileWriter(folder_ / "corpus", vocabulary); });
      EXPECT_NE(message.find(std::string(name) + "] already exists"), std::string::npos) << message;
      std::filesystem::remove(folder_ / name);
    }
  }
}

// Documents of several sequences, every type, and a file with several modes.
TEST_F(TokenFileTest, ReadsEveryTypeAndSequencesWithinDocuments) {
  write("a.idx", index_of({2, 1, 2}, {0, 4, 6}, {0, 2, 3}, 8, true));
  write("a.bin", bytes_of<uint16_t>({1, 2, 3, 4, 65'535}));
  const TokenFile a(folder_ / "a");
  EXPECT_EQ(a.documents(), 2);
  EXPECT_EQ(a.begin(1), 3);
  EXPECT_EQ(all(a), (std::vector<int32_t>{1, 2, 3, 4, 65'535}));
  const auto read_as = [&](char type, const std::string& bytes) {
    write("b.idx", index_of({2}, {0}, {0, 1}, type));
    write("b.bin", bytes);
    return all(TokenFile(folder_ / "b"));
  };
  EXPECT_EQ(read_as(1, bytes_of<uint8_t>({1, 255})), (std::vector<int32_t>{1, 255}));
  EXPECT_EQ(read_as(2, bytes_of<int8_t>({1, -1})), (std::vector<int32_t>{1, -1}));
  EXPECT_EQ(read_as(3, bytes_of<int16_t>({1, -1})), (std::vector<int32_t>{1, -1}));
  EXPECT_EQ(read_as(4, bytes_of<int32_t>({1, 1 << 30})), (std::vector<int32_t>{1, 1 << 30}));
  EXPECT_EQ(read_as(5, bytes_of<int64_t>({1, int64_t{1} << 40})), (std::vector<int32_t>{1, -1}));
}

TEST_F(TokenFileTest, ReadsFilesOfLlmC) {
  std::vector<int32_t> header(256);
  header[0] = 20240520, header[1] = 1, header[2] = 6;
  write("c.bin", bytes_of(header) + bytes_of<uint16_t>({50'256, 1, 2, 50'256, 3, 4}));
  const TokenFile gpt2(folder_ / "c.bin");
  EXPECT_EQ(gpt2.documents(), 2);
  EXPECT_EQ(gpt2.begin(1), 3);
  EXPECT_EQ(all(gpt2), (std::vector<int32_t>{50'256, 1, 2, 50'256, 3, 4}));
  header[0] = 20240801, header[1] = 7, header[2] = 3;
  write("c.bin", bytes_of(header) + bytes_of<uint32_t>({9, 128'000, 1}));
  const TokenFile llama(folder_ / "c.bin");
  EXPECT_EQ(llama.begin(1), 1);  // a shard may begin within a document
  EXPECT_EQ(all(llama), (std::vector<int32_t>{9, 128'000, 1}));
  header[2] = 4;
  write("c.bin", bytes_of(header) + bytes_of<uint32_t>({9, 128'000, 1}));
  EXPECT_NE(error_of([&] { TokenFile(folder_ / "c.bin"); }).find("is truncated; got 12 bytes"), std::string::npos);
  write("c.bin", "short");
  EXPECT_NE(error_of([&] { TokenFile(folder_ / "c.bin"); }).find("neither an .idx next to it"), std::string::npos);
}

TEST_F(TokenFileTest, DamageIsNamed) {
  const std::string good = index_of({2, 1}, {0, 4}, {0, 1, 2});
  ASSERT_EQ(index_error(good), "");
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(index_error(good.substr(0, n)), "") << n;
  std::string version = good, count = good;
  version[9] = 2;
  count[25] = 127;  // 2^62 sequences
  const std::pair<std::string, const char*> all[] = {
      {"PK", "is not the index of"},
      {version, "unknown version; got 2"},
      {count, "does not match its header"},
      {good + "xyz", "does not match its header"},
      {index_of({2, 1}, {0, 4}, {0, 1, 2}, 6), "its tokens are not integers; got type 6"},
      {index_of({2, 1}, {0, 4}, {0, 1, 2}, 0), "its tokens are not integers; got type 0"},
      {index_of({2, -1}, {0, 4}, {0, 1, 2}), "sequence 1 does not follow"},
      {index_of({2, 1}, {0, 6}, {0, 1, 2}), "got length 1 at byte 6; expected byte 4"},
      {index_of({2, 1}, {0, 4}, {0, 2, 1}), "document 2 begins at a wrong sequence; got 1"},
      {index_of({2, 1}, {0, 4}, {0, 2, 1, 2}), "document 2 begins at a wrong sequence; got 1"},
      {index_of({2, 1}, {0, 4}, {1, 2}), "document 0 begins at a wrong sequence; got 1"},
      {index_of({2, 1}, {0, 4}, {0, 1}), "document 1 begins at a wrong sequence; got 1"},
      {index_of({2, 1}, {0, 4}, {0, -1, 2}), "document 1 begins at a wrong sequence"},
      {index_of({2, 1}, {0, 4}, {}), "no documents"}};
  for (const auto& [bytes, message] : all) {
    EXPECT_NE(index_error(bytes).find(message), std::string::npos) << message << " -> " << index_error(bytes);
  }
  write("d.idx", good);
  write("d.bin", "12345");
  EXPECT_NE(error_of([&] { TokenFile(folder_ / "d"); }).find("is truncated; got 5 bytes of tokens; expected 6"),
            std::string::npos);
  write("d.bin", "1234567");
  EXPECT_NE(error_of([&] { TokenFile(folder_ / "d"); }).find("does not have the size that its index gives"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::io
