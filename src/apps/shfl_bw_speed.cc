// The products of repro shfl-bw: weights with zeros in groups of rows, against the dense product that answers of a
// model take.
#include <array>
#include <cmath>

#include "apps/shfl_bw_study.h"
#include "core/philox.h"
#include "data/shuffle.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_grouped.h"
#include "math/grouped_rows.h"
#include "sparse/race.h"
#include "sys/big_vector.h"
#include "sys/check.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

constexpr int64_t kHeight = 32;  // rows of a group

struct Matrix {
  sys::BigVector<float> values{};
  sys::BigVector<Bf16> halves{};
  int64_t rows = 0, cols = 0;

  Weight weight(DType type) const {
    return dense_weight(type == DType::f32 ? view_of(values.data(), {rows, cols})
                                           : view_of(halves.data(), {rows, cols}));
  }
};

// Every group of rows, which are drawn, has as many columns, which are drawn as well.
Matrix grouped_matrix(int64_t rows, int64_t cols, double density) {
  Matrix m{.rows = rows, .cols = cols};
  m.values.resize(static_cast<size_t>(rows * cols));
  m.halves.resize(m.values.size());
  const auto stay = std::llround(density * static_cast<double>(cols));
  std::vector<int64_t> columns(static_cast<size_t>(stay));
  for (int64_t at = 0; at < rows; ++at) {
    const int64_t r = data::shuffled(at, rows, 1);
    const auto group = static_cast<uint64_t>(at / kHeight);
    for (int64_t k = 0; at % kHeight == 0 && k < stay; ++k)
      columns[static_cast<size_t>(k)] = data::shuffled(k, cols, 2 + group);
    for (const int64_t c : columns) {
      const auto i = static_cast<size_t>(r * cols + c);
      const float v = uniform(philox({.seed = 3}, i)[0]) - 0.5f;
      m.values[i] = v == 0 ? 0.25f : v;
      m.halves[i] = to_bf16(m.values[i]);
    }
  }
  return m;
}

// Where the ratios, which fall with the density, cross one; along a line between logarithms.
double crossing(const std::vector<double>& densities, const std::vector<double>& ratios) {
  if (ratios.front() < 1) return 0;
  for (size_t i = 1; i < ratios.size(); ++i) {
    if (ratios[i] >= 1) continue;
    const double a = std::log(ratios[i - 1]), b = std::log(ratios[i]), share = a / (a - b);
    return densities[i - 1] * std::pow(densities[i] / densities[i - 1], share);
  }
  return 1;
}

struct Operands {
  Tensor x, y;
};

double ratio_of(const Matrix& m, DType type, int64_t tokens, int rounds, double least) {
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  const Weight w = m.weight(type);
  const auto groups = find_groups(w, 1);
  CHECK(groups, "no groups in {} x {}", m.rows, m.cols);
  const Operands o{Tensor(arena, type, {tokens, m.cols}), Tensor(arena, DType::f32, {tokens, m.rows})};
  for (int64_t i = 0; i < o.x.view().count(); ++i)
    set_element(o.x.mut(), i, static_cast<double>(uniform(philox({.seed = 4}, static_cast<uint64_t>(i))[0])) - 0.5);
  const LinearFwd dense{.x = o.x.view(), .w = w, .y = o.y.mut()};
  const LinearGroupedFwd sparse{.x = o.x.view(), .w = w, .groups = groups->view(), .y = o.y.mut()};
  const auto seconds = braid::sparse::race({[&] { run(ctx, dense); }, [&] { run(ctx, sparse); }}, rounds, least);
  return braid::sparse::median_ratio(seconds[0], seconds[1]);
}

}  // namespace

SpeedStudy time_products(const ShflBwStudy& study, int64_t rounds, const std::function<void(int64_t, int64_t)>& done) {
  using Size = std::array<int64_t, 2>;
  const std::vector<Size> sizes =
      study.quick ? std::vector<Size>{{96, 64}} : std::vector<Size>{{2688, 1856}, {10304, 2688}, {4096, 4096}};
  const std::vector<int64_t> tokens = study.quick ? std::vector<int64_t>{1, 16} : std::vector<int64_t>{1, 16, 512};
  SpeedStudy out{.densities =
                     study.quick ? std::vector<double>{0.25, 0.5} : std::vector<double>{0.1, 0.25, 0.5, 0.75, 1}};
  const double least = study.quick ? 1e-4 : 2e-3;
  const int64_t total = std::ssize(sizes) * std::ssize(out.densities);
  int64_t finished = 0;
  for (const Size& size : sizes) {
    const size_t first = out.cells.size();
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const int64_t n : tokens) out.cells.push_back({.rows = size[0], .cols = size[1], .tokens = n, .type = type});
    }
    for (const double density : out.densities) {
      done(finished++, total);
      const Matrix m = grouped_matrix(size[0], size[1], density);
      for (size_t i = first; i < out.cells.size(); ++i) {
        SpeedCell& cell = out.cells[i];
        cell.ratios.push_back(ratio_of(m, cell.type, cell.tokens, static_cast<int>(rounds), least));
        if (sys::caught_signal() != 0) return out;
      }
    }
    for (size_t i = first; i < out.cells.size(); ++i)
      out.cells[i].break_even = crossing(out.densities, out.cells[i].ratios);
  }
  return out;
}

}  // namespace braid::apps
