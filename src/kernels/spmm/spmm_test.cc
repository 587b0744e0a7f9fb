// Tolerances: sums of up to a few hundred FP32 terms in order against FP64, 5e-6 of the root mean square; quotients by
// values near zero lose some more. BF16 outputs 1/64. Small integers are exact: there every row equals the reference.
#include "kernels/spmm/spmm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/spmm/spmm_long_rows.h"
#include "kernels/spmm/spmm_pack.h"
#include "kernels/spmm/spmm_ref.h"
#include "kernels/spmm/spmm_rows.h"
#include "kernels/spmm/spmm_tiles.h"
#include "sys/machine.h"

namespace braid {
namespace {

constexpr EdgeOp kOps[] = {EdgeOp::copy_x, EdgeOp::copy_e, EdgeOp::add, EdgeOp::sub, EdgeOp::mul, EdgeOp::div};
constexpr Reduce kReduces[] = {Reduce::sum, Reduce::mean, Reduce::max, Reduce::min};

// Rows of 0 to 40 edges, the first and the last without, one of all sources; parallel edges.
struct TestGraph {
  std::vector<int64_t> rowptr = {0};
  std::vector<int32_t> col, order;

  TestGraph(int64_t rows, int64_t sources, uint64_t seed) {
    for (int64_t i = 0; i < rows; ++i) {
      const auto r = philox({.seed = seed}, static_cast<uint64_t>(i));
      const int64_t degree = i == 0 || i == rows - 1 ? 0 : i == rows / 2 ? 3 * sources : r[0] % 41 / (1 + r[1] % 8);
      for (int64_t e = 0; e < degree; ++e)
        col.push_back(static_cast<int32_t>(philox({.seed = seed, .stream = 1}, col.size())[0] % sources));
      rowptr.push_back(std::ssize(col));
    }
    for (int32_t e = 0; e < std::ssize(col); ++e) order.push_back(static_cast<int32_t>(std::ssize(col)) - 1 - e);
  }
  View rowptr_view() const { return view_of(rowptr.data(), {std::ssize(rowptr)}); }
  View col_view() const { return view_of(col.empty() ? &kNone : col.data(), {std::ssize(col)}); }
  View order_view() const { return view_of(order.data(), {std::ssize(order)}); }
  int64_t edges() const { return std::ssize(col); }

 private:
  static constexpr int32_t kNone = 0;
};

// With NaN, so that elements that a row fails to write are found.
void poison(TestTensor& y) { std::fill(y.bytes.begin(), y.bytes.end(), std::byte{0xff}); }

// With the sources of a row in order.
TestGraph sorted(TestGraph graph) {
  for (size_t i = 0; i + 1 < graph.rowptr.size(); ++i)
    std::sort(graph.col.begin() + graph.rowptr[i], graph.col.begin() + graph.rowptr[i + 1]);
  return graph;
}

// Integers of -4 to 4 (no zeros), so that sums are exact in every order and many values tie.
void make_integers(const MutView& v, uint64_t seed) {
  for (int64_t i = 0; i < v.count(); ++i) {
    const uint32_t r = philox({.seed = seed}, static_cast<uint64_t>(i))[0];
    set_element(v, i, (r & 1 ? 1 : -1) * static_cast<double>(1 + r / 2 % 4));
  }
}

struct Problem {
  TestGraph graph;
  TestTensor x, scale, edge, self, add, y, arg;
  SpmmFwd op;

