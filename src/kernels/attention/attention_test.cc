// Tolerance: FP32 scores, exponentials and sums over at most 1,200 keys against FP64, 2e-5 of the root mean square, and
// 4e-5 of the gradients (1e-4 where y was kept in BF16); BF16 outputs 1/64; on tiles, where queries and exponentials
// are rounded to BF16, 8e-2, which tokens with few keys come close to: their values are several times the root mean
// square. Bit-for-bit claims are memcmp.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "core/op_sweep.h"
#include "core/ref.h"
#include "kernels/attention/attention_ref.h"
#include "kernels/attention/attention_rows.h"

namespace braid {
namespace {

constexpr double kOnTiles = 8e-2;

struct Shapes {
  int64_t heads, groups, width, page;
  DType pages, io;
};

// Sequences of a batch with their pages handed out in shuffled order and every unused row of every page NaN, by its
// scale where codes have one.
class Batch {
 public:
  Batch(const Shapes& shapes, const SeqMap& map, uint64_t seed = 1)
      : shapes_(shapes),
        seqs_(map),
        tokens_(map.tokens()),
        pages_(count_pages(map, shapes.page)),
        q_(shapes.io, {tokens_, shapes.heads, shapes.width}, seed),
        y_(shapes.io, {tokens_, shapes.heads, shapes.width}, 9),
        lse_(DType::f32, {tokens_, shapes.heads}, 10),
        k_pages_(shapes.pages, {pages_, shapes.page, shapes.groups, shapes.width}, 3),
        v_pages_(shapes.pages, {pages_, shapes.page, shapes.groups, shapes.width}, 4),
        k_scales_(DType::f32, {pages_, shapes.page, shapes.groups}, 5),
        v_scales_(DType::f32, {pages_, shapes.page, shapes.groups}, 6) {
    for (TestTensor* t : {&k_pages_, &v_pages_, &k_scales_, &v_scales_}) {
      fill(t->mut(), t->dtype == DType::i8 ? 100 : NAN);
    }
    std::vector<int32_t> order(static_cast<size_t>(pages_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    int64_t tables = 1, next = 0;
    for (const Seq& seq : map.seqs) {
      tables = std::max(tables, seq.table + 1);
      table_cols_ = std::max(table_cols_, (seq.pos0 + seq.len + shapes.page - 1) / shapes.page);
    }
    table_.assign(static_cast<size_t>(tables * table_cols_), -1);
    for (const Seq& seq : map.seqs) {
      for (int64_t i = 0; i * shapes.page < seq.pos0 + seq.len; ++i) {
        table_[static_cast<size_t>(seq.table * table_cols_ + i)] = order[static_cast<size_t>(next++)];
      }
      for (int64_t pos = 0; pos < seq.pos0 + seq.len; ++pos) write_key(seq, pos);
    }
  }

  AttentionFwd op() {
    return {.q = q_.view(),
            .k_pages = k_pages_.view(),
            .v_pages = v_pages_.view(),
            .k_scales = has_scales() ? k_scales_.view() : View(),
            .v_scales = has_scales() ? v_scales_.view() : View(),
            .page_table = table(),
            .y = y_.mut(),
            .lse = lse_.mut(),
            .seqs = &seqs_,
            .scale = 1 / std::sqrt(static_cast<float>(shapes_.width)),
            .v_factor = shapes_.pages == DType::f8_e4m3 ? 0.37f : 1};
  }
  View table() const {
    return view_of(table_.data(), {static_cast<int64_t>(table_.size()) / table_cols_, table_cols_});
  }
  TestTensor& q() { return q_; }
  // The output rows of `seq`, run with `map` in place of the batch's own.
  std::vector<std::byte> run_with(const SeqMap& map, int threads) {
    AttentionFwd call = op();
    call.seqs = &map;
    Arena arena;
    Ctx ctx{.arena = arena, .threads = threads};
    run(ctx, call);
    return y_.bytes;
  }

 private:
  static int64_t count_pages(const SeqMap& map, int64_t page) {
    int64_t n = 2;  // two without an owner
    for (const Seq& seq : map.seqs) n += (seq.pos0 + seq.len + page - 1) / page;
    return n;
  }
  // Keys and values depend on the table and the position alone, wherever their page is.
  void write_key(const Seq& seq, int64_t pos) {
    const int64_t width = shapes_.groups * shapes_.width;
    const int32_t page = table_[static_cast<size_t>(seq.table * table_cols_ + pos / shapes_.page)];
    const int64_t row = page * shapes_.page + pos % shapes_.page;
    TestTensor k(DType::f32, {width}, static_cast<uint64_t>(1000 + 5000 * seq.table + pos)),
        v(DType::f32, {width}, static_cast<uint64_t>(900000 + 5000 * seq.table + pos));
    for (int64_t i = 0; i < width; ++i) {
      const double scale = has_scales() ? 0.01 + 0.001 * static_cast<double>(pos % 7 + i / shapes_.width) : 1;
      const auto code = [&](double value) { return has_scales() ? std::nearbyint(value / scale) : value; };
      set_element(k_pages_.mut(), row * width + i, code(element(k.view(), i)));
      set_element(v_pages_.mut(), row * width + i, code(element(v.view(), i)));
      set_element(k_scales_.mut(), row * shapes_.groups + i / shapes_.width, scale);
      set_element(v_scales_.mut(), row * shapes_.groups + i / shapes_.width, 2 * scale);
    }
  }
  bool has_scales() const { return shapes_.pages == DType::i8; }

  Shapes shapes_;
  SeqMap seqs_;
  int64_t tokens_, pages_, table_cols_ = 1;
  TestTensor q_, y_, lse_, k_pages_, v_pages_, k_scales_, v_scales_;
  std::vector<int32_t> table_;
};

constexpr Shapes kShapes[] = {{2, 2, 12, 5, DType::f32, DType::f32},      {8, 2, 80, 64, DType::f32, DType::f32},
                              {5, 1, 32, 16, DType::bf16, DType::f32},    {32, 2, 128, 64, DType::bf16, DType::bf16},
                              {16, 1, 128, 128, DType::f32, DType::f32},  {4, 4, 64, 64, DType::bf16, DType::f32},
                              {6, 2, 7, 3, DType::bf16, DType::bf16},     {10, 2, 24, 64, DType::f32, DType::bf16},
                              {8, 2, 80, 64, DType::f8_e4m3, DType::f32}, {6, 3, 7, 3, DType::f8_e4m3, DType::bf16},
                              {32, 2, 128, 64, DType::i8, DType::bf16},   {5, 1, 36, 5, DType::i8, DType::f32}};

// Fresh prompts, a chunk in the middle, single steps and drafts of several tokens, tables in any order.
SeqMap ragged() {
  SeqMap map;
  map.add(70, 0, 3);
  map.add(1, 130, 0);
  map.add(5, 62, 4);
  map.add(1, 0, 1);
  map.add(66, 63, 2);
  return map;
}

TEST(Attention, EveryRowAgreesWithTheReference) {
  for (const Shapes& shapes : kShapes) {
    Batch batch(shapes, ragged());
    sweep(batch.op(), shapes.io == DType::bf16 ? 2e-2 : 2e-5, kOnTiles);
  }
}

// [pages, G, page, P] seen as [pages, page, G, P].
MutView head_by_head(TestTensor& pages) {
  MutView v = pages.mut();
  std::swap(v.shape[1], v.shape[2]);
  std::swap(v.strides[1], v.strides[2]);
  return v;
}

// The layout of the engine's pages: the same bits from the same numbers.
TEST(Attention, PagesMayBeStoredHeadByHead) {
  for (const Shapes& shapes : kShapes) {
    Batch batch(shapes, ragged());
    AttentionFwd op = batch.op();
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 2};
    run(ctx, op);
    const std::vector<double> want = to_doubles(op.y);
    const Shape laid{op.k_pages.dim(0), shapes.groups, shapes.page, shapes.width};
    TestTensor k(shapes.pages, laid, 1), v(shapes.pages, laid, 2);
    for (const auto& [from, to] : {std::pair{op.k_pages, head_by_head(k)}, {op.v_pages, head_by_head(v)}}) {
      for (int64_t i = 0; i < from.count(); ++i) set_element(to, i, element(from, i));
    }
    op.k_pages = head_by_head(k);
    op.v_pages = head_by_head(v);
    fill(op.y, NAN);
    run(ctx, op);
    EXPECT_EQ(to_doubles(op.y), want) << shapes.groups << " of " << shapes.width;
  }
}

TEST(Attention, LongSequences) {
  SeqMap map;
  map.add(3, 1190, 1);
  map.add(2, 511, 0);
  for (const Shapes& shapes : {kShapes[1], kShapes[3]}) {
    Batch batch(shapes, map);
    sweep(batch.op(), shapes.io == DType::bf16 ? 2e-2 : 2e-5, kOnTiles);
  }
}

// Scores of +-1000: the running maximum must keep every exponential in range.
TEST(Attention, LargeScoresDoNotOverflow) {
  Batch batch(kShapes[1], ragged());
  for (int64_t i = 0; i < batch.q().shape.count(); ++i)
    set_element(batch.q().mut(), i, 300 * element(batch.q().view(), i));
  sweep(batch.op(), 2e-3);
}

// The whole prompt at once, in chunks, and token by token: the same bits, with any team.
TEST(Attention, ChunksAndStepsGiveTheSameBits) {
  const int64_t tokens = 300;
  for (const Shapes& shapes : kShapes) {
    Batch batch(shapes, SeqMap::one(tokens, 0, 2));
    const std::vector<std::byte> whole = batch.run_with(SeqMap::one(tokens, 0, 2), 1);
    for (const int64_t chunk : {1, 7, 64, 130}) {
      const int64_t first_chunk = chunk == 1 ? tokens - 40 : 0;  // each step is a call: only the last 40
      std::vector<std::byte> parts = whole;
      const size_t row = whole.size() / static_cast<size_t>(tokens);
      for (int64_t at = first_chunk; at < tokens; at += chunk) {
        SeqMap map;
        map.seqs.push_back({.start = at, .len = std::min(chunk, tokens - at), .pos0 = at, .table = 2});
        const auto part = batch.run_with(map, chunk == 7 ? 3 : 2);
        std::copy_n(part.begin() + static_cast<ptrdiff_t>(row) * at, row * static_cast<size_t>(map.seqs[0].len),
                    parts.begin() + static_cast<ptrdiff_t>(row) * at);
      }
      EXPECT_EQ(std::memcmp(parts.data(), whole.data(), whole.size()), 0)
          << "P " << shapes.width << ", chunk " << chunk;
    }
  }
}

// What tiles do, in software, and dots where the CPU has them.
std::vector<packed::Kernel> block_kernels() {
  std::vector<packed::Kernel> kernels = {packed::soft_tile_bf16()};
  if (!packed::refusal(packed::Class::bf16_dot)) kernels.push_back(packed::block_kernel_of(packed::Class::bf16_dot));
  return kernels;
}

// Near the reference, the same bits whole, in chunks and in steps, whatever lies beyond the keys that a row sees.
void agrees_in_chunks(const packed::Kernel& kernel) {
  const int64_t tokens = 150;
  for (const Shapes& shapes : {kShapes[3], kShapes[2], kShapes[6], kShapes[8], kShapes[10], kShapes[11]}) {
    Batch batch(shapes, SeqMap::one(tokens, 0, 2));
    AttentionFwd op = batch.op();
    TestTensor y(DType::bf16, op.y.shape, 11), want = y, lse(DType::f32, op.lse.shape, 12), want_lse = lse;
    Arena arena;
    Ctx ctx{.arena = arena};
    op.y = want.mut();
    op.lse = want_lse.mut();
    run_row(ctx, op, AttentionFwd::rows().back());
    op.y = y.mut();
    op.lse = lse.mut();
    for (const int64_t chunk : {tokens, int64_t{7}, int64_t{64}}) {
      fill(y.mut(), NAN);
      for (int64_t at = 0; at < tokens; at += chunk) {
        SeqMap map;
        map.seqs.push_back({.start = at, .len = std::min(chunk, tokens - at), .pos0 = at, .table = 2});
        op.seqs = &map;
        ctx.threads = chunk == 7 ? 3 : 2;
        std::vector<std::byte> memory(static_cast<size_t>(attention_fwd_workspace(&kernel, op, ctx.threads)),
                                      std::byte{0xff});
        attention_fwd_blocks(&kernel, ctx, op, memory);
      }
      EXPECT_LE(distance(y.view(), want.view()), kOnTiles) << shapes.width << " " << chunk;
      EXPECT_LE(distance(lse.view(), want_lse.view()), 1e-2) << shapes.width << " " << chunk;
      if (chunk == tokens) {
        want = y;
        want_lse = lse;
      }
      EXPECT_EQ(y.bytes, want.bytes) << shapes.width << " " << chunk;
    }
  }
}

TEST(Attention, OnPackedBlocks) {
  for (const packed::Kernel& kernel : block_kernels()) agrees_in_chunks(kernel);
}

// A NaN reaches the tokens that see it and no other, in packed blocks too.
void passes_nan(const packed::Kernel& kernel) {
  struct Case {
    int64_t before, tokens, bad;  // tokens that the cache has before these; the key with the NaN
  };
  // In the only block; in the last one, which holds that key alone and begins inside a tile of rows.
  for (const auto& [before, tokens, bad] : {Case{0, 40, 5}, Case{3, 62, 64}}) {
    const int64_t width = 16, heads = 4, keys = before + tokens;
    TestTensor q(DType::bf16, {tokens, heads, width}, 1), k(DType::bf16, {1, keys, 1, width}, 2),
        v = k, y(DType::bf16, {tokens, heads, width}, 3);
    set_element(v.mut(), bad * width + 3, NAN);
    const SeqMap map = SeqMap::one(tokens, before);
    const int32_t page_0 = 0;
    const AttentionFwd op{.q = q.view(),
                          .k_pages = k.view(),
                          .v_pages = v.view(),
                          .page_table = view_of(&page_0, {1, 1}),
                          .y = y.mut(),
                          .seqs = &map};
    Arena arena;
    Ctx ctx{.arena = arena};
    std::vector<std::byte> memory(static_cast<size_t>(attention_fwd_workspace(&kernel, op, ctx.threads)));
    attention_fwd_blocks(&kernel, ctx, op, memory);
    for (int64_t t = 0; t < tokens; ++t) {
      EXPECT_EQ(std::isnan(element(y.view(), t * heads * width + 3)), before + t >= bad) << t;
      EXPECT_FALSE(std::isnan(element(y.view(), t * heads * width + 4))) << t;
    }
  }
}

TEST(Attention, PackedBlocksPassNan) {
  for (const packed::Kernel& kernel : block_kernels()) passes_nan(kernel);
}

TEST(Attention, BatchMatesChangeNothing) {
  for (const Shapes& shapes : kShapes) {
    Batch batch(shapes, ragged());
    const std::vector<std::byte> together = batch.run_with(ragged(), 2);
    const size_t row = together.size() / static_cast<size_t>(ragged().tokens());
    for (const Seq& seq : ragged().seqs) {
      SeqMap alone;
      alone.seqs.push_back(seq);
      const auto y = batch.run_with(alone, 3);
      const size_t at = row * static_cast<size_t>(seq.start);
      EXPECT_EQ(std::memcmp(y.data() + at, together.data() + at, row * static_cast<size_t>(seq.len)), 0)
          << "P " << shapes.width << ", table " << seq.table;
    }
  }
}

// Packed sequences whose keys and values are rows of the batch, as in training, with the inputs of backward.
class Packed {
 public:
  Packed(const Shapes& shapes, const std::vector<int64_t>& lens, double scores = 1)
      : shapes_(shapes),
        map_(map_of(lens)),
        fused_(shapes.io, {tokens(), (shapes.heads + 2 * shapes.groups) * shapes.width}, 1, scores),
        dy_(DType::f32, {tokens(), shapes.heads, shapes.width}, 4),
        y_(shapes.io, {tokens(), shapes.heads, shapes.width}, 5),
        lse_(DType::f32, {tokens(), shapes.heads}, 6),
        dfused_(DType::f32, fused_.shape, 7) {
    Arena arena;
    Ctx ctx{.arena = arena};
    run(ctx, forward());
  }
  int64_t tokens() const { return map_.tokens(); }
  const SeqMap& map() const { return map_; }

