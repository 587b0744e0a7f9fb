#include "engine/loop.h"

#include <algorithm>
#include <span>

#include "models/loop_start.h"

namespace braid::engine {

LoopOptions resolved(const models::LoopSpec& spec, LoopOptions options) {
  if (options.steps == 0) options.steps = spec.steps;
  options.states = options.states == 0 ? options.steps : std::min(options.states, options.steps);
  return options;
}

Tensor start_states(Arena& arena, const models::Config& config, const LoopOptions& options, const SeqMap& seqs) {
  constexpr uint32_t kStream = 0x6c6f6f70;  // "loop": no other draw uses it
  const Tensor states(arena, DType::f32, {seqs.tokens(), config.hidden});
  const auto width = static_cast<size_t>(config.hidden), given = options.start.size() / width;
  for (const Seq& s : seqs.seqs) {
    for (int64_t t = 0; t < s.len; ++t) {
      const std::span row(states.mut().as<float>(s.start + t), width);
      const auto position = static_cast<size_t>(s.pos0 + t);
      if (position < given) {
        std::copy_n(options.start.begin() + static_cast<std::ptrdiff_t>(position * width), width, row.begin());
      } else if (options.zero) {
        std::fill(row.begin(), row.end(), 0.0f);
      } else {
        models::loop_start(*config.loop, {options.seed, kStream}, s.pos0 + t, row);
      }
    }
  }
  return states;
}

}  // namespace braid::engine
