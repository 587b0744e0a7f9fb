// A block in parts whose tokens are shared: the results of one rank, and the bytes of the all-reduces that it replaces.
#include "nn/sequence_parallel.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "comm/inproc.h"
#include "core/op_sweep.h"
#include "core/ref.h"
#include "nn/tensor_parallel.h"
#include "support/error_of.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

constexpr int64_t kStream = 64, kInner = 96;

TEST(ShareRows, PiecesKeepTheirPlaceInTheSequence) {
  SeqMap seqs;
  seqs.add(5, 0, 0, 70);
  seqs.add(1, 0, 1, 75);
  seqs.add(5, 0, 2, 76);
  SequenceShares shares;
  share_rows(seqs, 1, 3, shares);
  EXPECT_EQ(shares.counts, (std::vector<int64_t>{4, 4, 3}));
  ASSERT_EQ(shares.own.seqs.size(), 3u);
  const int64_t want[3][4] = {{0, 1, 4, 70}, {1, 1, 0, 75}, {2, 2, 0, 76}};
  for (size_t i = 0; i < 3; ++i) {
    const Seq& s = shares.own.seqs[i];
    EXPECT_EQ((std::vector<int64_t>{s.start, s.len, s.pos0, s.sample_id}), std::vector<int64_t>(want[i], want[i] + 4));
  }
  EXPECT_NE(support::error_of([&] { share_rows(seqs, 0, 12, shares); }).find("too few tokens"), std::string::npos);
}

struct LayerResult {
  std::vector<double> y{}, dx{};
  std::vector<std::vector<double>> grads{};
  int64_t sent = 0;
};

// x + down(act(up(norm(x)))) with inner channels [first, first + n), its gradient for dy = 1, 2, ...
struct Layer {
  Arena arena{};
  Tape tape{};
  Ctx ctx{.arena = arena, .threads = 1};
  StateView state{};
  std::deque<Param> params{};
  std::vector<Tensor> grads{};

  // Rows, or columns, [first, first + n) of a matrix that depends on the seed alone.
  Param& make(const TestTensor& whole, int64_t axis, int64_t first, int64_t n, std::vector<Tensor>& own) {
    const View part = whole.view().slice(static_cast<int>(axis), first, n);
    const Tensor& value = own.emplace_back(arena, DType::f32, part.shape);
    copy_rows(part, value.mut());
    grads.emplace_back(arena, DType::f32, part.shape);
    fill(grads.back().mut(), 0);
    return params.emplace_back(Param{{.name = "p"}, dense_weight(value.view()), grads.back().mut()});
  }

  LayerResult pass(comm::Group* ranks, const SeqMap& seqs, const SequenceShares* shares) {
    Run run{.ctx = ctx, .seqs = seqs, .state = state};
    run.tensor = ranks;
    run.sequence = shares;
    ctx.tape = &tape;
    const int64_t n = ranks ? kInner / ranks->size() : kInner, at = ranks ? ranks->rank() * n : 0;
    int64_t first = 0;
    for (int r = 0; shares && r < ranks->rank(); ++r) first += shares->counts[static_cast<size_t>(r)];
    const int64_t rows = shares ? shares->own.tokens() : seqs.tokens();
    const TestTensor norm(DType::f32, {1, kStream}, 1, 0.1, 1), up(DType::f32, {kInner, kStream}, 2, 0.3, 0),
        down(DType::f32, {kStream, kInner}, 3, 0.3, 0), input(DType::f32, {seqs.tokens(), kStream}, 4),
        gradient(DType::f32, {seqs.tokens(), kStream}, 5);
    std::vector<Tensor> own;
    own.reserve(3);
    const Tensor x(arena, DType::f32, {rows, kStream}), dy(arena, DType::f32, {rows, kStream});
    copy_rows(input.view().slice(0, first, rows), x.mut());
    copy_rows(gradient.view().slice(0, first, rows), dy.mut());
    tape.require_grad(x);
    const int64_t before = ranks ? sent(*ranks) : 0;
    const Tensor normed = rms_norm(run, x, make(norm, 0, 0, 1, own), {});
    run.in_block = true;
    const Tensor u = linear(run, to_parts(run, normed), make(up, 0, at, n, own));
    const Tensor block = sum_of_parts(run, linear(run, act(run, u, {}, Act::relu2), make(down, 1, at, n, own)));
    run.in_block = false;
    const Tensor y = residual(run, x, block);
    tape.add_grad(ctx, y, dy);
    tape.backward(ctx);
    LayerResult result{.y = to_doubles(y.view()), .dx = to_doubles(tape.grad(x).view())};
    for (const Tensor& grad : grads) result.grads.push_back(to_doubles(grad.view()));
    result.sent = ranks ? sent(*ranks) - before : 0;
    tape.clear();
    return result;
  }
  static int64_t sent(comm::Group& ranks) { return ranks.traffic().bytes[0] + ranks.traffic().bytes[1]; }
};

std::vector<LayerResult> on_ranks(int ranks, const SeqMap& seqs, bool shared) {
  return support::on_ranks(ranks, {.per_node = ranks}, [&](comm::Group& world) {
    SequenceShares shares;
    share_rows(seqs, world.rank(), ranks, shares);
    Layer layer;
    return layer.pass(&world, seqs, shared ? &shares : nullptr);
  });
}

TEST(SequenceParallel, RanksComputeWhatOneDoes) {
  SeqMap seqs;
  for (const int64_t n : {5, 1, 7}) seqs.add(n);
  const LayerResult one = Layer().pass(nullptr, seqs, nullptr);
  for (const int ranks : {2, 3, 4}) {
    const std::vector<LayerResult> results = on_ranks(ranks, seqs, true);
    std::vector<double> y, dx, dnorm(static_cast<size_t>(kStream)), dup, again;
    for (const LayerResult& r : results) {
      y.insert(y.end(), r.y.begin(), r.y.end());
      dx.insert(dx.end(), r.dx.begin(), r.dx.end());
      dup.insert(dup.end(), r.grads[1].begin(), r.grads[1].end());
      for (size_t i = 0; i < dnorm.size(); ++i) dnorm[i] += r.grads[0][i];  // of a share of the tokens each
    }
    support::expect_near(y, one.y, 2e-4);
    support::expect_near(dx, one.dx, 2e-4);
    support::expect_near(dnorm, one.grads[0], 2e-4);
    support::expect_near(dup, one.grads[1], 2e-4);
  }
}

// An all-reduce of n bytes is a reduce-scatter and an all-gather of (P - 1) / P n each; what a block reads is gathered
// once more for the gradient of its weights.
TEST(SequenceParallel, BytesAreThoseOfTheAllReduces) {
  const SeqMap seqs = SeqMap::one(2048);  // few bytes take an algorithm with fewer messages
  const int64_t bytes = seqs.tokens() * kStream * 4;
  for (const int ranks : {2, 4, 8}) {
    const int64_t share = bytes / ranks * (ranks - 1);
    for (const LayerResult& r : on_ranks(ranks, seqs, false)) EXPECT_EQ(r.sent, 4 * share) << ranks;
    for (const LayerResult& r : on_ranks(ranks, seqs, true)) EXPECT_EQ(r.sent, 5 * share) << ranks;
  }
}

}  // namespace
}  // namespace braid::nn
