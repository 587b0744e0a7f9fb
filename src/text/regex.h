// The regular expressions of tokenizer.json. They are written for Oniguruma (what Hugging Face's library uses); the few
// constructs that PCRE2 reads differently are rewritten, and those without an equivalent are refused. Matching is
// compiled (JIT) where the system allows it, and always under limits: runaway backtracking raises an Error.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "io/json.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;
struct pcre2_real_jit_stack_8;

namespace braid::text {

struct Match {
  size_t begin = 0, end = 0;
};

class Regex {
 public:
  Regex(std::string_view pattern, const std::string& where);  // Error names `where` and the position in the pattern
  static Regex literal(std::string_view text, const std::string& where);
  static Regex read(const io::Json& pattern);  // {"Regex": "..."} or {"String": "..."}

 private:
  friend class Matcher;
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
    void operator()(pcre2_real_match_context_8* context) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
  std::string where_;
  bool jit_ = false;
};

// One thread's use of a Regex; the Regex must outlive it.
class Matcher {
 public:
  explicit Matcher(const Regex& regex);
  // The first match at or after `from`. `text` must be valid UTF-8 and `from` on a character boundary.
  bool find(std::string_view text, size_t from, Match& match);

 private:
  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
    void operator()(pcre2_real_match_context_8* context) const;
  };
  int run(std::string_view text, size_t from);
  const Regex* regex_;
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
  std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;             // only once a match needed more than the default
  std::unique_ptr<pcre2_real_match_context_8, Free> deep_context_;  // the Regex's context with that stack
};

// The matches of a text from left to right. An empty match where the last one ended does not count.
class Matches {
 public:
  Matches(Matcher& matcher, std::string_view text) : matcher_(&matcher), text_(text) {}
  bool next(Match& match);

 private:
  Matcher* matcher_;
  std::string_view text_;
  size_t from_ = 0;
  size_t last_ = std::string_view::npos;
};

// Exposed for its test: the pattern rewritten for PCRE2.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace braid::text
