// Rows of a table: y_t = table[ids_t]. Backward adds dy_t to row ids_t of the table's gradient, in token order, so that
// repeated ids sum the same way on any number of threads; the row `padding` gets no gradient. An id outside [0, V) is a
// bug of the caller.
#pragma once
#include "core/op.h"

namespace braid {

struct EmbeddingFwd {
  View ids{};      // [T] I32
  Weight table{};  // [V, D] any format
  MutView y{};     // [T, D] F32 or BF16
  static constexpr const char* name = "embedding_fwd";
  static constexpr auto fields() {
    return std::tuple{in("ids", &EmbeddingFwd::ids, "T"), in("table", &EmbeddingFwd::table, "V D"),
                      out("y", &EmbeddingFwd::y, "T D")};
  }
  double flops() const { return 0; }
  static std::span<const Row<EmbeddingFwd>> rows();
};

struct EmbeddingBwd {
  View ids{};        // [T] I32
  View dy{};         // [T, D] F32 or BF16
  MutView dtable{};  // [V, D] F32, accumulates
  int64_t padding = -1;
  static constexpr const char* name = "embedding_bwd";
  static constexpr auto fields() {
    return std::tuple{in("ids", &EmbeddingBwd::ids, "T"), in("dy", &EmbeddingBwd::dy, "T D"),
                      inout("dtable", &EmbeddingBwd::dtable, "V D")};
  }
  double flops() const { return static_cast<double>(dy.count()); }
  static std::span<const Row<EmbeddingBwd>> rows();
};

}  // namespace braid