  Problem(EdgeOp f, Reduce reduce, int64_t width, int64_t values, DType x_type = DType::f32, DType y_type = DType::f32)
      : graph(23, 17, 5),
        x(x_type, {17, width}, 1),
        scale(DType::f32, {17}, 2, 0.3, 1),
        edge(DType::f32, {graph.edges(), values}, 3, 0.2, 1.5),
        self(DType::f32, {12}, 4),
        add(y_type, {23, width}, 5),
        y(y_type, {23, width}, 6),
        arg(DType::i32, {23, width}, 7) {
    op = {.rowptr = graph.rowptr_view(), .col = graph.col_view(), .y = y.mut(), .op = f, .reduce = reduce};
    if (f != EdgeOp::copy_e) op.x = x.view();
    if (f != EdgeOp::copy_x) op.edge = edge.view();
    if (picks(reduce)) op.arg = arg.mut();
  }
};

TEST(Spmm, EveryRowAgreesWithTheReference) {
  for (const EdgeOp f : kOps) {
    for (const Reduce reduce : kReduces) {
      for (const int64_t width : {1, 2, 3, 5, 8, 16, 24, 33, 100, 160}) {
        for (const int64_t values : {int64_t{1}, width}) {
          if (f == EdgeOp::copy_x && values > 1) continue;
          Problem p(f, reduce, width, values);
          sweep(p.op, 1e-5);
          p.op.order = p.graph.order_view();
          sweep(p.op, 1e-5);
        }
      }
    }
  }
}

TEST(Spmm, HeadsHaveAValueOfAnEdgeEach) {
  for (const int64_t heads : {2, 4}) {
    for (const int64_t part : {1, 5, 16, 40}) {
      Problem p(EdgeOp::mul, Reduce::sum, heads * part, heads);
      sweep(p.op, 5e-6);
      Problem quotient(EdgeOp::div, Reduce::max, heads * part, heads);
      sweep(quotient.op, 5e-6);
    }
  }
}

TEST(Spmm, BF16FeaturesAreSummedInFP32) {
  for (const Reduce reduce : kReduces) {
    for (const int64_t width : {1, 3, 6, 12, 64}) {
      for (const DType y_type : {DType::f32, DType::bf16}) {
        Problem p(EdgeOp::mul, reduce, width, 1, DType::bf16, y_type);
        // Exact products: which edge wins does not depend on rounding.
        if (picks(reduce)) make_integers(p.x.mut(), 8), make_integers(p.edge.mut(), 9);
        sweep(p.op, y_type == DType::bf16 ? 4e-2 : 5e-6);
      }
    }
  }
}

TEST(Spmm, ScalesSelfAndAddedRowsAreTermsOfARow) {
  TestGraph graph(12, 17, 3);
  for (const int64_t width : {3, 16, 50}) {
    Problem p(EdgeOp::mul, Reduce::sum, width, 1);
    TestTensor y(DType::f32, {12, width}, 1), edge(DType::f32, {graph.edges(), 1}, 2);
    SpmmFwd op{.rowptr = graph.rowptr_view(),
               .col = graph.col_view(),
               .x = p.x.view(),
               .x_scale = p.scale.view(),
               .edge = edge.view(),
               .self = p.self.view(),
               .y = y.mut(),
               .op = EdgeOp::mul};
    sweep(op, 5e-6);
    op.edge = {};
    op.op = EdgeOp::copy_x;
    op.own = 1.5f;
    sweep(op, 5e-6);
    // More rows than sources: those beyond have no term of their own.
    Problem tall(EdgeOp::copy_x, Reduce::sum, width, 1);
    TestTensor self(DType::f32, {17}, 8);
    tall.op.self = self.view();
    sweep(tall.op, 5e-6);
    // Of a block: rows 4 to 8 are sources 11 to 15.
    tall.op.self = self.view().slice(0, 0, 5);
    tall.op.self_row = 4;
    tall.op.self_source = 11;
    sweep(tall.op, 5e-6);
    tall.op.self = {};
    tall.op.own = -0.5f;
    sweep(tall.op, 5e-6);
    Problem best(EdgeOp::copy_x, Reduce::max, width, 1);
    best.op.add = best.add.view();
    sweep(best.op, 5e-6);
  }
}

// The edges of a tiling are those of the graph, once each, and no more tiles than the distinct sources of a window
// fill.
TEST(Spmm, TilesHoldEveryEdge) {
  for (const int64_t rows : {1, 16, 23, 40}) {
    const TestGraph graph = sorted(TestGraph(rows, 17, 7));
    const SpmmTiles t = tile_spmm(graph.rowptr_view(), graph.col_view());
    ASSERT_EQ(std::ssize(t.window), (rows + 15) / 16 + 1);
    ASSERT_EQ(std::ssize(t.source), 16 * t.tiles());
    std::vector<int> seen(graph.col.size(), 0);
    for (int64_t w = 0; w + 1 < std::ssize(t.window); ++w) {
      std::map<std::pair<int32_t, int64_t>, int64_t> repeats;  // of a row and source
      std::map<int32_t, int64_t> columns;                      // that a source needs
      for (int64_t tile = t.window[static_cast<size_t>(w)]; tile < t.window[static_cast<size_t>(w) + 1]; ++tile) {
        std::vector<int> cells(256, 0);
        for (int32_t k = t.begin[static_cast<size_t>(tile)]; k < t.begin[static_cast<size_t>(tile) + 1]; ++k) {
          const int32_t e = t.edge[static_cast<size_t>(k)], cell = t.cell[static_cast<size_t>(k)];
          const int64_t row = 16 * w + cell / 16;
          EXPECT_EQ(++cells[static_cast<size_t>(cell)], 1);
          ++seen[static_cast<size_t>(e)];
          EXPECT_TRUE(graph.rowptr[static_cast<size_t>(row)] <= e && e < graph.rowptr[static_cast<size_t>(row) + 1]);
          const int32_t source = t.source[static_cast<size_t>(16 * tile + cell % 16)];
          EXPECT_EQ(source, graph.col[static_cast<size_t>(e)]);
          columns[source] = std::max(columns[source], ++repeats[{cell / 16, source}]);
        }
      }
      int64_t wanted = 0;
      for (const auto& [source, count] : columns) wanted += count;
      EXPECT_EQ(t.window[static_cast<size_t>(w) + 1] - t.window[static_cast<size_t>(w)], (wanted + 15) / 16);
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  }
}

// Of the masks of a CPU: a row's edges are its bits, in order.
TEST(Spmm, MasksHoldEveryEdge) {
  for (const int64_t rows : {1, 16, 23, 40}) {
    const TestGraph graph = sorted(TestGraph(rows, 170, 7));
    const SpmmTiles t = tile_spmm(graph.rowptr_view(), graph.col_view(), Device::cpu);
    ASSERT_EQ(std::ssize(t.window), (rows + 15) / 16 + 1);
    for (int64_t i = 0; i < rows; ++i) {
      std::vector<int32_t> sources;
      for (int32_t s = t.window[static_cast<size_t>(i / 16)]; s < t.window[static_cast<size_t>(i / 16) + 1]; ++s) {
        for (int64_t c = 0; c < 32; ++c) {
          if (t.mask[static_cast<size_t>(16 * s + i % 16)] >> c & 1)
            sources.push_back(t.source[static_cast<size_t>(32 * s + c)]);
        }
      }
      EXPECT_EQ(sources, std::vector<int32_t>(graph.col.begin() + graph.rowptr[static_cast<size_t>(i)],
                                              graph.col.begin() + graph.rowptr[static_cast<size_t>(i) + 1]));
    }
  }
}

// Tiles in software, and those of this machine. Factors of 16 significant bits and FP32 sums: 5e-5 of the root mean
// square, and exact with integers.
TEST(Spmm, DenseTilesAgreeWithTheReference) {
  std::vector<const spmm_tiles::Code*> codes = {&spmm_tiles::kSoftCode};
  if (sys::machine().amx && sys::machine().avx512_bf16) codes.push_back(&spmm_tiles::kAmxCode);
  struct Terms {
    EdgeOp f;
    Reduce reduce;
    bool order, scale, own, integers;
    DType y;
  };
  for (const Terms& t : {Terms{EdgeOp::copy_x, Reduce::sum, false, false, false, false, DType::f32},
                         {EdgeOp::copy_x, Reduce::mean, false, true, false, false, DType::f32},
                         {EdgeOp::copy_x, Reduce::sum, false, true, true, false, DType::bf16},
                         {EdgeOp::mul, Reduce::sum, false, false, false, false, DType::f32},
                         {EdgeOp::mul, Reduce::sum, true, true, true, false, DType::f32},
                         {EdgeOp::mul, Reduce::mean, true, false, false, false, DType::bf16},
                         {EdgeOp::mul, Reduce::sum, true, false, false, true, DType::f32},
                         {EdgeOp::copy_x, Reduce::sum, false, false, false, true, DType::f32}}) {
    for (const int64_t width : {32, 96, 160}) {
      // One row has more distinct sources than scratch holds steps; the last window has 7 rows.
      const TestGraph graph = sorted(TestGraph(39, 1500, 5));
      const int64_t rows = 39;
      TestTensor x(DType::bf16, {1500, width}, 1), scale(DType::f32, {1500}, 2, 0.3, 1),
          edge(DType::f32, {graph.edges(), 1}, 3, 0.2, 1.5), self(DType::f32, {12}, 4), y(t.y, {rows, width}, 5);
      if (t.integers) make_integers(x.mut(), 6), make_integers(edge.mut(), 7);
      const SpmmTiles tiles = tile_spmm(graph.rowptr_view(), graph.col_view(), Device::cpu);
      const SpmmTileViews views = tiles.views();
      SpmmFwd op{.rowptr = graph.rowptr_view(),
                 .col = graph.col_view(),
                 .x = x.view(),
                 .y = y.mut(),
                 .op = t.f,
                 .reduce = t.reduce,
                 .tiles = &views};
      if (t.f == EdgeOp::mul) op.edge = edge.view();
      if (t.order) op.order = graph.order_view();
      if (t.scale) op.x_scale = scale.view();
      if (t.own) op.own = 0.5f;
      if (t.own && t.reduce == Reduce::sum) op.self = self.view(), op.self_row = 20, op.self_source = 700;
      Arena arena;
      Ctx ctx{.arena = arena, .threads = 1};
      run_row(ctx, op, row_named<SpmmFwd>("ref"));
      const std::vector<double> want = to_doubles(y.view());
      double square = 0;
      for (const double v : want) square += v * v;
      const double rms = std::sqrt(square / static_cast<double>(want.size()));
      for (const spmm_tiles::Code* code : codes) {
        poison(y);
        std::vector<std::byte> space(static_cast<size_t>(spmm_tiles_workspace(op, 1)));
        spmm_tiles_with(*code, ctx, op, space);
        const std::vector<double> got = to_doubles(y.view());
        for (size_t i = 0; i < want.size(); ++i) {
          const double bound = t.integers ? 0 : t.y == DType::bf16 ? std::fabs(want[i]) / 128 + 1e-4 * rms : 5e-5 * rms;
          ASSERT_LE(std::fabs(got[i] - want[i]), bound) << "width " << width << ", element " << i;
        }
      }
    }
  }
}

// A graph and its tiles for this CPU.
struct OnTiles {
  const TestGraph& graph;
  SpmmTiles tiles = tile_spmm(graph.rowptr_view(), graph.col_view(), Device::cpu);
  SpmmTileViews views = tiles.views();
  explicit OnTiles(const TestGraph& of) : graph(of) {}
  SpmmFwd product(const TestTensor& x, const TestTensor& edge, TestTensor& y) const {
    return {.rowptr = graph.rowptr_view(),
            .col = graph.col_view(),
            .x = x.view(),
            .edge = edge.view(),
            .y = y.mut(),
            .op = EdgeOp::mul,
            .tiles = &views};
  }
};

// A tile multiplies what has no edge by zero, which is NaN where a source is not finite: such windows are sr's.
TEST(Spmm, DenseTilesKeepNaNToItsRows) {
  constexpr int64_t kWidth = 64, kRows = 40;
  const TestGraph graph = sorted(TestGraph(kRows, 60, 5));
  TestTensor x(DType::bf16, {60, kWidth}, 1), edge(DType::f32, {graph.edges(), 1}, 3),
      y(DType::f32, {kRows, kWidth}, 5);
  set_element(x.mut(), 7 * kWidth + 40, NAN);
  set_element(x.mut(), 9 * kWidth + 3, INFINITY);
  set_element(edge.mut(), 2, 3.4e38);  // more than BF16 holds
  const OnTiles on(graph);
  const SpmmFwd op = on.product(x, edge, y);
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  run_row(ctx, op, row_named<SpmmFwd>("sr"));
  const std::vector<double> want = to_doubles(y.view());
  poison(y);
  std::vector<std::byte> space(static_cast<size_t>(spmm_tiles_workspace(op, 1)));
  spmm_tiles_with(spmm_tiles::kSoftCode, ctx, op, space);
  const std::vector<double> got = to_doubles(y.view());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(std::isfinite(got[i]), std::isfinite(want[i])) << i;
    if (!std::isfinite(want[i])) continue;
    ASSERT_LE(std::fabs(got[i] - want[i]), 1e-4 * (1 + std::fabs(want[i]))) << i;
  }
}

TEST(Spmm, ThreadsShareWindowsOfTiles) {
  if (!spmm_tiles_here()) GTEST_SKIP() << "no BF16 tiles on this CPU";
  constexpr int64_t kRows = 3001, kWidth = 96;
  const TestGraph graph = sorted(TestGraph(kRows, 500, 9));
  TestTensor x(DType::bf16, {500, kWidth}, 1), edge(DType::f32, {graph.edges(), 1}, 2),
      y(DType::bf16, {kRows, kWidth}, 3);
  const OnTiles on(graph);
  const SpmmFwd op = on.product(x, edge, y);
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 1};
  ASSERT_EQ(sys::team_for(3, op.flops()), 3);
  run_row(ctx, op, row_named<SpmmFwd>("tiles"));
  const TestTensor one = y;
  for (const int threads : {2, 3}) {
    poison(y);
    ctx.threads = threads;
    run_row(ctx, op, row_named<SpmmFwd>("tiles"));
    EXPECT_EQ(y.bytes, one.bytes) << threads << " threads";
  }
  sweep(op, 4e-2);
}

// Every tuning and a pack give the bits of the row that has neither; `sweep` compares the two rows of the class.
TEST(Spmm, TuningsAndPacksChangeNoBit) {
  for (const EdgeOp f : {EdgeOp::copy_x, EdgeOp::mul}) {
    for (const Reduce reduce : {Reduce::sum, Reduce::mean}) {
      for (const int64_t width : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64, 100}) {
        for (const DType type : {DType::f32, DType::bf16}) {
          Problem p(f, reduce, width, 1, type, type);
          if (reduce == Reduce::sum && f == EdgeOp::copy_x) p.op.own = 0.5f;  // with mul, sums are all that is written
          const View edge = f == EdgeOp::mul ? p.edge.view() : View();
          const SpmmPack pack = *pack_spmm(p.op.rowptr, p.op.col, edge);
          Arena arena;
          Ctx ctx{.arena = arena};
          run(ctx, p.op);
          const TestTensor plain = p.y;
          for (const int32_t ahead : {-1, 0, 3, 200}) {
            for (const bool past : {false, true}) {
              p.op.tuning = {.ahead = ahead, .past_caches = past};
              p.op.pack = past ? nullptr : &pack;
              sweep(p.op, type == DType::bf16 ? 4e-2 : 1e-5);
              run(ctx, p.op);
              EXPECT_EQ(p.y.bytes, plain.bytes) << "width " << width << ", " << ahead << " ahead";
            }
          }
        }
      }
    }
  }
}