  // Slices of one fused projection.
  template <class V>
  V part(const V& fused, int64_t begin, int64_t heads) const {
    return fused.slice(1, begin * shapes_.width, heads * shapes_.width).split_last(heads, shapes_.width);
  }
  AttentionFwd forward() {
    const View fused = fused_.view();
    return {.q = part(fused, 0, shapes_.heads),
            .k_pages = one_page(part(fused, shapes_.heads, shapes_.groups)),
            .v_pages = one_page(part(fused, shapes_.heads + shapes_.groups, shapes_.groups)),
            .y = y_.mut(),
            .lse = lse_.mut(),
            .seqs = &map_,
            .scale = scale()};
  }
  AttentionFwd in_training() {
    AttentionFwd op = forward();
    op.train = true;
    return op;
  }
  AttentionBwd backward(const SeqMap* map = nullptr) {
    const View fused = fused_.view();
    const MutView dfused = dfused_.mut();
    return {.dy = dy_.view(),
            .q = part(fused, 0, shapes_.heads),
            .k = part(fused, shapes_.heads, shapes_.groups),
            .v = part(fused, shapes_.heads + shapes_.groups, shapes_.groups),
            .y = y_.view(),
            .lse = lse_.view(),
            .dq = part(dfused, 0, shapes_.heads),
            .dk = part(dfused, shapes_.heads, shapes_.groups),
            .dv = part(dfused, shapes_.heads + shapes_.groups, shapes_.groups),
            .seqs = map ? map : &map_,
            .scale = scale()};
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shapes_.width)); }
  TestTensor& fused() { return fused_; }
  TestTensor& dfused() { return dfused_; }
  TestTensor& dy() { return dy_; }

