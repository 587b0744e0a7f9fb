// Constraints over a small vocabulary, for tests: every byte is a token, and so are some words that cross the parts of
// JSON. Two ids end an answer.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/constraint.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "io/ordered_json.h"

namespace braid::grammar {

inline std::shared_ptr<const TokenTrie> test_trie() {
  std::vector<std::string> tokens;
  tokens.reserve(300);
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* word :
       {"{\"",          "\":",         "\": \"", "\", \"",   "\"}",    "}}",     "[[",  "]]",   "true",
        "fal",          "null",        "name",   "\xc3\xa4", "\xa4\"", "12",     "0.5", "aaaa", "aaaaaaaaaaaaaaaa",
        "</tool_call>", "<tool_call>", ", ",     "\n  ",     "a\"",    "abc\", "})
    tokens.push_back(word);
  tokens.push_back("");
  tokens.push_back("</s>");
  const std::vector<int64_t> ends = {std::ssize(tokens) - 1, std::ssize(tokens) - 2};
  return std::make_shared<const TokenTrie>(tokens, ends);
}

inline std::shared_ptr<const Constraint> constraint_of(const std::function<RuleId(Builder&)>& make) {
  static const std::shared_ptr<const TokenTrie> trie = test_trie();
  Builder b("test");
  const RuleId start = make(b);
  return std::make_shared<const Constraint>(b.finish(start), trie, "test");
}

// Read as requests are, integers beyond 64 bits included.
inline std::shared_ptr<const Constraint> schema_of(std::string_view schema) {
  return constraint_of([&](Builder& b) {
    const auto json =
        io::parse_ordered(schema, "test", {}, {.depth = 200, .keys = io::kOrderedKeysMax, .digits = true});
    return json_schema(b, json, "test");
  });
}

inline std::shared_ptr<const Constraint> regex_of(std::string_view pattern) {
  return constraint_of(
      [&](Builder& b) { return b.rule(Regex::parse(pattern, "test").compile(b, Spelling::plain, b.done())); });
}

inline bool matches(const std::shared_ptr<const Constraint>& constraint, std::string_view text) {
  Matcher matcher(constraint);
  return matcher.accept(text) && matcher.complete();
}

}  // namespace braid::grammar