// Values of a transpose are found through `order`.
TEST(Spmm, PacksFollowThePlacesOfValues) {
  Problem p(EdgeOp::mul, Reduce::sum, 3, 1);
  p.op.order = p.graph.order_view();
  const SpmmPack pack = *pack_spmm(p.op.rowptr, p.op.col, p.edge.view(), p.op.order);
  p.op.pack = &pack;
  ASSERT_STREQ(choose(Ctx{.arena = *std::make_unique<Arena>()}, p.op).name, "sell");
  sweep(p.op, 1e-5);
}

// Rows of more edges than a piece beside short ones, and slices of which some lanes are empty.
TEST(Spmm, LongRowsAreSumsOfPieces) {
  std::vector<int64_t> rowptr = {0};
  std::vector<int32_t> col;
  for (const int64_t degree : {3, 5000, 0, 4096, 1, 9000, 2, 4097, 7, 7, 7}) {
    for (int64_t e = 0; e < degree; ++e) col.push_back(static_cast<int32_t>(philox({.seed = 3}, col.size())[0] % 300));
    rowptr.push_back(std::ssize(col));
  }
  const auto edges = static_cast<int64_t>(col.size());
  const View starts = view_of(rowptr.data(), {std::ssize(rowptr)}), sources = view_of(col.data(), {edges});
  for (const int64_t width : {1, 2, 6, 8, 40}) {
    TestTensor x(DType::f32, {300, width}, 1, 1, 0.5), edge(DType::f32, {edges, 1}, 2), y(DType::f32, {11, width}, 3);
    const SpmmPack pack = *pack_spmm(starts, sources, edge.view());
    EXPECT_EQ(pack.long_rows, 3);
    SpmmFwd op{.rowptr = starts,
               .col = sources,
               .x = x.view(),
               .edge = edge.view(),
               .y = y.mut(),
               .own = 0.5f,
               .op = EdgeOp::mul,
               .pack = &pack};
    sweep(op, 1e-4);
    op.own = 0;
    op.reduce = Reduce::mean;
    op.tuning.past_caches = true;
    sweep(op, 1e-4);
    TestTensor narrow(DType::bf16, {11, width}, 3), arg(DType::i32, {11, width}, 4);
    op.y = narrow.mut();
    sweep(op, 4e-2);
    op.y = y.mut();
    op.reduce = Reduce::max;
    op.arg = arg.mut();
    sweep(op, 1e-5);
  }
}

