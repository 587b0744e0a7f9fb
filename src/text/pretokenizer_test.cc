#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include "support/error_of.h"
#include "text/normalizer.h"
#include "text/tokenizer_fixture.h"

namespace braid::text {
namespace {

using support::error_of;

std::vector<std::string> pieces_of(const std::string& spec, std::string_view text) {
  const PreTokenizer pre_tokenizer = PreTokenizer::read(io::Json::parse(spec, "test"));
  PreTokenizer::Scratch scratch(pre_tokenizer);
  std::vector<std::string> pieces;
  pre_tokenizer.split(text, true, scratch, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

std::string normalized(const std::string& spec, std::string_view text) {
  return Normalizer::read(io::Json::parse(spec, "test")).apply(text);
}

using Pieces = std::vector<std::string>;

TEST(PreTokenizer, SplitBehaviors) {
  const auto split = [](const std::string& behavior, const std::string& more = "") {
    return pieces_of(R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")" + behavior + "\"" + more + "}",
                     "the-final--countdown");
  };
  EXPECT_EQ(split("Removed"), (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(split("Isolated"), (Pieces{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split("MergedWithPrevious"), (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split("MergedWithNext"), (Pieces{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split("Contiguous"), (Pieces{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split("Removed", R"(, "invert": true)"), (Pieces{"-", "-", "-"}));
}

TEST(PreTokenizer, Types) {
  EXPECT_EQ(pieces_of(R"({"type": "Digits", "individual_digits": true})", "a12b"), (Pieces{"a", "1", "2", "b"}));
  EXPECT_EQ(pieces_of(R"({"type": "Digits", "individual_digits": false})", "a12b"), (Pieces{"a", "12", "b"}));
  EXPECT_EQ(pieces_of(R"({"type": "Punctuation", "behavior": "Isolated"})", "a,«b"), (Pieces{"a", ",", "«", "b"}));
  EXPECT_EQ(pieces_of(R"({"type": "Whitespace"})", "a1 b!? c"), (Pieces{"a1", "b", "!?", "c"}));
  EXPECT_EQ(pieces_of(R"({"type": "WhitespaceSplit"})", " a1  b!\u3000c"), (Pieces{"a1", "b!", "c"}));
  EXPECT_EQ(pieces_of(R"({"type": "CharDelimiterSplit", "delimiter": "|"})", "a|b||c"), (Pieces{"a", "b", "c"}));
  EXPECT_EQ(pieces_of(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"})", "a  b"),
            (Pieces{"_a", "_", "_b"}));
  EXPECT_EQ(pieces_of(R"({"type": "ByteLevel", "add_prefix_space": true})", "I'll go  x1"),
            (Pieces{" I", "'ll", " go", " ", " x", "1"}));
  EXPECT_EQ(
      pieces_of(R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Digits"}]})", "a1 b"),
      (Pieces{"a", "1", "b"}));
}

TEST(PreTokenizer, EmptyMatchesStillCut) {
  EXPECT_EQ(pieces_of(R"({"type": "Split", "pattern": {"Regex": "x*"}, "behavior": "Isolated"})", "axxb"),
            (Pieces{"a", "xx", "b"}));
}

TEST(Regex, OnigurumaReadAsPcre2) {
  EXPECT_EQ(to_pcre2(R"(\h+|\u0041)", "t"), R"([0-9a-fA-F]+|\x{0041})");
  EXPECT_EQ(to_pcre2(R"([^\S\n][[:alpha:]x])", "t"), R"([^\S\n][[:alpha:]x])");
  EXPECT_EQ(to_pcre2(R"([^]&]&&)", "t"), R"([^]&]&&)");
  for (const char* pattern : {R"([a&&b])", R"([a[b]])", R"([\W])"}) {
    EXPECT_NE(error_of([&] { to_pcre2(pattern, "t"); }).find("unsupported regular expression"), std::string::npos)
        << pattern;
  }
}

TEST(Regex, SpacesAndWordsAreOnigurumas) {
  // U+180E is not a space, U+0085 is; marks and connectors belong to words.
  const auto spaces = [](std::string_view text) {
    return pieces_of(R"({"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Removed"})", text);
  };
  EXPECT_EQ(spaces("a\u180eb\u0085c\u2003d"), (Pieces{"a\u180eb", "c", "d"}));
  EXPECT_EQ(pieces_of(R"({"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated"})", "e\u0301\u203f!"),
            (Pieces{"e\u0301\u203f", "!"}));
}

TEST(Regex, ARunawayPatternIsAnError) {
  const std::string spec = R"({"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"})";
  const std::string text = std::string(60, 'a') + "b";
  EXPECT_NE(error_of([&] { pieces_of(spec, text); }).find("failed on this text"), std::string::npos);
}

TEST(Normalizer, Types) {
  EXPECT_EQ(normalized(R"({"type": "NFC"})", "ae\u0301\u212b x"), "a\u00e9\u00c5 x");
  EXPECT_EQ(normalized(R"({"type": "NFD"})", "a\u00e9x"), "ae\u0301x");
  EXPECT_EQ(normalized(R"({"type": "NFKC"})", "\ufb01\u00b2"), "fi2");
  EXPECT_EQ(normalized(R"({"type": "NFKD"})", "\u00e9\ufb01"), "e\u0301fi");
  EXPECT_EQ(normalized(R"({"type": "Lowercase"})", "AÉ\u0130"), "aéi\u0307");
  EXPECT_EQ(normalized(R"({"type": "StripAccents"})", "e\u0301é"), "eé");
  EXPECT_EQ(normalized(R"({"type": "Strip", "strip_left": true, "strip_right": false})", " \u00a0a "), "a ");
  EXPECT_EQ(normalized(R"({"type": "Strip", "strip_left": true, "strip_right": true})", " a  b \n"), "a  b");
  EXPECT_EQ(normalized(R"({"type": "Prepend", "prepend": ">"})", ""), "");
  EXPECT_EQ(normalized(R"({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "<>"})", "baac"), "b<>c");
  EXPECT_EQ(
      normalized(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "É"}, {"type": "Lowercase"}]})",
                 "X"),
      "éx");
}

}  // namespace
}  // namespace braid::text
