#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "core/ref.h"
#include "kernels/attention/attention_ref.h"
#include "kernels/attention/attention_rows.h"
#include "math/packed_rows.h"

namespace braid {
namespace {

// Row of the flat [pages * page] list that holds position `pos`.
int64_t row_of(const View& table, int64_t page, const Seq& seq, int64_t pos) {
  return table ? table.as<int32_t>(seq.table)[pos / page] * page + pos % page : seq.start + pos;
}

// The largest I8 code. -128 is not used, so that a row and its negative have the same scale.
constexpr float kCodeMax = 127;

// One side of the cache, keys or values, and its new rows.
struct StoreSide {
  const KvStore& op;
  const View& from;
  const MutView& to;
  const MutView& scales;
  float factor = 1;
};

StoreSide keys(const KvStore& op) { return {op, op.k, op.k_pages, op.k_scales, op.k_factor}; }
StoreSide values(const KvStore& op) { return {op, op.v, op.v_pages, op.v_scales, op.v_factor}; }

// Codes are quotients in double precision rounded to nearest even; the scale is a quotient of floats.
void store_side_ref(const StoreSide& s) {
  const int64_t groups = s.from.dim(1), width = s.from.dim(2);
  for (const Seq& seq : s.op.seqs->seqs) {
    for (int64_t i = 0; i < seq.len * groups; ++i) {
      const int64_t row = row_of(s.op.page_table, s.to.dim(1), seq, seq.pos0 + i / groups) * groups + i % groups,
                    from = (seq.start * groups + i) * width;
      double amax = 0;
      for (int64_t p = 0; p < width; ++p) {
        const double v = std::abs(element(s.from, from + p));
        amax = std::isnan(v) || std::isnan(amax) ? NAN : std::max(amax, v);
      }
      const float scale = static_cast<float>(amax) / kCodeMax;
      if (s.scales) set_element(s.scales, row, static_cast<double>(scale));
      for (int64_t p = 0; p < width; ++p) {
        const double v = element(s.from, from + p);
        const double code = scale > 0 ? std::nearbyint(v / static_cast<double>(scale)) : 0;
        // Rounded to a float before it is rounded to the page's type, as the other row does.
        const double quotient = static_cast<double>(static_cast<float>(v / static_cast<double>(s.factor)));
        set_element(s.to, row * width + p, s.scales ? code : quotient);
      }
    }
  }
}

void check_store(const KvStore& op) {
  check_pages(KvStore::name, op.seqs, op.page_table, op.k_pages, op.k.dim(0));
  check_codes(KvStore::name, op.k_pages, op.k_scales);
  check_codes(KvStore::name, op.v_pages, op.v_scales);
  for (const StoreSide& s : {keys(op), values(op)})
    CHECK(s.factor > 0 && (s.factor == 1 || s.to.dtype == DType::f8_e4m3), "{}: {} pages of values by {}",
          KvStore::name, name_of(s.to.dtype), s.factor);
}

void store_ref(Ctx&, const KvStore& op, std::span<std::byte>) {
  check_store(op);
  store_side_ref(keys(op));
  store_side_ref(values(op));
}

template <class To>
To rounded(float v) {
  if constexpr (std::is_same_v<To, Bf16>) return to_bf16(v);
  if constexpr (std::is_same_v<To, F8E4M3>) return to_f8e4m3(v);
  if constexpr (std::is_same_v<To, float>) return v;
}

// Returns the scale of I8 codes, which is NaN if a value is, and 1 for the other types.
template <class To, class From>
float store_row(const From* from, float factor, To* to, int64_t n) {
  if constexpr (std::is_same_v<To, int8_t>) {
    float amax = 0;
    for (int64_t i = 0; i < n && !std::isnan(amax); ++i) {
      const float v = std::abs(to_float(from[i]));
      amax = v <= amax ? amax : v;
    }
    const float scale = amax / kCodeMax;  // of subnormal values rounded so coarsely that a quotient may exceed it
    constexpr double limit = kCodeMax;
    for (int64_t i = 0; i < n; ++i) {
      const double quotient = static_cast<double>(to_float(from[i])) / static_cast<double>(scale);
      // Codes of a row that is not finite stay NaN, by its scale.
      to[i] = scale > 0 && std::isfinite(scale)
                  ? static_cast<int8_t>(std::nearbyint(std::clamp(quotient, -limit, limit)))
                  : int8_t{0};
    }
    return scale;
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = rounded<To>(to_float(from[i]) / factor);
    return 1;
  }
}

template <class To, class From>
void store_rows(const StoreSide& s) {
  const int64_t page = s.to.dim(1);
  for (const Seq& seq : s.op.seqs->seqs) {
    for (int64_t t = 0; t < seq.len; ++t) {
      const int64_t pos = seq.pos0 + t, entry = s.op.page_table.as<int32_t>(seq.table)[pos / page];
      To* row = s.to.as<To>(entry) + pos % page * s.to.stride(1);
      for (int64_t g = 0; g < s.to.dim(2); ++g) {
        const From* from = s.from.as<From>(seq.start + t) + g * s.from.stride(1);
        const float scale = store_row(from, s.factor, row + g * s.to.stride(2), s.to.dim(3));
        if (s.scales) s.scales.as<float>(entry)[pos % page * s.scales.stride(1) + g] = scale;
      }
    }
  }
}

template <class From>
void store_from(const StoreSide& s) {
  switch (s.to.dtype) {
    case DType::bf16:
      return store_rows<Bf16, From>(s);
    case DType::f8_e4m3:
      return store_rows<F8E4M3, From>(s);
    case DType::i8:
      return store_rows<int8_t, From>(s);
    default:
      return store_rows<float, From>(s);
  }
}

void store_side(const StoreSide& s) { s.from.dtype == DType::f32 ? store_from<float>(s) : store_from<Bf16>(s); }

// On one thread: a step writes a few rows, and the next reader needs the cache lines anyway.
void store_copy(Ctx&, const KvStore& op, std::span<std::byte>) {
  check_store(op);
  store_side(keys(op));
  store_side(values(op));
}

// Empty views are plain.
bool plain(std::initializer_list<View> views) {
  return std::ranges::all_of(views, [](const View& v) { return !v || v.rows_contiguous(); });
}

const char* copy_supports(const KvStore& op) {
  return plain({op.k, op.v, op.k_pages, op.v_pages, op.k_scales, op.v_scales, op.page_table}) ? nullptr
                                                                                              : "strided rows";
}

void fwd_ref(Ctx&, const AttentionFwd& op, std::span<std::byte>) {
  check_fwd(op);
  const int64_t heads = op.q.dim(1), width = op.q.dim(2), page = op.k_pages.dim(1), groups = op.k_pages.dim(2);
  const std::vector<double> q = to_doubles(op.q);
  std::vector<double> k, v, y(static_cast<size_t>(width));
  for (size_t s = 0; s < op.seqs->seqs.size(); ++s) {
    const Seq& seq = op.seqs->seqs[s];
    const AttentionKeys seen = keys_of(*op.seqs, op.keys, s);
    for (int64_t g = 0; g < groups; ++g) {
      k.resize(static_cast<size_t>(seen.count * width));
      v.resize(k.size());
      for (int64_t j = 0; j < seen.count; ++j) {
        const int64_t at = op.page_table ? row_of(op.page_table, page, seq, j) : seen.start + j;
        const int64_t row = at * groups + g, from = row * width;
        const double k_scale = op.k_scales ? element(op.k_scales, row) : 1,
                     v_scale = op.v_scales ? element(op.v_scales, row) : 1;
        for (int64_t i = 0; i < width; ++i) {
          k[static_cast<size_t>(j * width + i)] = k_scale * element(op.k_pages, from + i);
          v[static_cast<size_t>(j * width + i)] = v_scale * element(op.v_pages, from + i);
        }
      }
      for (int64_t t = 0; t < seq.len; ++t) {
        for (int64_t h = g * (heads / groups); h < (g + 1) * (heads / groups); ++h) {
          const int64_t at = ((seq.start + t) * heads + h) * width;
          const double lse =
              attention_ref(std::min(seen.before + t + 1, seen.count), width, static_cast<double>(op.scale),
                            &q[static_cast<size_t>(at)], k.data(), v.data(), y.data());
          if (op.lse) set_element(op.lse, at / width, lse);
          for (int64_t i = 0; i < width; ++i)
            set_element(op.y, at + i, static_cast<double>(op.v_factor) * y[static_cast<size_t>(i)]);
        }
      }
    }
  }
}

void bwd_ref(Ctx&, const AttentionBwd& op, std::span<std::byte>) {
  check_sequences(op);
  const int64_t heads = op.q.dim(1), groups = op.k.dim(1), width = op.q.dim(2);
  const std::vector<double> q = to_doubles(op.q), y = to_doubles(op.y), dy = to_doubles(op.dy);
  std::vector<double> k, v, dk, dv, dq(static_cast<size_t>(width));
  for (size_t s = 0; s < op.seqs->seqs.size(); ++s) {
    const Seq& seq = op.seqs->seqs[s];
    const AttentionKeys seen = keys_of(*op.seqs, op.keys, s);
    for (int64_t g = 0; g < groups; ++g) {
      const auto at = [&](int64_t i) { return ((seen.start + i / width) * groups + g) * width + i % width; };
      k.resize(static_cast<size_t>(seen.count * width));
      v.resize(k.size());
      for (size_t i = 0; i < k.size(); ++i) {
        k[i] = element(op.k, at(static_cast<int64_t>(i)));
        v[i] = element(op.v, at(static_cast<int64_t>(i)));
      }
      dk.assign(k.size(), 0);
      dv.assign(k.size(), 0);
      for (int64_t t = 0; t < seq.len; ++t) {
        for (int64_t h = g * (heads / groups); h < (g + 1) * (heads / groups); ++h) {
          const int64_t row = (seq.start + t) * heads + h;
          const auto from = static_cast<size_t>(row * width);
          attention_bwd_ref(std::min(seen.before + t + 1, seen.count), width, static_cast<double>(op.scale),
                            {.q = &q[from], .y = &y[from], .dy = &dy[from], .lse = element(op.lse, row)}, k.data(),
                            v.data(), dq.data(), dk.data(), dv.data());
          for (int64_t i = 0; i < width; ++i) set_element(op.dq, row * width + i, dq[static_cast<size_t>(i)]);
        }
      }
      for (size_t i = 0; i < k.size(); ++i) {
        set_element(op.dk, at(static_cast<int64_t>(i)), dk[i]);
        set_element(op.dv, at(static_cast<int64_t>(i)), dv[i]);
      }
    }
  }
}

const char* bwd_supports(const AttentionBwd& op) {
  return plain({op.dy, op.q, op.k, op.v, op.y, op.lse, op.dq, op.dk, op.dv}) ? nullptr : "strided rows";
}

int64_t hwy_workspace(const AttentionFwd& op, int threads) { return attention_fwd_workspace(nullptr, op, threads); }
void fwd_hwy(Ctx& ctx, const AttentionFwd& op, std::span<std::byte> workspace) {
  attention_fwd_blocks(nullptr, ctx, op, workspace);
}

const char* hwy_supports(const AttentionFwd& op) {
  if (op.k_pages.dtype != op.v_pages.dtype) return "keys and values differ in dtype";
  return plain({op.q, op.k_pages, op.v_pages, op.k_scales, op.v_scales, op.page_table, op.y, op.lse}) ? nullptr
                                                                                                      : "strided rows";
}

int64_t bwd_workspace(const AttentionBwd& op, int threads) { return attention_bwd_workspace(nullptr, op, threads); }
void bwd_hwy(Ctx& ctx, const AttentionBwd& op, std::span<std::byte> workspace) {
  attention_bwd_blocks(nullptr, ctx, op, workspace);
}

// Rows on packed blocks of keys.
struct Packed {
  // Queries are rounded to BF16, so only for callers that asked for BF16 products.
  static const char* supports(packed::Class c, const AttentionFwd& op) {
    if (op.y.dtype != DType::bf16) return "y is not BF16";
    if (op.k_pages.dtype == DType::f32) return "pages are F32";
    // Packing a block of keys has to serve several rows, in a step too.
    if (!op.train && op.q.dim(1) < 4 * op.k_pages.dim(2)) return "fewer than four query heads per KV head";
    if (const char* reason = packed::refusal(c)) return reason;
    return hwy_supports(op);
  }
  static const char* supports(packed::Class c, const AttentionBwd& op) {
    if (op.q.dtype != DType::bf16 || op.k.dtype != DType::bf16 || op.v.dtype != DType::bf16)
      return "queries, keys or values are not BF16";
    if (const char* reason = packed::refusal(c)) return reason;
    return bwd_supports(op);
  }

