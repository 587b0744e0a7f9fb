// Gradients through the tape against complex steps of the same graph: programs of toy ops over whole values and boxes
// of them, some written out as regression tests, the rest random. Neither dropping and recomputing outputs nor
// deferring the gradients of weights changes a bit.
#include "core/tape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/ref.h"

namespace braid {
namespace {

constexpr size_t kMostInputs = 12;

// Rows [row, row + rows) and columns [col, col + cols) of a value.
struct Box {
  size_t value = 0;
  int64_t row = 0, rows = 0, col = 0, cols = 0;
};

// sine: y[r, m C + i] = w[i] sum_j sin((1 + m + j) x_j[r, i]) for m < copies; sum: y = sum_j x_j, whose backward passes
// its own gradient on.
struct Step {
  std::vector<Box> in{};
  int64_t copies = 1;
  bool sum = false;
  bool trains = true;  // w

  int64_t rows() const { return in[0].rows; }
  int64_t cols() const { return in[0].cols; }
  int64_t width() const { return cols() * copies; }
};

struct Size {
  int64_t rows, cols;
  bool needed = true;  // of a leaf
};

// Values are the leaves, then what each step computes; the loss is a weighted sum of the last one.
struct Program {
  const char* what = "";
  std::vector<Size> leaves{};
  std::vector<Step> steps{};

