// The harness of every op test: it compares every row of an op's table with the reference (its last row) on one
// problem. Outputs start as NaN, so that elements a row fails to write are found; teams of 1, 2 and 3 threads must
// agree bit for bit, and so must rows of one numerics class. A new variant gets all of this by adding its row. For
// tests only.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <string>
#include <type_traits>
#include <vector>

#include "core/op.h"
#include "core/philox.h"

namespace braid {

// Largest |y - reference|, over the root mean square of the reference (1 when that is zero).
inline double distance(const View& y, const View& reference) {
  double worst = 0, squares = 0;
  for (int64_t i = 0; i < y.count(); ++i) {
    const double r = element(reference, i), d = std::fabs(element(y, i) - r);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    squares += r * r;
  }
  const double rms = std::sqrt(squares / static_cast<double>(std::max<int64_t>(y.count(), 1)));
  return worst / (rms > 0 ? rms : 1);
}

// A copy of the problem with its own outputs.
template <class Op>
class OwnOutputs {
 public:
  explicit OwnOutputs(const Op& op) : op_(op) {
    std::apply([&](const auto&... field) { (own(field), ...); }, Op::fields());
  }
  const Op& op() const { return op_; }

 private:
  template <class Value>
  void own(const Field<Op, Value>& field) {
    if constexpr (std::is_same_v<Value, MutView>) {
      if (op_.*(field.member)) op_.*(field.member) = copy(op_.*(field.member), field.role);
    } else if constexpr (std::is_same_v<Value, std::span<const MutView>>) {
      auto& list = lists_.emplace_back();
      for (const MutView& view : op_.*(field.member)) list.push_back(copy(view, field.role));
      op_.*(field.member) = list;
    }
  }
  MutView copy(const MutView& old, Role role) {
    auto& bytes = buffers_.emplace_back(static_cast<size_t>(old.bytes()) + 64, std::byte{0xff});
    const MutView view(bytes.data(), old.dtype, old.shape);
    if (role == Role::inout) {
      for (int64_t i = 0; i < view.count(); ++i) set_element(view, i, element(old, i));
    }
    return view;
  }
  Op op_;
  std::deque<std::vector<std::byte>> buffers_;
  std::deque<std::vector<MutView>> lists_;
};

template <class Op>
void expect_outputs(const Op& got, const Op& want, double tolerance, bool bitwise, const std::string& what) {
  std::apply(
      [&](const auto&... field) {
        (([&] {
           using Value = std::remove_cvref_t<decltype(got.*(field.member))>;
           const auto compare = [&](const MutView& y, const MutView& r) {
             if (!y) return;
             if (bitwise) {
               EXPECT_EQ(std::memcmp(y.data, r.data, static_cast<size_t>(y.bytes())), 0)
                   << Op::name << " " << what << ": " << field.name << " differs, by " << distance(y, r);
             } else {
               EXPECT_LE(distance(y, r), tolerance) << Op::name << " " << what << ": " << field.name;
             }
           };
           if constexpr (std::is_same_v<Value, MutView>) {
             compare(got.*(field.member), want.*(field.member));
           } else if constexpr (std::is_same_v<Value, std::span<const MutView>>) {
             const auto ys = got.*(field.member), rs = want.*(field.member);
             for (size_t i = 0; i < ys.size(); ++i) compare(ys[i], rs[i]);
           }
         }()),
         ...);
      },
      Op::fields());
}

// `tolerance` bounds distance() of every output; `bf16_tolerance` is for rows whose class starts with "bf16".
template <class Op>
void sweep(const Op& problem, double tolerance, double bf16_tolerance = 0.02) {
  Arena arena;
  Ctx ctx{.arena = arena};
  const auto rows = Op::rows();
  OwnOutputs<Op> reference(problem);
  check_fields(reference.op());
  run_row(ctx, reference.op(), rows.back());
  std::deque<OwnOutputs<Op>> seen;
  std::vector<std::string> classes;
  for (const Row<Op>& row : rows) {
    if (row.device != Device::cpu || !row.run || (row.supports && row.supports(problem))) continue;
    const std::string label = std::string(row.name) + " (" + row.numerics + ")";
    ctx.threads = 1;
    OwnOutputs<Op>& first = seen.emplace_back(problem);
    run_row(ctx, first.op(), row);
    const bool narrow = std::string(row.numerics).starts_with("bf16");
    expect_outputs(first.op(), reference.op(), narrow ? bf16_tolerance : tolerance, false, label);
    for (int threads : {2, 3}) {
      ctx.threads = threads;
      OwnOutputs<Op> again(problem);
      run_row(ctx, again.op(), row);
      expect_outputs(again.op(), first.op(), 0, true, label + " with " + std::to_string(threads) + " threads");
    }
    for (size_t i = 0; i < classes.size(); ++i) {
      if (classes[i] == row.numerics) expect_outputs(first.op(), seen[i].op(), 0, true, label + " against its class");
    }
    classes.emplace_back(row.numerics);
  }
}

// Values for tests: normal numbers that depend on the seed and the position alone.
struct TestTensor {
  std::vector<std::byte> bytes;
  Shape shape;
  DType dtype;
  TestTensor(DType type, const Shape& dims, uint64_t seed, double scale = 1, double shift = 0)
      : bytes(static_cast<size_t>(dims.count() * size_of(type))), shape(dims), dtype(type) {
    for (int64_t i = 0; i < dims.count(); ++i) {
      const auto n = normal4({.seed = seed}, static_cast<uint64_t>(i / 4));
      set_element(mut(), i, static_cast<double>(n[static_cast<size_t>(i % 4)]) * scale + shift);
    }
  }
  View view() const { return {bytes.data(), dtype, shape}; }
  MutView mut() { return {bytes.data(), dtype, shape}; }
};

}  // namespace braid
