#include "kernels/attention/attention.h"

#include "core/ref.h"
#include "kernels/attention/attention_ref.h"
#include "kernels/attention/attention_rows.h"

namespace braid {
namespace {

// Row of the flat [pages * page] list that holds position `pos`.
int64_t row_of(const View& table, int64_t page, const Seq& seq, int64_t pos) {
  return table ? table.as<int32_t>(seq.table)[pos / page] * page + pos % page : seq.start + pos;
}

void store_ref(Ctx&, const KvStore& op, std::span<std::byte>) {
  check_pages(KvStore::name, op.seqs, op.page_table, op.k_pages, op.k.dim(0));
  const int64_t width = op.k.dim(1) * op.k.dim(2), page = op.k_pages.dim(1);
  for (const Seq& seq : op.seqs->seqs) {
    for (int64_t t = 0; t < seq.len; ++t) {
      const int64_t from = (seq.start + t) * width, to = row_of(op.page_table, page, seq, seq.pos0 + t) * width;
      for (int64_t i = 0; i < width; ++i) {
        set_element(op.k_pages, to + i, element(op.k, from + i));
        set_element(op.v_pages, to + i, element(op.v, from + i));
      }
    }
  }
}

template <class To, class From>
void copy_row(const From* from, To* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<To, float>) {
      to[i] = to_float(from[i]);
    } else {
      to[i] = to_bf16(to_float(from[i]));
    }
  }
}

template <class To, class From>
void store_rows(const KvStore& op, const View& from, const MutView& to) {
  const int64_t page = to.dim(1);
  for (const Seq& seq : op.seqs->seqs) {
    for (int64_t t = 0; t < seq.len; ++t) {
      const int64_t pos = seq.pos0 + t;
      To* row = to.as<To>(op.page_table.as<int32_t>(seq.table)[pos / page]) + pos % page * to.stride(1);
      for (int64_t g = 0; g < to.dim(2); ++g) {
        copy_row(from.as<From>(seq.start + t) + g * from.stride(1), row + g * to.stride(2), to.dim(3));
      }
    }
  }
}

void store_side(const KvStore& op, const View& from, const MutView& to) {
  if (from.dtype == DType::f32) {
    to.dtype == DType::f32 ? store_rows<float, float>(op, from, to) : store_rows<Bf16, float>(op, from, to);
  } else {
    to.dtype == DType::f32 ? store_rows<float, Bf16>(op, from, to) : store_rows<Bf16, Bf16>(op, from, to);
  }
}

// On one thread: a step writes a few rows, and the cache lines are needed by whoever reads them next anyway.
void store_copy(Ctx&, const KvStore& op, std::span<std::byte>) {
  check_pages(KvStore::name, op.seqs, op.page_table, op.k_pages, op.k.dim(0));
  store_side(op, op.k, op.k_pages);
  store_side(op, op.v, op.v_pages);
}

const char* copy_supports(const KvStore& op) {
  const bool plain = op.k.rows_contiguous() && op.v.rows_contiguous() && op.k_pages.rows_contiguous() &&
                     op.v_pages.rows_contiguous() && op.page_table.rows_contiguous();
  return plain ? nullptr : "strided rows";
}

