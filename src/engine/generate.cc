#include "engine/generate.h"

#include <chrono>
#include <utility>

#include "engine/token_picker.h"

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
  TokenPicker picker(options, std::move(seen), runner.config().eos);
  start = std::chrono::steady_clock::now();
  while (picker.may_continue()) {
    const int32_t id = picker.next({logits.view().as<float>(), static_cast<size_t>(logits.dim(1))});
    if (picker.ended()) {
      out.finish = Finish::stop;
      break;
    }
    if (!on_token(id)) {
      out.finish = Finish::cancelled;
      break;
    }
    if (picker.complete()) {
      out.finish = Finish::stop;
      break;
    }
    if (!picker.may_continue() || runner.length(sequence) == runner.options().context) break;
    logits = runner.step(sequence, id);
  }
  picker.take(out);
  out.timings.generated_tokens = static_cast<int64_t>(out.ids.size());
  out.timings.generate_seconds = seconds_since(start);
  return out;
}

}  // namespace braid::engine
