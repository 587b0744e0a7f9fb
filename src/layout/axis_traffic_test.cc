// The bytes that every rank sends in a step of the trainer, axis by axis, against the formulas of the papers, written
// here once more from the model's shapes: to the last byte.
//   tp, sp   arXiv 1909.08053 and 2205.05198
//   x, y, z, d   arXiv 2502.08145, section 5
//   zero     arXiv 1910.02054, section 7
//   ep, etp  arXiv 2504.14960
//   cp       arXiv 2310.01889 and 2309.14509
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <map>

#include "comm/inproc.h"
#include "support/models.h"
#include "train/language.h"
#include "train/mesh.h"
#include "train/trainer.h"

namespace braid::layout {
namespace {

using Sent = std::map<std::string, int64_t>;
using train::ParallelRecipe;

// Bytes that one of `ranks` sends, a power of two, of a vector of `bytes`: parts of it, once or there and back, but of
// a short one all of it to every power's neighbour.
int64_t divided(int64_t bytes, int64_t ranks) { return bytes * (ranks - 1) / ranks; }
int64_t reduced(int64_t bytes, int64_t ranks) {
  constexpr int64_t kShort = 32 << 10;
  return bytes <= kShort ? bytes * std::countr_zero(static_cast<uint64_t>(ranks)) : 2 * divided(bytes, ranks);
}
// Of FP32 vectors, each of which begins at a multiple of 32 elements.
int64_t padded(std::initializer_list<int64_t> counts) {
  int64_t sum = 0;
  for (const int64_t n : counts) sum += (n + 31) / 32 * 32 * 4;
  return sum;
}

class AxisTraffic : public models::FolderTest {
 protected:
  static constexpr int64_t kBatch = 8, kLength = 64, kTokens = kBatch * kLength;
  static constexpr int64_t kWidth = 256, kVocab = 512;
  static constexpr int64_t kMambaHeads = 8, kMambaWidth = 16, kGroups = 4, kState = 36;
  static constexpr int64_t kHeads = 8, kKeys = 4, kHeadWidth = 16, kMlp = 128;
  static constexpr int64_t kExperts = 8, kChosen = 4, kExpert = 64;

  void make(const std::vector<std::string>& layers) const {
    nlohmann::json config = models::hybrid();
    config["vocab_size"] = kVocab, config["hidden_size"] = kWidth;
    config["layers_block_type"] = layers, config["num_hidden_layers"] = layers.size();
    config["mamba_num_heads"] = kMambaHeads, config["mamba_head_dim"] = kMambaWidth;
    config["n_groups"] = kGroups, config["ssm_state_size"] = kState;
    config["num_attention_heads"] = kHeads, config["num_key_value_heads"] = kKeys, config["head_dim"] = kHeadWidth;
    config["intermediate_size"] = kMlp;
    config["n_routed_experts"] = kExperts, config["num_experts_per_tok"] = kChosen;
    config["n_group"] = 1, config["topk_group"] = 1;
    config["n_shared_experts"] = 1, config["moe_intermediate_size"] = kExpert;
    config["moe_shared_expert_intermediate_size"] = kExpert;
    config["max_position_embeddings"] = kLength;
    write(config, tensors_of(config));
  }

  // Of the second step: the first one plans.
  std::vector<Sent> step_of(const train::ParallelRecipe& parallel, int ranks, int64_t parts = 1) const {
    train::Recipe recipe;
    recipe.init = folder_.string();
    recipe.out = (folder_ / "out").string();
    recipe.dtype = "f32";
    recipe.steps = 2, recipe.batch = kBatch, recipe.length = kLength, recipe.accumulate = parts;
    recipe.data.kind = "markov";
    recipe.checkpoint.every = 0;
    recipe.parallel = parallel;
    std::vector<Sent> sent(static_cast<size_t>(ranks));
    comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
      train::Mesh mesh(recipe, world);
      Arena arena;
      Ctx ctx{.arena = arena, .threads = 1};
      train::Language language(recipe, ctx, &mesh);
      choose_evenly(language.masters());
      train::Trainer trainer(recipe, language, ctx, &mesh);
      Sent before;
      trainer.train({.progress = [&](int64_t done) {
        Sent now = mesh.bytes_by_axis();
        if (done == 1) before = now;
        if (done != 2) return;
        for (auto& [axis, bytes] : now) bytes -= before[axis];
        sent[static_cast<size_t>(world.rank())] = now;
      }});
    });
    return sent;
  }

