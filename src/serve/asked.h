// What a client asked for, whatever the surface: work for the worker, and how the answer is to be written.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/language_model.h"
#include "serve/fields.h"
#include "serve/worker.h"
#include "text/tool_calls.h"

namespace braid::serve {

// What requests may leave out.
struct Defaults {
  std::string model;                                  // the name of the model in answers
  engine::SamplingOptions sampling{};                 // flag, else generation_config.json
  bool seeded = false;                                // a seed was given: requests without one use it, not a random one
  std::string reasoning_field = "reasoning_content";  // of messages and deltas of chat
  int64_t thinking_budget = -1;                       // tokens of thinking at most; -1: no limit
};

// One prompt and its answers.
struct Asked {
  Work work{};  // of the first answer
  int64_t n = 1;
  bool chat = true, stream = false, usage = false;
  nlohmann::ordered_json tools{};  // null: none
  bool bare_calls = false;         // the model writes calls without tags (text/tool_calls.h)
  std::string id{};                // of the answer
  int64_t created = 0;             // seconds since 1970
  std::string model{}, reasoning_field{};
  bool logprobs = false;
  std::set<std::string> skipped_tools{};  // types of tools that are no functions
  bool echo = false;                      // the prompt is part of the text
  bool nonempty = false;                  // its reasoning is the content of an answer that has none
  std::string prompt_text{};              // for `echo`
};

// What every kind of request has: sampling, n, stops (of the field `stop`), stream.
Asked begin(const Fields& f, engine::LanguageModel& model, const Defaults& defaults, const char* id_prefix,
            const char* stop = "stop");
// No more tokens than the context has room for. ApiError when it has none.
void limit_tokens(Asked& asked, int64_t tokens, engine::LanguageModel& model);
// The form that the request demands of its answer (constraint.h), once the work has its tools and knows of its
// thinking.
void constrain(Asked& asked, const nlohmann::ordered_json& body, engine::LanguageModel& model);

// The work of answer `i` of `n`: another seed; the first keeps the state of the prompt for the others.
Work work_of(const Asked& asked, int64_t i);

// How an answer ended, in OpenAI's words. `called`: in calls, of which the last is complete.
const char* finish_of(const Outcome& outcome, bool called);
// The answer ended before the model ended it.
bool is_cut(const Outcome& outcome);
// Its text and the calls in it, where tools were given.
text::ParsedAnswer parsed_answer(const Asked& asked, const Said& said, const Outcome& outcome);
// With `nonempty` the reasoning of an answer without content (white space aside) or calls, which stands for it; or "".
std::string standing_in(const Asked& asked, const Said& said);
// {id, object, created, model}
nlohmann::ordered_json envelope(const Asked& asked, const char* object);
// Of all answers to all prompts; `outcomes` has n per prompt.
nlohmann::ordered_json usage_of(const std::vector<Asked>& asked, const std::vector<const Outcome*>& outcomes);
// A server-sent event of data alone.
std::string sse(const nlohmann::ordered_json& json);
// OpenAI's; an empty `param` or `code` is null there. The status is that of HTTP alone.
nlohmann::ordered_json error_json(const std::string& type, const std::string& message, const std::string& param = "",
                                  const std::string& code = "");

}  // namespace braid::serve
