// Plan: how products with one graph run. The first products of each kind (width, type, values) are the measurement:
// they run one way after the other and are timed, and from then on the fastest runs. Since all ways give the same bits,
// a choice never shows in a result. Dense tiles, which give others, are taken only where a user asked for them, and by
// a rule, so that what is computed does not depend on times. Choices for large graphs are kept in
// $XDG_CACHE_HOME/braid/spmm.json
// (~/.cache/braid/spmm.json) by CPU, number of threads and the graph's fingerprint, so that the next run starts with
// them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/ctx.h"
#include "graph/csr.h"
#include "kernels/spmm/spmm.h"
#include "kernels/spmm/spmm_pack.h"
#include "kernels/spmm/spmm_tiles.h"
#include "sparse/ways.h"

namespace braid::sparse {

enum class Use : uint8_t { once, often };  // often: measured; once: the tree's choice

// Edges that share a row of features in a tile, from which on tiles are worth their zeros.
inline constexpr double kTilesReuse = 2.5, kTilesReuseOfValues = 8;

class Plan {
 public:
  // Of the graph only its statistics and fingerprint are kept. `clock` gives the seconds that measurements are made in.
  Plan(const graph::Csr& csr, Use use, double (*clock)() = steady_seconds);
  // Sums and means of BF16 features run on dense tiles (kernels/spmm/spmm_tiles.h) from now on, where this CPU has them
  // and enough edges share a row of features: kTilesReuse where edges have no values, kTilesReuseOfValues where they
  // have, as a study found (kernels/spmm/README.md); products of other types, widths or messages as before. Says what
  // was found and decided.
  std::string take_tiles(const graph::Csr& csr);
  // op.tuning, op.pack and op.tiles are the plan's. `constant`: the values of op.edge will be the same in every call,
  // so that a pack may keep them; they are recognised by their address.
  void run(Ctx& ctx, SpmmFwd op, bool constant);
  // The way that run() takes; null while it measures.
  const Way* choice(const Ctx& ctx, const SpmmFwd& op, bool constant);

 private:
  struct Kind {
    const Way* choice = nullptr;
    int calls = 0;
    double seconds[kWays];  // the least that each took
  };
  static double steady_seconds();
  Kind& kind_of(const Ctx& ctx, const SpmmFwd& op, bool packs);
  bool packs(const SpmmFwd& op, bool constant) const;
  const SpmmTileViews* tiles_for(SpmmFwd op) const;  // null: not on tiles
  const SpmmPack* pack_of(const SpmmFwd& op);
  void measure(Ctx& ctx, SpmmFwd& op, Kind& kind, bool packs);
  std::string key_of(const Ctx& ctx, const SpmmFwd& op, bool packs) const;

  graph::RowStats stats_;
  int64_t cols_ = 0;
  uint64_t fingerprint_ = 0;  // 0: small, measured anew in every run
  Use use_;
  double (*clock_)();
  std::map<std::string, Kind> kinds_;
  double reuse_ = 0;  // of tiles; 0: there are none
  SpmmTiles tiles_{};
  SpmmTileViews tile_views_{};
  std::map<const void*, std::unique_ptr<SpmmPack>> packs_;  // by the address of their values; null: none can be made
};

// Of a graph and its transpose.
struct Plans {
  Plan in, out;
};

}  // namespace braid::sparse
