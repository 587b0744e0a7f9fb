// Causal grouped-query attention (docs/internals/layers.md, Attention), for prefill, decode and training alike:
//   s_j = scale * q . k_j,   y = sum_j softmax(s)_j v_j,   j = 0 .. pos0 + t for token t of its sequence
// Query head h reads KV head h / (H / G). Token j of a sequence is in page page_table[table, j / page], row j % page;
// without a page table it is row Seq.start + j of the concatenated pages, so that training passes k and v as one page.
// With `keys` sequence i of `seqs` reads rows [start, start + len) of the page instead, keys from position pos0 on: a
// token sees those whose position is not past its own. Softmaxes over parts of the keys are combined by their lse;
// backward of such a part takes y and lse of all keys, and gives this part's terms of dq. The page table holds
// positions only up to the end of its sequence: entries beyond are never read. Pages are F32, BF16, or one byte per
// value: F8_E4M3 (it saturates at 448) of values divided by one factor for all of a cache, or I8 with an FP32 scale for
// each token and KV head, its largest magnitude / 127. Scores, softmax and sums in FP32; pages and queries are widened
// exactly. Row contract: keys are processed on a grid that starts at position 0, so a token's result has the same bits
// in prefill, in chunks of any size and in a step. Backward stores no probabilities: they are recomputed from the
// scores and their log-sum-exp,
//   p_j = exp(s_j - lse),   ds_j = p_j (dy . v_j - dy . y),
//   dq = scale sum_j ds_j k_j,   dk_j = scale sum ds_j q,   dv_j = sum p_j dy     (sums over the heads and tokens of j)
// where tokens and heads add up on a grid that starts with their sequence: other sequences or threads change no bit.
#pragma once
#include "core/op.h"
#include "core/seq_map.h"

namespace braid {

// Writes the new tokens' keys and values at positions pos0, pos0 + 1, ... of their sequences.
struct KvStore {
  View k{}, v{};                   // [T, G, P] F32 or BF16
  MutView k_pages{}, v_pages{};    // [pages, page, G, P] F32, BF16, F8_E4M3 or I8, in and out
  MutView k_scales{}, v_scales{};  // [pages, page, G] F32, of I8 pages; else empty
  View page_table{};               // [S, max_pages] I32, rows by Seq.table
  const SeqMap* seqs = nullptr;
  float k_factor = 1, v_factor = 1;  // what F8_E4M3 pages have is multiplied by; above 0, and 1 for other pages
  static constexpr const char* name = "kv_store";
  static constexpr auto fields() {
    return std::tuple{in("k", &KvStore::k, "T G P"),
                      in("v", &KvStore::v, "T G P"),
                      inout("k_pages", &KvStore::k_pages, "pages page G P"),
                      inout("v_pages", &KvStore::v_pages, "pages page G P"),
                      maybe_inout("k_scales", &KvStore::k_scales, "pages page G"),
                      maybe_inout("v_scales", &KvStore::v_scales, "pages page G"),
                      in("page_table", &KvStore::page_table, "S max_pages")};
  }
  double flops() const { return 0; }
  static std::span<const Row<KvStore>> rows();
};

// The pages already hold the new tokens.
struct AttentionFwd {
  View q{};                     // [T, H, P] F32 or BF16
  View k_pages{}, v_pages{};    // [pages, page, G, P] F32, BF16, F8_E4M3 or I8
  View k_scales{}, v_scales{};  // [pages, page, G] F32, of I8 pages; else empty
  View page_table{};            // [S, max_pages] I32, rows by Seq.table; or empty, when every pos0 is 0
  MutView y{};                  // [T, H, P] F32 or BF16
  MutView lse{};                // [T, H] F32, log sum_j exp(s_j); or empty
  const SeqMap* seqs = nullptr;
  const SeqMap* keys = nullptr;  // as many as `seqs`, without a page table; or null
  bool train = false;            // many rows: packed blocks in BF16 whatever the heads, their own class
  float scale = 1;               // P^-0.5 in every family so far, times the factor of keys
  float v_factor = 1;            // of what pages have, in y
  static constexpr const char* name = "attention_fwd";
  static constexpr auto fields() {
    return std::tuple{in("q", &AttentionFwd::q, "T H P"),
                      in("k_pages", &AttentionFwd::k_pages, "pages page G P"),
                      in("v_pages", &AttentionFwd::v_pages, "pages page G P"),
                      maybe("k_scales", &AttentionFwd::k_scales, "pages page G"),
                      maybe("v_scales", &AttentionFwd::v_scales, "pages page G"),
                      maybe("page_table", &AttentionFwd::page_table, "S max_pages"),
                      out("y", &AttentionFwd::y, "T H P"),
                      optional_out("lse", &AttentionFwd::lse, "T H")};
  }
  double flops() const;
  static std::span<const Row<AttentionFwd>> rows();
};

// Every sequence from its first token on, pos0 is 0, unless there are `keys`. Any row stride, so that q, k, v and their
// gradients may be slices of one fused projection.
struct AttentionBwd {
  View dy{};           // [T, H, P] F32 or BF16
  View q{}, k{}, v{};  // [T, H, P], [T, G, P] F32 or BF16; with `keys` k and v may have other rows
  View y{};            // [T, H, P] F32 or BF16
  View lse{};          // [T, H] F32
  MutView dq{};        // [T, H, P] F32 or BF16
  MutView dk{}, dv{};  // [T, G, P] F32 or BF16
  const SeqMap* seqs = nullptr;
  const SeqMap* keys = nullptr;  // as many as `seqs`, no row twice; or null
  float scale = 1;
  static constexpr const char* name = "attention_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dy", &AttentionBwd::dy, "T H P"),  in("q", &AttentionBwd::q, "T H P"),
                      in("k", &AttentionBwd::k, "K G P"),    in("v", &AttentionBwd::v, "K G P"),
                      in("y", &AttentionBwd::y, "T H P"),    in("lse", &AttentionBwd::lse, "T H"),
                      out("dq", &AttentionBwd::dq, "T H P"), out("dk", &AttentionBwd::dk, "K G P"),
                      out("dv", &AttentionBwd::dv, "K G P")};
  }
  double flops() const;
  static std::span<const Row<AttentionBwd>> rows();
};

}  // namespace braid