 private:
  static SeqMap map_of(const std::vector<int64_t>& lens) {
    SeqMap map;
    for (int64_t len : lens) map.add(len);
    return map;
  }
  static View one_page(const View& rows) {
    View v = rows;
    v.shape = {1, rows.dim(0), rows.dim(1), rows.dim(2)};
    std::copy_n(rows.strides.begin(), 3, v.strides.begin() + 1);
    return v;
  }

  Shapes shapes_;
  SeqMap map_;
  TestTensor fused_, dy_, y_, lse_, dfused_;
};

constexpr Shapes kPacked[] = {{4, 4, 64, 0, DType::f32, DType::f32},   {8, 2, 80, 0, DType::bf16, DType::bf16},
                              {16, 1, 128, 0, DType::f32, DType::f32}, {3, 1, 7, 0, DType::bf16, DType::bf16},
                              {4, 1, 80, 0, DType::f32, DType::f32},   {32, 2, 128, 0, DType::bf16, DType::bf16}};

TEST(Attention, RowsOfABatchNeedNoPages) {
  for (const Shapes& shapes : kPacked) {
    Packed batch(shapes, {70, 1, 5, 66});
    sweep(batch.forward(), shapes.io == DType::bf16 ? 2e-2 : 2e-5, kOnTiles);
  }
}

// Sequences that read rows of other keys: all of them visible, those up to the token, and some of either.
struct Across {
  SeqMap seqs, keys;
  TestTensor q, k, v, y, dy, lse, dq, dk, dv;

