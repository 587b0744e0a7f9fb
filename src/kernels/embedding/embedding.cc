#include "kernels/embedding/embedding.h"

#include <algorithm>

#include "codec/codec.h"
#include "core/ref.h"
#include "kernels/embedding/embedding_ref.h"

namespace braid {
namespace {

void check_ids(const View& ids, int64_t rows) {
  CHECK(ids.dtype == DType::i32, "embedding: ids are {}", name_of(ids.dtype));
  for (int64_t t = 0; t < ids.dim(0); ++t) {
    const int32_t id = *ids.as<int32_t>(t);
    CHECK(id >= 0 && id < rows, "embedding: id {} of {}", id, rows);
  }
}

std::vector<int64_t> ids_of(const View& view) {
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < view.dim(0); ++t) ids.push_back(*view.as<int32_t>(t));
  return ids;
}

void fwd_ref(Ctx&, const EmbeddingFwd& op, std::span<std::byte>) {
  check_ids(op.ids, op.table.rows);
  std::vector<double> y(static_cast<size_t>(op.y.count()));
  embedding_fwd_ref(op.table.cols, ids_of(op.ids), decode(op.table), y);
  store(op.y, y);
}

// Only the requested rows are decoded. A BF16 result of a scaled format goes through a row of floats: codes are exact
// in BF16, their products with the scale of the tensor are not.
void fwd_rows(Ctx& ctx, const EmbeddingFwd& op, std::span<std::byte> workspace) {
  check_ids(op.ids, op.table.rows);
  const int64_t tokens = op.ids.dim(0), width = op.table.cols;
  const int team = static_cast<int>(std::clamp<int64_t>(tokens / 8, 1, ctx.threads));
  sys::parallel(team, [&](int thread, int members) {
    float* row = reinterpret_cast<float*>(workspace.data()) + thread * width;
    for (int64_t t = tokens * thread / members; t < tokens * (thread + 1) / members; ++t) {
      const int64_t id = *op.ids.as<int32_t>(t);
      float* values = op.y.dtype == DType::f32 ? op.y.as<float>(t) : row;
      if (op.y.dtype == DType::bf16 && op.table.spec.format == Format::bf16) {
        decode_row(op.table, id, 0, width, op.y.as<Bf16>(t));
        continue;
      }
      decode_row(op.table, id, 0, width, values);
      if (op.table.global != 1) {
        for (int64_t d = 0; d < width; ++d) values[d] *= op.table.global;
      }
      if (op.y.dtype == DType::f32) continue;
      for (int64_t d = 0; d < width; ++d) op.y.as<Bf16>(t)[d] = to_bf16(values[d]);
    }
  });
}

int64_t fwd_workspace(const EmbeddingFwd& op, int threads) {
  return threads * op.table.cols * static_cast<int64_t>(sizeof(float));
}

const char* rows_support(const EmbeddingFwd& op) {
  if (op.y.dtype != DType::f32 && op.y.dtype != DType::bf16) return "y is neither F32 nor BF16";
  return op.y.rows_contiguous() ? nullptr : "strided rows";
}

void bwd_ref(Ctx&, const EmbeddingBwd& op, std::span<std::byte>) {
  check_ids(op.ids, op.dtable.dim(0));
  std::vector<double> dtable(static_cast<size_t>(op.dtable.count()));
  embedding_bwd_ref(op.dtable.dim(1), op.padding, ids_of(op.ids), to_doubles(op.dy), dtable);
  accumulate(op.dtable, dtable);
}

// Threads own columns, so that the tokens of a row are summed in token order without locks.
template <class Num>
void add_cols(Ctx& ctx, const EmbeddingBwd& op) {
  constexpr int64_t kGrain = 64;  // columns: a few cache lines of FP32
  sys::parallel_for(ctx.threads, op.dtable.dim(1), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < op.ids.dim(0); ++t) {
      const int32_t id = *op.ids.as<int32_t>(t);
      if (id == op.padding) continue;
      float* sum = op.dtable.as<float>(id);
      const Num* dy = op.dy.as<Num>(t);
      for (int64_t d = begin; d < end; ++d) sum[d] += to_float(dy[d]);
    }
  });
}

void bwd_cols(Ctx& ctx, const EmbeddingBwd& op, std::span<std::byte>) {
  check_ids(op.ids, op.dtable.dim(0));
  op.dy.dtype == DType::bf16 ? add_cols<Bf16>(ctx, op) : add_cols<float>(ctx, op);
}

const char* cols_support(const EmbeddingBwd& op) {
  if (op.dtable.dtype != DType::f32) return "dtable is not F32";
  if (op.dy.dtype != DType::f32 && op.dy.dtype != DType::bf16) return "dy is neither F32 nor BF16";
  return op.dy.rows_contiguous() && op.dtable.rows_contiguous() ? nullptr : "strided rows";
}

}  // namespace

std::span<const Row<EmbeddingFwd>> EmbeddingFwd::rows() {
  static constexpr Row<EmbeddingFwd> kRows[] = {
      {.name = "rows", .numerics = "f32", .supports = &rows_support, .workspace = &fwd_workspace, .run = &fwd_rows},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<EmbeddingBwd>> EmbeddingBwd::rows() {
  static constexpr Row<EmbeddingBwd> kRows[] = {
      {.name = "cols", .numerics = "f32", .supports = &cols_support, .run = &bwd_cols},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