void fwd_ref(Ctx&, const AttentionFwd& op, std::span<std::byte>) {
  check_pages(AttentionFwd::name, op.seqs, op.page_table, op.k_pages, op.q.dim(0));
  const int64_t heads = op.q.dim(1), width = op.q.dim(2), page = op.k_pages.dim(1), groups = op.k_pages.dim(2);
  const std::vector<double> q = to_doubles(op.q);
  std::vector<double> k, v, y(static_cast<size_t>(width));
  for (const Seq& seq : op.seqs->seqs) {
    const int64_t keys = seq.pos0 + seq.len;
    for (int64_t g = 0; g < groups; ++g) {
      k.resize(static_cast<size_t>(keys * width));
      v.resize(k.size());
      for (int64_t j = 0; j < keys; ++j) {
        const int64_t from = (row_of(op.page_table, page, seq, j) * groups + g) * width;
        for (int64_t i = 0; i < width; ++i) {
          k[static_cast<size_t>(j * width + i)] = element(op.k_pages, from + i);
          v[static_cast<size_t>(j * width + i)] = element(op.v_pages, from + i);
        }
      }
      for (int64_t t = 0; t < seq.len; ++t) {
        for (int64_t h = g * (heads / groups); h < (g + 1) * (heads / groups); ++h) {
          const int64_t at = ((seq.start + t) * heads + h) * width;
          const double lse = attention_ref(seq.pos0 + t + 1, width, static_cast<double>(op.scale),
                                           &q[static_cast<size_t>(at)], k.data(), v.data(), y.data());
          if (op.lse) set_element(op.lse, at / width, lse);
          for (int64_t i = 0; i < width; ++i) set_element(op.y, at + i, y[static_cast<size_t>(i)]);
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
  for (const Seq& seq : op.seqs->seqs) {
    for (int64_t g = 0; g < groups; ++g) {
      const auto at = [&](int64_t i) { return ((seq.start + i / width) * groups + g) * width + i % width; };
      k.resize(static_cast<size_t>(seq.len * width));
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
          attention_bwd_ref(t + 1, width, static_cast<double>(op.scale),
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
  for (const View& v : {op.dy, op.q, op.k, op.v, op.y, op.lse, View(op.dq), View(op.dk), View(op.dv)}) {
    if (!v.rows_contiguous()) return "strided rows";
  }
  return nullptr;
}

const char* hwy_supports(const AttentionFwd& op) {
  const bool plain = op.q.rows_contiguous() && op.y.rows_contiguous() && op.k_pages.rows_contiguous() &&
                     op.v_pages.rows_contiguous() && (!op.page_table || op.page_table.rows_contiguous()) &&
                     (!op.lse || op.lse.rows_contiguous());
  if (op.k_pages.dtype != op.v_pages.dtype) return "keys and values differ in dtype";
  return plain ? nullptr : "strided rows";
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

void check_sequences(const AttentionBwd& op) {
  CHECK(op.seqs, "{}: no sequence map", AttentionBwd::name);
  CHECK(op.seqs->tokens() <= op.q.dim(0), "{}: {} tokens in the map, {} rows", AttentionBwd::name, op.seqs->tokens(),
        op.q.dim(0));
  CHECK(op.lse.dtype == DType::f32, "{}: lse is {}", AttentionBwd::name, name_of(op.lse.dtype));
  for (const Seq& seq : op.seqs->seqs) CHECK(seq.pos0 == 0, "{}: starts at position {}", AttentionBwd::name, seq.pos0);
}

namespace {

// Pairs of a token and a key that it sees.
double pairs(const SeqMap& map) {
  double sum = 0;
  for (const Seq& seq : map.seqs) {
    sum += static_cast<double>(seq.len) * (static_cast<double>(seq.pos0) + 0.5 * static_cast<double>(seq.len + 1));
  }
  return sum;
}

}  // namespace

double AttentionFwd::flops() const { return 4 * pairs(*seqs) * static_cast<double>(q.dim(1) * q.dim(2)); }
// Five products of two operations: scores, dy . v, dq, dk, dv.
double AttentionBwd::flops() const { return 10 * pairs(*seqs) * static_cast<double>(q.dim(1) * q.dim(2)); }

std::span<const Row<KvStore>> KvStore::rows() {
  static constexpr Row<KvStore> kRows[] = {
      {.name = "copy", .numerics = "f32", .supports = &copy_supports, .run = &store_copy},
      {.name = "ref", .numerics = "f32", .run = &store_ref},
  };
  return kRows;
}

std::span<const Row<AttentionFwd>> AttentionFwd::rows() {
  static constexpr Row<AttentionFwd> kRows[] = {
      {.name = "hwy",
       .numerics = "f32",
       .supports = &hwy_supports,
       .workspace = &attention_fwd_hwy_workspace,
       .run = &attention_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<AttentionBwd>> AttentionBwd::rows() {
  static constexpr Row<AttentionBwd> kRows[] = {
      {.name = "hwy",
       .numerics = "f32",
       .supports = &bwd_supports,
       .workspace = &attention_bwd_hwy_workspace,
       .run = &attention_bwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