  explicit Across(const Shapes& s)
      : q(s.io, {142, s.heads, s.width}, 1),
        k(s.io, {193, s.groups, s.width}, 2),
        v(s.io, {193, s.groups, s.width}, 3),
        y(s.io, {142, s.heads, s.width}, 4),
        dy(DType::f32, {142, s.heads, s.width}, 5),
        lse(DType::f32, {142, s.heads}, 6),
        dq(DType::f32, {142, s.heads, s.width}, 7),
        dk(DType::f32, {193, s.groups, s.width}, 8),
        dv(DType::f32, {193, s.groups, s.width}, 9) {
    const int64_t list[4][6] = {
        {0, 5, 70, 123, 70, 0}, {5, 70, 9, 0, 70, 9}, {75, 1, 700, 120, 3, 2}, {76, 66, 40, 70, 50, 30}};
    for (const auto& [start, len, pos0, first, count, from] : list) {
      seqs.seqs.push_back({.start = start, .len = len, .pos0 = pos0});
      keys.seqs.push_back({.start = first, .len = count, .pos0 = from});
    }
    for (TestTensor* t : {&y, &lse, &dq, &dk, &dv}) fill(t->mut(), 0);
  }
  AttentionFwd forward() {
    const auto page = [](const View& x) { return View(x.data, x.dtype, {1, x.dim(0), x.dim(1), x.dim(2)}); };
    return {.q = q.view(),
            .k_pages = page(k.view()),
            .v_pages = page(v.view()),
            .y = y.mut(),
            .lse = lse.mut(),
            .seqs = &seqs,
            .keys = &keys,
            .scale = 0.25f};
  }
  AttentionBwd backward() {
    return {.dy = dy.view(),
            .q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .y = y.view(),
            .lse = lse.view(),
            .dq = dq.mut(),
            .dk = dk.mut(),
            .dv = dv.mut(),
            .seqs = &seqs,
            .keys = &keys,
            .scale = 0.25f};
  }
};

TEST(Attention, SequencesMayReadOtherKeys) {
  for (const Shapes& shapes : kPacked) {
    Across across(shapes);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 2};
    sweep(across.forward(), shapes.io == DType::bf16 ? 2e-2 : 2e-5, kOnTiles);
    run(ctx, across.forward());
    sweep(across.backward(), shapes.io == DType::bf16 ? 1e-4 : 4e-5, kOnTiles);
  }
}