  Size size(size_t value) const {
    if (value < leaves.size()) return leaves[value];
    const Step& step = steps[value - leaves.size()];
    return {step.rows(), step.width(), needed(step) || step.trains};
  }
  // Whether a step has data gradients to give.
  bool needed(const Step& step) const {
    return std::any_of(step.in.begin(), step.in.end(), [this](const Box& box) { return size(box.value).needed; });
  }
  size_t numbers() const {  // of the leaves, then of the weights of each step
    int64_t n = 0;
    for (const Size& s : leaves) n += s.rows * s.cols;
    for (const Step& s : steps) n += s.cols();
    return static_cast<size_t>(n);
  }
};

double weight_in_loss(size_t i) { return std::cos(static_cast<double>(i)); }

double factor(int64_t copy, size_t input) { return static_cast<double>(1 + copy) + static_cast<double>(input); }

template <class Num>
Num loss_of(const Program& program, const std::vector<Num>& numbers) {
  std::vector<std::vector<Num>> values;
  size_t at = 0;
  const auto take = [&](int64_t n) {
    const size_t begin = at;
    at += static_cast<size_t>(n);
    return std::vector<Num>(numbers.begin() + static_cast<std::ptrdiff_t>(begin),
                            numbers.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (const Size& s : program.leaves) values.push_back(take(s.rows * s.cols));
  for (const Step& step : program.steps) {
    const std::vector<Num> w = take(step.cols());
    std::vector<Num> y(static_cast<size_t>(step.rows() * step.width()));
    for (size_t j = 0; j < step.in.size(); ++j) {
      const Box& box = step.in[j];
      for (int64_t i = 0; i < std::ssize(y); ++i) {
        const int64_t r = i / step.width(), copy = i % step.width() / step.cols(), c = i % step.cols();
        const Num x =
            values[box.value][static_cast<size_t>((box.row + r) * program.size(box.value).cols + box.col + c)];
        y[static_cast<size_t>(i)] += step.sum ? x : w[static_cast<size_t>(c)] * std::sin(factor(copy, j) * x);
      }
    }
    values.push_back(std::move(y));
  }
  Num loss = 0;
  for (size_t i = 0; i < values.back().size(); ++i) loss += weight_in_loss(i) * values.back()[i];
  return loss;
}

// Whether the loss depends on each value.
std::vector<bool> used(const Program& program) {
  std::vector<bool> list(program.leaves.size() + program.steps.size());
  list.back() = true;
  for (size_t i = program.steps.size(); i-- > 0;) {
    for (const Box& box : program.steps[i].in) list[box.value] = list[box.value] || list[program.leaves.size() + i];
  }
  return list;
}

struct How {
  std::function<bool(size_t node)> drop = [](size_t) { return false; };
  Weights weights = Weights::now;
};

struct Inputs {
  std::array<Ref, kMostInputs> list{};
  size_t count = 0;
};

// One program on a tape.
class Taped {
 public:
  Taped(const Program& program, const std::vector<double>& numbers)
      : program_(program), forward_runs_(program.steps.size()), data_runs_(program.steps.size()) {
    ctx_.tape = &tape_;
    // Poison shows what is not written.
    const Tensor dirt(arena_, DType::f32, {1 << 16});
    std::memset(dirt.mut().data, 0xff, static_cast<size_t>(dirt.view().bytes()));
    at_ = numbers.data();
    for (const Size& s : program.leaves) {
      const Tensor& leaf = leaves_.emplace_back(arena_, DType::f32, Shape{s.rows, s.cols});
      for (int64_t i = 0; i < leaf.view().count(); ++i) set_element(leaf.mut(), i, *at_++);
    }
    for (const Step& s : program.steps) {
      weights_.emplace_back(at_, at_ + s.cols());
      grads_.emplace_back(static_cast<size_t>(s.cols()));
      at_ += s.cols();
    }
  }

  std::vector<double> gradient(const How& how) {
    tape_.drop = [&](Cost, size_t node) { return how.drop(node); };
    for (size_t i = 0; i < leaves_.size(); ++i) {
      if (program_.leaves[i].needed) tape_.require_grad(leaves_[i]);
    }
    {
      std::vector<Tensor> values = leaves_;
      for (size_t i = 0; i < program_.steps.size(); ++i) values.push_back(run(i, values));
      const Tensor dy(arena_, DType::f32, values.back().shape());
      for (int64_t i = 0; i < dy.view().count(); ++i) set_element(dy.mut(), i, weight_in_loss(static_cast<size_t>(i)));
      tape_.add_grad(ctx_, values.back(), dy);
    }
    tape_.backward(ctx_, how.weights);
    if (how.weights == Weights::later) {
      for (const auto& grad : grads_)
        EXPECT_TRUE(std::all_of(grad.begin(), grad.end(), [](double g) { return g == 0; })) << "made too early";
      tape_.backward_weights(ctx_);
    }
    std::vector<double> result;
    for (const Tensor& leaf : leaves_) {
      const Tensor grad = tape_.grad(leaf);
      for (int64_t i = 0; i < leaf.view().count(); ++i) result.push_back(grad ? element(grad.view(), i) : 0);
    }
    for (const auto& grad : grads_) result.insert(result.end(), grad.begin(), grad.end());
    tape_.clear();
    return result;
  }
  // How often each step was computed, and how often it made data gradients.
  const std::vector<int>& forward_runs() const { return forward_runs_; }
  const std::vector<int>& data_runs() const { return data_runs_; }

 private:
  Tensor run(size_t index, const std::vector<Tensor>& values) {
    const Step& step = program_.steps[index];
    std::array<Tensor, kMostInputs> in;
    Inputs refs;
    for (const Box& box : step.in) {
      const Tensor& x = values[box.value];
      in[refs.count] =
          box.rows == x.dim(0) && box.cols == x.dim(1) ? x : x.slice(0, box.row, box.rows).slice(1, box.col, box.cols);
      refs.list[refs.count] = in[refs.count];
      ++refs.count;
    }
    const Tensor y(arena_, DType::f32, {step.rows(), step.width()});
    const auto forward = [this, index, refs, y = Ref(y)](Ctx&) {
      ++forward_runs_[index];
      compute(index, refs, y);
    };
    const auto data = [this, index, refs, y = Ref(y)](Ctx& ctx, Tape& tape) {
      data_gradients(index, refs, tape.grad(y), ctx, tape);
    };
    const auto weights = [this, index, refs, y = Ref(y)](Ctx&, Tape& tape) {
      weight_gradients(index, refs, tape.grad(y));
    };
    const auto list = {in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8], in[9], in[10], in[11]};
    taped(ctx_, "step", {.in = list, .out = {y}, .saved = list, .saved_weights = list, .trains = step.trains}, forward,
          data, weights);
    return y;
  }

  void compute(size_t index, const Inputs& in, const Ref& y) const {
    const Step& step = program_.steps[index];
    for (int64_t i = 0; i < y.view().count(); ++i) {
      const int64_t r = i / step.width(), copy = i % step.width() / step.cols(), c = i % step.cols();
      double sum = 0;
      for (size_t j = 0; j < in.count; ++j) {
        const double x = element(in.list[j].view(), r * step.cols() + c);
        sum += step.sum ? x : weights_[index][static_cast<size_t>(c)] * std::sin(factor(copy, j) * x);
      }
      set_element(y.mut(), i, sum);
    }
  }
  void data_gradients(size_t index, const Inputs& in, const Tensor& dy, Ctx& ctx, Tape& tape) {
    const Step& step = program_.steps[index];
    ++data_runs_[index];
    std::array<Tensor, kMostInputs> dx;
    for (size_t j = 0; j < in.count; ++j) {
      dx[j] = step.sum ? dy : tape.make_grad(ctx, in.list[j]);
      for (int64_t i = 0; i < step.rows() * step.cols() && !step.sum; ++i) {
        const int64_t r = i / step.cols(), c = i % step.cols();
        double sum = 0;
        for (int64_t m = 0; m < step.copies; ++m) {
          sum += element(dy.view(), r * step.width() + m * step.cols() + c) * factor(m, j) *
                 std::cos(factor(m, j) * element(in.list[j].view(), i));
        }
        set_element(dx[j].mut(), i, weights_[index][static_cast<size_t>(c)] * sum);
      }
    }
    for (size_t j = 0; j < in.count; ++j) tape.add_grad(ctx, in.list[j], dx[j]);
  }
  void weight_gradients(size_t index, const Inputs& in, const Tensor& dy) {
    const Step& step = program_.steps[index];
    for (int64_t i = 0; i < dy.view().count() && !step.sum; ++i) {
      const int64_t r = i / step.width(), copy = i % step.width() / step.cols(), c = i % step.cols();
      for (size_t j = 0; j < in.count; ++j) {
        grads_[index][static_cast<size_t>(c)] +=
            element(dy.view(), i) * std::sin(factor(copy, j) * element(in.list[j].view(), r * step.cols() + c));
      }
    }
  }

  const Program& program_;
  Arena arena_{};
  Tape tape_{};
  Ctx ctx_{.arena = arena_};
  const double* at_ = nullptr;
  std::vector<Tensor> leaves_{};
  std::vector<std::vector<double>> weights_{}, grads_{};
  std::vector<int> forward_runs_, data_runs_;
};

// Which numbers have a gradient: nothing is made for the others.
std::vector<bool> trained(const Program& program) {
  std::vector<bool> list;
  for (const Size& s : program.leaves) list.insert(list.end(), static_cast<size_t>(s.rows * s.cols), s.needed);
  for (const Step& s : program.steps) list.insert(list.end(), static_cast<size_t>(s.cols()), s.trains);
  return list;
}

void expect_derivatives(const Program& program) {
  std::vector<double> numbers;
  std::mt19937 random(5);
  for (size_t i = 0; i < program.numbers(); ++i)
    numbers.push_back(static_cast<double>(static_cast<float>(random() % 1000) / 1000.0f - 0.4f));
  const std::vector<double> want =
      complex_step(numbers, [&](const std::vector<std::complex<double>>& z) { return loss_of(program, z); });
  Taped taped(program, numbers);
  const std::vector<double> got = taped.gradient({});
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (const double g : want) largest = std::max(largest, std::fabs(g));
  const std::vector<bool> has = trained(program);
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], has[i] ? want[i] : 0, 2e-5 * largest) << program.what << ", number " << i;
  const std::vector<bool> uses = used(program);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    ASSERT_EQ(taped.forward_runs()[i], 1) << program.what << ", step " << i << ": nothing was dropped";
    ASSERT_EQ(taped.data_runs()[i], uses[program.leaves.size() + i] && program.needed(program.steps[i]) ? 1 : 0)
        << program.what << ", step " << i;
  }
  for (const Weights weights : {Weights::now, Weights::later}) {
    for (const size_t every : {size_t{1}, size_t{2}, size_t{3}, size_t{100}}) {
      const std::vector<double> again =
          Taped(program, numbers).gradient({[&](size_t node) { return node % every == 0; }, weights});
      ASSERT_EQ(0, std::memcmp(again.data(), got.data(), got.size() * sizeof(double)))
          << program.what << ", one of " << every << " nodes recomputed, weights "
          << (weights == Weights::now ? "at once" : "later");
    }
  }
}

Box whole(size_t value, Size size) { return {value, 0, size.rows, 0, size.cols}; }

class TapeGradient : public testing::TestWithParam<Program> {};

TEST_P(TapeGradient, IsTheDerivative) { expect_derivatives(GetParam()); }

// Value 0 is a leaf of [4, 6], value 1 a step over all of it, whose parts are used.
Program over_parts(const char* what, std::vector<Step> steps) {
  Program program{.what = what, .leaves = {{4, 6}}, .steps = {{.in = {whole(0, {4, 6})}}}};
  for (Step& s : steps) program.steps.push_back(std::move(s));
  return program;
}

std::vector<Program> programs() {
  constexpr Box left{1, 0, 4, 0, 3}, right{1, 0, 4, 3, 3}, middle{1, 0, 4, 2, 3}, all{1, 0, 4, 0, 6},
      top{1, 0, 2, 0, 6}, bottom{1, 2, 2, 0, 6}, corner{1, 1, 2, 1, 3}, two{2, 0, 4, 0, 3}, three{3, 0, 4, 0, 3};
  const auto nine = std::vector<Box>(9, all);
  Program frozen =
      over_parts("WhatNobodyNeedsIsNotMade", {{.in = {left}, .trains = false}, {.in = {two}}, {.in = {three, three}}});
  frozen.leaves[0].needed = frozen.steps[0].trains = false;
  Program of_leaf{.what = "ALeafIsFirstSeenByItsPart", .leaves = {{4, 6}}, .steps = {}};
  of_leaf.steps = {{.in = {{0, 0, 4, 3, 3}}}, {.in = {{0, 0, 4, 0, 3}}}, {.in = {{1, 0, 4, 0, 3}, {2, 0, 4, 0, 3}}}};
  return {
      over_parts("PartsThatAreTheWhole", {{.in = {left, right}}}),
      over_parts("APartUsedTwice", {{.in = {left}}, {.in = {left}}, {.in = {two, three}}}),
      over_parts("APartUsedTwiceByOneNode", {{.in = {left, left, right}}}),
      over_parts("AnUnusedPart", {{.in = {right}}}),
      over_parts("APartBeforeTheWhole", {{.in = {left}}, {.in = {all}}, {.in = {two, {3, 0, 4, 0, 3}}}}),
      over_parts("TheWholeBeforeAPart", {{.in = {all}}, {.in = {left}}, {.in = {{2, 0, 4, 0, 3}, three}}}),
      over_parts("PartsThatOverlap", {{.in = {left}}, {.in = {middle}}, {.in = {two, three}}}),
      over_parts("RowsAndColumns", {{.in = {top, bottom}}, {.in = {left}}, {.in = {{2, 0, 2, 0, 3}, {3, 1, 2, 0, 3}}}}),
      over_parts("ACorner", {{.in = {corner}}}),
      over_parts("ASumOfParts", {{.in = {left, right}, .sum = true}}),
      over_parts("ASumOfOverlappingParts", {{.in = {left, middle, left}, .sum = true}}),
      over_parts("ASumSharesItsGradient",
                 {{.in = {all, all}, .sum = true}, {.in = {left}}, {.in = {{2, 0, 4, 1, 3}, three}}}),
      over_parts("NineInputs", {{.in = nine}, {.in = {{2, 0, 4, 0, 6}}}}),
      over_parts("NothingIsUsed", {{.in = {whole(0, {4, 6})}}}),
      of_leaf,
      frozen,
  };
}