  // `want`: what a rank sends by axis. Besides, there are a few numbers of losses, and what ranks agree on.
  void expect(const ParallelRecipe& parallel, int ranks, int64_t parts, const std::function<Sent(int)>& want) const {
    const std::vector<Sent> all = step_of(parallel, ranks, parts);
    for (int rank = 0; rank < ranks; ++rank) {
      Sent got = all[static_cast<size_t>(rank)];
      EXPECT_LT(got["rest"], 4096);
      got.erase("rest");
      std::erase_if(got, [](const auto& axis) { return axis.second == 0; });
      EXPECT_EQ(got, want(rank)) << "rank " << rank << " of " << ranks << ": tp " << parallel.tp << " sp "
                                 << parallel.sp << " cp " << parallel.cp << parallel.cp_attention << parallel.cp_mamba
                                 << " ep " << parallel.ep << " etp " << parallel.etp << " " << parallel.dispatcher
                                 << " pp " << parallel.pp << " zero " << parallel.zero << " grid " << parallel.grid;
    }
  }
  void make_dense() const { make({"mamba", "attention", "mamba", "mlp"}); }

  // Bytes of weights: of all layers of make_dense(), and of none.
  static constexpr int64_t kInner = kMambaHeads * kMambaWidth, kConv = kInner + 2 * kGroups * kState,
                           kQueries = kHeads * kHeadWidth, kPairs = 2 * kKeys * kHeadWidth;
  static int64_t layer_bytes() {
    const int64_t mamba = padded({kWidth, (kInner + kConv + kMambaHeads) * kWidth, 4 * kConv, kConv, kMambaHeads,
                                  kMambaHeads, kMambaHeads, kInner, kInner * kWidth});
    return 2 * mamba + padded({kWidth, (2 * kQueries + kPairs) * kWidth}) + padded({kWidth, 2 * kMlp * kWidth});
  }
  static int64_t rest_bytes() { return padded({kVocab * kWidth, kVocab * kWidth, kWidth}); }
  static int64_t all_bytes() { return layer_bytes() + rest_bytes(); }

 private:
  // Every token chooses every second expert, so that all ranks have equally many rows.
  static void choose_evenly(models::MasterWeights& masters) {
    for (const models::MasterTensor& t : masters.tensors()) {
      if (t.role != ParamRole::router_bias) continue;
      for (int64_t e = 0; e < t.count(); ++e)
        masters.values()[static_cast<size_t>(t.offset + e)] = e % (kExperts / kChosen) == 0 ? 10.0f : 0.0f;
    }
  }
};

// 2 n, and of A parts (A - 1) n_l or (3 A - 2) n_l more, times (P - 1) / P.
TEST_F(AxisTraffic, ZeroSendsWeightsAndGradients) {
  make_dense();
  for (const int ranks : {2, 4}) {
    for (const int64_t parts : {1, 2}) {
      const int64_t more[] = {0, 0, (parts - 1) * layer_bytes(), (3 * parts - 2) * layer_bytes()};
      for (const int64_t zero : {0, 1, 2, 3}) {
        const Sent want = {{"dp", divided(2 * all_bytes() + more[zero], ranks)}};
        expect({.zero = zero}, ranks, parts, [&](int) { return want; });
      }
    }
  }
}

// A sum of the stream forward and one backward for every block; one for the table, one for the head, whose loss has
// three numbers a token: its largest logarithm, their sum and the target's.
TEST_F(AxisTraffic, TensorParallelismSumsTheStreamTwiceABlock) {
  make_dense();
  for (const int ranks : {2, 4}) {
    const Sent want = {{"tp", 10 * reduced(4 * kTokens * kWidth, ranks) + reduced(4 * kTokens, ranks) +
                                  reduced(2 * 4 * kTokens, ranks)}};
    expect({.tp = ranks}, ranks, 1, [&](int) { return want; });
  }
}