// Scores that overflow to -inf are those of keys that add nothing, also where they fill whole blocks and spans before
// the first finite one.
TEST(Attention, ScoresOfMinusInfinityAddNothing) {
  constexpr int64_t kBefore = 2 * kAttentionSpan + kAttentionBlock + 5, kAfter = 70;
  for (const Shapes& shapes : {kPacked[0], kPacked[3]}) {
    Packed batch(shapes, {kBefore + kAfter});
    const int64_t row = (shapes.heads + 2 * shapes.groups) * shapes.width;
    for (int64_t t = 0; t < kBefore + kAfter; ++t) {
      const auto set = [&](int64_t head, double value) {
        set_element(batch.fused().mut(), t * row + head * shapes.width, value);
      };
      for (int64_t h = 0; h < shapes.heads; ++h) set(h, t < kBefore ? 0 : 30);
      for (int64_t g = 0; g < shapes.groups; ++g) set(shapes.heads + g, t < kBefore ? -3e38 : 0);
    }
    sweep(batch.forward(), shapes.io == DType::bf16 ? 2e-2 : 2e-5, kOnTiles);
  }
}

// NaN reaches the tokens that see it and no other.
TEST(Attention, NanIsSeen) {
  const int64_t bad = 5, row = 12 * 64;
  Packed batch(kPacked[0], {40});
  set_element(batch.fused().mut(), bad * row + 4 * 64, NAN);  // of the first key head
  Arena arena;
  Ctx ctx{.arena = arena};
  const AttentionFwd forward = batch.forward();
  run(ctx, forward);
  run(ctx, batch.backward());
  for (int64_t t = 0; t < 40; ++t) {
    EXPECT_EQ(std::isnan(element(forward.y, t * 4 * 64)), t >= bad) << t;
    EXPECT_EQ(std::isnan(element(forward.lse, t * 4)), t >= bad) << t;
    EXPECT_FALSE(std::isnan(element(forward.y, t * 4 * 64 + 64))) << t;
    EXPECT_TRUE(t < bad || std::isnan(element(batch.dfused().view(), t * row))) << t;
  }
}

