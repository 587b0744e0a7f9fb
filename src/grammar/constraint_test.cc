// Masks against trying every token, answers that end within their limit, and work that stays bounded.
#include "grammar/constraint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar_fixture.h"
#include "grammar/regex_overlap.h"
#include "sys/error.h"

namespace braid::grammar {
namespace {

const char* const kSchemas[] = {
    R"({"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer", "maximum": 20}, "l": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}}, "required": ["name", "l"]})",
    R"({"$defs": {"t": {"type": "object", "properties": {"k": {"type": "array", "items": {"$ref": "#/$defs/t"}}, "s": {"type": "string", "minLength": 1, "maxLength": 4}}, "required": ["k", "s"]}}, "$ref": "#/$defs/t"})",
    R"({"anyOf": [{"type": "object", "additionalProperties": {"type": "number"}}, {"type": "string", "format": "date"}, {"enum": ["aaaaab", "aaaab", null]}]})",
    "true"};

std::vector<bool> allowed(Matcher& matcher, int64_t tokens_left, const TokenTrie& trie) {
  std::vector<float> logits(static_cast<size_t>(trie.size()) + 3, 0);  // models have ids without a token
  matcher.mask(logits, tokens_left);
  std::vector<bool> out;
  for (const float logit : logits) out.push_back(std::isfinite(logit));
  return out;
}

int32_t any_of_mask(const std::vector<bool>& mask, std::mt19937& random) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < mask.size(); ++id) {
    if (mask[id]) ids.push_back(static_cast<int32_t>(id));
  }
  return ids.empty() ? -1 : ids[random() % ids.size()];
}

const char* const kRegexes[] = {"(\\w+[ ,.]?){1,9}", "(?:[a-z ]{0,5}\n){1,4}", "[^\n]{20,70}", "(a|aa|ab?){3,30}b"};

TEST(Constraint, MaskIsWhatCanBeAccepted) {
  std::mt19937 random(1);
  std::vector<std::pair<const char*, std::shared_ptr<const Constraint>>> all;
  for (const char* schema : kSchemas) all.emplace_back(schema, schema_of(schema));
  for (const char* regex : kRegexes) all.emplace_back(regex, regex_of(regex));
  for (const auto& [schema, constraint] : all) {
    const TokenTrie& trie = constraint->trie();
    Matcher matcher(constraint);
    for (int step = 0; step < 40; ++step) {
      const std::vector<bool> mask = allowed(matcher, -1, trie);
      for (int32_t id = 0; id < std::ssize(mask); ++id) {
        Matcher after = matcher;
        const bool ends = std::find(trie.ends().begin(), trie.ends().end(), id) != trie.ends().end();
        const std::string_view bytes = trie.bytes(id);
        const bool want = ends ? matcher.complete() : !bytes.empty() && after.accept(bytes);
        ASSERT_EQ(mask[static_cast<size_t>(id)], want) << schema << " token " << id;
      }
      const int32_t id = any_of_mask(mask, random);
      if (id < 0 || !matcher.accept(trie.bytes(id))) break;
    }
  }
}

// The text of an answer drawn at random, with at most `tokens` of them; without an end: "...".
std::string drawn(const std::shared_ptr<const Constraint>& constraint, int64_t tokens, unsigned seed) {
  std::mt19937 random(seed);
  const TokenTrie& trie = constraint->trie();
  Matcher matcher(constraint);
  std::string text;
  for (; tokens > 0 && !matcher.finished(); --tokens) {
    const int32_t id = any_of_mask(allowed(matcher, tokens, trie), random);
    if (id < 0) return "no token";
    if (std::find(trie.ends().begin(), trie.ends().end(), id) != trie.ends().end()) return text;
    if (!matcher.accept(trie.bytes(id))) return "not accepted";
    text += trie.bytes(id);
  }
  return matcher.finished() ? text : "...";
}

TEST(Constraint, AnswersEndWithinTheirLimit) {
  for (const char* schema : kSchemas) {
    const auto constraint = schema_of(schema);
    for (unsigned seed = 0; seed < 60; ++seed) {
      const std::string text = drawn(constraint, 40 + seed, seed);
      EXPECT_TRUE(nlohmann::json::accept(text)) << schema << "\n" << text;
    }
  }
}

TEST(Constraint, TextsDoNotDependOnWhatWasAskedBefore) {
  for (const char* schema : kSchemas) {
    const auto warm = schema_of(schema);
    for (unsigned seed = 0; seed < 20; ++seed) (void)drawn(warm, 60, seed);
    for (unsigned seed = 0; seed < 20; ++seed) EXPECT_EQ(drawn(warm, 60, seed), drawn(schema_of(schema), 60, seed));
  }
}

// Programs that visit too many states for a mask: it allows less than the program, but never something else, and always
// something; answers go on and end within their limit.
TEST(Constraint, AMaskThatTakesTooMuchWorkAllowsLess) {
  // After an a as many places in the program as there are lengths, each of which every token is tried at.
  std::string pattern;
  for (int length = 1; length <= 900; ++length)
    pattern += fmt::format("{}a[b-z]{{{}}}!", length > 1 ? "|" : "", length);
  const auto constraint = regex_of(pattern);
  const TokenTrie& trie = constraint->trie();
  Matcher matcher(constraint);
  ASSERT_TRUE(matcher.accept("ab"));
  const std::vector<bool> mask = allowed(matcher, -1, trie);
  int all = 0, some = 0;
  for (int32_t id = 0; id < std::ssize(mask); ++id) {
    Matcher after = matcher;
    const bool acceptable = !trie.bytes(id).empty() && after.accept(trie.bytes(id));
    all += acceptable;
    some += mask[static_cast<size_t>(id)];
    EXPECT_TRUE(acceptable || !mask[static_cast<size_t>(id)]) << "token " << id;
  }
  EXPECT_GE(some, 1);
  EXPECT_LT(some, all);
  for (unsigned seed = 0; seed < 3; ++seed) EXPECT_TRUE(matches(constraint, drawn(constraint, 30, seed)));
}

TEST(Constraint, FullTablesAreLeft) {
  const auto constraint = regex_of("(a|b|ab){0,30000}c");
  Matcher matcher(constraint), other(constraint);
  std::vector<float> logits(static_cast<size_t>(constraint->trie().size()), 0);
  for (int i = 0; i < 15'000; ++i) {
    ASSERT_TRUE(matcher.accept("b"));
    if (i % 100 == 0) matcher.mask(logits, -1);
  }
  EXPECT_TRUE(matcher.accept("c"));
  EXPECT_TRUE(matcher.finished());
  EXPECT_TRUE(other.accept("abc"));  // in the tables that it began with
  EXPECT_TRUE(other.finished());
}

TEST(Regex, Matches) {
  struct RegexCase {
    const char* pattern;
    std::vector<const char*> allowed, refused;
  };
  const std::vector<RegexCase> cases = {
      {"^ab?c+$", {"ac", "abcc"}, {"ab", "abbc", ""}},
      {"(?:x|yz){2,3}", {"xx", "xyzx"}, {"x", "xxxx"}},
      {"a{3}", {"aaa"}, {"aa", "aaaa"}},
      {"a{2,}", {"aa", "aaaaa"}, {"a"}},
      {"[^a-c\\d]", {"d", "\xc3\xa4", "\xf0\x9f\x98\x80", "-"}, {"a", "5", "", "\xc3"}},
      {"[]x]+", {"]x"}, {"y"}},
      {"[a-]\\.\\x41\\u00e4", {"-.A\xc3\xa4"}, {"-xA\xc3\xa4"}},
      {"\\w+\\s\\S.", {"a_9 x\xc3\xa4"}, {"a x\n", "a"}},
      // Neither of ASCII's digits, letters and spaces nor of Unicode's: no-break and ideographic space, the separators
      // of lines and the control 0x85, an accented letter, Arabic digits.
      {"\\S", {"a", "-", "\xc3\xa9"}, {" ", "\xc2\xa0", "\xe3\x80\x80", "\xe2\x80\xa8", "\xc2\x85"}},
      {"[^\\s]", {"a", "\xc3\xa9"}, {" ", "\xc2\xa0", "\xe3\x80\x80", "\xe2\x80\xa8", "\xc2\x85"}},
      {"[\\W]", {" ", "-", "\xe2\x82\xac"}, {"a", "_", "\xc3\xa9", "\xd9\xa1", "\xcc\x81"}},
      {"[^\\w]", {" ", "-", "\xe2\x82\xac"}, {"a", "_", "\xc3\xa9", "\xd9\xa1", "\xcc\x81"}},
      {"[^\\W]", {"a", "_", "7"}, {" ", "\xc3\xa9", "\xd9\xa1"}},
      {"\\D", {"a", "\xc3\xa9"}, {"5", "\xd9\xa1"}},
      {"[^\\D]\\d",
       {"55"},
       {"5a",
        "\xd9\xa1"
        "5"}},
      {"(a?)*b", {"b", "aaab"}, {"a"}},
      {"(a?){2,4}b", {"b", "aab", "aaaab"}, {"aaaaab"}},
      {"", {""}, {"a"}},
      {"a|^b$|", {"a", "b", ""}, {"ab"}},
      // An end of a line for JavaScript is none for Python.
      {".", {"a", "\xe2\x80\xa7", "\xc2\x85"}, {"\n", "\r", "\xe2\x80\xa8", "\xe2\x80\xa9"}},
      {"\\ud83d\\ude00", {"\xf0\x9f\x98\x80"}, {"", "\xf0\x9f\x98\x81"}},
      {"[^\\ud800-\\udfff]", {"a", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xee\x80\x80"}, {""}},
      {"[a\\ud83d]", {"a"}, {"\xed\xa0\xbd"}},
      {"[\\ud83d\\u0041]", {"A"}, {"B"}},
      {"[\\ud83d\\ude00-\\uD83D\\uDE02]", {"\xf0\x9f\x98\x82"}, {"\xf0\x9f\x98\x83"}},
      {"x{2}{y}{,z}", {"xx{y}{,z}"}, {"xx"}}};
  for (const RegexCase& c : cases) {
    const auto constraint = regex_of(c.pattern);
    for (const char* text : c.allowed) EXPECT_TRUE(matches(constraint, text)) << c.pattern << "  " << text;
    for (const char* text : c.refused) EXPECT_FALSE(matches(constraint, text)) << c.pattern << "  " << text;
  }
  for (const char* pattern : {"(",         ")",
                              "[a",        "a**",
                              "*",         "a\\",
                              "\\b",       "(?=a)",
                              "(?<!a)b",   "\\1",
                              "a{3,2}",    "a{9999999}",
                              "[b-a]",     "a$b",
                              "\xff",      "x{,2}",
                              "x{,}",      "x{2}{3}",
                              "x+?{2}",    "x{2}?+",
                              "\\ud83d",   "\\ude00",
                              "\\ud83dx",  "\\ud83d\\u0041",
                              "[\\ud83d]", "\\ud83d\\ud83d"})
    EXPECT_THROW((void)regex_of(pattern), Error) << pattern;
  EXPECT_THROW((void)regex_of(std::string(100, '(') + std::string(100, ')')), Error);
}

// A text is looked at in one go as the automaton does byte by byte.
TEST(Regex, MatchesAsItsProgramDoes) {
  std::mt19937 random(5);
  for (const char* pattern :
       {"(a+b?){2,4}", "(a|ab|)*", "((a?){2,3}b){1,2}", "(a*)*b", "[^a]{2}|\xc3\xa4?a", "", "(a{0,3}b?){3}"}) {
    const Regex regex = Regex::parse(pattern, "test");
    const auto constraint = regex_of(pattern);
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (size_t n = random() % 8; n > 0; --n) text += std::vector<std::string>{"a", "b", "\xc3\xa4"}[random() % 3];
      int64_t steps = 100'000;
      ASSERT_EQ(regex.matches(text, steps), matches(constraint, text)) << pattern << "  " << text;
    }
  }
  int64_t few = 1000;
  EXPECT_FALSE(Regex::parse("((((a?)*)*)*)*b", "test").matches(std::string(200, 'a') + "b", few));
}

// A random text of `letters`.
std::string text_of(std::mt19937& random, size_t most, std::string_view letters) {
  std::string text;
  for (auto n = random() % (most + 1); n > 0; --n) text += letters[random() % letters.size()];
  return text;
}

std::vector<Regex> parsed(const std::vector<std::string>& patterns) {
  std::vector<Regex> out;
  for (const std::string& pattern : patterns) out.push_back(Regex::parse(pattern, "test"));
  return out;
}

// Against all texts of up to six letters, of which a common one, if there is any, is short.
TEST(Regex, CommonTextsAreThoseOfASearchThroughAll) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts.back().size() < 7; ++i) {
    for (const char letter : {'a', 'b', '\n'}) texts.push_back(texts[i] + letter);
  }
  const std::vector<Regex> all =
      parsed({"", "a+", "b*", "(ab)+", "[^a]{2}", "a{2,4}", "(a|b\n)*b", "a?b?", ".*b.*", "(a{2}){1,2}b", "\n|aab",
              "(a*b){2}a", "(b|ab){3}", "a[ab]*a", "((a?){2,3}b?){2}", "(){1000000}b", "((){1000000}){1000000}"});
  std::vector<std::vector<bool>> matched;
  for (const Regex& regex : all) {
    std::vector<bool>& row = matched.emplace_back();
    for (const std::string& text : texts) {
      int64_t steps = 100'000;
      row.push_back(regex.matches(text, steps));
    }
  }
  int common = 0;
  for (const size_t third : {7, 8, 13}) {
    int64_t left = 10'000'000;
    CommonTexts answers(100'000, left);
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t j = 0; j < all.size(); ++j) {
        bool two = false, three = false;
        for (size_t t = 0; t < texts.size(); ++t) {
          const bool here = matched[i][t] && matched[j][t];
          two = two || here;
          three = three || (here && matched[third][t]);
        }
        EXPECT_EQ(answers.of({&all[i], &all[j]}), std::optional(two)) << i << "  " << j;
        EXPECT_EQ(answers.of({&all[j], &all[i], &all[third]}), std::optional(three)) << i << "  " << j << "  " << third;
        common += two + three;
      }
    }
  }
  EXPECT_GT(common, 300);
  EXPECT_LT(common, 1300);
}

// The two expressions differ in the middle alone, where the numbers of iterations on both sides are all combined.
std::vector<Regex> hard_pair() {
  return parsed({"([a-w]+ ?){1,300}X([a-w]+ ?){1,300}", "([a-w]+ ?){1,300}Y([a-w]+ ?){1,300}"});
}

// One pair that is too complex takes no more than its own share, and is known for it.
TEST(Regex, CommonTextsOfSeveralPairsHaveTheirOwnLimits) {
  const std::vector<Regex> hard = hard_pair(), easy = parsed({"a+b", "a*c", "a?b"});
  int64_t left = 1'000'000;
  CommonTexts answers(20'000, left);
  EXPECT_EQ(answers.of({&hard[0], &hard[1]}), std::nullopt);
  EXPECT_GE(left, 1'000'000 - 20'000 - 4 * 4000);
  EXPECT_LE(left, 1'000'000 - 20'000);
  const int64_t after = left;
  EXPECT_EQ(answers.of({&hard[1], &hard[0]}), std::nullopt);
  EXPECT_EQ(left, after);
  EXPECT_EQ(answers.of({&easy[0], &easy[1]}), std::optional(false));
  EXPECT_EQ(answers.of({&easy[0], &easy[2]}), std::optional(true));
  EXPECT_LT(left, after);
  EXPECT_GE(left, after - 200);
  int64_t few = 300;  // all together
  CommonTexts poor(20'000, few);
  EXPECT_EQ(poor.of({&easy[0], &easy[1]}), std::optional(false));
  EXPECT_EQ(poor.of({&hard[0], &easy[1]}), std::nullopt);
  EXPECT_EQ(poor.of({&easy[0], &easy[2]}), std::nullopt);
}

// Each alternative of a choice is kept until it is looked at, so it counts when it is found: here the last one has the
// common text.
TEST(Regex, CommonTextsCountWhatTheyKeep) {
  std::string choice = "a";
  for (int i = 0; i < 500; ++i) choice += "|a" + std::to_string(i);
  const std::vector<Regex> all = parsed({choice + "|", ""});
  for (const auto& [each, want] : {std::pair(int64_t{900}, std::optional<bool>()), {1200, true}}) {
    int64_t left = 1'000'000;
    EXPECT_EQ(CommonTexts(each, left).of({&all[0], &all[1]}), want);
  }
}

// Disjoint expressions as they are written for names and files: little more than their automata.
TEST(Regex, CommonTextsEndWhereSuffixesDiffer) {
  const std::vector<Regex> all = parsed({"[a-z0-9_-]{1,255}\\.png", "[a-z0-9_-]{1,255}\\.jpg", "(\\w+ ?){1,300}x",
                                         "(\\w+ ?){1,300}y", "[a-z]{1,64}_1", "[a-z]{1,64}_2"});
  int64_t left = 1'000'000;
  CommonTexts answers(10'000, left);
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_EQ(answers.of({&all[i], &all[j]}), std::optional(false)) << i << "  " << j;
  }
}

// Validators search: an alternative without an anchor may stand anywhere.
TEST(Regex, SearchesAsAnotherMatcherDoes) {
  std::mt19937 random(7);
  for (const char* pattern : {"a+b", "^ab", "b$", "^ab$|ba", "a|^bb", "^(a|b){2}", "^$", "^a?$|bab", "(b|aa)$"}) {
    const Regex regex = Regex::parse_search(pattern, "test");
    const std::regex other(pattern);
    int matched = 0;
    for (int i = 0; i < 300; ++i) {
      const std::string text = text_of(random, 5, "ab ");
      const bool want = std::regex_search(text, other);
      matched += want;
      int64_t steps = 100'000;
      ASSERT_EQ(regex.matches(text, steps), want) << pattern << "  \"" << text << '"';
    }
    EXPECT_GT(matched, 5) << pattern;
    EXPECT_LT(matched, 300) << pattern;
  }
}

// States visited for a text; a search that tries again would take exponentially many.
int64_t work_of(const std::string& pattern, const std::string& text) {
  Builder b("test");
  const RuleId start = b.rule(Regex::parse(pattern, "test").compile(b, Spelling::plain, b.done()));
  const Program program = b.finish(start);
  const Costs costs = costs_of(program, *test_trie());
  Automaton automaton(program, costs);
  ConfigId at = automaton.start();
  for (const char byte : text) {
    if (at != kDead) at = automaton.step(at, static_cast<uint8_t>(byte));
  }
  return automaton.work();
}

// Alternatives that are dropped because others cover them change no text: as std::regex has it.
TEST(Regex, BoundedRepetitionsAgreeWithAnotherMatcher) {
  std::mt19937 random(3);
  for (const char* pattern : {"(a+b?){2,4}", "(a|aa){3,5}", "((a|ab){1,3}b?){2,3}", "(a{1,3} ?){1,3}", "(a?b?){2,3} a",
                              "((a{1,2}){1,2}b?){1,2}", "(a{0,2}b){0,3}a{2,4}"}) {
    const auto constraint = regex_of(pattern);
    const std::regex other(pattern);
    int matched = 0;
    for (int i = 0; i < 800; ++i) {
      const std::string text = text_of(random, 10, "aaaab ");
      const bool want = std::regex_match(text, other);
      matched += want;
      ASSERT_EQ(matches(constraint, text), want) << pattern << "  \"" << text << '"';
    }
    EXPECT_GT(matched, 5) << pattern;
  }
}

// In `(\w+ ?){1,300}` any letter may begin another iteration: one place in the text for all numbers of them.
TEST(Regex, IterationsAreNotFollowedOneByOne) {
  for (const char* pattern : {"(\\w+[ ,.]?){1,300}", "([a-z]{1,12} ?){1,80}", "(?:[^\n]{0,64}\n?){1,400}"}) {
    const std::string text(300, 'a');
    EXPECT_LE(work_of(pattern, text), 300 * 300) << pattern;
  }
}

// Masks are kept by such places.
TEST(Constraint, PlacesFarFromABoundAreAlike) {
  Builder b("test");
  const RuleId start = b.rule(Regex::parse("[a-z ]{3,100}", "test").compile(b, Spelling::plain, b.done()));
  const Program program = b.finish(start);
  const Costs costs = costs_of(program, *test_trie());
  Automaton automaton(program, costs);
  std::vector<ConfigId> alike;
  ConfigId at = automaton.start();
  for (int i = 0; i < 100; ++i) {
    at = automaton.step(at, 'x');
    alike.push_back(automaton.adopt(automaton, at, 16));
  }
  const auto after = [&](size_t letters) { return alike[letters - 1]; };
  EXPECT_NE(after(2), after(3));  // an end is not allowed yet
  EXPECT_EQ(after(3), after(4));
  EXPECT_EQ(after(4), after(82));
  EXPECT_NE(after(82), after(83));  // here the 17th letter that follows is the last
  EXPECT_NE(after(98), after(99));
}

TEST(Regex, WorkIsLinearInTheText) {
  for (const char* pattern : {"(a*)*b", "((a+)+)+b", "(a|a)*b", "(a|aa)+b", "((a{1,100}){1,100}){1,100}b",
                              "(a?){1000}a{1000}", "(((((((a?){9}){9}){9}){9}){9}){9}){9}", "(a{0,50}){0,50}"}) {
    for (const int length : {50, 200}) {
      EXPECT_LE(work_of(pattern, std::string(static_cast<size_t>(length), 'a') + "c"), length * int64_t{6000})
          << pattern;
    }
  }
}

}  // namespace
}  // namespace braid::grammar