// A star of three hubs, one of which has half of all edges: whatever the threads, the bits are those of one, of NaN and
// of the first of equal values too, and no task has more edges than a piece.
TEST(Spmm, ThreadsShareHubs) {
  std::vector<int64_t> rowptr = {0};
  std::vector<int32_t> col;
  constexpr int64_t kSources = 700, kHub = 160001;
  for (int64_t row = 0; row < 1200; ++row) {
    const int64_t degree = row == 5 ? kHub : row == 600 || row == 1199 ? 80000 : row % 3;
    for (int64_t e = 0; e < degree; ++e)
      col.push_back(static_cast<int32_t>(philox({.seed = 3}, col.size())[0] % kSources));
    rowptr.push_back(std::ssize(col));
  }
  const auto edges = static_cast<int64_t>(col.size());
  const View starts = view_of(rowptr.data(), {std::ssize(rowptr)}), sources = view_of(col.data(), {edges});
  std::vector<std::byte> space(3 * sizeof(SpmmLongRow));
  std::span<std::byte> rest(space);
  const SpmmLongRows longs = list_long_rows(starts, rest);
  EXPECT_EQ(std::ssize(longs.list), 3);
  EXPECT_TRUE(rest.empty());
  std::map<int64_t, int64_t> seen;  // edges by row
  for (int64_t k = 0; k < longs.pieces; ++k) {
    const SpmmPiece p = longs.piece(starts, k);
    EXPECT_EQ(p.begin, rowptr[static_cast<size_t>(p.row)] + seen[p.row]);
    EXPECT_GT(p.end, p.begin);
    EXPECT_LE(p.end - p.begin, std::min(kSpmmPiece, edges / 9));  // so that three threads have about as many
    seen[p.row] += p.end - p.begin;
  }
  EXPECT_EQ(seen, (std::map<int64_t, int64_t>{{5, kHub}, {600, 80000}, {1199, 80000}}));
  for (const int64_t width : {1, 7, 8, 20}) {
    TestTensor x(DType::f32, {kSources, width}, 1), edge(DType::f32, {edges, 1}, 2), add(DType::f32, {1200, width}, 3),
        y(DType::f32, {1200, width}, 4), arg(DType::i32, {1200, width}, 5);
    const SpmmPack pack = *pack_spmm(starts, sources, edge.view());
    for (const Reduce reduce : kReduces) {
      if (picks(reduce)) {  // of many equal values
        make_integers(x.mut(), 6), make_integers(edge.mut(), 7);
        set_element(x.mut(), 9 * width, NAN);
      }
      SpmmFwd op{.rowptr = starts,
                 .col = sources,
                 .x = x.view(),
                 .edge = edge.view(),
                 .y = y.mut(),
                 .op = EdgeOp::mul,
                 .reduce = reduce};
      if (picks(reduce)) op.add = add.view(), op.arg = arg.mut();
      for (const bool packed : {false, true}) {
        op.pack = packed && !picks(reduce) ? &pack : nullptr;
        Arena arena;
        Ctx ctx{.arena = arena, .threads = 1};
        run(ctx, op);
        const TestTensor y_one = y, arg_one = arg;
        for (const int threads : {2, 3}) {
          fill(y.mut(), 9);
          fill(arg.mut(), 9);
          ctx.threads = threads;
          ASSERT_EQ(sys::team_for(threads, op.flops()), threads);
          run(ctx, op);
          EXPECT_EQ(y.bytes, y_one.bytes) << "width " << width << ", " << threads << " threads";
          EXPECT_TRUE(!op.arg || arg.bytes == arg_one.bytes) << "width " << width << ", " << threads << " threads";
        }
      }
      if (picks(reduce)) {  // without edges that win
        op.arg = {};
        const TestTensor with = y;
        Arena arena;
        Ctx ctx{.arena = arena, .threads = 3};
        run(ctx, op);
        EXPECT_EQ(y.bytes, with.bytes);
      }
    }
  }
}