// dL/dq, dL/dk, dL/dv of L = sum(dy * y) by complex step on the forward reference: two query heads on one KV head.
TEST(AttentionBwd, IsTheDerivative) {
  const int64_t tokens = 4, heads = 2, width = 3;
  Packed batch({heads, 1, width, 0, DType::f32, DType::f32}, {tokens});
  const std::vector<double> weights = to_doubles(batch.dy().view());
  using Complex = std::complex<double>;
  const auto gradient = complex_step(to_doubles(batch.fused().view()), [&](const std::vector<Complex>& p) {
    std::vector<Complex> k, v;
    for (int64_t i = 0; i < tokens * width; ++i) {
      const auto row = static_cast<size_t>(i / width * 4 * width + i % width);
      k.push_back(p[row + static_cast<size_t>(heads * width)]);
      v.push_back(p[row + static_cast<size_t>((heads + 1) * width)]);
    }
    Complex loss = 0;
    for (int64_t r = 0; r < tokens * heads; ++r) {
      std::vector<Complex> y(static_cast<size_t>(width));
      const Complex* q = &p[static_cast<size_t>((r / heads * 4 + r % heads) * width)];
      attention_ref(r / heads + 1, width, static_cast<double>(batch.scale()), q, k.data(), v.data(), y.data());
      for (size_t i = 0; i < y.size(); ++i) loss += weights[static_cast<size_t>(r * width) + i] * y[i];
    }
    return loss;
  });
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, batch.backward());
  for (size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_NEAR(element(batch.dfused().view(), static_cast<int64_t>(i)), gradient[i], 2e-6) << i;
  }
}

TEST(AttentionBwd, EveryRowAgreesWithTheReference) {
  for (const Shapes& shapes : kPacked) {
    // Longer than a tile of 128 rows, whatever the number of heads in it.
    Packed batch(shapes, shapes.heads > 4 ? std::vector<int64_t>{40, 1, 70} : std::vector<int64_t>{70, 1, 5, 130, 64});
    sweep(batch.backward(), shapes.io == DType::bf16 ? 1e-4 : 4e-5, kOnTiles);
  }
}

// Gradients in BF16, as slices of one fused tensor, next to channels that are not touched.
TEST(AttentionBwd, WritesItsSlicesOnly) {
  Packed batch(kPacked[1], {3, 70});
  TestTensor wide(DType::f32, {73, 12 * 80 + 2}, 8), before = wide;
  AttentionBwd op = batch.backward();
  op.dq = batch.part(wide.mut().slice(1, 1, 12 * 80), 0, 8);
  op.dk = batch.part(wide.mut().slice(1, 1, 12 * 80), 8, 2);
  op.dv = batch.part(wide.mut().slice(1, 1, 12 * 80), 10, 2);
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  run(ctx, op);
  run(ctx, batch.backward());
  for (int64_t t = 0; t < 73; ++t) {
    for (int64_t i = 0; i < 962; ++i) {
      const double got = element(wide.view(), t * 962 + i);
      const bool edge = i == 0 || i == 961;
      EXPECT_EQ(got,
                element(edge ? before.view() : batch.dfused().view(), t * (edge ? 962 : 960) + i - (edge ? 0 : 1)));
    }
  }
  TestTensor dq(DType::bf16, {73, 8, 80}, 9), dk(DType::bf16, {73, 2, 80}, 9), dv = dk;
  op.dq = dq.mut();
  op.dk = dk.mut();
  op.dv = dv.mut();
  sweep(op, 2e-2, kOnTiles);
}

// Whatever the heads, products in BF16 training are those of packed blocks where the CPU has any.
TEST(AttentionBwd, ForwardInTrainingTakesPackedBlocks) {
  const bool any = !packed::refusal(packed::Class::bf16_dot) || !packed::refusal(packed::Class::bf16_tile);
  for (const Shapes& shapes : kPacked) {
    Packed batch(shapes, {70, 1, 5, 130});
    Arena arena;
    const Ctx ctx{.arena = arena};
    const std::string_view numerics = choose(ctx, batch.in_training()).numerics;
    EXPECT_EQ(numerics != "f32", any && shapes.io == DType::bf16) << numerics;
    sweep(batch.in_training(), shapes.io == DType::bf16 ? 2e-2 : 2e-5, kOnTiles);
  }
}

// The root mean square of the difference over that of the reference.
double error_of_rms(const View& got, const View& want) {
  double error = 0, square = 0;
  for (int64_t i = 0; i < got.count(); ++i) {
    error += std::pow(element(got, i) - element(want, i), 2);
    square += std::pow(element(want, i), 2);
  }
  return std::sqrt(error / square);
}

