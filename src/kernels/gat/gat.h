// Graph attention (Velickovic et al., arXiv 1710.10903), fused: no value per edge is stored. x holds H heads of P = D/H
// channels. With scores of both ends (linear in x, so computed per node: Zhang et al., arXiv 2110.09524, section 4),
//   left[i,h] = <a_dst[h], x[i,h]>,   right[j,h] = <a_src[h], x[j,h]>
//   s_ij = leaky_relu(left[i] + right[j]),   p_ij = exp(s_ij - top_i) / sum_i,   y_i = sum over j of p_ij x_j
// over the edges of row i and, with `loops`, i itself, which then is a node of x too. A row without edges is 0. The
// maximum and the sum are found online, chunk by chunk; backward recomputes p from them:
//   g_ij = <dy_i, x_j>,  de_ij = p_ij (g_ij - <dy_i, y_i>) leaky_relu',  dx_j = sum p_ij dy_i,
//   dleft_i = sum over j of de_ij,  dright_j = sum over i of de_ij                      all per head
// With dropout of attention a random factor k_ij, 0 or 1 / (1 - rate), joins the weights, but not their sum:
//   y_i = sum over j of p_ij k_ij x_j,   g_ij = k_ij <dy_i, x_j>,   dx_j = sum p_ij k_ij dy_i
// It is drawn again wherever it is needed: a function of the key, the step, the edge and the head alone.
#pragma once
#include "core/op.h"
#include "core/philox.h"

namespace braid {

struct GatScoresFwd {
  View x{};         // [T, D] F32 or BF16
  View a_src{};     // [D] F32
  View a_dst{};     // [D] F32
  MutView right{};  // [T, H] F32, with a_src
  MutView left{};   // [T, H] F32, with a_dst
  static constexpr const char* name = "gat_scores_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &GatScoresFwd::x, "T D"), in("a_src", &GatScoresFwd::a_src, "D"),
                      in("a_dst", &GatScoresFwd::a_dst, "D"), out("right", &GatScoresFwd::right, "T H"),
                      out("left", &GatScoresFwd::left, "T H")};
  }
  double flops() const { return 4.0 * static_cast<double>(x.count()); }
  static std::span<const Row<GatScoresFwd>> rows();
};

struct GatScoresBwd {
  View dright{};     // [T, H] F32
  View dleft{};      // [T, H] F32
  View x{};          // [T, D] F32 or BF16
  View a_src{};      // [D] F32
  View a_dst{};      // [D] F32
  MutView dx{};      // [T, D] F32
  MutView da_src{};  // [D] F32, accumulates
  MutView da_dst{};  // [D] F32, accumulates
  static constexpr const char* name = "gat_scores_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dright", &GatScoresBwd::dright, "T H"),
                      in("dleft", &GatScoresBwd::dleft, "T H"),
                      in("x", &GatScoresBwd::x, "T D"),
                      in("a_src", &GatScoresBwd::a_src, "D"),
                      in("a_dst", &GatScoresBwd::a_dst, "D"),
                      out("dx", &GatScoresBwd::dx, "T D"),
                      inout("da_src", &GatScoresBwd::da_src, "D"),
                      inout("da_dst", &GatScoresBwd::da_dst, "D")};
  }
  double flops() const { return 8.0 * static_cast<double>(x.count()); }
  static std::span<const Row<GatScoresBwd>> rows();
};

// PyTorch Geometric's GATConv(dropout=). Head h of edge e, its position in `col`, draws word h % 4 of
// philox(key; e ceil(H / 4) + h / 4, step) and is dropped below rate 2^32; the loop of row i is edge E + i.
struct AttentionDropout {
  float rate = 0;  // 0 <= rate < 1
  RandomKey key{};
  uint32_t step = 0;
};
// Factors of head `head` on n edges.
void attention_factors(const AttentionDropout& drop, const int64_t* edges, int64_t n, int64_t heads, int64_t head,
                       float* factors);

struct GatFwd {
  View rowptr{};       // [R + 1] I64
  View col{};          // [E] I32
  View x{};            // [S, D] F32 or BF16
  View left{};         // [R, H] F32
  View right{};        // [S, H] F32
  MutView y{};         // [R, D] F32 or BF16
  MutView top{};       // [R, H] F32, the largest score; 0 for a row without edges
  MutView sum{};       // [R, H] F32
  float slope = 0.2f;  // of leaky_relu below 0
  bool loops = true;
  AttentionDropout drop{};
  static constexpr const char* name = "gat_fwd";
  static constexpr auto fields() {
    return std::tuple{in("rowptr", &GatFwd::rowptr, "R1"), in("col", &GatFwd::col, "E"),
                      in("x", &GatFwd::x, "S D"),          in("left", &GatFwd::left, "R H"),
                      in("right", &GatFwd::right, "S H"),  out("y", &GatFwd::y, "R D"),
                      out("top", &GatFwd::top, "R H"),     out("sum", &GatFwd::sum, "R H")};
  }
  double flops() const {
    return static_cast<double>(col.count() + (loops ? y.dim(0) : 0)) *
           (2.0 * static_cast<double>(y.dim(1)) + 20.0 * static_cast<double>(left.dim(1)));
  }
  static std::span<const Row<GatFwd>> rows();
};

struct GatBwd {
  View rowptr{}, col{};          // [R + 1] I64, [E] I32
  View out_rowptr{}, out_col{};  // of the transpose: [S + 1] I64, [E] I32
  View order{};                  // [E] I32, of its edges: where they are in `col`; for dropout, else it may be empty
  View x{};                      // [S, D] F32 or BF16
  View left{}, right{};          // [R, H], [S, H] F32
  View top{}, sum{};             // [R, H] F32
  View y{};                      // [R, D] F32 or BF16
  View dy{};                     // [R, D] F32
  MutView dx{};                  // [S, D] F32
  MutView dleft{}, dright{};     // [R, H], [S, H] F32
  float slope = 0.2f;
  bool loops = true;
  AttentionDropout drop{};  // as the forward call
  static constexpr const char* name = "gat_bwd";
  static constexpr auto fields() {
    return std::tuple{in("rowptr", &GatBwd::rowptr, "R1"),
                      in("col", &GatBwd::col, "E"),
                      in("out_rowptr", &GatBwd::out_rowptr, "S1"),
                      in("out_col", &GatBwd::out_col, "E"),
                      maybe("order", &GatBwd::order, "E"),
                      in("x", &GatBwd::x, "S D"),
                      in("left", &GatBwd::left, "R H"),
                      in("right", &GatBwd::right, "S H"),
                      in("top", &GatBwd::top, "R H"),
                      in("sum", &GatBwd::sum, "R H"),
                      in("y", &GatBwd::y, "R D"),
                      in("dy", &GatBwd::dy, "R D"),
                      out("dx", &GatBwd::dx, "S D"),
                      out("dleft", &GatBwd::dleft, "R H"),
                      out("dright", &GatBwd::dright, "S H")};
  }
  double flops() const {
    return static_cast<double>(col.count()) *
           (6.0 * static_cast<double>(y.dim(1)) + 50.0 * static_cast<double>(left.dim(1)));
  }
  static std::span<const Row<GatBwd>> rows();
};

}  // namespace braid
