// A block whose weights two kinds of ranks divide, one each way: the results of one rank, and the bytes of each kind.
#include "nn/hidden_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "comm/inproc.h"
#include "comm/transport.h"
#include "core/op_sweep.h"
#include "core/ref.h"
#include "nn/tensor_parallel.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

constexpr int64_t kChannels = 64, kUnits = 96;

struct Sent {
  int64_t x = 0, y = 0;
};
struct GridResult {
  std::vector<double> y{}, dx{}, dnorm{}, dup{}, dbias{}, ddown{};
  Sent linear{};  // by the products and sums of the block, forward
  int64_t norm = 0;
};

// Ranks are x, then y.
struct Grid {
  comm::Group tensor, hidden;
};
Grid grid_of(comm::Group& world, int x) { return {world.split(world.rank() / x), world.split(world.rank() % x)}; }

// x + down(act(up(norm(x)) + bias)), its gradient for a given dy.
class GridLayer {
 public:
  explicit GridLayer(Grid* grid) : grid_(grid) {}

  GridResult pass(const SeqMap& seqs) {
    Run run{.ctx = ctx_, .seqs = seqs, .state = state_};
    const int64_t stream = kChannels / ranks(&Grid::hidden), channel = stream * rank(&Grid::hidden),
                  inner = kUnits / ranks(&Grid::tensor), unit = inner * rank(&Grid::tensor);
    if (grid_ && grid_->tensor.size() > 1) run.tensor = &grid_->tensor;
    if (grid_ && grid_->hidden.size() > 1) run.hidden = &grid_->hidden;
    ctx_.tape = &tape_;
    const TestTensor norm(DType::f32, {1, kChannels}, 1, 0.1, 1), up(DType::f32, {kUnits, kChannels}, 2, 0.3, 0),
        down(DType::f32, {kChannels, kUnits}, 3, 0.3, 0), input(DType::f32, {seqs.tokens(), kChannels}, 4),
        gradient(DType::f32, {seqs.tokens(), kChannels}, 5), shift(DType::f32, {1, kUnits}, 6);
    const Tensor x = copy(input.view().slice(1, channel, stream)), dy = copy(gradient.view().slice(1, channel, stream));
    Param &w = make(norm.view().slice(1, channel, stream), ParamRole::norm),
          &in = make(up.view().slice(0, unit, inner).slice(1, channel, stream), ParamRole::up),
          &bias = make(shift.view().slice(1, unit, inner), ParamRole::bias),
          &out = make(down.view().slice(0, channel, stream).slice(1, unit, inner), ParamRole::down);
    tape_.require_grad(x);
    GridResult result;
    int64_t at = sent();
    const auto since = [&] { return sent() - std::exchange(at, sent()); };
    const Tensor normed = run.hidden ? rms_norm_part(run, x, w, 1e-5f, DType::f32) : rms_norm(run, x, w, {});
    result.norm = since();
    const Tensor u = linear(run, to_parts(run, normed), in, DType::f32, &bias);
    result.linear.y = since();
    const Tensor y = residual(run, x, sum_of_parts(run, linear(run, act(run, u, {}, Act::relu2), out)));
    result.linear.x = since();
    tape_.add_grad(ctx_, y, dy);
    tape_.backward(ctx_);
    // The norm sends as much backward as forward.
    backward_ = since() - result.norm;
    result.y = to_doubles(y.view());
    result.dx = to_doubles(tape_.grad(x).view());
    result.dnorm = to_doubles(w.grad);
    result.dup = to_doubles(in.grad);
    result.dbias = to_doubles(bias.grad);
    result.ddown = to_doubles(out.grad);
    tape_.clear();
    return result;
  }
  int64_t backward() const { return backward_; }  // bytes of the block

 private:
  int ranks(comm::Group Grid::*axis) const { return grid_ ? (grid_->*axis).size() : 1; }
  int rank(comm::Group Grid::*axis) const { return grid_ ? (grid_->*axis).rank() : 0; }
  int64_t sent() const {
    return grid_ ? grid_->tensor.traffic().bytes[0] + grid_->tensor.traffic().bytes[1] : 0;  // of both
  }
  Tensor copy(const View& part) {
    const Tensor value(arena_, DType::f32, part.shape);
    copy_rows(part, value.mut());
    return value;
  }
  Param& make(const View& part, ParamRole role) {
    const Tensor value = values_.emplace_back(copy(part)), grad = values_.emplace_back(copy(part));
    fill(grad.mut(), 0);
    return params_.emplace_back(Param{{.name = "p", .role = role}, dense_weight(value.view()), grad.mut()});
  }

  Grid* grid_;
  Arena arena_{};
  Tape tape_{};
  Ctx ctx_{.arena = arena_, .threads = 1};
  StateView state_{};
  std::deque<Param> params_{};
  std::deque<Tensor> values_{};
  int64_t backward_ = 0;
};

