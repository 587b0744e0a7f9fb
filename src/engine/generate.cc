#include "engine/generate.h"

#include <algorithm>
#include <chrono>

namespace braid::engine {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

const char* name_of(Finish f) {
  constexpr const char* kNames[] = {"stop", "length", "cancelled"};
  return kNames[static_cast<int>(f)];
}

Generated generate(Runner& runner, int64_t sequence, std::span<const int32_t> history, std::span<const int32_t> prompt,
                   const GenerateOptions& options, const sys::FunctionRef<bool(int32_t)>& on_token,
                   const sys::FunctionRef<void(const Tensor&)>& on_prefill, nn::Probe* probe) {
  Generated out;
  auto start = std::chrono::steady_clock::now();
  Tensor logits = runner.prefill(sequence, prompt, on_prefill, probe);
  out.timings.prompt_tokens = static_cast<int64_t>(prompt.size());
  out.timings.prompt_seconds = seconds_since(start);

  std::vector<int32_t> seen(history.begin(), history.end());
  seen.insert(seen.end(), prompt.begin(), prompt.end());
  const auto first = static_cast<uint64_t>(std::max(std::ssize(seen), options.position));
  const std::vector<int64_t>& eos = runner.config().eos;
  ReasoningLimit limit(options.budget);
  start = std::chrono::steady_clock::now();
  while (options.tokens_max < 0 || static_cast<int64_t>(out.ids.size()) < options.tokens_max) {
    const std::span<const float> row(logits.view().as<float>(), static_cast<size_t>(logits.dim(1)));
    const int32_t id = limit.next(sample(row, options.sampling, seen, first + out.ids.size(), out.ids.size()));
    if (options.logprobs >= 0) out.logprobs.push_back(logprobs_of(row, id, options.logprobs));
    out.ids.push_back(id);
    seen.push_back(id);
    if (!options.ignore_eos && std::find(eos.begin(), eos.end(), id) != eos.end()) {
      out.finish = Finish::stop;
      break;
    }
    if (!on_token(id)) {
      out.finish = Finish::cancelled;
      break;
    }
    const bool last = static_cast<int64_t>(out.ids.size()) == options.tokens_max ||
                      runner.length(sequence) == runner.options().context;
    if (last) break;
    logits = runner.step(sequence, id);
  }
  out.timings.generated_tokens = static_cast<int64_t>(out.ids.size());
  out.timings.generate_seconds = seconds_since(start);
  return out;
}

}  // namespace braid::engine
