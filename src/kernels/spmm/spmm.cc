#include "kernels/spmm/spmm.h"

#include <algorithm>
#include <limits>

#include "core/has_cuda.h"
#include "core/ref.h"
#include "kernels/spmm/spmm_pack.h"
#include "kernels/spmm/spmm_ref.h"
#include "kernels/spmm/spmm_rows.h"
#include "kernels/spmm/spmm_tiles.h"
#include "sys/machine.h"

namespace braid {
namespace {

constexpr int64_t kCudaLanesWidest = 4;     // channels
constexpr int64_t kCudaBlocksMost = 65535;  // side by side

bool reads_x(EdgeOp op) { return op != EdgeOp::copy_e; }
bool reads_edge(EdgeOp op) { return op != EdgeOp::copy_x; }

void fwd_ref(Ctx&, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  const SpmmRef<double> in{.x = to_doubles(op.x),
                           .x_scale = to_doubles(op.x_scale),
                           .edge = to_doubles(op.edge),
                           .self = to_doubles(op.self),
                           .add = to_doubles(op.add),
                           .rows = op.y.dim(0),
                           .width = op.y.dim(1),
                           .values = op.edge ? op.edge.dim(1) : 0};
  std::vector<double> y(static_cast<size_t>(op.y.count())), arg(op.arg ? y.size() : 0);
  spmm_ref(op, in, y, arg);
  store(op.y, y);
  store(op.arg, arg);
}

void bwd_arg_ref(Ctx&, const SpmmBwdArg& op, std::span<std::byte>) {
  check_spmm(op);
  const int64_t width = op.dy.dim(1), values = op.edge ? op.edge.dim(1) : 1, part = width / values;
  std::vector<double> dx(static_cast<size_t>(op.dx ? op.dx.count() : 0)),
      dedge(op.dedge ? to_doubles(op.edge).size() : 0);
  for (int64_t at = 0; at < op.dy.count(); ++at) {
    const auto e = static_cast<int64_t>(element(op.arg, at));
    const double dy = element(op.dy, at);
    if (op.dadd) set_element(op.dadd, at, e < 0 ? 0 : dy);
    if (e < 0) continue;
    const int64_t c = at % width, to = op.col.as<int32_t>()[e] * width + c, value = e * values + c / part;
    const double edge = op.edge ? element(op.edge, value) : 0;
    if (op.dx) dx[static_cast<size_t>(to)] += dy * slope_x_ref(op.op, edge);
    if (op.dedge) dedge[static_cast<size_t>(value)] += dy * slope_e_ref(op.op, op.x ? element(op.x, to) : 0, edge);
  }
  store(op.dx, dx);
  store(op.dedge, dedge);
}

const char* sr_supports(const SpmmFwd& op) {
  if ((op.x && !op.x.rows_contiguous()) || !op.y.rows_contiguous() || (op.add && !op.add.rows_contiguous()))
    return "strided rows";
  if ((op.edge && !op.edge.contiguous()) || (op.arg && !op.arg.contiguous())) return "strided edges";
  return nullptr;
}

const char* sell_supports(const SpmmFwd& op) {
  if (!op.pack) return "no pack of the graph";
  if (op.y.dim(1) > kSpmmPackWidest) return "wide";
  if (picks(op.reduce)) return "max and min";
  if (op.x_scale || !(op.op == EdgeOp::copy_x || (op.op == EdgeOp::mul && op.edge.dim(1) == 1)))
    return "other messages";
  if (op.edge && op.pack->value.empty() && op.col.dim(0) > 0) return "values are not packed";
  if (!op.x.contiguous()) return "strided x";
  return sr_supports(op);
}

const char* lanes_supports(const SpmmFwd& op) {
  const bool plain =
      op.op == EdgeOp::mul && op.reduce == Reduce::sum && !op.order && !op.x_scale && !op.self && op.own == 0;
  if (!plain || op.y.dim(1) != 1) return "not a plain product with one channel";
  if (op.x.dtype != DType::f32 || op.y.dtype != DType::f32) return "not F32";
  return op.x.contiguous() && op.y.contiguous() ? sr_supports(op) : "strided";
}

bool one_factor(const SpmmFwd& op) { return op.op == EdgeOp::copy_x || (op.op == EdgeOp::mul && op.edge.dim(1) == 1); }

const char* cuda_sr_supports(const SpmmFwd& op) {
  if (picks(op.reduce) && op.col.dim(0) > std::numeric_limits<int32_t>::max()) return "2^31 edges or more";
  return sr_supports(op);
}

const char* cuda_merge_supports(const SpmmFwd& op) {
  if (picks(op.reduce)) return "max and min";
  return one_factor(op) ? sr_supports(op) : "other messages";
}

const char* cuda_pr_supports(const SpmmFwd& op) {
  return op.y.dim(1) > kCudaLanesWidest ? "many channels" : cuda_merge_supports(op);
}

// Also what cuSPARSE can do.
const char* cuda_plain_supports(const SpmmFwd& op) {
  const bool plain =
      op.op == EdgeOp::mul && op.reduce == Reduce::sum && !op.order && !op.x_scale && !op.self && op.own == 0;
  if (!plain || op.edge.dim(1) != 1) return "not a plain product";
  if (op.y.dim(1) > kCudaBlocksMost) return "too many channels";
  if (op.x.dtype != DType::f32 || op.y.dtype != DType::f32) return "not F32";
  return sr_supports(op);
}

const char* cuda_tiles_supports(const SpmmFwd& op) {
  if (!op.tiles || !op.tiles->cell) return "no tiles of the graph";
  if (!op.x || op.x.dtype != DType::bf16) return "not BF16";
  const auto in_pieces = [](const auto& v) {  // of eight numbers, aligned
    return !v || (v.strides[0] % 8 == 0 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0);
  };
  if (op.y.dim(1) % 8 != 0 || !in_pieces(op.x) || !in_pieces(op.y)) return "channels that do not divide by eight";
  return cuda_merge_supports(op);
}

const char* cusparse_supports(const SpmmFwd& op) {
  const int64_t edges = op.col.dim(0);
  if (edges == 0 || edges > std::numeric_limits<int32_t>::max()) return "no edges, or over 2^31";
  if (edges > op.y.dim(0) * (op.x ? op.x.dim(0) : 0)) return "more edges than pairs";
  return cuda_plain_supports(op);
}

const char* columns_supports(const SpmmBwdArg& op) {
  const auto plain = [](const auto& v) { return !v || v.contiguous(); };
  return plain(op.x) && plain(op.edge) && plain(op.arg) && plain(op.dy) && plain(op.dx) && plain(op.dedge) &&
                 plain(op.dadd)
             ? nullptr
             : "strided";
}

}  // namespace

void check_spmm(const SpmmFwd& op) {
  const int64_t rows = op.y.dim(0), width = op.y.dim(1);
  CHECK(op.rowptr.dim(0) == rows + 1, "{}: {} row pointers, {} rows", SpmmFwd::name, op.rowptr.dim(0), rows);
  CHECK(op.rowptr.device != Device::cpu || op.rowptr.as<int64_t>()[rows] == op.col.dim(0), "{}: {} edges",
        SpmmFwd::name, op.col.dim(0));
  CHECK(reads_x(op.op) == static_cast<bool>(op.x) && reads_edge(op.op) == static_cast<bool>(op.edge),
        "{}: operands of another op", SpmmFwd::name);
  CHECK(!op.edge || width % op.edge.dim(1) == 0, "{}: {} channels, {} values", SpmmFwd::name, width, op.edge.dim(1));
  CHECK((!op.self && op.own == 0) || (op.reduce == Reduce::sum && op.x), "{}: self goes with sums", SpmmFwd::name);
  CHECK(!op.self || (op.self_row >= 0 && op.self_source >= 0 && op.self_row + op.self.dim(0) <= rows &&
                     op.self_source + op.self.dim(0) <= op.x.dim(0)),
        "{}: {} self from row {}, source {}", SpmmFwd::name, op.self.dim(0), op.self_row, op.self_source);
  CHECK(!op.pack || (op.pack->rows == rows && op.pack->edges == op.col.dim(0)), "{}: a pack of another graph",
        SpmmFwd::name);
  CHECK(!op.tiles ||
            (op.tiles->window.dim(0) == (rows + SpmmTileViews::kRows - 1) / SpmmTileViews::kRows + 1 &&
             (op.tiles->mask || op.tiles->cell.dim(0) == op.col.dim(0)) && op.tiles->window.device == op.col.device),
        "{}: tiles of another graph", SpmmFwd::name);
  CHECK(picks(op.reduce) || (!op.arg && !op.add), "{}: arg and add go with max and min", SpmmFwd::name);
  CHECK(!op.arg || !op.x_scale, "{}: SpmmBwdArg has no x_scale", SpmmFwd::name);
}

void check_spmm(const SpmmBwdArg& op) {
  CHECK(op.rowptr.dim(0) == op.dy.dim(0) + 1, "{}: {} row pointers", SpmmBwdArg::name, op.rowptr.dim(0));
  CHECK(!op.dedge || op.edge, "{}: dedge without edge", SpmmBwdArg::name);
  const bool scales = op.op == EdgeOp::mul || op.op == EdgeOp::div;
  CHECK(!scales || op.edge, "{}: no edge", SpmmBwdArg::name);
  CHECK(!scales || !op.dedge || op.x, "{}: dedge without x", SpmmBwdArg::name);
}

bool spmm_tiles_here() { return sys::machine().amx && sys::machine().avx512_bf16; }

const char* spmm_tiles_refusal(const SpmmFwd& op) {
  if (!spmm_tiles_here()) return "no BF16 tiles on this CPU";
  if (!op.tiles || !op.tiles->mask) return "no tiles of the graph";
  if (!op.x || op.x.dtype != DType::bf16) return "not BF16";
  if (op.y.dim(1) % spmm_tiles::kGroup != 0) return "channels that do not divide by 32";
  if (picks(op.reduce)) return "max and min";
  return one_factor(op) ? sr_supports(op) : "other messages";
}

std::span<const Row<SpmmFwd>> SpmmFwd::rows() {
  static constexpr Row<SpmmFwd> kRows[] = {
      {.name = "cuda_sr",
       .numerics = "cuda_pieces",
       .supports = &cuda_sr_supports,
       .run = kHasCuda ? &spmm_fwd_cuda_sr : nullptr,
       .device = Device::cuda},
      {.name = "cuda_merge",
       .numerics = "cuda_shares",
       .supports = &cuda_merge_supports,
       .run = kHasCuda ? &spmm_fwd_cuda_merge : nullptr,
       .device = Device::cuda},
      {.name = "cuda_pr",
       .numerics = "cuda_lanes",
       .supports = &cuda_pr_supports,
       .run = kHasCuda ? &spmm_fwd_cuda_pr : nullptr,
       .device = Device::cuda},
      {.name = "cuda_eb_pr",
       .numerics = "cuda_segments",
       .supports = &cuda_plain_supports,
       .run = kHasCuda ? &spmm_fwd_cuda_eb_pr : nullptr,
       .device = Device::cuda},
      {.name = "cuda_tiles",
       .numerics = "cuda_tiles",
       .supports = &cuda_tiles_supports,
       .run = kHasCuda ? &spmm_fwd_cuda_tiles : nullptr,
       .device = Device::cuda},
      {.name = "cusparse",
       .numerics = "cusparse",
       .supports = &cusparse_supports,
       .run = kHasCuda ? &spmm_fwd_cusparse : nullptr,
       .device = Device::cuda},
      // Before the rows of class f32: only callers that want its class have tiles.
      {.name = "tiles",
       .numerics = "tiles",
       .supports = &spmm_tiles_refusal,
       .workspace = &spmm_tiles_workspace,
       .run = &spmm_fwd_tiles},
      {.name = "sell",
       .numerics = "f32",
       .supports = &sell_supports,
       .workspace = &spmm_pieces_workspace,
       .run = &spmm_fwd_sell},
      {.name = "sr",
       .numerics = "f32",
       .supports = &sr_supports,
       .workspace = &spmm_pieces_workspace,
       .run = &spmm_fwd_sr},
      {.name = "pr", .numerics = "f32_lanes", .supports = &lanes_supports, .run = &spmm_fwd_pr},
      {.name = "eb_pr", .numerics = "f32_segments", .supports = &lanes_supports, .run = &spmm_fwd_eb_pr},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<SpmmBwdArg>> SpmmBwdArg::rows() {
  static constexpr Row<SpmmBwdArg> kRows[] = {
      {.name = "columns",
       .numerics = "f32",
       .supports = &columns_supports,
       .workspace = &spmm_bwd_arg_workspace,
       .run = &spmm_bwd_arg_columns},
      {.name = "ref", .numerics = "f64", .run = &bwd_arg_ref},
  };
  return kRows;
}

}  // namespace braid