// On what tiles do, in software, and on dots: near the reference, with any team, and from any bytes in the workspace.
TEST(AttentionBwd, OnPackedBlocks) {
  for (const packed::Kernel& kernel : block_kernels()) {
    for (const Shapes& shapes : kPacked) {
      if (shapes.io == DType::f32) continue;
      Packed batch(shapes,
                   shapes.heads > 4 ? std::vector<int64_t>{40, 1, 70} : std::vector<int64_t>{70, 1, 5, 130, 64});
      Arena arena;
      Ctx ctx{.arena = arena};
      run_row(ctx, batch.backward(), AttentionBwd::rows().back());
      const TestTensor want = batch.dfused();
      std::vector<std::byte> bits;
      for (const int threads : {1, 3}) {
        fill(batch.dfused().mut(), NAN);
        ctx.threads = threads;
        const AttentionBwd op = batch.backward();
        std::vector<std::byte> memory(static_cast<size_t>(attention_bwd_workspace(&kernel, op, threads)),
                                      std::byte{0xff});
        attention_bwd_blocks(&kernel, ctx, op, memory);
        EXPECT_LE(distance(batch.dfused().view(), want.view()), kOnTiles) << "P " << shapes.width << " " << threads;
        EXPECT_LE(error_of_rms(batch.dfused().view(), want.view()), 5e-3) << "P " << shapes.width << " " << threads;
        EXPECT_GT(distance(batch.dfused().view(), want.view()), 1e-6) << "is this the right class?";
        if (threads == 1) bits = batch.dfused().bytes;
        EXPECT_EQ(batch.dfused().bytes, bits) << "P " << shapes.width;
      }
    }
  }
}

// A batch cut between its sequences: the same bits, with any team.
TEST(AttentionBwd, BatchMatesChangeNothing) {
  for (const Shapes& shapes : kPacked) {
    Packed batch(shapes, {70, 1, 5, 130});
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 2};
    run(ctx, batch.backward());
    const std::vector<std::byte> together = batch.dfused().bytes;
    fill(batch.dfused().mut(), NAN);
    for (const Seq& seq : batch.map().seqs) {
      SeqMap alone;
      alone.seqs.push_back(seq);
      ctx.threads = seq.len > 5 ? 1 : 3;
      run(ctx, batch.backward(&alone));
    }
    EXPECT_EQ(std::memcmp(batch.dfused().bytes.data(), together.data(), together.size()), 0) << "P " << shapes.width;
  }
}

// Scores of +-1000: probabilities stay between 0 and 1.
TEST(AttentionBwd, LargeScoresDoNotOverflow) {
  Packed batch(kPacked[0], {70, 9}, 20);
  sweep(batch.backward(), 2e-3);
}

TEST(KvStore, EveryRowAgreesWithTheReference) {
  for (const DType from : {DType::f32, DType::bf16}) {
    for (const DType to : {DType::f32, DType::bf16, DType::f8_e4m3, DType::i8}) {
      SeqMap map;
      map.add(9, 3, 1);
      map.add(1, 12, 0);
      const std::vector<int32_t> table = {6, 2, 5, 4, 0, 3};
      TestTensor fused(from, {10, 3 * 2 * 12}, 1), k_pages(to, {7, 5, 2, 12}, 2), v_pages(to, {7, 5, 2, 12}, 3),
          k_scales(DType::f32, {7, 5, 2}, 4), v_scales(DType::f32, {7, 5, 2}, 5);
      sweep(KvStore{.k = fused.view().slice(1, 24, 24).split_last(2, 12),
                    .v = fused.view().slice(1, 48, 24).split_last(2, 12),
                    .k_pages = k_pages.mut(),
                    .v_pages = v_pages.mut(),
                    .k_scales = to == DType::i8 ? k_scales.mut() : MutView(),
                    .v_scales = to == DType::i8 ? v_scales.mut() : MutView(),
                    .page_table = view_of(table.data(), {2, 3}),
                    .seqs = &map,
                    .k_factor = to == DType::f8_e4m3 ? 0.0371f : 1,
                    .v_factor = to == DType::f8_e4m3 ? 11.3f : 1},
            0);
    }
  }
}

// FP8 pages times their factor are within half a unit in the last place of what was stored, whose values would all be
// zeros without one.
TEST(KvStore, AFactorBringsSmallValuesIntoTheRangeOfFp8) {
  const SeqMap map = SeqMap::one(4, 0, 0);
  const int32_t page_0 = 0;
  constexpr int64_t kWidth = 12;
  TestTensor k(DType::f32, {4, 1, kWidth}, 1), codes(DType::f8_e4m3, {1, 4, 1, kWidth}, 2),
      other(DType::f8_e4m3, {1, 4, 1, kWidth}, 4);
  for (int64_t i = 0; i < 4 * kWidth; ++i) set_element(k.mut(), i, 1e-4 * (1 + std::abs(element(k.view(), i))));
  Arena arena;
  Ctx ctx{.arena = arena};
  constexpr float kFactor = 3e-6f;
  run(ctx, KvStore{.k = k.view(),
                   .v = k.view(),
                   .k_pages = codes.mut(),
                   .v_pages = other.mut(),
                   .page_table = view_of(&page_0, {1, 1}),
                   .seqs = &map,
                   .k_factor = kFactor});
  for (int64_t i = 0; i < 4 * kWidth; ++i) {
    const double value = element(k.view(), i);
    EXPECT_NEAR(static_cast<double>(kFactor) * element(codes.view(), i), value, value / 16) << i;
    EXPECT_EQ(element(other.view(), i), 0) << i;
  }
}

