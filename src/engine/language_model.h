// Everything that belongs to one model argument: its Runner, tokenizer and chat template. The tokenizer and the
// template are read when first asked for, so that ids in, ids out needs neither.
#pragma once
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/runner.h"
#include "engine/sampler.h"
#include "io/model_path.h"
#include "text/template.h"
#include "text/tokenizer.h"

namespace braid::engine {

class LanguageModel {
 public:
  LanguageModel(const std::string& argument, const RunnerOptions& options);

  Runner& runner() { return *runner_; }
  const io::ModelPath& path() const { return path_; }
  const text::Tokenizer& tokenizer();
  // The prompt of a conversation (an array of {role, content}); `think` on or off where the template knows the switch,
  // and as the older system line where it does not. `tools`: an array of functions; null where there are none.
  std::string render(const nlohmann::ordered_json& messages, std::optional<bool> think,
                     const nlohmann::ordered_json* tools = nullptr);

  // A token as text for the answer: end tokens and other special ones are silent, but for the tags that people and
  // parsers read.
  bool is_silent(int32_t id);

 private:
  io::ModelPath path_;
  std::unique_ptr<Runner> runner_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> template_;
};

// What generation_config.json or a GGUF file says about sampling; fields left out keep their values of `otherwise`.
SamplingOptions sampling_of(const io::ModelPath& path, const SamplingOptions& otherwise);

}  // namespace braid::engine