// Large enough that rows, and in the gradient channels, are shared by threads: a team changes no bit.
TEST(Spmm, LargeProblemsAreSharedByThreads) {
  constexpr int64_t kRows = 3000, kSources = 500, kWidth = 80;
  const TestGraph graph(kRows, kSources, 9);
  TestTensor x(DType::f32, {kSources, kWidth}, 1), edge(DType::f32, {graph.edges(), 1}, 2),
      y(DType::f32, {kRows, kWidth}, 3), arg(DType::i32, {kRows, kWidth}, 4), dy(DType::f32, {kRows, kWidth}, 5),
      dx(DType::f32, {kSources, kWidth}, 6), dadd = y;
  SpmmFwd op{.rowptr = graph.rowptr_view(),
             .col = graph.col_view(),
             .x = x.view(),
             .edge = edge.view(),
             .y = y.mut(),
             .op = EdgeOp::mul};
  ASSERT_EQ(sys::team_for(3, op.flops()), 3);
  sweep(op, 1e-4);  // one row sums 1500 terms
  op.reduce = Reduce::max;
  op.arg = arg.mut();
  sweep(op, 1e-5);
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, op);
  const SpmmBwdArg backward{.rowptr = op.rowptr,
                            .col = op.col,
                            .edge = edge.view(),
                            .arg = arg.view(),
                            .dy = dy.view(),
                            .dx = dx.mut(),
                            .dadd = dadd.mut(),
                            .op = EdgeOp::mul};
  ASSERT_GT(sys::team_for(3, backward.flops()), 1);
  sweep(backward, 1e-5);
}

