// A constraint beside thinking: what it masks, when it begins, and that end tokens wait for a complete text.
#include "engine/constrained_answer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/token_picker.h"
#include "grammar/regex.h"

namespace braid::engine {
namespace {

using grammar::Builder;
using grammar::Spelling;

// Every byte, then these and an end token.
constexpr int32_t kThinkOver = 256, kCall = 257, kTagAndDigit = 258, kTagAndLetter = 259, kEnd = 260, kSilent = 261,
                  kThink = 262, kVocabulary = 263;

// `cut`: of answers that may be cut; `tag`: the vocabulary has <think>.
std::shared_ptr<const grammar::Constraint> digits(bool cut, bool tag) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* word : {"\xff</think>", "\xff<tool_call>", ">\n1", ">x", "</s>", "", tag ? "\xff<think>" : ""})
    tokens.push_back(word);
  const std::vector<int64_t> ends = {kEnd};
  Builder b("test");
  const auto number = grammar::Regex::parse("\\n?\\d{1,3}", "test");
  if (cut) b.let_be_cut();
  const grammar::RuleId start = b.rule(number.compile(b, Spelling::plain, b.done()));
  return std::make_shared<const grammar::Constraint>(b.finish(start),
                                                     std::make_shared<const grammar::TokenTrie>(tokens, ends), "test");
}

// Draws `wanted` if it may be drawn, else the digit 7: greedy.
struct PickedAnswer {
  explicit PickedAnswer(Thinking thinking, bool cut = false, int64_t tokens_max = -1, bool tag = true)
      : picker(options(thinking, cut, tokens_max, tag), {}, eos) {}
  static GenerateOptions options(Thinking thinking, bool cut, int64_t tokens_max, bool tag) {
    GenerateOptions out;
    out.logprobs = 0;
    out.constraint = digits(cut, tag);
    out.thinking = thinking;
    out.tokens_max = tokens_max;
    out.ignore_eos = cut;
    return out;
  }
  int32_t next(int32_t wanted) {
    std::vector<float> logits(kVocabulary, 0);
    logits['7'] = 1;
    logits[static_cast<size_t>(wanted)] = 2;
    return picker.next(logits);
  }
  std::vector<int64_t> eos{kEnd};
  TokenPicker picker;
};

TEST(ConstrainedAnswer, MasksWhatMayNotCome) {
  PickedAnswer answer(Thinking::none);
  EXPECT_EQ(answer.next('x'), '7');
  EXPECT_EQ(answer.next('4'), '4');
  EXPECT_EQ(answer.next(kSilent), '7');
  EXPECT_TRUE(answer.picker.complete());  // three digits, and nothing may follow
  EXPECT_FALSE(answer.picker.ended());
  Generated out;
  answer.picker.take(out);
  EXPECT_LT(out.logprobs[0][0].logprob, std::log(1.0 / 262 * 3));  // of all tokens, not of those allowed
}

TEST(ConstrainedAnswer, EndTokensWaitForACompleteText) {
  PickedAnswer answer(Thinking::none);
  EXPECT_EQ(answer.next(kEnd), '7');
  EXPECT_EQ(answer.next(kEnd), kEnd);
  EXPECT_TRUE(answer.picker.ended());
}

TEST(ConstrainedAnswer, ThinkingIsFreeUpToItsEnd) {
  PickedAnswer answer(Thinking::open);
  EXPECT_EQ(answer.next('x'), 'x');
  EXPECT_EQ(answer.next(kEnd), '7');
  EXPECT_EQ(answer.next(kCall), '7');  // it would end the thinking, and no call is allowed
  EXPECT_EQ(answer.next(kThinkOver), kThinkOver);
  EXPECT_EQ(answer.next('\n'), '\n');
  EXPECT_EQ(answer.next('x'), '7');
  EXPECT_FALSE(answer.picker.complete());
}

TEST(ConstrainedAnswer, AnAnswerThatMayBeCutEndsAnywhere) {
  PickedAnswer thinking(Thinking::open, true);
  EXPECT_EQ(thinking.next(kEnd), kEnd);
  EXPECT_FALSE(thinking.picker.ended());  // ignore_eos holds
  for (const bool cut : {false, true}) {
    PickedAnswer answer(Thinking::none, cut, 2);
    EXPECT_EQ(answer.next('4'), '4');
    EXPECT_EQ(answer.next('5'), cut ? '5' : kEnd);  // for an end
  }
}

// Qwen3 opens <think> itself: it may come first, after white space that the answer may begin with, and is free then.
TEST(ConstrainedAnswer, AModelMayOpenTheThinkingItself) {
  PickedAnswer answer(Thinking::may_open);
  EXPECT_EQ(answer.next('x'), '7');     // an answer begins as it must
  EXPECT_EQ(answer.next(kThink), '7');  // and thinks no more
  for (const bool after_space : {false, true}) {
    PickedAnswer thinking(Thinking::may_open);
    if (after_space) {
      EXPECT_EQ(thinking.next('\n'), '\n');
    }
    EXPECT_EQ(thinking.next(kThink), kThink);
    EXPECT_EQ(thinking.next('x'), 'x');
    EXPECT_EQ(thinking.next(kEnd), '7');
    EXPECT_EQ(thinking.next(kThinkOver), kThinkOver);
    EXPECT_EQ(thinking.next(kThink), '7');
  }
  PickedAnswer space(Thinking::may_open);
  EXPECT_EQ(space.next('\n'), '\n');
  EXPECT_EQ(space.next('\n'), '7');  // no more than the answer may begin with
  EXPECT_EQ(space.next(kThink), '7');
  PickedAnswer spelt(Thinking::may_open);
  EXPECT_EQ(spelt.next('<'), '7');  // the tag is a token
  PickedAnswer off(Thinking::none);
  EXPECT_EQ(off.next(kThink), '7');
}

TEST(ConstrainedAnswer, ATagMayBeOpenedInPiecesWhereItIsNoToken) {
  PickedAnswer thinking(Thinking::may_open, false, -1, false);
  for (const char byte : std::string("\n<thi")) EXPECT_EQ(thinking.next(byte), byte);
  EXPECT_EQ(thinking.next('5'), 'n');  // what was begun is no answer: only the tag can follow
  EXPECT_EQ(thinking.next('k'), 'k');
  EXPECT_EQ(thinking.next('>'), '>');
  EXPECT_EQ(thinking.next('x'), 'x');
  EXPECT_EQ(thinking.next(kThinkOver), kThinkOver);
  EXPECT_EQ(thinking.next('x'), '7');
}

TEST(ConstrainedAnswer, TagsOfManyTokens) {
  PickedAnswer answer(Thinking::open);
  for (const char byte : std::string("a</think")) EXPECT_EQ(answer.next(byte), byte);
  EXPECT_EQ(answer.next(kTagAndLetter), '7');  // ends the tag, and goes on with what is not allowed
  for (const char byte : std::string("</think")) EXPECT_EQ(answer.next(byte), byte);
  EXPECT_EQ(answer.next(kTagAndDigit), kTagAndDigit);
  EXPECT_EQ(answer.next('x'), '7');
  EXPECT_EQ(answer.next('5'), '5');
  EXPECT_TRUE(answer.picker.complete());
}

}  // namespace
}  // namespace braid::engine
