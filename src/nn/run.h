// The context of a block for one pass: everything but its input.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/ctx.h"
#include "core/numerics.h"
#include "core/param.h"
#include "core/seq_map.h"
#include "core/tensor.h"
#include "nn/state.h"

namespace braid::comm {
class Group;
}

namespace braid::nn {

// Chosen experts of every token, by layer: [tokens, k] row-major, best first.
using Routes = std::map<int, std::vector<int32_t>>;

// Internal values that a caller may record, for one sequence: rows are appended pass by pass.
struct Probe {
  bool want_hidden = false, want_routes = false;
  std::vector<std::vector<float>> hidden{};  // embedding, then the residual stream after every layer; [tokens, D] each
  Routes routes{};
  const Routes* replay = nullptr;  // experts to use instead of the router's choice
  int64_t replay_row = 0;          // first row of this pass in `replay`
};

struct Run;
// Of the blocks with a recurrent state: reads tokens of this pass's tentative steps once more, to the state that
// `run.seqs` names; rows of these steps, counted without the others, from `first` on. Bit-identical to steps of as many
// tokens. What it retains are the block's inputs to convolution and scan, a few KiB a token where a state is some MiB.
using Replay = std::function<void(Run& run, int64_t first)>;

struct ExpertRanks;
struct RouterWatch;
class Observer;
struct SequenceShares;
struct ContextShares;
class LayerPasses;
class Precision;
// The random numbers that a pass draws: those of one training step.
struct Draws {
  uint64_t seed = 0, step = 0;
};

// What a pass does with the layers that it runs several times, if the model has such (models::LoopSpec).
struct Loop {
  int64_t steps = 1;
  int64_t first = 0;   // that begins with `start`; those before it have led there
  int64_t states = 1;  // that each of these layers has of a sequence: step i reads and writes number i % states
  Tensor start{};      // [T, D] F32
};

struct Run {
  Ctx& ctx;
  const SeqMap& seqs;
  StateView& state;  // without blocks: every sequence begins with this pass and keeps no state (training)
  Numerics numerics{};
  Probe* probe = nullptr;
  RouterWatch* routers = nullptr;          // nn/balance.h, in passes that train
  Observer* observer = nullptr;            // nn/observer.h
  const Precision* precision = nullptr;    // how products quantise their operands (nn/precision.h); null: they do not
  const Draws* draws = nullptr;            // null: nothing is dropped
  std::vector<Replay>* replays = nullptr;  // of steps with a trail; null: they will not be replayed
  const Loop* loop = nullptr;
  comm::Group* tensor = nullptr;  // ranks that hold parts of the same layers; null: this one has all of them
  // Of those, by their number, consecutive ones that share keys and values, or groups, of which there are fewer.
  std::map<int64_t, comm::Group>* sharers = nullptr;
  comm::Group* stage = nullptr;          // ranks that hold parts of the same experts where they are more than those
  comm::Group* hidden = nullptr;         // ranks that divide the channels of the residual stream; null: each has all
  bool overlap = false;                  // gradients travel between those while the ones of weights are computed
  const ExpertRanks* experts = nullptr;  // ranks that share the experts of every layer (nn/expert_parallel.h); or null
  const SequenceShares* sequence =
      nullptr;                             // how those of `tensor` divide the tokens between blocks; null: each has all
  bool in_block = false;                   // that reads all tokens
  const ContextShares* context = nullptr;  // `seqs` are this rank's pieces of longer ones; null: they are whole
  LayerPasses* layers = nullptr;           // of ranks that divide them (nn/layer_passes.h); or null
  int state_offset = 0;  // of blocks that a pass runs several times: added to their Block::state_index
  uint32_t use = 0;      // and which time it is, from 0: the random numbers that they draw differ

  // The sequences of the rows that an op gets.
  const SeqMap& rows() const;

  // For the products of this pass.
  CodeDots codes() const {
    const bool steps = numerics.code_steps && seqs.seqs.size() == 1 && seqs.seqs[0].phase == Phase::step;
    return steps ? CodeDots::a16 : numerics.int8 ? CodeDots::a8 : CodeDots::none;
  }
  BlockState block_state(int index) const {
    return state.blocks.empty() ? BlockState{} : state.blocks[static_cast<size_t>(index + state_offset)];
  }
};

// Sequence parallelism (nn/sequence_parallel.h): which tokens of a pass each of Run::tensor has between blocks.
struct SequenceShares {
  SeqMap own{};                   // this rank's
  std::vector<int64_t> counts{};  // of every rank, consecutive
};

inline const SeqMap& Run::rows() const { return sequence && !in_block ? sequence->own : seqs; }

}  // namespace braid::nn