// Of fewer blocks of channels than threads, which exchange what they add where it does not fit a cache.
TEST(SpmmBwdArg, NarrowProblemsAreSharedByThreads) {
  constexpr int64_t kRows = 45001, kSources = 40001;
  const TestGraph graph(kRows, kSources, 9);
  for (const int64_t width : {8, 16, 20}) {
    TestTensor x(DType::f32, {kSources, width}, 1), edge(DType::f32, {graph.edges(), 1}, 2),
        y(DType::f32, {kRows, width}, 3), arg(DType::i32, {kRows, width}, 4), dy(DType::f32, {kRows, width}, 5),
        dx(DType::f32, {kSources, width}, 6);
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, SpmmFwd{.rowptr = graph.rowptr_view(),
                     .col = graph.col_view(),
                     .x = x.view(),
                     .edge = edge.view(),
                     .y = y.mut(),
                     .arg = arg.mut(),
                     .op = EdgeOp::mul,
                     .reduce = Reduce::max});
    const SpmmBwdArg op{.rowptr = graph.rowptr_view(),
                        .col = graph.col_view(),
                        .edge = edge.view(),
                        .arg = arg.view(),
                        .dy = dy.view(),
                        .dx = dx.mut(),
                        .op = EdgeOp::mul};
    ASSERT_EQ(sys::team_for(3, op.flops()), 3);
    EXPECT_EQ(SpmmBwdArg::rows()[0].workspace(op, 3) > 0, width <= 16);
    sweep(op, 1e-5);
    ctx.threads = 1;
    run(ctx, op);
    const TestTensor one = dx;
    for (const int threads : {4, 5, 9}) {
      ctx.threads = threads;
      run(ctx, op);
      EXPECT_EQ(dx.bytes, one.bytes) << threads;
    }
  }
}

