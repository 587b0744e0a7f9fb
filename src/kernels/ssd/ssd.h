// The selective state-space scan of Mamba-2 (docs/internals/layers.md). For one head h of group g = h / (H/G), in FP32:
//   d_t = clamp(softplus(dt_t + dt_bias), dt_min, dt_max)        a = -exp(a_log)
//   S_t = exp(d_t a) S_{t-1} + d_t x_t (x) b_t                   [P, N]
//   y_t = S_t c_t + d_skip x_t                                   [P]
// SsdFwd computes whole chunks as matrix products, SsdStep goes token by token and is meant for 1 to 8 tokens per
// sequence; the two agree within rounding. The state of a sequence is slot Seq.slot of `state`, read on entry and
// overwritten; the caller zeroes it for a new sequence, and no two sequences of a call share a slot. SsdFwd without a
// state starts every sequence from zeros and keeps nothing. Chunks of SsdFwd are aligned to the start of the sequence
// (Seq.pos0 tokens are already in the state), so the first chunk of a continuation may be short, and a run cut at a
// multiple of `chunk` is bit-identical to the whole run.
// SsdFwd and SsdStep may store the state in BF16, F16 or I8 (ssd_stored.h): it is read once per call, by SsdStep once
// every kSsdStepTokens tokens, and rounded stochastically when written.
// For a sequence with a trail (SeqMap::trails) SsdStep leaves its state unchanged and writes the state after each token
// to the trail's slots, bit-identical to steps of one token.
// SsdBwd needs only the inputs of SsdFwd and recomputes the states. dx, db, dc, ddt overwrite; ddt_bias, da_log and
// dd_skip accumulate sequence by sequence, so splitting the sequences over two calls is bit-identical to one call.
#pragma once
#include <algorithm>
#include <limits>

#include "core/op.h"
#include "core/philox.h"
#include "core/seq_map.h"

