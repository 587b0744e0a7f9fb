// OpenAI's chat completions and completions: from the JSON of a request to work for the worker, and from its outcome to
// the JSON of the answer, whole or in chunks. https://platform.openai.com/docs/api-reference
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/language_model.h"
#include "serve/reply.h"
#include "serve/worker.h"

namespace braid::serve {

// What requests may leave out.
struct Defaults {
  std::string model;                   // the name of the model in answers
  engine::SamplingOptions sampling{};  // flag, else generation_config.json
  bool seeded = false;                 // a seed was given: requests without one use it, not a random one
};

// Of one kind of request.
struct Asked {
  Work work{};
  bool chat = true, stream = false, usage = false;
  nlohmann::ordered_json tools{};  // null: none
  std::string id{};                // of the answer
  int64_t created = 0;             // seconds since 1970
  std::string model{};
  bool logprobs = false;
};

// The object that a body holds, within the limits of io::Json; ApiError or Error for anything else.
nlohmann::ordered_json parse_body(const std::string& body);

// ApiError for a body that is not such a request, asks for what is not there, or leaves no room for an answer.
Asked read_chat(const std::string& body, engine::LanguageModel& model, const Defaults& defaults);
// Several prompts are several requests, answered as the choices of one.
std::vector<Asked> read_completions(const std::string& body, engine::LanguageModel& model, const Defaults& defaults);

// The text of a whole answer, put together from the parts.
struct Said {
  std::string reasoning, content;
};
nlohmann::ordered_json answer_json(const Asked& asked, const Said& said, const Outcome& outcome,
                                   engine::LanguageModel& model);
nlohmann::ordered_json completions_json(const std::vector<Asked>& asked, const std::vector<Said>& said,
                                        const std::vector<const Outcome*>& outcomes);

// The chunks of a streamed answer. Tool calls come at its end, whole: the text from their first tag on is held back.
class Chunks {
 public:
  explicit Chunks(const Asked& asked) : asked_(asked) {}
  std::string begin() const;  // server-sent events, each `data: {...}\n\n`
  std::string text(const Reply::Parts& parts);
  std::string end(const Outcome& outcome);

 private:
  std::string event(const nlohmann::ordered_json& delta, const char* finish) const;
  const Asked& asked_;
  std::string held_;  // of the content
};

nlohmann::ordered_json error_json(int status, const std::string& type, const std::string& message);

}  // namespace braid::serve
