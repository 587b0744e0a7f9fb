#include "io/gguf.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/error_of.h"
#include "support/folder.h"

namespace braid::io {
namespace {

using support::error_of;

// Builds a file, valid or not.
class Writer {
 public:
  Writer(uint64_t tensors, uint64_t values, uint32_t version = 3) {
    bytes_ = "GGUF";
    number(version);
    number(tensors);
    number(values);
  }
  template <class Num>
  Writer& number(Num value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Writer& text(const std::string& value) {
    number<uint64_t>(value.size());
    bytes_ += value;
    return *this;
  }
  // Sizes as stored, innermost first.
  Writer& tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
    text(name).number(static_cast<uint32_t>(sizes.size()));
    for (uint64_t size : sizes) number(size);
    return number(type).number(offset);
  }
  Writer& data(size_t count) {
    bytes_.resize((bytes_.size() + 31) / 32 * 32);
    for (size_t i = 0; i < count; ++i) bytes_ += static_cast<char>(i);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

GgufParts parse(const std::string& bytes) { return parse_gguf(std::as_bytes(std::span(bytes)), "f"); }
std::string parse_error(const std::string& bytes) {
  return error_of([&] { parse(bytes); });
}

class GgufTest : public support::FolderTest {};

TEST_F(GgufTest, ReadsValuesAndTensors) {
  Writer w(2, 8);
  w.text("a.small").number(4u).number(7u);
  w.text("a.signed").number(5u).number(-3);
  w.text("a.real").number(6u).number(0.5f);
  w.text("a.yes").number(7u).number(uint8_t{1});
  w.text("a.name").number(8u).text("braid");
  w.text("a.list").number(9u).number(5u).number(uint64_t{3}).number(1).number(0).number(2);
  w.text("a.words").number(9u).number(8u).number(uint64_t{2}).text("x").text("");
  w.text("a.large").number(10u).number(uint64_t{1} << 40);
  w.tensor("b", {32, 2}, 2, 32).tensor("a", {3, 1}, 0, 0).data(32 + 36);
  const Gguf file(write("x.gguf", w.bytes()));
  EXPECT_EQ(file.int_of("a.small"), 7);
  EXPECT_EQ(file.int_of("a.signed"), -3);
  EXPECT_EQ(file.int_of("a.large"), int64_t{1} << 40);
  EXPECT_EQ(file.number_of("a.real"), 0.5);
  EXPECT_EQ(file.bool_of("a.yes"), true);
  EXPECT_EQ(file.string_of("a.name"), "braid");
  EXPECT_EQ(file.ints_of("a.list", 3), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(file.ints_of("a.small", 2), (std::vector<int64_t>{7, 7}));
  EXPECT_EQ(file.int_of("a.none"), std::nullopt);
  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor* quantised = file.find("b");
  ASSERT_TRUE(quantised);
  EXPECT_EQ(quantised->shape, (Shape{2, 32}));
  EXPECT_STREQ(quantised->type->name, "Q4_0");
  EXPECT_EQ(quantised->bytes.size(), 36u);
  EXPECT_EQ(quantised->bytes[1], std::byte{33});
  EXPECT_FALSE(file.find("c"));
  EXPECT_NE(error_of([&] { file.int_of("a.real"); }).find("a.real has the wrong type"), std::string::npos);
  EXPECT_NE(error_of([&] { file.ints_of("a.list", 4); }).find("a.list has the wrong length; got 3; expected 4"),
            std::string::npos);
  EXPECT_NE(error_of([&] { file.need_int("a.none"); }).find("a.none is missing"), std::string::npos);
}

// Every prefix of a whole file is an Error, and none reads past its end (the sanitizers check).
TEST_F(GgufTest, EveryTruncationIsAnError) {
  Writer w(1, 2);
  w.text("k").number(9u).number(8u).number(uint64_t{2}).text("one").text("two");
  w.text("n").number(12u).number(1.5);
  w.tensor("t", {4}, 0, 0).data(16);
  const std::string whole = w.bytes();
  EXPECT_EQ(parse_error(whole), "");
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(error_of([&] { parse_gguf(std::as_bytes(std::span(part)), "f"); }), "") << size;
  }
}

TEST_F(GgufTest, WrongHeadersGiveOneClearLine) {
  const auto list = [](uint32_t kind, uint64_t count) {
    return Writer(0, 1).text("k").number(9u).number(kind).number(count).data(8).bytes();
  };
  const auto tensor = [](const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
    return Writer(1, 0).tensor("t", sizes, type, offset).data(64).bytes();
  };
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  const std::pair<std::string, const char*> cases[] = {
      {"not a file of this kind at all", "is not a GGUF file"},
      {Writer(0, 0, 1).bytes(), "unknown GGUF version; got 1"},
      {Writer(kHuge, 0).bytes(), "too many tensors or values"},
      {Writer(0, kHuge).bytes(), "too many tensors or values"},
      {Writer(1, 0).bytes(), "is truncated within its header"},
      {Writer(0, 1).number(kHuge).data(8).bytes(), "a string at byte 24 is too long"},
      {Writer(0, 1).text("k").number(13u).data(8).bytes(), "k has an unknown type; got 13"},
      {Writer(0, 2).text("k").number(7u).number('\1').text("k").number(7u).number('\1').bytes(), "k is duplicated"},
      {Writer(0, 1).text("k").number(10u).number(~uint64_t{0}).bytes(), "k is out of range"},
      {Writer(0, 1).text("general.alignment").number(4u).number(48u).bytes(), "general.alignment is wrong"},
      {list(4, kHuge), "k is too long a list"},
      {list(8, 1 << 20), "is truncated within its header"},
      {list(9, 1), "k is a list of an unknown type; got 9"},
      {tensor({}, 0, 0), "wrong number of dimensions; got 0"},
      {tensor({1, 1, 1, 1, 1}, 0, 0), "wrong number of dimensions; got 5"},
      {tensor({4, 0}, 0, 0), "impossible size; got 0"},
      {tensor({kHuge, 8}, 0, 0), "is too large"},
      {tensor({4}, 99, 0), "unknown type; got 99"},
      {tensor({48}, 2, 0), "t is Q4_0, but its row length is not a multiple of 32"},
      {tensor({4}, 0, 8), "is not aligned"},
      {tensor({4}, 0, 64), "is truncated: tensor t ends beyond the file"},
      {tensor({32}, 0, 0), "is truncated: tensor t ends beyond the file"},
      {Writer(2, 0).tensor("a", {16}, 0, 0).tensor("b", {4}, 0, 32).data(64).bytes(), "b overlaps another"},
      {Writer(2, 0).tensor("a", {4}, 0, 0).tensor("a", {4}, 0, 32).data(64).bytes(), "tensor a is duplicated"}};
  for (const auto& [bytes, wanted] : cases) {
    const std::string got = parse_error(bytes);
    EXPECT_NE(got.find(wanted), std::string::npos) << got << "\nwanted " << wanted;
    EXPECT_EQ(got.find('\n'), std::string::npos);
  }
}

// Whatever is missing of a file, its size and at least how much there should be are named; behind the header all of it.
TEST_F(GgufTest, APartOfAFileIsCalledTruncated) {
  Writer w(3, 3);
  w.text("general.architecture").number(8u).text("llama");
  w.text("a.tokens").number(9u).number(8u).number(uint64_t{3}).text("one").text("").text("three");
  w.text("a.scores").number(9u).number(6u).number(uint64_t{2}).number(1.f).number(2.f);
  w.tensor("b", {4}, 0, 64).tensor("a", {8}, 0, 0).tensor("c", {2, 3}, 0, 96);
  const std::string header = w.bytes(), whole = w.data(96 + 24).bytes();
  ASSERT_EQ(parse_error(whole), "");
  for (size_t size = 4; size < whole.size(); ++size) {
    const std::string error = parse_error(whole.substr(0, size));
    EXPECT_NE(error.find("is truncated"), std::string::npos) << error;
    EXPECT_NE(error.find(fmt::format("; got {} bytes; expected at least ", size)), std::string::npos) << error;
    const auto least = std::stoull(error.substr(error.find("at least ") + 9));
    EXPECT_GT(least, size);
    EXPECT_LE(least, whole.size());
    if (size < header.size()) continue;
    EXPECT_EQ(least, whole.size()) << error;
  }
}

// Part `number` of `count` of a model with one tensor per part.
std::string part(uint16_t number, uint16_t count, const std::string& tensor, int32_t tensors) {
  Writer w(1, 4);
  w.text("split.no").number(2u).number(number);
  w.text("split.count").number(2u).number(count);
  w.text("split.tensors.count").number(5u).number(tensors);
  w.text("a.part").number(4u).number(uint32_t{number});
  return w.tensor(tensor, {4}, 0, 0).data(16).bytes();
}

TEST_F(GgufTest, PartsAreOneFile) {
  const auto first = write("m-00001-of-00003.gguf", part(0, 3, "b", 3));
  write("m-00002-of-00003.gguf", part(1, 3, "c", 3));
  write("m-00003-of-00003.gguf", part(2, 3, "a", 3));
  const Gguf file(first);
  ASSERT_EQ(file.tensors().size(), 3u);
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(file.find(name)) << name;
    EXPECT_EQ(file.find(name)->bytes[3], std::byte{3});
  }
  EXPECT_EQ(file.int_of("a.part"), 0);  // of the first
}

TEST_F(GgufTest, PartsThatDoNotBelongTogether) {
  const auto first = write("m-00001-of-00002.gguf", part(0, 2, "a", 2));
  const auto refused = [&](const std::string& what, const std::filesystem::path& path) {
    const std::string error = error_of([&] { Gguf file(path); });
    EXPECT_NE(error.find(what), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  };
  refused("part 2 of 2 is missing", first);
  const auto second = write("m-00002-of-00002.gguf", part(1, 2, "b", 2));
  EXPECT_EQ(error_of([&] { Gguf file(first); }), "");
  refused("is part 2 of 2; expected the first; try " + first.string(), second);
  refused("is one part of several, but its name does not say so", write("m.gguf", part(0, 2, "a", 2)));
  write(second, part(1, 2, "a", 2));
  refused("tensor a is duplicated", first);
  write(second, part(1, 2, "b", 2).substr(0, 100));
  refused("m-00002-of-00002.gguf] is truncated within its header", first);
  write(first, part(0, 2, "a", 3));
  write(second, part(1, 2, "b", 3));
  refused("a wrong number of tensors; got 2; expected 3", first);
  for (const auto& [number, count] : {std::pair<uint16_t, uint16_t>{0, 2}, {1, 3}, {7, 2}}) {
    write(second, part(number, count, "b", 3));
    refused("not the part that its name says", first);
  }
  refused("impossible part number; got 3 of 2", write("x-00003-of-00002.gguf", part(2, 2, "a", 2)));
  refused("impossible part number; got 1 of 0", write("x.gguf", part(0, 0, "a", 2)));
}

}  // namespace
}  // namespace braid::io
