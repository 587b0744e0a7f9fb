#include "report/line_buffer.h"

#include <gtest/gtest.h>

#include <random>

#include "sys/utf8.h"

namespace braid::report {
namespace {

using Event = LineBuffer::Event;

Event type(LineBuffer& buffer, std::string_view keys) {
  Event last = Event::none;
  for (char key : keys) last = buffer.feed(key);
  return last;
}

// The text after these keys, with | where the cursor is.
std::string after(std::string_view keys) {
  LineBuffer buffer;
  type(buffer, keys);
  std::string text = buffer.text();
  return text.insert(buffer.cursor(), "|");
}

TEST(LineBuffer, Edits) {
  EXPECT_EQ(after("abc"), "abc|");
  EXPECT_EQ(after("abc\x1b[D\x1bOD."), "a.|bc");
  EXPECT_EQ(after("abc\x01<\x05>"), "<abc>|");
  EXPECT_EQ(after("abc\x02\x02\x0b"), "a|");
  EXPECT_EQ(after("abc\x02\x15"), "|c");
  EXPECT_EQ(after("one two \x17three"), "one three|");
  EXPECT_EQ(after("one two\x1b"
                  "b\x1b[1;5D."),
            ".|one two");
  EXPECT_EQ(after("one two\x01\x1b"
                  "d"),
            "| two");
  EXPECT_EQ(after("abc\x01\x1b[3~\x04"), "|c");
  EXPECT_EQ(after("ab\x1b\rc\td"), "ab\ncd|");
  EXPECT_EQ(after("\x7f\x1b[D\x1b[3~\x1b[A\x1b[B"), "|");
}

TEST(LineBuffer, CharactersAreWhole) {
  EXPECT_EQ(after("na\u00efve\u4e2d\x7f\x02\x02\x7f"), "na|ve");
  EXPECT_EQ(after("a\xe4\xb8"
                  "b"),
            "ab|");  // cut short by the next key
  EXPECT_EQ(after("a\x80\xff\xc0\xaf"
                  "b"),
            "ab|");  // no lead byte, invalid byte, overlong
}

TEST(LineBuffer, UnknownKeysAreSwallowedWhole) {
  EXPECT_EQ(after("a\x1b[5~\x1b[1;2R\x1bOP\x1bx\x1b[99999999999999999999b"), "a999999b|");
}

TEST(LineBuffer, PastedControlBytesAreNotKeys) {
  LineBuffer buffer;
  EXPECT_EQ(type(buffer,
                 "> \x1b[200~one\rtwo\r\nthr\x03\x1b[A\x9b"
                 "ee\n\tfour\x1b[201~"),
            Event::edited);
  EXPECT_EQ(buffer.text(), "> one\ntwo\nthr[Aee\n\tfour");
  EXPECT_EQ(type(buffer, "\r"), Event::submit);
  EXPECT_EQ(type(buffer, "\x1b[200~\x1b[201~"), Event::none);
}

TEST(LineBuffer, PasteSizeIsLimited) {
  LineBuffer buffer;
  type(buffer, "\x1b[200~");
  const std::string piece(size_t{1} << 20, 'x');
  for (int i = 0; i < 18; ++i) type(buffer, piece);
  EXPECT_EQ(type(buffer, "\x1b[201~"), Event::edited);
  EXPECT_EQ(buffer.text().size(), size_t{16} << 20);
  type(buffer, "y");
  EXPECT_EQ(buffer.text().size(), size_t{16} << 20);
}

TEST(LineBuffer, BrowsesTheHistory) {
  LineBuffer buffer;
  for (const char* line : {"first", "second", "second", ""}) {
    type(buffer, line);
    EXPECT_EQ(buffer.take(), line);
  }
  type(buffer, "draft\x1b[A");
  EXPECT_EQ(buffer.text(), "second");
  type(buffer, "\x1b[A\x1b[A");
  EXPECT_EQ(buffer.text(), "first");
  type(buffer, "\x1b[B\x1b[B\x1b[B");
  EXPECT_EQ(buffer.text(), "draft");
}

TEST(LineBuffer, Endings) {
  LineBuffer buffer;
  EXPECT_EQ(buffer.feed('\x04'), Event::end);
  type(buffer, "ab\x01");
  EXPECT_EQ(buffer.feed('\x04'), Event::edited);
  EXPECT_EQ(buffer.feed('\x03'), Event::interrupt);
  EXPECT_EQ(buffer.feed('\x1a'), Event::suspend);
  EXPECT_EQ(buffer.take(), "b");
}

TEST(LineBuffer, LaysOutRows) {
  LineBuffer buffer;
  type(buffer, "\x1b[200~abcdefg\n\u4e2d\u4e2d\u4e2d\u4e2d\x1b[201~");
  const LineBuffer::Layout l = buffer.layout("> ", 8);
  EXPECT_EQ(l.rows, (std::vector<std::string>{"> abcdef", "g", "  \u4e2d\u4e2d\u4e2d", "\u4e2d"}));
  EXPECT_EQ(l.cursor_row, 3U);
  EXPECT_EQ(l.cursor_column, 2U);
  LineBuffer full;
  type(full, "abcdef");
  EXPECT_EQ(full.layout("> ", 8).rows.size(), 2U) << "the cursor does not fit after a full row";
  EXPECT_EQ(full.layout("> ", 8).cursor_column, 0U);
}

// Whatever comes from the keyboard, the text is UTF-8, the cursor is between characters, and rows fit.
TEST(LineBuffer, AnyBytes) {
  std::mt19937 random(1);
  const std::string_view keys[] = {"\x1b[D", "\x1b[C",  "\x1b[A", "\x1b[200~", "\x1b[201~",
                                   "\u4e2d", "e\u0301", "\x7f",   "\n"};
  for (int round = 0; round < 200; ++round) {
    LineBuffer buffer;
    for (int i = 0; i < 100; ++i) {
      if (random() % 2) {
        type(buffer, keys[random() % std::size(keys)]);
      } else if (buffer.feed(static_cast<char>(random() % 256)) == Event::submit) {
        buffer.take();
      }
      const std::string& text = buffer.text();
      ASSERT_LE(buffer.cursor(), text.size());
      ASSERT_FALSE(buffer.cursor() < text.size() && sys::utf8_continues(text[buffer.cursor()]));
      const LineBuffer::Layout l = buffer.layout(">>> ", 10);
      ASSERT_LT(l.cursor_row, l.rows.size());
      ASSERT_LE(l.cursor_column, 9U);
    }
  }
}

}  // namespace
}  // namespace braid::report
