// Attention and Mamba over tokens that ranks divide: the results of one rank, with sequences shorter than the number of
// ranks among them, and the bytes of the exchanges.
#include "nn/context_parallel.h"

#include <gtest/gtest.h>

#include <deque>

#include "comm/inproc.h"
#include "core/op_sweep.h"
#include "core/ref.h"
#include "nn/attention.h"
#include "nn/mamba2.h"
#include "nn/rank_views.h"
#include "support/error_of.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

constexpr int64_t kHidden = 24;

SeqMap packed(std::initializer_list<int64_t> lens) {
  SeqMap map;
  for (const int64_t n : lens) map.add(n);
  return map;
}

TEST(DivideTokens, EveryTokenHasOneOwnerAndRanksHaveTheSameWork) {
  const SeqMap whole = packed({64, 3, 1, 37});
  for (const TokenOrder order : {TokenOrder::zigzag, TokenOrder::consecutive}) {
    std::vector<int> owners(static_cast<size_t>(whole.tokens()), -1);
    std::vector<int64_t> work(4);
    for (int rank = 0; rank < 4; ++rank) {
      ContextShares shares;
      divide_tokens(whole, rank, 4, order, shares);
      EXPECT_EQ(shares.own.tokens(), shares.counts[static_cast<size_t>(rank)]);
      for (size_t i = 0; i < shares.own.seqs.size(); ++i) {
        const Seq& s = shares.own.seqs[i];
        const int64_t first = whole.seqs[shares.sequence[i]].start + s.pos0;
        for (int64_t t = 0; t < s.len; ++t) {
          EXPECT_EQ(std::exchange(owners[static_cast<size_t>(first + t)], rank), -1);
          if (shares.sequence[i] == 0) work[static_cast<size_t>(rank)] += s.pos0 + t + 1;  // keys that it sees
        }
      }
    }
    EXPECT_EQ(std::count(owners.begin(), owners.end(), -1), 0);
    if (order == TokenOrder::zigzag) {
      EXPECT_EQ(work, std::vector<int64_t>(4, 64 * 65 / 2 / 4));
    } else {
      EXPECT_TRUE(std::is_sorted(owners.begin(), owners.begin() + 64));
    }
  }
  ContextShares shares;
  EXPECT_NE(support::error_of([&] {
              divide_tokens(packed({1, 1}), 0, 2, TokenOrder::zigzag, shares);
            }).find("too few"),
            std::string::npos);
}

struct Weights {
  std::deque<TestTensor> values{}, grads{};

  Param operator()(const Shape& shape, double scale = 0.4, double shift = 0) {
    const TestTensor& v = values.emplace_back(DType::f32, shape, 7 + values.size(), scale, shift);
    grads.emplace_back(DType::f32, shape, 1, 0);
    fill(grads.back().mut(), 0);
    return Param{{.name = "p"}, dense_weight(v.view()), grads.back().mut()};
  }
};

struct Shape4 {
  int64_t heads, groups;  // of keys, or of B and C
};

std::unique_ptr<Block> attention(Weights& make, const Shape4& s) {
  const AttentionSpec spec{.hidden = kHidden, .heads = s.heads, .kv_heads = s.groups, .head_dim = 8};
  AttentionParams p;
  p.q = make({s.heads * 8, kHidden});
  p.k = make({s.groups * 8, kHidden});
  p.v = make({s.groups * 8, kHidden});
  p.o = make({kHidden, s.heads * 8});
  const RopeSpec rope{.dim = 8, .options = {}};
  return std::make_unique<Attention>(spec, std::move(p), std::make_shared<RopeTable>(rope));
}

std::unique_ptr<Block> mamba(Weights& make, const Shape4& s) {
  const Mamba2Spec spec{
      .hidden = kHidden, .heads = s.heads, .head_dim = 8, .state = 16, .groups = s.groups, .chunk = 8};
  Mamba2Params p;
  p.in_proj = make({spec.in_rows(), kHidden});
  p.conv = make({spec.conv_channels(), 4});
  p.conv_bias = make({1, spec.conv_channels()});
  p.a_log = make({1, s.heads}, 0.3, 0.5);
  p.d_skip = make({1, s.heads});
  p.dt_bias = make({1, s.heads}, 0.3, -1);
  p.norm = make({1, spec.inner()}, 0.1, 1);
  p.out_proj = make({kHidden, spec.inner()});
  return std::make_unique<Mamba2>(spec, std::move(p));
}

