#include "data/thoughts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "data/chat.h"
#include "data/language.h"
#include "io/model_path.h"
#include "support/error_of.h"
#include "text/bpe_trainer.h"

namespace braid::data {
namespace {

using nlohmann::ordered_json;
using support::error_of;

ordered_json assistant(const char* thought, const char* content) {
  return {{"role", "assistant"}, {"reasoning_content", thought}, {"content", content}};
}

TEST(Thoughts, AreLostByAsManyAsWereAsked) {
  constexpr int kAll = 20'000;
  int stripped = 0, cut = 0;
  for (uint64_t i = 0; i < kAll; ++i) {
    const Thoughts t = drawn_thoughts({.strip = 0.1, .cut = 0.03}, i);
    EXPECT_EQ(t, drawn_thoughts({.strip = 0.1, .cut = 0.03}, i));
    EXPECT_EQ(drawn_thoughts({}, i), Thoughts::whole);
    EXPECT_EQ(drawn_thoughts({.strip = 1}, i), Thoughts::stripped);
    EXPECT_EQ(drawn_thoughts({.cut = 1}, i), Thoughts::cut);
    stripped += t == Thoughts::stripped;
    cut += t == Thoughts::cut;
  }
  EXPECT_NEAR(stripped, 0.1 * kAll, 150);
  EXPECT_NEAR(cut, 0.03 * kAll, 80);
}

TEST(Thoughts, AreStrippedWhereverTheyAre) {
  ordered_json v = {{"messages",
                     {{{"role", "user"}, {"content", "say </think>"}},
                      assistant("hm", "a"),
                      {{"role", "assistant"}, {"content", "<think>\nso\n</think>\n\nb"}},
                      {{"role", "assistant"}, {"content", "no tag"}, {"reasoning", "x"}},
                      {{"role", "assistant"}, {"content", nullptr}},
                      {{"role", "assistant"}, {"content", "a <think> b </think> c"}},
                      assistant("so", "<think>so</think>c")}}};
  strip_thoughts(v);
  const ordered_json& m = v["messages"];
  EXPECT_EQ(m[0]["content"], "say </think>");  // the user's words stay
  EXPECT_EQ(m[1]["content"], "a");
  EXPECT_FALSE(m[1].contains("reasoning_content"));
  EXPECT_EQ(m[2]["content"], "b");
  EXPECT_EQ(m[3]["content"], "no tag");
  EXPECT_FALSE(m[3].contains("reasoning"));
  EXPECT_TRUE(m[4]["content"].is_null());
  EXPECT_EQ(m[5]["content"], "a <think> b </think> c");  // it mentions the tags
  EXPECT_EQ(m[6]["content"], "c");                       // it has its thought twice
  EXPECT_FALSE(m[6].contains("reasoning_content"));
  EXPECT_EQ(v["enable_thinking"], false);
}

TEST(Thoughts, EndAtALineOrASpace) {
  const std::string thought = "one two\nthree vier f\xc3\xbcnf\nsix";
  for (const bool field : {true, false}) {
    std::set<std::string> ends;
    for (uint64_t hash = 0; hash < 300; ++hash) {
      ordered_json messages = {assistant(thought.c_str(), "answer")};
      if (!field) messages = {{{"role", "assistant"}, {"content", "<think>" + thought + "</think>answer"}}};
      const bool cut = cut_last_thought(messages, hash);
      auto text = messages[0][field ? "reasoning_content" : "content"].get<std::string>();
      if (!field) {
        ASSERT_TRUE(text.starts_with("<think>") && text.ends_with("</think>answer")) << text;
        text = text.substr(7, text.size() - 7 - 14);
      }
      ASSERT_EQ(cut, text != thought);  // where nothing would be left, all is
      ends.insert(text);
    }
    EXPECT_EQ(ends, (std::set<std::string>{thought, "one", "one two", "one two\nthree vier f\xc3\xbcnf"})) << field;
  }
  int cut = 0;
  for (uint64_t hash = 0; hash < 50; ++hash) {  // the line end before the tag stays
    ordered_json own = {{{"role", "assistant"}, {"content", "<think>\none two three\n</think>\n\nanswer"}}};
    cut += cut_last_thought(own, hash);
    EXPECT_TRUE(own[0]["content"].get<std::string>().ends_with("\n</think>\n\nanswer")) << own;
  }
  EXPECT_GT(cut, 10);
  ordered_json mentions = {{{"role", "assistant"}, {"content", "R1 writes <think> before and </think> after."}}};
  EXPECT_FALSE(cut_last_thought(mentions, 5));
  ordered_json none = {{{"role", "assistant"}, {"content", "answer"}}}, user = {{{"role", "user"}, {"content", "q"}}},
               nothing = ordered_json::array();
  for (ordered_json* messages : {&none, &user, &nothing}) {
    const ordered_json before = *messages;
    EXPECT_FALSE(cut_last_thought(*messages, 5));
    EXPECT_EQ(*messages, before);
  }
}

// With the template and tokens of the model that ships.
TEST(Thoughts, OnlyWhatFollowsACutThoughtIsTrained) {
  const LanguageFiles files(io::find_model("tiny").folder);
  const Language language = files.language();
  const std::string thought = "17 + 25: 7 + 5 = 12, 1 + 2 + 1 = 4";
  const ordered_json line = {
      {"messages", {{{"role", "user"}, {"content", "17 plus 25"}}, assistant(thought.c_str(), "42")}}};
  const auto shown = [&](Thoughts thoughts) {
    const std::vector<Example> examples = examples_of(line, *language.chat, *language.tokenizer, "test", thoughts, 7);
    EXPECT_EQ(examples.size(), 1u);
    std::vector<int32_t> trained;
    for (size_t i = 0; i < examples[0].ids.size(); ++i) {
      if (examples[0].trained[i]) trained.push_back(examples[0].ids[i]);
    }
    return std::pair(language.tokenizer->decode(examples[0].ids, false), language.tokenizer->decode(trained, false));
  };
  const auto whole = shown(Thoughts::whole), stripped = shown(Thoughts::stripped), cut = shown(Thoughts::cut);
  EXPECT_NE(whole.second.find(thought), std::string::npos);
  EXPECT_EQ(stripped.first.find("12, 1"), std::string::npos);
  EXPECT_NE(stripped.second.find("42"), std::string::npos);
  const size_t close = cut.first.rfind("</think>"), open = cut.first.rfind("<think>");
  ASSERT_LT(open, close);
  const std::string kept = cut.first.substr(open + 7, close - open - 7);
  EXPECT_LT(kept.size(), thought.size());
  EXPECT_TRUE(cut.first.ends_with(cut.second + "\n") || cut.first.ends_with(cut.second)) << cut.second;
  EXPECT_EQ(cut.second.find("</think>"), std::string::npos);
  EXPECT_NE(cut.second.find("42"), std::string::npos);
  // The answer itself is the same, with its end.
  EXPECT_TRUE(whole.second.ends_with(cut.second)) << whole.second;
}

// Of several turns only the last one loses its thought, in whatever example it is.
TEST(Thoughts, EarlierTurnsAreTrainedWhole) {
  const LanguageFiles files(io::find_model("tiny").folder);
  const Language language = files.language();
  const ordered_json line = {{"messages",
                              {{{"role", "user"}, {"content", "1 plus 2"}},
                               assistant("1 and 2", "3"),
                               {{"role", "user"}, {"content", "3 plus 4"}},
                               assistant("3 and 4 make something", "7")}}};
  const auto trained_of = [&](Thoughts thoughts) {
    std::string all;
    for (const Example& e : examples_of(line, *language.chat, *language.tokenizer, "test", thoughts, 7)) {
      std::vector<int32_t> ids;
      for (size_t i = 0; i < e.ids.size(); ++i) {
        if (e.trained[i]) ids.push_back(e.ids[i]);
      }
      all += language.tokenizer->decode(ids, false);
    }
    return all;
  };
  EXPECT_NE(trained_of(Thoughts::whole).find("3 and 4"), std::string::npos);
  const std::string cut = trained_of(Thoughts::cut);
  EXPECT_NE(cut.find("1 and 2"), std::string::npos) << cut;
  EXPECT_EQ(cut.find("3 and"), std::string::npos) << cut;
  EXPECT_NE(cut.find("7"), std::string::npos) << cut;
}

TEST(Thoughts, NeedASwitchAndAnEnd) {
  const LanguageFiles files(io::find_model("tiny").folder);
  const Language language = files.language();
  const ordered_json line = {{"messages", {{{"role", "user"}, {"content", "q"}}, assistant("t", "a")}}};
  const auto plain = text::ChatTemplate::parse("{% for m in messages %}{{ m.content }}{% endfor %}", "test");
  EXPECT_NE(error_of([&] {
              examples_of(line, plain, *language.tokenizer, "x line 1", Thoughts::stripped);
            }).find("[x line 1] the chat template has no switch for thinking"),
            std::string::npos);
  text::BpeTrainer trainer({.vocabulary = 257, .added = {{"<eot>"}}});
  trainer.add("x", "test");
  const text::Tokenizer words = text::Tokenizer::parse(trainer.train().json, "test");
  EXPECT_NE(error_of([&] {
              examples_of(line, plain, words, "x line 1", Thoughts::cut);
            }).find("[x line 1] the vocabulary has no </think>"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::data