// In integers nothing rounds: FP32 and FP64 agree bit for bit, also in which of several equal values wins.
TEST(Spmm, IntegersAreExact) {
  for (const EdgeOp f : {EdgeOp::copy_x, EdgeOp::copy_e, EdgeOp::add, EdgeOp::sub, EdgeOp::mul}) {
    for (const Reduce reduce : {Reduce::sum, Reduce::max, Reduce::min}) {
      for (const int64_t width : {1, 7, 16, 129}) {
        Problem p(f, reduce, width, 1);
        make_integers(p.x.mut(), 1);
        make_integers(p.edge.mut(), 2);
        sweep(p.op, 0);
      }
    }
  }
}

// Shapes around vectors, strips and slices, none of any of them; integers, so that all rows have the same bits.
TEST(Spmm, TheLatticeOfShapes) {
  for (const int64_t rows : {0, 1, 2, 15, 16, 17, 1000}) {
    for (const int64_t width : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 128, 129, 256, 602}) {
      if (rows == 1000 && width % 64 != 0 && width < 129) continue;  // the reference is slow
      const TestGraph graph(rows, 33, static_cast<uint64_t>(rows + width));
      TestTensor x(DType::f32, {33, width}, 1), edge(DType::f32, {graph.edges() + 1, 1}, 2),
          y(DType::f32, {rows + 1, width}, 3), arg(DType::i32, {rows + 1, width}, 4);  // never without memory
      make_integers(x.mut(), 1);
      make_integers(edge.mut(), 2);
      for (const EdgeOp f : {EdgeOp::copy_x, EdgeOp::mul}) {
        for (const Reduce reduce : {Reduce::sum, Reduce::max}) {
          SpmmFwd op{.rowptr = graph.rowptr_view(),
                     .col = graph.col_view(),
                     .x = x.view(),
                     .edge = f == EdgeOp::mul ? edge.view().slice(0, 0, graph.edges()) : View(),
                     .y = {y.bytes.data(), DType::f32, {rows, width}},
                     .op = f,
                     .reduce = reduce};
          if (picks(reduce)) op.arg = {arg.bytes.data(), DType::i32, {rows, width}};
          const auto pack = pack_spmm(op.rowptr, op.col, op.edge);
          if (pack) op.pack = &*pack;
          sweep(op, 0);
          if (HasFailure()) FAIL() << rows << " rows, width " << width;
        }
      }
    }
  }
}