INSTANTIATE_TEST_SUITE_P(Programs, TapeGradient, testing::ValuesIn(programs()),
                         [](const testing::TestParamInfo<Program>& of) { return std::string(of.param.what); });

Program drawn(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int64_t from, int64_t to) { return from + static_cast<int64_t>(random()) % (to - from + 1); };
  Program program{.what = "drawn",
                  .leaves = {{draw(1, 4), draw(2, 6), draw(0, 1) == 0}, {draw(1, 4), draw(2, 6), draw(0, 1) == 0}},
                  .steps = {}};
  const int64_t steps = draw(2, 7);
  for (int64_t i = 0; i < steps; ++i) {
    Step step{.in = {}, .copies = draw(1, 2), .sum = draw(0, 3) == 0, .trains = draw(0, 1) == 0};
    if (step.sum) step.copies = 1;
    const int64_t known = std::ssize(program.leaves) + i;
    std::vector<size_t> values(static_cast<size_t>(draw(1, draw(0, 4) == 0 ? 12 : 3)));
    Size least{100, 100};
    for (size_t& v : values) {
      v = static_cast<size_t>(draw(std::max<int64_t>(0, known - 4), known - 1));
      least = {std::min(least.rows, program.size(v).rows), std::min(least.cols, program.size(v).cols)};
    }
    if (draw(0, 1) == 0) least = {draw(1, least.rows), draw(1, least.cols)};
    for (const size_t v : values) {
      const Size size = program.size(v);
      step.in.push_back({v, draw(0, size.rows - least.rows), least.rows, draw(0, size.cols - least.cols), least.cols});
    }
    program.steps.push_back(std::move(step));
  }
  return program;
}

TEST(TapeGradients, OfRandomProgramsAreTheDerivatives) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    expect_derivatives(drawn(seed));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace braid