  static int64_t workspace(packed::Class c, const AttentionFwd& op, int threads) {
    const packed::Kernel kernel = packed::block_kernel_of(c);
    return attention_fwd_workspace(&kernel, op, threads);
  }
  static int64_t workspace(packed::Class c, const AttentionBwd& op, int threads) {
    const packed::Kernel kernel = packed::block_kernel_of(c);
    return attention_bwd_workspace(&kernel, op, threads);
  }

  static void run(packed::Class c, Ctx& ctx, const AttentionFwd& op, std::span<std::byte> space) {
    const packed::Kernel kernel = packed::block_kernel_of(c);
    attention_fwd_blocks(&kernel, ctx, op, space);
  }
  static void run(packed::Class c, Ctx& ctx, const AttentionBwd& op, std::span<std::byte> space) {
    const packed::Kernel kernel = packed::block_kernel_of(c);
    attention_bwd_blocks(&kernel, ctx, op, space);
  }
};

}  // namespace

AttentionKeys keys_of(const SeqMap& seqs, const SeqMap* keys, size_t i) {
  const Seq& seq = seqs.seqs[i];
  if (!keys) return {.start = seq.start, .count = seq.pos0 + seq.len, .before = seq.pos0};
  const Seq& own = keys->seqs[i];
  return {.start = own.start, .count = own.len, .before = seq.pos0 - own.pos0};
}

namespace {

// Every token sees a key at least, and no key is outside `rows`.
void check_keys(const char* op, const SeqMap& seqs, const SeqMap& keys, int64_t rows) {
  CHECK(keys.seqs.size() == seqs.seqs.size(), "{}: keys of {} sequences, not {}", op, keys.seqs.size(),
        seqs.seqs.size());
  for (size_t i = 0; i < seqs.seqs.size(); ++i) {
    const Seq& k = keys.seqs[i];
    CHECK(k.start >= 0 && k.len > 0 && k.start + k.len <= rows, "{}: keys [{}, {}) of {}", op, k.start, k.start + k.len,
          rows);
    CHECK(k.pos0 <= seqs.seqs[i].pos0, "{}: position {} before the first key {}", op, seqs.seqs[i].pos0, k.pos0);
  }
}

}  // namespace

// A wrong page would read or write another sequence: a bug of the caller, found before any thread starts.
void check_pages(const char* op, const SeqMap* seqs, const View& table, const View& pages, int64_t tokens) {
  CHECK(seqs, "{}: no sequence map", op);
  CHECK(seqs->tokens() <= tokens, "{}: {} tokens in the map, {} rows", op, seqs->tokens(), tokens);
  const int64_t page = pages.dim(1);
  if (!table) {
    CHECK(seqs->tokens() <= pages.dim(0) * page, "{}: {} tokens, {} keys", op, seqs->tokens(), pages.dim(0) * page);
    for (const Seq& seq : seqs->seqs) CHECK(seq.pos0 == 0, "{}: position {} without pages", op, seq.pos0);
    return;
  }
  CHECK(table.dtype == DType::i32, "{}: page_table is {}", op, name_of(table.dtype));
  for (const Seq& seq : seqs->seqs) {
    const int64_t used = (seq.pos0 + seq.len + page - 1) / page;
    CHECK(seq.table >= 0 && seq.table < table.dim(0), "{}: table {} of {}", op, seq.table, table.dim(0));
    CHECK(used <= table.dim(1), "{}: {} pages in a table of {}", op, used, table.dim(1));
    for (int64_t i = 0; i < used; ++i) {
      const int32_t at = table.as<int32_t>(seq.table)[i];
      CHECK(at >= 0 && at < pages.dim(0), "{}: page {} of {} (table {}, entry {})", op, at, pages.dim(0), seq.table, i);
    }
  }
}

void check_heads(const char* op, int64_t heads, int64_t groups) {
  CHECK(groups > 0 && heads % groups == 0, "{}: {} heads in {} groups", op, heads, groups);
}

void check_codes(const char* op, const View& pages, const View& scales) {
  const bool known = pages.dtype == DType::f32 || pages.dtype == DType::bf16 || pages.dtype == DType::f8_e4m3 ||
                     pages.dtype == DType::i8;
  CHECK(known, "{}: pages are {}", op, name_of(pages.dtype));
  CHECK((pages.dtype == DType::i8) == static_cast<bool>(scales), "{}: pages are {}, {} scales", op,
        name_of(pages.dtype), scales ? "with" : "without");
  CHECK(!scales || scales.dtype == DType::f32, "{}: scales are {}", op, name_of(scales.dtype));
}

void check_fwd(const AttentionFwd& op) {
  check_heads(AttentionFwd::name, op.q.dim(1), op.k_pages.dim(2));
  if (op.keys) {
    CHECK(op.seqs && !op.page_table, "{}: keys and a page table", AttentionFwd::name);
    check_keys(AttentionFwd::name, *op.seqs, *op.keys, op.k_pages.dim(0) * op.k_pages.dim(1));
  } else {
    check_pages(AttentionFwd::name, op.seqs, op.page_table, op.k_pages, op.q.dim(0));
  }
  check_codes(AttentionFwd::name, op.k_pages, op.k_scales);
  check_codes(AttentionFwd::name, op.v_pages, op.v_scales);
}

void check_sequences(const AttentionBwd& op) {
  check_heads(AttentionBwd::name, op.q.dim(1), op.k.dim(1));
  CHECK(op.seqs, "{}: no sequence map", AttentionBwd::name);
  CHECK(op.seqs->tokens() <= op.q.dim(0), "{}: {} tokens in the map, {} rows", AttentionBwd::name, op.seqs->tokens(),
        op.q.dim(0));
  CHECK(op.lse.dtype == DType::f32, "{}: lse is {}", AttentionBwd::name, name_of(op.lse.dtype));
  if (op.keys) return check_keys(AttentionBwd::name, *op.seqs, *op.keys, op.k.dim(0));
  for (const Seq& seq : op.seqs->seqs) CHECK(seq.pos0 == 0, "{}: starts at position {}", AttentionBwd::name, seq.pos0);
}

namespace {

// Pairs of a token and a key that it sees.
double pairs(const SeqMap& map, const SeqMap* keys) {
  double sum = 0;
  for (size_t i = 0; i < map.seqs.size(); ++i) {
    const AttentionKeys seen = keys_of(map, keys, i);
    const auto len = static_cast<double>(map.seqs[i].len);
    sum += len * std::min(static_cast<double>(seen.before) + 0.5 * (len + 1), static_cast<double>(seen.count));
  }
  return sum;
}

}  // namespace

double AttentionFwd::flops() const { return 4 * pairs(*seqs, keys) * static_cast<double>(q.dim(1) * q.dim(2)); }
// Five products of two operations: scores, dy . v, dq, dk, dv.
double AttentionBwd::flops() const { return 10 * pairs(*seqs, keys) * static_cast<double>(q.dim(1) * q.dim(2)); }

std::span<const Row<KvStore>> KvStore::rows() {
  static constexpr Row<KvStore> kRows[] = {
      {.name = "copy", .numerics = "f32", .supports = &copy_supports, .run = &store_copy},
      {.name = "ref", .numerics = "f32", .run = &store_ref},
  };
  return kRows;
}

std::span<const Row<AttentionFwd>> AttentionFwd::rows() {
  static constexpr Row<AttentionFwd> kRows[] = {
      packed::kBlockTileRow<AttentionFwd, Packed>,
      packed::kBlockDotRow<AttentionFwd, Packed>,
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports, .workspace = &hwy_workspace, .run = &fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<AttentionBwd>> AttentionBwd::rows() {
  static constexpr Row<AttentionBwd> kRows[] = {
      packed::kBlockTileRow<AttentionBwd, Packed>,
      packed::kBlockDotRow<AttentionBwd, Packed>,
      {.name = "hwy", .numerics = "f32", .supports = &bwd_supports, .workspace = &bwd_workspace, .run = &bwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