// What tensor parallelism sums is scattered and gathered: the same bytes; what a block reads is gathered once more.
// Gradients of norms are of a rank's own tokens.
TEST_F(AxisTraffic, SequenceParallelismGathersWhatBlocksReadOnceMore) {
  make_dense();
  for (const int ranks : {2, 4}) {
    const int64_t stream = 4 * kTokens * kWidth;
    const Sent want = {{"tp", 10 * 2 * divided(stream, ranks) + 4 * divided(stream, ranks) +
                                  5 * reduced(4 * kWidth, ranks) + reduced(4 * kTokens, ranks) +
                                  reduced(2 * 4 * kTokens, ranks)}};
    expect({.tp = ranks, .sp = true}, ranks, 1, [&](int) { return want; });
  }
}

// By heads (P - 1) / P of what goes to them and comes back, and of the gradients; keys and values around the ring in
// both passes, their gradients one step further; a state and three inputs of a convolution for every sequence.
TEST_F(AxisTraffic, ContextParallelismSendsTokensKeysOrStates) {
  make_dense();
  for (const int ranks : {2, 4}) {
    const int64_t own = 4 * kTokens / ranks;
    const int64_t attention = 2 * divided(own * (kQueries + kPairs + kQueries), ranks),
                  mamba = 2 * divided(own * (kConv + kMambaHeads + kInner), ranks),
                  ring = (2 * (ranks - 1) + ranks) * own * kPairs, state = kBatch * 4 * (kInner * kState + 3 * kConv);
    const int64_t weights = divided(2 * all_bytes(), ranks);
    expect({.cp = ranks}, ranks, 1, [&](int) { return Sent{{"cp", attention + 2 * mamba}, {"dp", weights}}; });
    expect({.cp = ranks, .cp_attention = "ring"}, ranks, 1, [&](int) {
      return Sent{{"cp", ring + 2 * mamba}, {"dp", weights}};
    });
    expect({.cp = ranks, .cp_mamba = "states"}, ranks, 1, [&](int rank) {
      const int64_t neighbours = (rank > 0 ? 1 : 0) + (rank < ranks - 1 ? 1 : 0);
      return Sent{{"cp", attention + 2 * neighbours * state}, {"dp", weights}};
    });
  }
}

// 4 D bytes a token to the next run of layers, and as many back.
TEST_F(AxisTraffic, StagesSendTheStream) {
  make_dense();
  const int64_t stream = 4 * kTokens * kWidth;
  for (const int stages : {2, 4}) {
    expect({.pp = stages}, stages, 4, [&](int rank) {
      return Sent{{"pp", (rank < stages - 1 ? stream : 0) + (rank > 0 ? stream : 0)}};
    });
  }
  expect({.pp = 2, .virtual_stages = 2}, 2, 4, [&](int) { return Sent{{"pp", 3 * stream}}; });
}

// AxoNN's terms, of weights of k by n and m tokens: 2 (x - 1) / x m k / y of what writes the stream, once more
// backward; 2 (y - 1) / y m n / x of what reads it; a number of a token for every norm over y, forward and backward.
TEST_F(AxisTraffic, AGridSendsTheTermsOfAxonn) {
  make_dense();
  for (const char* word :
       {"2,1,1,1", "1,2,1,1", "2,2,1,1", "1,1,2,1", "1,1,2,2", "2,1,2,1", "1,2,1,2", "1,4,1,1", "2,2,2,1"}) {
    ParallelRecipe p;
    p.grid = word;
    const train::Grid g = p.axes();
    const int64_t tokens = kTokens / (g.z * g.d), m = 4 * tokens;
    const int64_t reads = 2 * (kInner + kConv + kMambaHeads) + (kQueries + kPairs) + kMlp + kVocab,
                  writes = 2 * kInner + kQueries + kMlp;
    Sent want;
    if (g.x > 1) want["tp"] = 10 * reduced(m * kWidth / g.y, g.x) + reduced(m, g.x) + reduced(2 * m, g.x);
    if (g.y > 1) want["y"] = reduced(m * (reads + writes) / g.x, g.y) + 10 * reduced(m, g.y);
    if (g.model() == 1) {
      if (g.z > 1) want["dp"] = divided(2 * all_bytes(), g.z);
      if (g.d > 1) want["d"] = divided(2 * all_bytes() / g.z, g.d);
    }
    const int ranks = static_cast<int>(g.model() * g.z * g.d);
    for (const bool overlap : {false, true}) {
      p.overlap = overlap;
      for (Sent got : step_of(p, ranks)) {
        for (const auto& [axis, bytes] : want) EXPECT_EQ(got[axis], bytes) << word << " " << axis << overlap;
      }
    }
  }
}

// Of T k rows those whose expert is elsewhere, each with its weight, and as many FP32 rows back; the same backward; and
// how many rows come. By all-gather every token to all, with what it chose; by nodes a token once to each of these.
TEST_F(AxisTraffic, ExpertsAreSentTheirRows) {
  make({"moe"});
  const int64_t row = 4 * kWidth;
  for (const auto& division : {std::pair<int64_t, int64_t>{2, 1}, {4, 1}, {1, 2}, {2, 2}}) {
    const int64_t ep = division.first, etp = division.second, ranks = ep * etp, tokens = kTokens / ranks,
                  rows = tokens * kChosen * etp - tokens * kChosen / ep,  // T k (etp - 1 / ep)
        told = 4 * (ranks - 1) * kExperts / ep, weights = 2 * 4 * rows, all = (ranks - 1) * tokens;
    const auto only_ep = [&](const ParallelRecipe& p, int64_t bytes) {
      for (Sent got : step_of(p, static_cast<int>(ranks))) EXPECT_EQ(got["ep"], bytes) << p.dispatcher << ep << etp;
    };
    only_ep({.ep = ep, .etp = etp}, 4 * rows * row + weights + told);
    const int64_t chosen = all * 4 * kChosen + 8 * (ranks - 1);
    only_ep({.ep = ep, .etp = etp, .dispatcher = "allgather"}, 2 * all * row + 2 * rows * row + weights + chosen);
    if (ranks < 4) continue;
    const int64_t nodes = 2, near = ranks / nodes, crossing = (nodes - 1) * tokens,
                  onward = nodes * tokens * (near - 1) * kChosen / ep;
    only_ep({.ep = ep, .etp = etp, .dispatcher = "node", .node_ranks = near},
            2 * (crossing + onward) * row + 2 * rows * row + weights + told + crossing * 4 * kChosen + 8 * (nodes - 1));
  }
}

// tp 2 cp 2 dp 2 | etp 1 ep 4 edp 2: two ranks with the same tokens send a half of them each to the experts, so that
// gradients of the router are sums over both.
TEST_F(AxisTraffic, FoldedAxesSendTheirOwn) {
  make({"attention", "moe"});
  const int64_t own = kTokens / 4, rows = own / 2 * kChosen * 3 / 4, router = 4 * kExperts * kWidth;
  const int64_t dense =
      padded({kVocab / 2 * kWidth, kVocab / 2 * kWidth, kWidth, kWidth, (2 * kQueries + kPairs) / 2 * kWidth, kWidth,
              kExperts * kWidth, kExperts, 2 * kExpert / 2 * kWidth});
  const Sent want = {{"tp", 6 * reduced(4 * own * kWidth, 2) + reduced(4 * own, 2) + reduced(2 * 4 * own, 2) +
                                reduced(router, 2) + reduced(4 * kExperts, 2)},
                     {"cp", 2 * divided(4 * own * (2 * kQueries + kPairs) / 2, 2)},
                     {"ep", 4 * rows * 4 * kWidth + 2 * 4 * rows + 4 * 3 * kExperts / 4},
                     {"dp", divided(2 * dense, 4)},
                     {"edp", divided(2 * 4 * 2 * kExpert * kWidth * kExperts / 4, 2)}};
  expect({.tp = 2, .cp = 2, .ep = 4}, 8, 1, [&](int) { return want; });
}

}  // namespace
}  // namespace braid::layout
