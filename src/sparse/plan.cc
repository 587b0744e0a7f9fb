#include "sparse/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "sparse/choices.h"
#include "sparse/condense.h"
#include "sparse/tree.h"

namespace braid::sparse {
namespace {

constexpr int kTrials = 2;                  // of each way
constexpr int64_t kWorthKeeping = 1 << 17;  // edges: products with fewer take under a millisecond to measure again

bool sums(const SpmmFwd& op) {
  const bool one = op.edge && op.edge.dim(1) == 1;
  return !picks(op.reduce) && !op.x_scale && (op.op == EdgeOp::copy_x || (op.op == EdgeOp::mul && one));
}

}  // namespace

double Plan::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Plan::Plan(const graph::Csr& csr, Use use, double (*clock)())
    : stats_(graph::stats_of(csr)),
      cols_(csr.cols),
      fingerprint_(use == Use::often && csr.edges() >= kWorthKeeping ? graph::fingerprint(csr) : 0),
      use_(use),
      clock_(clock) {}

bool Plan::packs(const SpmmFwd& op, bool constant) const {
  return use_ == Use::often && sums(op) && (constant || !op.edge) && op.y.dim(1) <= kSpmmPackWidest &&
         op.x.contiguous();
}

std::string Plan::key_of(const Ctx& ctx, const SpmmFwd& op, bool packs) const {
  static const uint64_t kWaysMark = mark_of(ways());
  return fmt::format("{:016x} of {:08x} width {} {}{}{}{} {} threads", fingerprint_, kWaysMark, op.y.dim(1),
                     name_of(op.x ? op.x.dtype : DType::f32), op.edge ? " edges" : "", picks(op.reduce) ? " max" : "",
                     packs ? "" : " unpacked", ctx.threads);
}

Plan::Kind& Plan::kind_of(const Ctx& ctx, const SpmmFwd& op, bool packs) {
  const std::string key = key_of(ctx, op, packs);
  const auto [at, fresh] = kinds_.try_emplace(key);
  Kind& kind = at->second;
  if (!fresh) return kind;
  std::fill(std::begin(kind.seconds), std::end(kind.seconds), std::numeric_limits<double>::infinity());
  if (use_ == Use::once) {
    const Features features = features_of(stats_, cols_, op.y.dim(1), size_of(op.x ? op.x.dtype : DType::f32));
    kind.choice = &ways()[static_cast<size_t>(decide(built_in_tree(), features))];
  }
  if (fingerprint_ != 0) kind.choice = remembered(key);
  if (kind.choice && kind.choice->packed && !packs) kind.choice = ways().data();
  return kind;
}

const SpmmPack* Plan::pack_of(const SpmmFwd& op) {
  const auto [at, fresh] = packs_.try_emplace(op.edge ? op.edge.data : nullptr);
  if (fresh) {
    if (auto pack = pack_spmm(op.rowptr, op.col, op.edge, op.order))
      at->second = std::make_unique<SpmmPack>(*std::move(pack));
  }
  return at->second.get();
}

void Plan::measure(Ctx& ctx, SpmmFwd& op, Kind& kind, bool with_packs) {
  const int at = kind.calls++ % kWays;
  const Way& way = ways()[static_cast<size_t>(at)];
  if (way.packed) op.pack = with_packs ? pack_of(op) : nullptr;
  op.tuning = way.tuning;
  const double begin = clock_();
  braid::run(ctx, op);
  const double took = clock_() - begin;
  if (!way.packed || op.pack) kind.seconds[at] = std::min(kind.seconds[at], took);
  if (kind.calls < kTrials * kWays) return;
  kind.choice = &ways()[static_cast<size_t>(std::min_element(std::begin(kind.seconds), std::end(kind.seconds)) -
                                            std::begin(kind.seconds))];
  if (fingerprint_ != 0) remember(key_of(ctx, op, with_packs), *kind.choice);
  const bool packed =
      std::ranges::any_of(kinds_, [](const auto& k) { return !k.second.choice || k.second.choice->packed; });
  if (!packed) packs_.clear();  // as large as the graph
}

std::string Plan::take_tiles(const graph::Csr& csr) {
  const Condensed found = condensed(csr);
  const std::string said =
      fmt::format("dense tiles {:.1f}% full, {:.1f} edges share a row", 100 * found.density, found.reuse);
  if (!spmm_tiles_here()) return said + ": not taken, this CPU has none";
  if (found.reuse < kTilesReuse) return said + fmt::format(": not taken, {:g} would pay", kTilesReuse);
  reuse_ = found.reuse;
  tiles_ = tile_spmm(csr.rowptr_view(), csr.col_view(), Device::cpu);
  tile_views_ = tiles_.views();
  if (reuse_ < kTilesReuseOfValues)
    return said + fmt::format(": taken where edges have no values ({:g} would pay with values)", kTilesReuseOfValues);
  return said + ": taken";
}

const SpmmTileViews* Plan::tiles_for(SpmmFwd op) const {
  if (reuse_ < (op.edge ? kTilesReuseOfValues : kTilesReuse)) return nullptr;
  op.tiles = &tile_views_;
  return spmm_tiles_refusal(op) ? nullptr : op.tiles;
}

const Way* Plan::choice(const Ctx& ctx, const SpmmFwd& op, bool constant) {
  return kind_of(ctx, op, packs(op, constant)).choice;
}

void Plan::run(Ctx& ctx, SpmmFwd op, bool constant) {
  op.tiles = tiles_for(op);
  if (op.tiles) return braid::run(ctx, op);
  const bool with_packs = packs(op, constant);
  Kind& kind = kind_of(ctx, op, with_packs);
  if (!kind.choice) return measure(ctx, op, kind, with_packs);
  op.tuning = kind.choice->tuning;
  if (kind.choice->packed) op.pack = pack_of(op);
  braid::run(ctx, op);
}

}  // namespace braid::sparse
