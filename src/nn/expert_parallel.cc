#include "nn/expert_parallel.h"

#include <algorithm>
#include <cstring>

#include "core/tape.h"

namespace braid::nn {
namespace {

Shape with_rows(Shape shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

bool is_all(const Range& part, int64_t rows) { return part.begin == 0 && part.count == rows; }

// Rows [from, from + n) of one view to those from `to` of another; both are contiguous.
void copy_run(const View& x, int64_t from, const MutView& y, int64_t to, int64_t n) {
  const View rows = x.slice(0, from, n);
  if (n > 0) std::memcpy(y.slice(0, to, n).data, rows.data, static_cast<size_t>(rows.bytes()));
}

// y is zero but for rows `part`, which are x.
void spread(const View& x, const Range& part, const MutView& y) {
  std::memset(y.data, 0, static_cast<size_t>(y.bytes()));
  copy_run(x, 0, y, part.begin, part.count);
}

}  // namespace

Range shared_out(const Run& run, int64_t tokens) {
  if (!run.tensor) return {0, tokens};
  const int64_t rank = run.tensor->rank(), ranks = run.tensor->size(), begin = tokens * rank / ranks;
  return {begin, tokens * (rank + 1) / ranks - begin};
}

Tensor take_rows(Run& run, const Tensor& x, const Range& part) {
  if (is_all(part, x.dim(0))) return x;
  const Tensor y(run.ctx.arena, x.dtype(), with_rows(x.shape(), part.count));
  taped(
      run.ctx, "take_rows", {.in = {x}, .out = {y}, .cost = Cost::cheap},
      [x = Ref(x), y = Ref(y), part](Ctx& c) {
        if (!c.dry) copy_run(x.view(), part.begin, y.mut(), 0, part.count);
      },
      [x = Ref(x), y = Ref(y), part](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x);
        if (!c.dry) spread(tape.grad(y).view(), part, dx.mut());
        tape.add_grad(c, x, dx);
      });
  return y;
}

Tensor place_rows(Run& run, const Tensor& x, const Range& part, int64_t rows) {
  if (is_all(part, rows)) return x;
  const Tensor y(run.ctx.arena, x.dtype(), with_rows(x.shape(), rows));
  taped(
      run.ctx, "place_rows", {.in = {x}, .out = {y}, .cost = Cost::cheap},
      [x = Ref(x), y = Ref(y), part](Ctx& c) {
        if (!c.dry) spread(x.view(), part, y.mut());
      },
      [x = Ref(x), y = Ref(y), part](Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x);
        if (!c.dry) copy_run(tape.grad(y).view(), part.begin, dx.mut(), 0, part.count);
        tape.add_grad(c, x, dx);
      });
  return y;
}

ExpertRows to_experts(Run& run, const Tensor& x, const Tensor& experts, const Tensor& weights, int64_t count) {
  ExpertRows rows{.routes = std::make_shared<ExpertRoutes>(run.ctx, *run.experts, experts.view(), count)};
  const int64_t n = rows.routes->rows();
  rows.x = Tensor(run.ctx.arena, x.dtype(), {n, x.dim(1)});
  rows.experts = Tensor(run.ctx.arena, DType::i32, {n, 1});
  rows.weights = Tensor(run.ctx.arena, DType::f32, {n, 1});
  const std::span<const int32_t> numbers = rows.routes->experts();
  std::copy(numbers.begin(), numbers.end(), rows.experts.mut().as<int32_t>());
  taped(
      run.ctx, "to_experts", {.in = {x, weights}, .out = {rows.x, rows.weights}, .cost = Cost::stream},
      [x = Ref(x), weights = Ref(weights), to = Ref(rows.x), to_weights = Ref(rows.weights),
       routes = rows.routes](Ctx& c) {
        routes->send(c, x.view(), to.mut());
        routes->send_slots(c, weights.view(), to_weights.mut());
      },
      [x = Ref(x), weights = Ref(weights), to = Ref(rows.x), to_weights = Ref(rows.weights), routes = rows.routes](
          Ctx& c, Tape& tape) {
        const Tensor dx = tape.make_grad(c, x), dweights = tape.make_grad(c, weights);
        routes->add_up(c, tape.grad(to).view(), dx.mut());
        routes->add_up_slots(c, tape.grad(to_weights).view(), dweights.mut());
        tape.add_grad(c, x, dx);
        tape.add_grad(c, weights, dweights);
      });
  return rows;
}

Tensor from_experts(Run& run, const ExpertRows& rows, const Tensor& y, int64_t tokens, DType out) {
  const Tensor sum(run.ctx.arena, out, {tokens, y.dim(1)});
  taped(
      run.ctx, "from_experts", {.in = {y}, .out = {sum}, .cost = Cost::stream},
      [y = Ref(y), sum = Ref(sum), routes = rows.routes](Ctx& c) { routes->add_up(c, y.view(), sum.mut()); },
      [y = Ref(y), sum = Ref(sum), routes = rows.routes](Ctx& c, Tape& tape) {
        const Tensor dy = tape.make_grad(c, y);
        routes->send(c, tape.grad(sum).view(), dy.mut());
        tape.add_grad(c, y, dy);
      });
  return sum;
}

}  // namespace braid::nn
