#include "text/bpe_trainer.h"

#include <gtest/gtest.h>

#include "support/error_of.h"
#include "text/tokenizer_fixture.h"

namespace braid::text {
namespace {

using support::error_of;

std::string trained(const std::string& text, BpeTrainerOptions options) {
  BpeTrainer trainer(std::move(options));
  trainer.add(text, "test");
  return trainer.train().json;
}

std::vector<std::string> tokens_from(const std::string& json, int32_t first) {
  const Tokenizer tokenizer = Tokenizer::parse(json, "test");
  std::vector<std::string> tokens;
  for (int32_t id = first; id < tokenizer.vocab_size(); ++id) tokens.push_back(*tokenizer.id_to_token(id));
  return tokens;
}

using Strings = std::vector<std::string>;

// Counted by hand: "ab" 4, then "abc" 3; of "xy" and "yz", 2 each, the smaller pair comes first.
TEST(BpeTrainer, TakesTheCommonestPairAndOfEqualsTheSmaller) {
  const std::string text = "abc abc abc ab xyz xyz";
  EXPECT_EQ(tokens_from(trained(text, {.vocabulary = 260, .pieces = "[a-z]+"}), 256),
            (Strings{"ab", "abc", "xy", "xyz"}));
  EXPECT_EQ(tokens_from(trained(text, {.vocabulary = 300, .pieces = "[a-z]+", .count_min = 3}), 256),
            (Strings{"ab", "abc"}));
}

TEST(BpeTrainer, CountsRunsAsTheyAreLeft) {
  // aaaa contains aa three times, but merging leaves one pair of the new token.
  EXPECT_EQ(tokens_from(trained("aaaa aaaa", {.vocabulary = 300, .pieces = "[a-z]+"}), 256), (Strings{"aa", "aaaa"}));
  EXPECT_EQ(tokens_from(trained("aaaaa aaaaa", {.vocabulary = 300, .pieces = "[a-z]+"}), 256),
            (Strings{"aa", "aaa", "aaaaa"}));
}

TEST(BpeTrainer, AddedTokensComeFirstAndAreCutOut) {
  const std::string json =
      trained("<s>word word<e>word <s><s>", {.vocabulary = 300, .added = {{"<s>"}, {"<e>", false}}});
  const Tokenizer tokenizer = Tokenizer::parse(json, "test");
  EXPECT_EQ(tokenizer.encode("<s>", false), Ids{0});
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(1));
  EXPECT_EQ(tokenizer.encode("<s>word<e>", false), (Ids{0, *tokenizer.token_to_id("word"), 1}));
  for (const std::string& token : tokens_from(json, 258)) EXPECT_EQ(token.find_first_of("<>"), token.npos) << token;
}

TEST(BpeTrainer, WhatItEncodesItDecodes) {
  const std::string text = "The 12 cats' naïve café, 漢字 🙂\n\n\tthe cat; the cats \xc2\xa0 don't.";
  for (const std::string_view pieces : {kGpt2Pieces, kNemotronPieces}) {
    const Tokenizer tokenizer =
        Tokenizer::parse(trained(text, {.vocabulary = 290, .pieces = std::string(pieces)}), "test");
    const Ids ids = tokenizer.encode(text, false);
    EXPECT_EQ(tokenizer.decode(ids, false), text);
    EXPECT_LT(ids.size(), text.size());
  }
}

TEST(BpeTrainer, RefusesWhatItCannotDo) {
  EXPECT_NE(error_of([] { BpeTrainer({.vocabulary = 255}); }).find("[--vocab] out of range; got 255"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              BpeTrainer({.vocabulary = 300, .added = {{"a"}, {"a"}}});
            }).find("duplicated"),
            std::string::npos);
  EXPECT_NE(error_of([] { BpeTrainer({.vocabulary = 300, .pieces = "["}); }), "");
  BpeTrainer trainer({.vocabulary = 300});
  EXPECT_NE(error_of([&] { trainer.train(); }).find("no text"), std::string::npos);
  EXPECT_NE(error_of([&] { trainer.add("a\xff", "f"); }).find("[f] the text is not UTF-8 at byte 1"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::text