// Keys of one sequence into one page of codes.
void store_codes(const TestTensor& k, TestTensor& codes, TestTensor& scales) {
  const SeqMap map = SeqMap::one(k.view().dim(0), 0, 0);
  const int32_t page_0 = 0;
  TestTensor other = codes, other_scales = scales;  // of the values
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, KvStore{.k = k.view(),
                   .v = k.view(),
                   .k_pages = codes.mut(),
                   .v_pages = other.mut(),
                   .k_scales = scales.mut(),
                   .v_scales = other_scales.mut(),
                   .page_table = view_of(&page_0, {1, 1}),
                   .seqs = &map});
}

// A stored row is within half a code of what it was, its largest value is the largest code, zeros stay zeros, and a NaN
// makes its own row, and no other, NaN.
TEST(KvStore, CodesOfOneByteKeepTheirRow) {
  constexpr int64_t kWidth = 12;
  TestTensor k(DType::f32, {5, 1, kWidth}, 1), codes(DType::i8, {1, 5, 1, kWidth}, 2), scales(DType::f32, {1, 5, 1}, 3);
  for (int64_t i = 0; i < kWidth; ++i) {
    set_element(k.mut(), kWidth + i, 1e-30 * element(k.view(), kWidth + i));
    set_element(k.mut(), 2 * kWidth + i, 0);
  }
  set_element(k.mut(), 3 * kWidth + 5, NAN);
  set_element(k.mut(), 4 * kWidth + 5, -HUGE_VAL);
  store_codes(k, codes, scales);
  for (int64_t t = 0; t < 3; ++t) {
    const double scale = element(scales.view(), t);
    double largest = 0;
    for (int64_t i = 0; i < kWidth; ++i) {
      const double code = element(codes.view(), t * kWidth + i);
      EXPECT_NEAR(code * scale, element(k.view(), t * kWidth + i), 0.5001 * scale) << t << " " << i;
      largest = std::max(largest, std::abs(code));
    }
    EXPECT_EQ(largest, t == 2 ? 0 : 127);
  }
  EXPECT_TRUE(std::isnan(element(scales.view(), 3)));
  EXPECT_TRUE(std::isnan(element(codes.view(), 4 * kWidth + 5) * element(scales.view(), 4)));
}

// The scale of such a row is a multiple of the least number: quotients may exceed the codes.
TEST(KvStore, CodesOfSubnormalRowsKeepTheirSigns) {
  TestTensor k(DType::f32, {1, 1, 2}, 1), codes(DType::i8, {1, 1, 1, 2}, 2), scales(DType::f32, {1, 1, 1}, 3);
  set_element(k.mut(), 0, std::ldexp(190, -149));
  set_element(k.mut(), 1, std::ldexp(-190, -149));
  store_codes(k, codes, scales);
  EXPECT_EQ(element(codes.view(), 0), 127);
  EXPECT_EQ(element(codes.view(), 1), -127);
}

TEST(KvStore, WritesTheNewPositionsOnly) {
  const SeqMap map = SeqMap::one(2, 4, 0);
  const std::vector<int32_t> table = {2, 0};
  TestTensor k(DType::f32, {2, 1, 3}, 1), v(DType::f32, {2, 1, 3}, 2), k_pages(DType::f32, {3, 5, 1, 3}, 3, 0),
      v_pages = k_pages;
  Arena arena;
  Ctx ctx{.arena = arena};
  run(ctx, KvStore{.k = k.view(),
                   .v = v.view(),
                   .k_pages = k_pages.mut(),
                   .v_pages = v_pages.mut(),
                   .page_table = view_of(table.data(), {1, 2}),
                   .seqs = &map});
  for (int64_t row = 0; row < 15; ++row) {
    const int64_t token = row == 2 * 5 + 4 ? 0 : row == 0 ? 1 : -1;  // position 4 ends page 2, position 5 starts page 0
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(element(k_pages.view(), row * 3 + i), token < 0 ? 0 : element(k.view(), token * 3 + i));
      EXPECT_EQ(element(v_pages.view(), row * 3 + i), token < 0 ? 0 : element(v.view(), token * 3 + i));
    }
  }
}

}  // namespace
}  // namespace braid