using Make = std::unique_ptr<Block> (*)(Weights&, const Shape4&);

struct PassResult {
  std::vector<double> y{}, dx{};  // of all tokens; zeros where other ranks have them
  std::vector<std::vector<double>> grads{};
  int64_t sent = 0;
};

struct Mode {
  TokenOrder order = TokenOrder::zigzag;
  bool ring = false, states = false, drop = false;
};

// Rows of this rank, scattered to those of all.
std::vector<double> spread(const ContextShares* shares, int rank, const View& own, int64_t rows) {
  if (!shares) return to_doubles(own);
  std::vector<double> all(static_cast<size_t>(rows * kHidden));
  for (const ContextShares::Piece& p : shares->pieces) {
    if (p.rank != rank) continue;
    const std::vector<double> part = to_doubles(own.slice(0, p.at, p.len));
    std::copy(part.begin(), part.end(), all.begin() + p.first * kHidden);
  }
  return all;
}

PassResult pass(Make make, const Shape4& shape, const SeqMap& whole, comm::Group* ranks, const Mode& mode) {
  Weights weights;
  const std::unique_ptr<Block> block = make(weights, shape);
  ContextShares shares;
  if (ranks) divide_tokens(whole, ranks->rank(), ranks->size(), mode.order, shares);
  shares.ranks = ranks;
  shares.ring = mode.ring;
  shares.states = mode.states;
  Arena arena;
  Tape tape;
  tape.drop = [&](Cost cost, size_t) { return mode.drop && cost != Cost::stream; };
  Ctx ctx{.arena = arena, .threads = 1, .tape = &tape};
  StateView state;
  Run run{.ctx = ctx, .seqs = ranks ? shares.own : whole, .state = state};
  if (ranks) run.context = &shares;
  const TestTensor input(DType::f32, {whole.tokens(), kHidden}, 4), gradient(DType::f32, {whole.tokens(), kHidden}, 5);
  const auto own = [&](const TestTensor& t) {
    const Tensor all(arena, DType::f32, {whole.tokens(), kHidden});
    copy_bytes(t.view(), all.mut());
    return own_tokens(run, all);
  };
  const Tensor x = own(input), dy = own(gradient);
  tape.require_grad(x);
  const int64_t before = ranks ? ranks->traffic().bytes[0] + ranks->traffic().bytes[1] : 0;
  const Tensor y = block->forward(run, x);
  tape.add_grad(ctx, y, dy);
  tape.backward(ctx);
  const int rank = ranks ? ranks->rank() : 0;
  const ContextShares* divided = ranks ? &shares : nullptr;
  PassResult r{.y = spread(divided, rank, y.view(), whole.tokens()),
               .dx = spread(divided, rank, tape.grad(x).view(), whole.tokens())};
  for (const TestTensor& grad : weights.grads) r.grads.push_back(to_doubles(grad.view()));
  if (ranks) r.sent = ranks->traffic().bytes[0] + ranks->traffic().bytes[1] - before;
  tape.clear();
  return r;
}

void add(std::vector<double>& to, const std::vector<double>& from) {
  to.resize(from.size());
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

std::vector<PassResult> on_ranks(int ranks, Make make, const Shape4& shape, const SeqMap& whole, const Mode& mode) {
  return support::on_ranks(ranks, {.per_node = ranks},
                           [&](comm::Group& world) { return pass(make, shape, whole, &world, mode); });
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double most = 0;
  for (const double x : want) most = std::max(most, std::abs(x));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5 * most) << what << " " << i;
}