namespace braid {

// Longer chunks are processed in blocks of this many tokens: fewer operations, and the scratch stays in the L2 cache.
inline constexpr int64_t kSsdBlock = 128;
// Tokens that SsdStep applies to a row of the state at a time.
inline constexpr int64_t kSsdStepTokens = 8;

struct SsdFwd {
  View x{};                // [T, H, P] F32 or BF16; any stride between tokens
  View b{};                // [T, G, N] as x
  View c{};                // [T, G, N] as x
  View dt{};               // [T, H] F32 or BF16, before bias and softplus
  View dt_bias{};          // [H] F32
  View a_log{};            // [H] F32
  View d_skip{};           // [H] F32
  MutView state{};         // [S, H, P, N] F32, BF16, F16 or I8; may be empty
  MutView state_scales{};  // [S, H, P] F32, of I8
  MutView y{};             // [T, H, P] F32 or BF16
  const SeqMap* seqs = nullptr;
  RandomKey noise{};    // of a state that is not F32
  int64_t chunk = 128;  // tokens
  float dt_min = 0;
  float dt_max = std::numeric_limits<float>::infinity();
  static constexpr const char* name = "ssd_fwd";
  static constexpr auto fields() {
    return std::tuple{in("x", &SsdFwd::x, "T H P"),
                      in("b", &SsdFwd::b, "T G N"),
                      in("c", &SsdFwd::c, "T G N"),
                      in("dt", &SsdFwd::dt, "T H"),
                      in("dt_bias", &SsdFwd::dt_bias, "H"),
                      in("a_log", &SsdFwd::a_log, "H"),
                      in("d_skip", &SsdFwd::d_skip, "H"),
                      maybe_inout("state", &SsdFwd::state, "S H P N"),
                      maybe_inout("state_scales", &SsdFwd::state_scales, "S H P"),
                      out("y", &SsdFwd::y, "T H P")};
  }
  // A token of a full block interacts with half of it, the entering and the leaving state; C.B counts once per group.
  double flops() const {
    const auto block = static_cast<double>(std::min(chunk, kSsdBlock)), tokens = static_cast<double>(x.dim(0));
    const auto rows = static_cast<double>(x.dim(1) * x.dim(2)), width = static_cast<double>(b.dim(2));
    return tokens * (rows * (block + 4 * width) + static_cast<double>(b.dim(1)) * block * width);
  }
  static std::span<const Row<SsdFwd>> rows();
};

struct SsdBwd {
  View dy{};           // [T, H, P] F32 or BF16; any stride between tokens, here and below
  View x{};            // [T, H, P] F32 or BF16
  View b{};            // [T, G, N] as x
  View c{};            // [T, G, N] as x
  View dt{};           // [T, H] F32 or BF16, before bias and softplus
  View dt_bias{};      // [H] F32
  View a_log{};        // [H] F32
  View d_skip{};       // [H] F32
  View state{};        // [S, H, P, N] F32, as before forward; empty: zeros
  MutView dx{};        // [T, H, P] F32
  MutView db{};        // [T, G, N] F32, the sum over the group's heads
  MutView dc{};        // [T, G, N] F32, likewise
  MutView ddt{};       // [T, H] F32, zero where a step is clamped
  MutView ddt_bias{};  // [H] F32, accumulates
  MutView da_log{};    // [H] F32, accumulates
  MutView dd_skip{};   // [H] F32, accumulates
  MutView dstate{};    // [S, H, P, N] F32: in, of the state after forward; out, of the state before; may be empty
  const SeqMap* seqs = nullptr;
  int64_t chunk = 128;  // tokens
  float dt_min = 0;
  float dt_max = std::numeric_limits<float>::infinity();
  static constexpr const char* name = "ssd_bwd";
  static constexpr auto fields() {
    return std::tuple{in("dy", &SsdBwd::dy, "T H P"),
                      in("x", &SsdBwd::x, "T H P"),
                      in("b", &SsdBwd::b, "T G N"),
                      in("c", &SsdBwd::c, "T G N"),
                      in("dt", &SsdBwd::dt, "T H"),
                      in("dt_bias", &SsdBwd::dt_bias, "H"),
                      in("a_log", &SsdBwd::a_log, "H"),
                      in("d_skip", &SsdBwd::d_skip, "H"),
                      maybe("state", &SsdBwd::state, "S H P N"),
                      out("dx", &SsdBwd::dx, "T H P"),
                      out("db", &SsdBwd::db, "T G N"),
                      out("dc", &SsdBwd::dc, "T G N"),
                      out("ddt", &SsdBwd::ddt, "T H"),
                      inout("ddt_bias", &SsdBwd::ddt_bias, "H"),
                      inout("da_log", &SsdBwd::da_log, "H"),
                      inout("dd_skip", &SsdBwd::dd_skip, "H"),
                      maybe_inout("dstate", &SsdBwd::dstate, "S H P N")};
  }
  // As SsdFwd: per token half a block twice and states five times; C.B and its two gradients count once per group.
  double flops() const {
    const auto block = static_cast<double>(std::min(chunk, kSsdBlock)), tokens = static_cast<double>(x.dim(0));
    const auto rows = static_cast<double>(x.dim(1) * x.dim(2)), width = static_cast<double>(b.dim(2));
    const auto groups = static_cast<double>(b.dim(1));
    return tokens * (rows * (2 * block + 10 * width) + 3 * groups * block * width);
  }
  static std::span<const Row<SsdBwd>> rows();
};

struct SsdStep {
  View x{};                // [T, H, P] F32 or BF16; any stride between tokens
  View b{};                // [T, G, N] as x
  View c{};                // [T, G, N] as x
  View dt{};               // [T, H] F32 or BF16, before bias and softplus
  View dt_bias{};          // [H] F32
  View a_log{};            // [H] F32
  View d_skip{};           // [H] F32
  MutView state{};         // [S, H, P, N] F32, BF16, F16 or I8
  MutView state_scales{};  // [S, H, P] F32, of I8
  MutView y{};             // [T, H, P] F32
  const SeqMap* seqs = nullptr;
  RandomKey noise{};  // of a state that is not F32
  float dt_min = 0;
  float dt_max = std::numeric_limits<float>::infinity();
  static constexpr const char* name = "ssd_step";
  static constexpr auto fields() {
    return std::tuple{in("x", &SsdStep::x, "T H P"),
                      in("b", &SsdStep::b, "T G N"),
                      in("c", &SsdStep::c, "T G N"),
                      in("dt", &SsdStep::dt, "T H"),
                      in("dt_bias", &SsdStep::dt_bias, "H"),
                      in("a_log", &SsdStep::a_log, "H"),
                      in("d_skip", &SsdStep::d_skip, "H"),
                      inout("state", &SsdStep::state, "S H P N"),
                      maybe_inout("state_scales", &SsdStep::state_scales, "S H P"),
                      out("y", &SsdStep::y, "T H P")};
  }
  double flops() const { return static_cast<double>(x.count()) * static_cast<double>(5 * b.dim(2) + 3); }
  static std::span<const Row<SsdStep>> rows();
};

}  // namespace braid
