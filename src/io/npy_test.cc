#include "io/npy.h"

#include "support/error_of.h"
#include "support/folder.h"
#include "sys/read.h"

namespace braid::io {
namespace {

using support::error_of;

class NpyTest : public support::FolderTest {};

std::string file_of(const std::string& header, const std::string& values) {
  const auto size = static_cast<uint16_t>(header.size());
  return std::string("\x93NUMPY\x01\0", 8) + std::string(reinterpret_cast<const char*>(&size), 2) + header + values;
}

std::string npy_error(const std::string& bytes) {
  const std::vector<char> copy(bytes.begin(), bytes.end());
  return error_of([&] { parse_npy(std::as_bytes(std::span(copy)), "f"); });
}

TEST_F(NpyTest, WritesInPiecesWhatItReads) {
  const float values[6] = {1, 2, 3, 4, 5, 6};
  {
    NpyWriter writer(folder_ / "x.npy", {2, 3});
    writer.append(std::span(values, 2));
    writer.append(std::span(values + 2, 4));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "x.npy"));
    writer.finish();
  }
  const std::string bytes = sys::read_file(folder_ / "x.npy");
  EXPECT_EQ(bytes.size(), 128u + 24u);
  EXPECT_NE(bytes.find("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"), std::string::npos);
  const Npy file(folder_ / "x.npy");
  EXPECT_EQ(file.shape(), (Shape{2, 3}));
  EXPECT_EQ(file.floats(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_NE(error_of([&] { file.integers(); }), "");
}

TEST_F(NpyTest, AnUnfinishedFileLeavesNothing) {
  { NpyWriter writer(folder_ / "x.npy", {4}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_NE(error_of([&] { NpyWriter writer(folder_ / "no/x.npy", {4}); }).find("cannot be written"),
            std::string::npos);
}

TEST_F(NpyTest, ReadsIntegersOfBothWidths) {
  const int32_t narrow[2] = {-1, 7};
  const int64_t wide[2] = {-1, int64_t{1} << 40};
  const Npy a(write("a.npy", file_of("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n",
                                     std::string(reinterpret_cast<const char*>(narrow), 8))));
  EXPECT_EQ(a.integers(), (std::vector<int64_t>{-1, 7}));
  const Npy b(write("b.npy", file_of("{'shape': (1, 2), 'fortran_order': False, 'descr': '<i8'}",
                                     std::string(reinterpret_cast<const char*>(wide), 16))));
  EXPECT_EQ(b.integers(), (std::vector<int64_t>{-1, int64_t{1} << 40}));
  EXPECT_EQ(b.shape(), (Shape{1, 2}));
}

TEST_F(NpyTest, DamageIsNamed) {
  const std::string good = file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", "1234");
  ASSERT_EQ(npy_error(good), "");
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(npy_error(good.substr(0, n)), "") << n;
  const std::pair<std::string, const char*> all[] = {
      {file_of("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", "12345678"), "the wrong dtype; got <f8"},
      {file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "1234"), "column-major"},
      {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234"),
       "is truncated; got 4 bytes of values; expected 8"},
      {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "12345"), "bytes after its values"},
      {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 0), }", ""),
       "impossible shape"},
      {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "1234"), "malformed"},
      {file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", "1234"), "malformed"},
      {file_of("{'descr': '<f4', 'fortran_order': False}", "1234"), "malformed"},
      {file_of("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "1234"), "malformed"},
      {"PK\x03\x04 something else", "not an npy file"},
      {std::string("\x93NUMPY\x09\0zzzz", 12), "unknown npy version; got 9"}};
  for (const auto& [bytes, message] : all) {
    EXPECT_NE(npy_error(bytes).find(message), std::string::npos) << message << " -> " << npy_error(bytes);
  }
}

}  // namespace
}  // namespace braid::io
