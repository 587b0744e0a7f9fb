#include "puzzle/linear_fit.h"

#include "kernels/linear/linear.h"
#include "math/solve.h"
#include "nn/observer.h"
#include "puzzle/stream.h"

namespace braid::puzzle {
namespace {

constexpr double kRidge = 1e-3;

// What the norm before a block gives.
class NormedInput final : public nn::Observer {
 public:
  void product(const Param&, const View&, const View&) override {}
  void experts(Ctx&, const nn::ExpertsSeen&) override {}
  void norm(const Param& w, const View&, const View&, const View& y) override {
    if (w.role != ParamRole::norm || !values.empty()) return;
    values.resize(static_cast<size_t>(y.count()));
    const auto width = static_cast<size_t>(y.dim(1));
    for (int64_t t = 0; t < y.dim(0); ++t)
      nn::read_row(y, t, std::span(values).subspan(static_cast<size_t>(t) * width, width));
  }

  std::vector<float> values{};
};

}  // namespace

Values fitted_linear(Parent& parent, size_t index, const Values& first, std::span<const DistillRow> rows, int threads) {
  Arena arena;
  Ctx ctx{.arena = arena, .threads = threads};
  const int64_t width = parent.config().hidden;
  const Tensor gram(arena, DType::f32, {width, width}), cross(arena, DType::f32, {width, width});
  fill(gram.mut(), 0);
  fill(cross.mut(), 0);
  for (const DistillRow& row : rows) {
    NormedInput input;
    nn::StateView state;
    const auto tokens = std::ssize(row.row->ids);
    nn::Run run{.ctx = ctx,
                .seqs = row.row->seqs,
                .state = state,
                .numerics = Numerics::serving(DType::f32),
                .observer = &input};
    parent.model().forward(run, {}, matrix(ctx, row.before, tokens), {static_cast<int64_t>(index), 1});
    std::vector<float> output = row.after;
    for (size_t i = 0; i < output.size(); ++i) output[i] -= row.before[i];
    const Tensor n = matrix(ctx, input.values, tokens), o = matrix(ctx, output, tokens);
    braid::run(ctx, LinearBwdWeight{.dy = n.view(), .x = n.view(), .dw = gram.mut()});
    braid::run(ctx, LinearBwdWeight{.dy = o.view(), .x = n.view(), .dw = cross.mut()});
  }
  const std::vector<float> g = copied(gram), c = copied(cross);
  std::vector<double> a(g.begin(), g.end()), b(c.begin(), c.end());
  double trace = 0;
  for (size_t i = 0; i < a.size(); i += static_cast<size_t>(width) + 1) trace += a[i];
  for (size_t i = 0; i < a.size(); i += static_cast<size_t>(width) + 1)
    a[i] += kRidge * trace / static_cast<double>(width);
  if (!solve_rows(a, b, width)) return first;
  Values fitted{.store = std::make_shared<WeightStore>()};
  for (const auto& [name, old] : first.of) {
    const MutView value = fitted.store->make(old.value.dtype, old.value.shape);
    for (int64_t i = 0; i < value.count(); ++i) set_element(value, i, b[static_cast<size_t>(i)]);
    fitted.of[name] = {.value = value, .like = old.like};
  }
  return fitted;
}

}  // namespace braid::puzzle