void expect_one(int ranks, Make make, const Shape4& shape, const Mode& mode) {
  const SeqMap whole = packed({37, 2, 1, 16, 90});
  const PassResult one = pass(make, shape, whole, nullptr, {});
  PassResult sum;
  sum.grads.resize(one.grads.size());
  for (const PassResult& r : on_ranks(ranks, make, shape, whole, mode)) {
    add(sum.y, r.y);
    add(sum.dx, r.dx);
    for (size_t i = 0; i < r.grads.size(); ++i) add(sum.grads[i], r.grads[i]);
  }
  const std::string what = std::to_string(ranks) + " ranks, " + std::to_string(shape.heads) + " heads";
  expect_near(sum.y, one.y, "y on " + what);
  expect_near(sum.dx, one.dx, "dx on " + what);
  for (size_t i = 0; i < sum.grads.size(); ++i)
    expect_near(sum.grads[i], one.grads[i], "gradient " + std::to_string(i) + " on " + what);
}

TEST(ContextParallel, HeadsOfAttentionAreExchanged) {
  for (const int ranks : {2, 3, 4}) {
    for (const Shape4& s : {Shape4{12, 12}, Shape4{12, 1}, Shape4{24, 12}, Shape4{24, 2}}) {
      if (s.groups % ranks != 0 && ranks % s.groups != 0) continue;
      expect_one(ranks, attention, s, {});
      expect_one(ranks, attention, s, {.order = TokenOrder::consecutive, .drop = true});
    }
  }
}

TEST(ContextParallel, KeysGoAround) {
  for (const int ranks : {2, 3, 4}) {
    for (const Shape4& s : {Shape4{3, 3}, Shape4{5, 1}, Shape4{4, 2}}) {
      expect_one(ranks, attention, s, {.ring = true});
      expect_one(ranks, attention, s, {.order = TokenOrder::consecutive, .ring = true, .drop = true});
    }
  }
}

TEST(ContextParallel, HeadsOfMambaAreExchanged) {
  for (const int ranks : {2, 4}) {
    for (const Shape4& s : {Shape4{4, 4}, Shape4{8, 2}, Shape4{8, 1}}) {
      expect_one(ranks, mamba, s, {});
      expect_one(ranks, mamba, s, {.order = TokenOrder::consecutive, .drop = true});
    }
  }
}

TEST(ContextParallel, StatesOfMambaArePassedOn) {
  for (const int ranks : {2, 3, 4}) {
    for (const Shape4& s : {Shape4{3, 1}, Shape4{4, 2}}) {
      expect_one(ranks, mamba, s, {.order = TokenOrder::consecutive, .states = true});
      expect_one(ranks, mamba, s, {.order = TokenOrder::consecutive, .states = true, .drop = true});
    }
  }
}

// Of P ranks with t tokens each. A rank keeps its own part of what it exchanges; keys and values make P - 1 steps,
// their gradients P. A state is passed on by all but the last rank, its gradient by all but the first.
TEST(ContextParallel, BytesAreThoseOfTheFormulas) {
  constexpr int64_t kLong = 256;
  for (const int64_t ranks : {2, 4}) {
    const int64_t t = kLong / ranks, others = ranks - 1;
    const auto each = [&](Make make, const Shape4& shape, const Mode& mode, auto&& want) {
      const std::vector<PassResult> results = on_ranks(static_cast<int>(ranks), make, shape, SeqMap::one(kLong), mode);
      for (size_t r = 0; r < results.size(); ++r) EXPECT_EQ(results[r].sent, want(static_cast<int64_t>(r))) << ranks;
    };
    // q, k, v, y and their gradients
    each(attention, {8, 4}, {}, [&](int64_t) { return 2 * t * others * (8 + 2 * 4 + 8) * 8 / ranks * 4; });
    each(attention, {8, 4}, {.ring = true}, [&](int64_t) { return (2 * others + ranks) * t * 2 * 4 * 8 * 4; });
    // x, B, C, dt and y, and their gradients
    each(mamba, {8, 4}, {}, [&](int64_t) { return 2 * t * others * (64 + 2 * 4 * 16 + 8 + 64) / ranks * 4; });
    // state and inputs of the convolution
    each(mamba, {8, 4}, {.order = TokenOrder::consecutive, .states = true}, [&](int64_t r) {
      const int64_t bytes = (8 * 8 * 16 + 3 * (64 + 2 * 4 * 16)) * 4;
      return (r < ranks - 1 ? bytes : 0) + (r > 0 ? bytes : 0);
    });
  }
}

}  // namespace
}  // namespace braid::nn
