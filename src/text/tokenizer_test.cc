#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/json.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "sys/utf8.h"
#include "text/tokenizer_fixture.h"

namespace braid::text {
namespace {

using support::error_of, support::fixtures;

nlohmann::json with_added(nlohmann::json document, const char* tokens) {
  document["added_tokens"] = nlohmann::json::parse(tokens);
  return document;
}

// Every tokenizer of a folder against what Hugging Face's `tokenizers` made of hard strings; how many were compared.
int compare_with_goldens(const std::filesystem::path& root) {
  int folders = 0;
  for (const auto& folder : std::filesystem::directory_iterator(root)) {
    SCOPED_TRACE(folder.path().string());
    const Tokenizer tokenizer = Tokenizer::load(folder.path());
    Tokenizer::Memo memo;
    std::ifstream file(folder.path() / "golden.json");
    for (const nlohmann::json& golden : nlohmann::json::parse(file)) {
      const std::string text = golden["text"];
      const Ids ids = golden["ids"];
      EXPECT_EQ(tokenizer.encode(text, false), ids) << text;
      for (int again = 0; again < 2; ++again) EXPECT_EQ(tokenizer.encode(text, false, memo), ids) << text;
      EXPECT_EQ(tokenizer.encode(text, true), golden["ids_special"].get<Ids>()) << text;
      EXPECT_EQ(tokenizer.decode(ids, false), golden["decoded"].get<std::string>()) << text;
      EXPECT_EQ(tokenizer.decode(ids, true), golden["decoded_skip"].get<std::string>()) << text;
      StreamDecoder stream(tokenizer, false);
      std::string streamed;
      for (const int32_t id : ids) streamed += stream.push(id);
      EXPECT_EQ(streamed + stream.finish(), golden["decoded"].get<std::string>()) << text;
      // Token by token the bytes are those of the text, but for a space that is dropped at its beginning.
      std::string bytes;
      for (const int32_t id : ids) bytes += tokenizer.bytes_of(id);
      const std::string decoded = golden["decoded"];
      if (sys::utf8_valid_prefix(bytes) < bytes.size()) continue;
      EXPECT_TRUE(bytes == decoded || bytes == " " + decoded) << text;
    }
    ++folders;
  }
  return folders;
}

TEST(Tokenizer, GoldensOfHuggingFace) { EXPECT_EQ(compare_with_goldens(support::data("tokenizers")), 5); }

TEST(Tokenizer, GoldensOfReleasedPatternsAndVocabularies) {
  if (fixtures().empty())
    GTEST_SKIP() << "BRAID_FIXTURES is not set: only the small tokenizers of tests/data were tried";
  EXPECT_GE(compare_with_goldens(fixtures() + "/tokenizers"), 1);
}

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  const Tokenizer tokenizer =
      tokenizer_of(byte_level_document({{"b", "c"}, {"a", "b"}, {"a", "a"}, {"aa", "a"}, {" ", "x"}}));
  EXPECT_EQ(tokenizer.encode("abc", false), (Ids{'a', 256}));
  EXPECT_EQ(tokenizer.encode("abab", false), (Ids{257, 257}));
  EXPECT_EQ(tokenizer.encode("aaa", false), (Ids{259}));
  EXPECT_EQ(tokenizer.encode("aaaaa", false), (Ids{258, 259}));
  EXPECT_EQ(tokenizer.encode(" x x", false), (Ids{260, 260}));
  EXPECT_EQ(tokenizer.encode("", false), Ids{});
  EXPECT_EQ(tokenizer.decode(Ids{'a', 256, -1, 5000}, false), "abc");
}

TEST(Tokenizer, APairThatChangedLosesItsOldRank) {
  // "ab" is queued with rank 1 when "bc" takes its right half; "a" + "bc" may then merge only at rank 3, after "bcd".
  const Tokenizer tokenizer = tokenizer_of(byte_level_document({{"b", "c"}, {"a", "b"}, {"bc", "d"}, {"a", "bc"}}));
  EXPECT_EQ(tokenizer.encode("abcd", false), (Ids{'a', 258}));
}

TEST(Tokenizer, AWordTheMergesCannotReachNeedsIgnoreMerges) {
  nlohmann::json document = byte_level_document({{"a", "b"}});
  document["model"]["vocab"]["abcd"] = 300;
  EXPECT_EQ(tokenizer_of(document).encode("abcd", false), (Ids{256, 'c', 'd'}));
  document["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokenizer_of(document).encode("abcd", false), Ids{300});
}

TEST(Tokenizer, LongPieces) {
  const Tokenizer tokenizer = tokenizer_of(byte_level_document({{"a", "a"}, {"aa", "aa"}}));
  const Ids ids = tokenizer.encode(std::string(100'001, 'a'), false);
  ASSERT_EQ(ids.size(), 25'001u);
  EXPECT_EQ(ids[0], 257);
  EXPECT_EQ(ids.back(), 'a');
}

TEST(Tokenizer, ByteFallbackAndUnknownTokens) {
  const Tokenizer tokenizer = tokenizer_of(spm_document({{"a", "b"}, {"\u2581", "ab"}}));
  const auto id = [&](const char* token) { return tokenizer.token_to_id(token).value(); };
  const Ids ids = tokenizer.encode("ab abé", false);
  EXPECT_EQ(ids, (Ids{id("▁ab"), id("▁ab"), id("<0xC3>"), id("<0xA9>")}));
  EXPECT_EQ(tokenizer.decode(ids, false), "ab abé");
  EXPECT_EQ(tokenizer.decode(Ids{id("<0xC3>"), id("<0x41>"), id("a")}, false), "\ufffd\ufffda");

  nlohmann::json document = spm_document({{"a", "b"}}, false);
  EXPECT_EQ(tokenizer_of(document).encode("éèa", false), (Ids{27, 0, 1}));
  document["model"]["fuse_unk"] = false;
  EXPECT_EQ(tokenizer_of(document).encode("éèa", false), (Ids{27, 0, 0, 1}));
  document["model"]["unk_token"] = nullptr;
  EXPECT_EQ(tokenizer_of(document).encode("éèa", false), (Ids{27, 1}));
}

TEST(Tokenizer, WordsAreEncodedOneByOneOnlyWhereNoMergeCrosses) {
  // "ab" merges first when words are separate; with a merge across the mark the text must be encoded whole.
  const Tokenizer apart = tokenizer_of(spm_document({{"a", "b"}, {"\u2581", "\u2581"}, {"\u2581\u2581", "a"}}));
  const auto tokens = [](const Tokenizer& tokenizer, std::string_view text) {
    std::string out;
    for (const int32_t id : tokenizer.encode(text, false)) out += tokenizer.id_to_token(id).value() + "|";
    return out;
  };
  EXPECT_EQ(tokens(apart, "ab  a ab"), "▁|ab|▁▁a|▁|ab|");
  const Tokenizer crossing = tokenizer_of(spm_document({{"a", "\u2581"}, {"a\u2581", "a"}, {"a", "b"}}));
  EXPECT_EQ(tokens(crossing, "a a ab"), "▁|a▁|a▁a|b|");
  EXPECT_EQ(tokens(crossing, "b a a"), "▁|b|▁|a▁a|");
}

TEST(Tokenizer, MetaspaceMarksTheBeginningOfTheTextOnly) {
  nlohmann::json document =
      with_added(spm_document({}), R"([{"id": 900, "content": "<s>", "special": true, "normalized": false}])");
  document["normalizer"] = nullptr;
  document["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", false}};
  const Tokenizer first = tokenizer_of(document);
  const int32_t mark = first.token_to_id("\u2581").value();
  const int32_t a = first.token_to_id("a").value();
  EXPECT_EQ(first.encode("a", false), (Ids{mark, a}));
  EXPECT_EQ(first.encode("<s>a", false), (Ids{900, a}));
  Tokenizer::Memo memo;  // "a" differs at the beginning of a text
  EXPECT_EQ(first.encode("<s>a", false, memo), (Ids{900, a}));
  EXPECT_EQ(first.encode("a<s>a", false, memo), (Ids{mark, a, 900, a}));
  document["pre_tokenizer"]["prepend_scheme"] = "always";
  EXPECT_EQ(tokenizer_of(document).encode("<s>a", false), (Ids{900, mark, a}));
  EXPECT_EQ(tokenizer_of(document).encode(" a", false), (Ids{mark, a}));
}

TEST(Tokenizer, AddedTokens) {
  const Tokenizer tokenizer = tokenizer_of(with_added(byte_level_document({}), R"([
      {"id": 300, "content": "<a>", "special": true, "normalized": false},
      {"id": 301, "content": "<a><b>", "special": true, "normalized": false},
      {"id": 302, "content": "<L>", "lstrip": true, "normalized": false},
      {"id": 303, "content": "<R>", "rstrip": true, "normalized": false},
      {"id": 304, "content": "word", "single_word": true, "normalized": false}])"));
  EXPECT_EQ(tokenizer.encode("<a><b><a>", false), (Ids{301, 300}));
  EXPECT_EQ(tokenizer.encode("x  <L> y", false), (Ids{'x', 302, ' ', 'y'}));
  EXPECT_EQ(tokenizer.encode("x <R>  y", false), (Ids{'x', ' ', 303, 'y'}));
  EXPECT_EQ(tokenizer.encode("<R>  <L>", false), (Ids{303, 302}));
  EXPECT_EQ(tokenizer.encode("word.", false), (Ids{304, '.'}));
  EXPECT_EQ(tokenizer.encode("sword", false).size(), 5u);
  EXPECT_EQ(tokenizer.decode(Ids{'x', 300, 304}, true), "xword");
  EXPECT_EQ(tokenizer.decode(Ids{'x', 300, 304}, false), "x<a>word");
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_FALSE(tokenizer.is_special(304));
  EXPECT_EQ(tokenizer.vocab_size(), 305);
}

TEST(Tokenizer, NormalizedAddedTokensAreFoundAfterNormalization) {
  nlohmann::json document = with_added(byte_level_document({}), R"([{"id": 300, "content": "ABC"}])");
  document["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_EQ(tokenizer_of(document).encode("xaBc", false), (Ids{'x', 300}));
}

// What tokenizers 0.23.3 makes of them.
TEST(Tokenizer, NormalizedAddedTokensAreDecodedAsTheyAreFound) {
  const auto decoded = [](const char* normalizer, const nlohmann::json& token) {
    nlohmann::json document = byte_level_document({});
    document["added_tokens"] = {token};
    document["normalizer"] = nlohmann::json::parse(normalizer);
    const Tokenizer tokenizer = tokenizer_of(document);
    EXPECT_EQ(tokenizer.token_to_id(token["content"].get<std::string>()), 300);
    EXPECT_EQ(tokenizer.bytes_of(300), tokenizer.decode(Ids{300}, false));
    return tokenizer.decode(Ids{300}, false);
  };
  EXPECT_EQ(decoded(R"({"type": "NFKC"})", {{"id", 300}, {"content", "ﬁx"}}), "fix");
  EXPECT_EQ(decoded(R"({"type": "NFKC"})", {{"id", 300}, {"content", "ﬁx"}, {"normalized", false}}), "ﬁx");
  EXPECT_EQ(decoded(R"({"type": "Lowercase"})", {{"id", 300}, {"content", "ABC"}, {"special", true}}), "abc");
  EXPECT_EQ(decoded(R"({"type": "Prepend", "prepend": "▁"})", {{"id", 300}, {"content", "Foo"}}), "▁Foo");
}

TEST(Tokenizer, PostProcessorsWrapInOrder) {
  nlohmann::json document =
      with_added(byte_level_document({}), R"([{"id": 300, "content": "<s>"}, {"id": 301, "content": "</s>"}])");
  document["post_processor"] = nlohmann::json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": "</s>", "type_id": 0}}],
       "special_tokens": {"<s>": {"id": "<s>", "ids": [300], "tokens": ["<s>"]},
                          "</s>": {"id": "</s>", "ids": [301], "tokens": ["</s>"]}}}]})");
  EXPECT_EQ(tokenizer_of(document).encode("a", true), (Ids{300, 'a', 301}));
  EXPECT_EQ(tokenizer_of(document).encode("a", false), (Ids{'a'}));
}

TEST(Tokenizer, SpellingsGoBothWays) {
  const Tokenizer tokenizer = tokenizer_of(byte_level_document({{" ", "x"}}));
  EXPECT_EQ(tokenizer.token_to_id("Ġx"), 256);
  EXPECT_EQ(tokenizer.id_to_token(256), "Ġx");
  EXPECT_EQ(tokenizer.token_to_id(" x"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(257), std::nullopt);
}

TEST(StreamDecoder, EmitsWholeCharactersOnly) {
  const Tokenizer tokenizer = tokenizer_of(byte_level_document({}));
  StreamDecoder stream(tokenizer, true);
  std::string all;
  for (const char ch : std::string("a🙂é\xf0\x9f!\xe2")) {
    const std::string piece = stream.push(static_cast<unsigned char>(ch));
    EXPECT_EQ(sys::utf8_valid_prefix(piece), piece.size());
    all += piece;
  }
  EXPECT_EQ(all, "a🙂é\ufffd!");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.push('b'), "b");
}

TEST(StreamDecoder, FallbackBytesLeaveAsSoonAsTheyAreWhole) {
  const Tokenizer tokenizer = tokenizer_of(spm_document({}));
  StreamDecoder stream(tokenizer, true);
  EXPECT_EQ(stream.push(tokenizer.token_to_id("▁").value()), "");  // the space that encode added
  EXPECT_EQ(stream.push(tokenizer.token_to_id("<0xC3>").value()), "");
  EXPECT_EQ(stream.push(tokenizer.token_to_id("<0xA9>").value()), "é");
  EXPECT_EQ(stream.push(tokenizer.token_to_id("<0xC3>").value()), "");
  EXPECT_EQ(stream.push(tokenizer.token_to_id("a").value()), "\ufffda");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Tokenizer, TextMustBeUtf8) {
  const Tokenizer tokenizer = tokenizer_of(byte_level_document({}));
  EXPECT_NE(error_of([&] { tokenizer.encode("ab\xff", false); }).find("not UTF-8 at byte 2"), std::string::npos);
}

}  // namespace
}  // namespace braid::text