// Columns or rows of a matrix [rows, cols] that is row-major.
std::vector<double> part_of(const std::vector<double>& whole, int64_t cols, Range rows, Range columns) {
  std::vector<double> part;
  for (int64_t r = rows.begin; r < rows.begin + rows.count; ++r) {
    for (int64_t c = columns.begin; c < columns.begin + columns.count; ++c)
      part.push_back(whole[static_cast<size_t>(r * cols + c)]);
  }
  return part;
}

constexpr std::pair<int, int> kGrids[] = {{1, 2}, {2, 1}, {2, 2}, {1, 4}, {4, 2}, {2, 4}};

TEST(HiddenParallel, RanksComputeWhatOneDoes) {
  SeqMap seqs;
  for (const int64_t n : {5, 1, 7}) seqs.add(n);
  const GridResult one = GridLayer(nullptr).pass(seqs);
  for (const auto& [x, y] : kGrids) {
    const int gx = x, gy = y;
    comm::run_in_process(gx * gy, {.per_node = gx * gy}, [&](comm::Group& world) {
      Grid grid = grid_of(world, gx);
      const GridResult own = GridLayer(&grid).pass(seqs);
      const Range all{0, seqs.tokens()}, channels{kChannels / gy * grid.hidden.rank(), kChannels / gy},
          units{kUnits / gx * grid.tensor.rank(), kUnits / gx};
      support::expect_near(own.y, part_of(one.y, kChannels, all, channels), 2e-4);
      support::expect_near(own.dx, part_of(one.dx, kChannels, all, channels), 2e-4);
      support::expect_near(own.dnorm, part_of(one.dnorm, kChannels, {0, 1}, channels), 2e-4);
      support::expect_near(own.dup, part_of(one.dup, kChannels, units, channels), 2e-4);
      support::expect_near(own.dbias, part_of(one.dbias, kUnits, {0, 1}, units), 2e-4);
      support::expect_near(own.ddown, part_of(one.ddown, kUnits, channels, units), 2e-4);
    });
  }
}

// The terms of AxoNN's model for two layers that swap x and y (arXiv 2502.08145, section 5): with m tokens, forward a
// rank sends 2 (Gy - 1) / Gy m n / Gx elements for the first and 2 (Gx - 1) / Gx m k / Gy for the second, backward the
// same; the norm adds one number for each token.
TEST(HiddenParallel, BytesOfEachAxisAreThoseOfTheFormula) {
  const SeqMap seqs = SeqMap::one(2048);  // few bytes take an algorithm with fewer messages
  const int64_t m = seqs.tokens();
  for (const auto& [x, y] : kGrids) {
    const int gx = x, gy = y;
    comm::run_in_process(gx * gy, {.per_node = gx * gy}, [&](comm::Group& world) {
      Grid grid = grid_of(world, gx);
      GridLayer layer(&grid);
      const GridResult own = layer.pass(seqs);
      const int64_t over_y = 4 * 2 * (gy - 1) * m * kUnits / gx / gy,
                    over_x = 4 * 2 * (gx - 1) * m * kChannels / gy / gx;
      EXPECT_EQ(own.linear.y, over_y) << gx << " x " << gy;
      EXPECT_EQ(own.linear.x, over_x) << gx << " x " << gy;
      EXPECT_EQ(layer.backward(), over_x + over_y) << gx << " x " << gy;
      if (gy == 2) {
        EXPECT_EQ(own.norm, 4 * m);
      }
    });
  }
}

// Of rank r: 10 r, 10 r + 1, ...
void gather_and_sum(comm::Group& world, bool parts) {
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena, .threads = 1, .tape = &tape};
  StateView state;
  const SeqMap seqs = SeqMap::one(2);
  Run run{.ctx = ctx, .seqs = seqs, .state = state};
  run.hidden = &world;
  const Tensor x(arena, DType::f32, {2, 2});
  for (int i = 0; i < 4; ++i) x.mut().as<float>()[i] = static_cast<float>(10 * world.rank() + i);
  tape.require_grad(x);
  const Tensor all = gather_channels(run, x, parts), own = own_channels(run, all, parts);
  EXPECT_EQ(to_doubles(all.view()), (std::vector<double>{0, 1, 10, 11, 20, 21, 2, 3, 12, 13, 22, 23}));
  const double times = parts ? 3 : 1;  // the sum of equal parts
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(element(own.view(), i), times * element(x.view(), i));
  tape.add_grad(ctx, own, x);
  tape.backward(ctx);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(element(tape.grad(x).view(), i), times * element(x.view(), i));
  tape.clear();
}

TEST(HiddenParallel, ChannelsAreGatheredAndSummed) {
  for (const bool parts : {false, true})
    comm::run_in_process(3, {.per_node = 3}, [&](comm::Group& world) { gather_and_sum(world, parts); });
}