TEST(Spmm, ARowWithoutEdgesIsZeroAndHasNoWinner) {
  for (const Reduce reduce : kReduces)
    for (const int64_t width : {1, 5, 19}) {
      Problem p(EdgeOp::copy_x, reduce, width, 1);
      const SpmmPack pack = *pack_spmm(p.op.rowptr, p.op.col);
      p.op.pack = &pack;
      if (picks(reduce)) p.op.add = p.add.view();
      for (const Row<SpmmFwd>& row : SpmmFwd::rows()) {
        if (refusal(row, p.op, Device::cpu)) continue;
        Arena arena;
        Ctx ctx{.arena = arena, .poison = true};
        const TestTensor before = p.arg;
        run_row(ctx, p.op, row);
        for (int64_t c = 0; c < width; ++c) {
          EXPECT_EQ(element(p.y.view(), c), 0);
          EXPECT_EQ(element(p.arg.view(), c), picks(reduce) ? -1 : element(before.view(), c));
        }
      }
    }
}

void expect_nan_where_read(const Problem& p, int64_t bad) {
  const int64_t width = p.op.y.dim(1);
  for (const Row<SpmmFwd>& row : SpmmFwd::rows()) {
    if (refusal(row, p.op, Device::cpu)) continue;
    Arena arena;
    Ctx ctx{.arena = arena};
    run_row(ctx, p.op, row);
    for (int64_t i = 0; i < 23; ++i) {
      bool reads = false;
      for (int64_t e = p.graph.rowptr[static_cast<size_t>(i)]; e < p.graph.rowptr[static_cast<size_t>(i) + 1]; ++e)
        reads = reads || p.graph.col[static_cast<size_t>(e)] == bad;
      for (int64_t c = 0; c < width; ++c)
        EXPECT_EQ(std::isnan(element(p.y.view(), i * width + c)), reads)
            << row.name << " row " << i << " source " << bad;
    }
  }
}

// NaN of a source reaches the rows that read it and no others, through every reduction; source 0 is what a pack has
// beyond the end of a row.
TEST(Spmm, NanReachesTheRowsThatReadIt) {
  for (const Reduce reduce : kReduces) {
    for (const int64_t width : {1, 3, 16, 40}) {
      for (const auto& [f, bad] : {std::pair(EdgeOp::copy_x, 7), {EdgeOp::copy_x, 0}, {EdgeOp::mul, 0}}) {
        Problem p(f, reduce, width, 1);
        const SpmmPack pack = *pack_spmm(p.op.rowptr, p.op.col, p.op.edge);
        p.op.pack = &pack;
        for (int64_t c = 0; c < width; ++c) set_element(p.x.mut(), bad * width + c, NAN);
        expect_nan_where_read(p, bad);
      }
    }
  }
}

TEST(SpmmBwdArg, EveryRowAgreesWithTheReference) {
  for (const EdgeOp f : kOps) {
    for (const int64_t width : {1, 5, 16, 33}) {
      for (const int64_t values : {int64_t{1}, width}) {
        for (const DType type : {DType::f32, DType::bf16}) {
          Problem p(f, Reduce::max, width, values, type);
          Arena arena;
          Ctx ctx{.arena = arena};
          run(ctx, p.op);
          TestTensor dy(type, {23, width}, 8), dx(DType::f32, {17, width}, 9),
              dedge(DType::f32, {p.graph.edges(), values}, 10), dadd(DType::f32, {23, width}, 11);
          SpmmBwdArg op{.rowptr = p.op.rowptr,
                        .col = p.op.col,
                        .x = p.op.x,
                        .edge = p.op.edge,
                        .arg = p.arg.view(),
                        .dy = dy.view(),
                        .dx = dx.mut(),
                        .dadd = dadd.mut(),
                        .op = f};
          if (f != EdgeOp::copy_x) op.dedge = dedge.mut();
          sweep(op, 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid
