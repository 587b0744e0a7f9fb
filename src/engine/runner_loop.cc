// The passes of a Runner over a model with a loop of layers: from which states they begin, after how many steps they
// end, and what later tokens see of steps that did not run.
#include <algorithm>
#include <cstring>

#include "engine/runner.h"

namespace braid::engine {
namespace {

std::span<const float> row(const Tensor& t, int64_t i) {
  return {t.view().as<float>(i), static_cast<size_t>(t.dim(1))};
}

// A lone step may end early: the keys and values of steps that it leaves out are filled in for one sequence at a time.
bool may_exit(const LoopOptions& options, std::span<const Piece> pieces) {
  return options.exit != Exit::never && pieces.size() == 1 && pieces[0].phase == Phase::step && pieces[0].tokens == 1;
}

}  // namespace

Tensor Runner::loop_starts(const SeqMap& seqs, std::span<const Piece> pieces) {
  Tensor states = start_states(arena_, config(), options_.loop, seqs);
  if (!options_.loop.warm_start) return states;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::vector<float>& last = own(pieces[i].sequence).loop_state;
    if (pieces[i].phase != Phase::step || last.empty()) continue;
    CHECK(pieces[i].tokens == 1, "a step of {} tokens, each from the state of the one before", pieces[i].tokens);
    std::copy(last.begin(), last.end(), states.mut().as<float>(seqs.seqs[i].start));
  }
  return states;
}

Tensor Runner::forward_loop(nn::Run& run, const Tensor& ids, std::span<const Piece> pieces) {
  const LoopOptions& options = options_.loop;
  nn::Loop loop{.steps = options.steps, .states = options.states};
  run.loop = &loop;
  Tensor state = loop_starts(run.seqs, pieces);
  const Tensor input = model_->loop_input(run, ids);
  std::optional<ExitRule> rule;
  if (may_exit(options, pieces)) rule.emplace(options.exit, options.threshold, row(state, 0));
  for (loop_steps_ = 0; loop_steps_ < options.steps;) {
    state = model_->loop_step(run, input, state, loop_steps_++);
    if (!rule || loop_steps_ == options.steps) continue;
    const bool logits = ExitRule::reads_logits(options.exit);
    const Tensor read = logits ? model_->logits(run, model_->loop_output(run, state)) : state;
    if (rule->enough(row(read, 0))) break;
  }
  if (loop_steps_ < options.states) fill_loop_states(run.seqs.seqs[0]);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto last = row(state, run.seqs.seqs[i].start + pieces[i].tokens - 1);
    if (options.warm_start) own(pieces[i].sequence).loop_state.assign(last.begin(), last.end());
  }
  return model_->loop_output(run, state);
}

Tensor Runner::loop_guess(std::span<const int32_t> ids, std::span<const int64_t> sequences, int64_t ahead,
                          int64_t steps) {
  SeqMap seqs;
  for (const int64_t sequence : sequences) {
    const Own& o = own(sequence);
    CHECK(o.after_slot < 0, "sequence {} waits for `keep`", sequence);
    seqs.add(1, o.length + ahead, o.slot);
    seqs.seqs.back().table = sequence;
    seqs.seqs.back().phase = Phase::step;
    pool_->prepare(ctx_, sequence, o.length + ahead, o.length + ahead + 1);
  }
  const nn::Loop loop{
      .steps = steps, .states = options_.loop.states, .start = start_states(arena_, config(), options_.loop, seqs)};
  nn::Run r = run(seqs, nullptr);
  r.loop = &loop;
  return model_->forward(r, ids_tensor(ids));
}

// Later tokens that take more steps see the keys and values of the last step in place of those that did not run.
void Runner::fill_loop_states(const Seq& seq) {
  const auto each = static_cast<int64_t>(model_->loop_states());
  const int64_t first = std::ssize(pool_->view().blocks) - each * options_.loop.states;
  for (int64_t i = 0; i < each; ++i) {
    for (int64_t step = loop_steps_; step < options_.loop.states; ++step)
      pool_->copy_token(seq.table, seq.pos0, first + (loop_steps_ - 1) * each + i, first + step * each + i);
  }
}

}  // namespace braid::engine