// Two ranks, of which the other one sends back what it gets, once the first one looks. `sees()` is noted with every
// event.
class Echo final : public comm::Transport {
 public:
  struct Event {
    char what;  // s: a message was sent, w: the rank waited for one
    int seen;
    bool operator==(const Event&) const = default;
  };
  Echo(std::vector<Event>& events, std::function<int()> sees) : events_(events), sees_(std::move(sees)) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void send(comm::Message& message) override {
    events_.push_back({'s', sees_()});
    sent_.assign(message.data, message.data + message.bytes);
    message.done = true;
  }
  void recv(comm::Message& message) override { receives_ = &message; }
  void progress(std::chrono::microseconds) override {
    if (!receives_) return;
    events_.push_back({'w', sees_()});
    std::copy(sent_.begin(), sent_.end(), receives_->data);
    receives_->got_bytes = std::ssize(sent_);
    std::exchange(receives_, nullptr)->done = true;
  }
  void forget() noexcept override { receives_ = nullptr; }
  std::byte* window(uint64_t, int, int64_t) override { return nullptr; }

 private:
  std::vector<Event>& events_;
  std::function<int()> sees_;
  std::vector<std::byte> sent_{};
  comm::Message* receives_ = nullptr;
};

struct BackwardCase {
  ParamRole role = ParamRole::down;
  bool overlap = false, needs_dx = true;
};
struct Backward {
  std::vector<Echo::Event> events{};  // seen: weights that had a gradient
  std::vector<double> dx{}, dw{};
};

// Of two products with one input: where ranks divide it their weights are parts of the outputs (x), otherwise they
// write the stream (y).
Backward backward_of(const BackwardCase& c) {
  Backward result;
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena, .threads = 1, .tape = &tape};
  StateView state;
  const SeqMap seqs = SeqMap::one(3);
  Run run{.ctx = ctx, .seqs = seqs, .state = state};
  const TestTensor x(DType::f32, {3, 8}, 1), w(DType::f32, {8, 8}, 2), dy(DType::f32, {3, 4}, 3);
  const Tensor input(arena, DType::f32, {3, 8}), from(arena, DType::f32, {3, 4}), grad(arena, DType::f32, {8, 8});
  copy_rows(x.view(), input.mut());
  copy_rows(dy.view(), from.mut());
  fill(grad.mut(), 0);
  std::deque<Param> params;
  for (const int64_t row : {0, 4})
    params.push_back(
        {{.name = "w", .role = c.role}, dense_weight(w.view().slice(0, row, 4)), grad.mut().slice(0, row, 4)});
  const auto sees = [&] { return (*grad.view().as<float>(0) != 0 ? 1 : 0) + (*grad.view().as<float>(4) != 0 ? 1 : 0); };
  comm::Group ranks(std::make_unique<Echo>(result.events, sees), {.per_node = 2, .compare_calls = false});
  const bool reads = hidden_side(c.role) == HiddenSide::reads;
  (reads ? run.tensor : run.hidden) = &ranks;
  run.overlap = c.overlap;
  if (c.needs_dx) tape.require_grad(input);
  const Tensor to = to_parts(run, input);
  for (Param& param : params) tape.add_grad(ctx, linear(run, to, param, DType::f32), from);
  EXPECT_TRUE(result.events.empty());
  tape.backward(ctx);
  if (c.needs_dx) result.dx = to_doubles(tape.grad(input).view());
  result.dw = to_doubles(grad.view());
  tape.clear();
  return result;
}

TEST(HiddenParallel, GradientsTravelWhileThoseOfWeightsAreComputed) {
  using Events = std::vector<Echo::Event>;
  // A product that writes the stream has a sum of its own; those that read it share one.
  const Events writes_apart = {{'s', 1}, {'w', 1}, {'s', 2}, {'w', 2}},
               writes_beside = {{'s', 0}, {'w', 1}, {'s', 1}, {'w', 2}}, reads_apart = {{'s', 2}, {'w', 2}},
               reads_beside = {{'s', 0}, {'w', 2}};
  for (const ParamRole role : {ParamRole::down, ParamRole::up}) {
    const bool writes = role == ParamRole::down;
    const Backward apart = backward_of({.role = role}), beside = backward_of({.role = role, .overlap = true});
    EXPECT_EQ(apart.events, writes ? writes_apart : reads_apart);
    EXPECT_EQ(beside.events, writes ? writes_beside : reads_beside);
    EXPECT_EQ(beside.dx, apart.dx);
    EXPECT_EQ(beside.dw, apart.dw);
    for (const bool overlap : {false, true}) {
      const Backward end = backward_of({role, overlap, false});  // nobody reads dx: nothing travels
      EXPECT_TRUE(end.events.empty());
      EXPECT_EQ(end.dw, apart.dw);
    }
  }
}

}  // namespace
}  // namespace braid::nn
