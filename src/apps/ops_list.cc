// `braid bench --list`: every op with its variants, in the order in which they are tried, and whether they run here.
#include <fmt/format.h>

#include "apps/bench_report.h"
#include "kernels/act/act.h"
#include "kernels/add/add.h"
#include "kernels/attention/attention.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/experts/experts.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/router/router.h"
#include "kernels/ssd/ssd.h"
#include "report/table.h"

namespace braid::apps {
namespace {

template <class Op>
void list_op(report::Table& table) {
  for (const Row<Op>& row : Op::rows()) {
    const char* device = row.device == Device::cuda ? "cuda" : "cpu";
    table.row({Op::name, row.name, row.numerics, device, row.run ? "built" : "not built"});
  }
}

template <class... Ops>
void list_ops(report::Table& table) {
  (list_op<Ops>(table), ...);
}

}  // namespace

int print_ops() {
  report::Table table({{"op"}, {"row"}, {"numerics"}, {"device"}, {"here"}});
  list_ops<EmbeddingFwd, EmbeddingBwd, RmsNormFwd, RmsNormBwd, LayerNormFwd, LinearFwd, LinearBwdData, LinearBwdWeight,
           ActFwd, AddFwd, Conv1dFwd, SsdFwd, SsdStep, RopeFwd, KvStore, AttentionFwd, RouterFwd, ExpertsFwd,
           CrossEntropyFwd, CrossEntropyBwd>(table);
  fmt::print("{}", table.markdown());
  return 0;
}

}  // namespace braid::apps
