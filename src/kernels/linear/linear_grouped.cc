// x is packed once for all tasks; a task is one group by as many tokens as stay in L2 while the groups stream by.
#include "kernels/linear/linear_grouped.h"

#include <algorithm>

#include "codec/codec.h"
#include "core/has_cuda.h"
#include "core/ref.h"
#include "kernels/linear/grouped_pipeline.h"
#include "kernels/linear/linear_ref.h"
#include "kernels/linear/linear_rows.h"
#include "math/grouped_rows.h"
#include "sys/check.h"
#include "sys/parallel.h"

namespace braid {
namespace {

constexpr int64_t kTokensMost = 2048;                // packed at a time
constexpr int64_t kBlockBytes = int64_t{512} << 10;  // of panels that a task reads

void check_groups(const LinearGroupedFwd& op) {
  CHECK(op.groups && op.groups.rows == op.y.dim(1) && op.groups.cols == op.x.dim(1), "groups of {} x {}, {} x {}",
        op.groups.rows, op.groups.cols, op.y.dim(1), op.x.dim(1));
}

template <DType kType>
const char* groups_support(const LinearGroupedFwd& op) {
  if (op.x.dtype != kType) return "x has another type";
  if (kType == DType::bf16 && op.groups.values.dtype != DType::bf16) return "weights that would have to be rounded";
  return op.x.rows_contiguous() && op.y.rows_contiguous() ? nullptr : "strided rows";
}

int64_t panels_workspace(const LinearGroupedFwd& op, int) {
  return grouped_floats(std::min(kTokensMost, op.x.dim(0)), op.groups.cols) * static_cast<int64_t>(sizeof(float));
}

void fwd_groups(Ctx& ctx, const LinearGroupedFwd& op, std::span<std::byte> workspace) {
  check_groups(op);
  const GroupedView& w = op.groups;
  auto* const panels = reinterpret_cast<float*>(workspace.data());
  const int64_t panel_bytes = kGroupedTokens * w.cols * static_cast<int64_t>(sizeof(float)),
                block = std::max<int64_t>(1, kBlockBytes / panel_bytes);
  const int team = sys::team_for(ctx.threads, op.flops());
  for (int64_t token = 0; token < op.x.dim(0); token += kTokensMost) {
    const int64_t tokens = std::min(kTokensMost, op.x.dim(0) - token), all = grouped_panels(tokens);
    const View x = op.x.slice(0, token, tokens);
    const MutView y = op.y.slice(0, token, tokens);
    sys::parallel_tasks(static_cast<int>(std::min<int64_t>(team, all)), all,
                        [&](int64_t panel) { pack_grouped(x, panel, panels); });
    const int64_t blocks = (all + block - 1) / block;
    sys::parallel_tasks(team, blocks * w.groups(), [&](int64_t task) {
      const int64_t first = task / w.groups() * block;
      grouped_product(w, task % w.groups(), panels, first, std::min(all, first + block), op.bias, y);
    });
  }
}

std::vector<double> with_zeros(const GroupedView& w) {
  std::vector<double> out(static_cast<size_t>(w.rows * w.cols));
  const auto* begin = w.begin.as<int64_t>();
  for (int64_t i = 0; i < w.row_of.count(); ++i) {
    const int64_t row = w.row_of.as<int32_t>()[i], group = i / w.height;
    for (int64_t k = begin[group]; row >= 0 && k < begin[group + 1]; ++k)
      out[static_cast<size_t>(row * w.cols + w.columns.as<int32_t>()[k])] =
          element(w.values, k * w.height + i % w.height);
  }
  return out;
}

// From the weight itself where there is one.
void dense_ref(Ctx&, const LinearGroupedFwd& op, std::span<std::byte>) {
  check_groups(op);
  std::vector<double> y(static_cast<size_t>(op.y.count()));
  linear_fwd_ref(op.x.dim(0), op.groups.rows, op.groups.cols, to_doubles(op.x),
                 op.w ? decode(op.w) : with_zeros(op.groups), to_doubles(op.bias), y);
  store(op.y, y);
}

LinearGroupedFwd grouped_of(const LinearFwd& op) {
  return {.x = op.x, .w = op.w, .groups = *op.w.groups, .bias = op.bias, .y = op.y};
}

const char* pipelined_support(const LinearGroupedFwd& op) {
  if (op.x.dtype != DType::bf16 || op.groups.values.dtype != DType::bf16) return "x or weights are not BF16";
  if (ranked_pipelines({.height = op.groups.height}, {}).empty()) return "groups of another height";
  return op.x.rows_contiguous() && op.y.rows_contiguous() ? nullptr : "strided rows";
}

}  // namespace

const char* linear_groups_supports(DType type, const LinearFwd& op) {
  if (op.train) return "training";
  if (!op.w.groups) return "zeros of w are not in groups";
  const LinearGroupedFwd grouped = grouped_of(op);
  return type == DType::f32 ? groups_support<DType::f32>(grouped) : groups_support<DType::bf16>(grouped);
}

int64_t linear_groups_workspace(const LinearFwd& op, int threads) { return panels_workspace(grouped_of(op), threads); }

void linear_fwd_groups(Ctx& ctx, const LinearFwd& op, std::span<std::byte> workspace) {
  fwd_groups(ctx, grouped_of(op), workspace);
}

std::span<const Row<LinearGroupedFwd>> LinearGroupedFwd::rows() {
  static constexpr Row<LinearGroupedFwd> kRows[] = {{.name = "pipelined",
                                                     .numerics = "bf16_mma",
                                                     .supports = &pipelined_support,
                                                     .run = kHasCuda ? &linear_grouped_fwd_cuda : nullptr,
                                                     .device = Device::cuda},
                                                    {.name = "lanes_f32",
                                                     .numerics = "f32_chain",
                                                     .supports = &groups_support<DType::f32>,
                                                     .workspace = &panels_workspace,
                                                     .run = &fwd_groups},
                                                    {.name = "lanes_bf16",
                                                     .numerics = "bf16_chain",
                                                     .supports = &groups_support<DType::bf16>,
                                                     .workspace = &panels_workspace,
                                                     .run = &fwd_groups},
                                                    {.name = "ref", .numerics = "f64", .run = &dense_ref}};
  return kRows;
}

}  // namespace braid
