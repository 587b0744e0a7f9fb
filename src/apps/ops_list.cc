// `braid bench --list`: every op with its variants, in the order in which they are tried, whether they were built, and
// which of them is taken on this class of CPU; then the thresholds.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench_report.h"
#include "apps/bench_tune.h"
#include "kernels/act/act.h"
#include "kernels/adamw/adamw.h"
#include "kernels/add/add.h"
#include "kernels/attention/attention.h"
#include "kernels/bias/bias.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/copy_state/copy_state.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/dropout/dropout.h"
#include "kernels/edge_gaussian/edge_gaussian.h"
#include "kernels/edge_softmax/edge_softmax.h"
#include "kernels/embedding/embedding.h"
#include "kernels/experts/experts.h"
#include "kernels/gat/gat.h"
#include "kernels/head_loss/distill_loss.h"
#include "kernels/head_loss/head_loss.h"
#include "kernels/hidden_loss/hidden_loss.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_grouped.h"
#include "kernels/muon/muon.h"
#include "kernels/quantize/low_experts.h"
#include "kernels/quantize/quantize.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/router/router.h"
#include "kernels/row_dots/row_dots.h"
#include "kernels/sddmm/sddmm.h"
#include "kernels/spmm/spmm.h"
#include "kernels/ssd/ssd.h"
#include "report/table.h"
#include "sys/env.h"
#include "sys/machine.h"

namespace braid::apps {
namespace {

// The row that an empty problem ends at when its first field has that type. A table with a row for a type and machine
// answers by type and machine alone: what else a row may refuse (strides, mostly) is nothing that models do.
template <class Op>
const char* default_row(DType dtype) {
  Arena arena;
  const Ctx ctx{.arena = arena, .verbose_dispatch = false, .forced_rows = {}, .preferred_rows = {}};
  Op probe{};
  (probe.*(std::get<0>(Op::fields()).member)).dtype = dtype;
  return choose(ctx, probe).name;
}

// "default", or "default for BF16" where the type decides. The reference does not count for BF16: it takes the mixtures
// of types that an empty problem may be, and that no model has.
template <class Op>
std::string default_mark(const std::string& row) {
  const std::string f32 = default_row<Op>(DType::f32), bf16 = default_row<Op>(DType::bf16);
  if (f32 == bf16 || bf16 == Op::rows().back().name) return row == f32 ? "default" : "";
  return row == f32 ? "default for F32" : row == bf16 ? "default for BF16" : "";
}

using Chosen = std::map<std::string, std::string>;

// Does `chosen` name this row of its op? A name that no row has is an Error.
template <class Op>
bool names(const Chosen& chosen, const Row<Op>& row) {
  const std::string* name = detail::find_row(chosen, Op::name);
  return name && row_named<Op>(*name).name == row.name;
}

template <class Op>
void list_op(report::Table& table) {
  const Chosen &profile = sys::env().profile_rows, &forced = sys::env().forced_rows;
  for (const Row<Op>& row : Op::rows()) {
    std::vector<std::string> taken;
    if (const std::string mark = default_mark<Op>(row.name); !mark.empty()) taken.push_back(mark);
    if (names(profile, row)) taken.emplace_back("first by the profile");
    if (names(profile, row) && forced.contains(Op::name)) taken.back() += ", overruled";
    if (names(forced, row)) taken.emplace_back("forced by BRAID_OP");
    table.row({Op::name, row.name, row.numerics, row.device == Device::cuda ? "cuda" : "cpu",
               row.run ? "built" : "not built", fmt::format("{}", fmt::join(taken, ", "))});
  }
}

template <class... Ops>
struct OpList {};
using AllOps =
    OpList<EmbeddingFwd, EmbeddingBwd, RmsNormFwd, RmsNormBwd, LayerNormFwd, LayerNormBwd, LinearFwd, LinearBwdData,
           LinearBwdWeight, LinearGroupedFwd, ActFwd, ActBwd, AddFwd, RowDots, DropoutFwd, DropoutBwd, Conv1dFwd,
           Conv1dBwd, CopyState, SsdFwd, SsdBwd, SsdStep, RopeFwd, RopeBwd, KvStore, AttentionFwd, AttentionBwd,
           RouterFwd, RouterStats, RouterBwd, ExpertsFwd, ExpertsBwd, CrossEntropyFwd, CrossEntropyBwd, HeadLoss,
           HeadLossFwd, HeadLossBwd, DistillLoss, HiddenLoss, AdamwStep, MuonDirection, Orthogonalize, MuonApply,
           Quantize, LowExpertsFwd, LowExpertsBwd, SpmmFwd, SpmmBwdArg, SddmmFwd, GatScoresFwd, GatScoresBwd, GatFwd,
           GatBwd, EdgeGaussianFwd, EdgeGaussianBwd, EdgeSoftmaxFwd, EdgeSoftmaxBwd, BiasFwd, BiasBwd>;

template <class... Ops>
std::vector<std::string_view> names_of(OpList<Ops...>) {
  return {Ops::name...};
}

template <class... Ops>
void list_ops(OpList<Ops...>, report::Table& table) {
  (list_op<Ops>(table), ...);
}

}  // namespace

std::vector<std::string_view> op_names() { return names_of(AllOps{}); }

int print_ops() {
  const std::string taken = fmt::format("taken on {}", sys::name_of(sys::machine().cpu_class));
  report::Table table({{"op"}, {"row"}, {"numerics"}, {"device"}, {"here"}, {taken}});
  list_ops(AllOps{}, table);
  fmt::print("{}", table.markdown());
  print_thresholds();
  return 0;
}

}  // namespace braid::apps
