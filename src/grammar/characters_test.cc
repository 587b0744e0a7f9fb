// Sets of characters as bytes: every character by itself against the set, and Unicode's categories.
#include "grammar/characters.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "grammar/categories.h"
#include "grammar/grammar_fixture.h"
#include "support/error_of.h"
#include "sys/utf8.h"

namespace braid::grammar {
namespace {

bool surrogate(char32_t ch) { return ch >= 0xd800 && ch <= 0xdfff; }

std::string utf8(char32_t ch) {
  std::string out;
  sys::append_utf8(ch, out);
  return out;
}

bool contains(const CharSet& set, char32_t ch) {
  return std::ranges::any_of(set, [ch](const CharRange& r) { return r.first <= ch && ch <= r.last; });
}

// The characters at the ends of ranges and around them, where forms are cut, and some between.
std::vector<char32_t> hard_characters(const CharSet& set) {
  std::vector<char32_t> out{0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, kCharMax};
  for (const CharRange& r : set) {
    const auto first = static_cast<int64_t>(r.first), last = static_cast<int64_t>(r.last);
    for (const int64_t at : {first - 1, first, first + 1, (first + last) / 2, last - 1, last, last + 1}) {
      const auto ch = static_cast<char32_t>(std::max<int64_t>(0, at));
      if (ch <= kCharMax && !surrogate(ch)) out.push_back(ch);
    }
  }
  return out;
}

void expect_set(const std::shared_ptr<const Constraint>& constraint, const CharSet& set) {
  int within = 0, outside = 0;
  for (const char32_t ch : hard_characters(set)) {
    const bool expected = contains(set, ch);
    (expected ? within : outside) += 1;
    ASSERT_EQ(matches(constraint, utf8(ch)), expected) << std::hex << static_cast<uint32_t>(ch);
  }
  EXPECT_GT(within, 0);
  EXPECT_GT(outside, 0);
}

TEST(Characters, TreesOfBytesHaveTheCharactersOfTheirSet) {
  std::mt19937 draws(3);
  for (int round = 0; round < 40; ++round) {
    CharSet set;
    const int ranges = 1 + static_cast<int>(draws() % 30);
    for (int i = 0; i < ranges; ++i) {
      const auto first = static_cast<char32_t>(draws() % (round % 2 == 0 ? 0x1000 : kCharMax));
      const auto length = static_cast<char32_t>(draws() % (round % 3 == 0 ? 3 : 5000));
      set.push_back({first, std::min<char32_t>(first + length, kCharMax)});
    }
    set = normalized(set);
    expect_set(constraint_of([&](Builder& b) { return b.rule(character(b, set, Spelling::plain, b.done())); }), set);
  }
}

TEST(Characters, CategoriesAreThoseOfUnicode) {
  for (const auto& [pattern, prefix] : {std::pair{R"(\p{L})", "L"},
                                        {R"(\p{Letter})", "L"},
                                        {R"(\p{Lu})", "Lu"},
                                        {R"(\pN)", "N"},
                                        {R"(\p{gc=Nd})", "Nd"},
                                        {R"(\p{Currency_Symbol})", "Sc"}}) {
    CharSet set;
    for (char32_t ch = 0; ch <= kCharMax; ++ch) {
      const std::string name = utf8proc_category_string(static_cast<utf8proc_int32_t>(ch));
      if (name.starts_with(prefix)) set.push_back({ch, ch});
    }
    set = normalized(set);
    SCOPED_TRACE(pattern);
    expect_set(regex_of(pattern), set);
    expect_set(regex_of("[^" + std::string(pattern) + "]"), complement(set));
  }
  EXPECT_TRUE(matches(regex_of(R"(\p{Lu}[\p{Ll}'\-]+( \P{N}+)?)"), "Élise-zoë Ørsted"));
  EXPECT_FALSE(matches(regex_of(R"(\p{Lu}\p{Ll}+)"), "élise"));
  EXPECT_TRUE(matches(schema_of(R"({"type":"string","pattern":"^\\p{L}+$"})"), "\"Ünïcödé字\""));
}

TEST(Characters, OtherPropertiesAreRefused) {
  for (const char* pattern : {R"(\p{Greek})", R"(\p{})", R"(\p)", R"(\p{L)", R"(\p{Script=Greek})", R"(\p{Cs})"}) {
    const std::string error = support::error_of([&] { (void)Regex::parse(pattern, "test"); });
    EXPECT_NE(error.find("\\p"), std::string::npos) << pattern << ": " << error;
  }
}

}  // namespace
}  // namespace braid::grammar
