// What the sums of a window of 16 rows over dense tiles (spmm_tiles.h) require of an instruction set: BF16 tiles (AMX),
// or the same in software. Plain data, so that files compiled for tiles may include it (docs/internals/cpu.md).
//
// A step is 32 sources. Its first operand has the factors of the window's edges, [16 rows][32 sources], rounded to
// BF16, followed by what rounding left; its second the features of the sources, a group of 32 channels as two tiles of
// [16 pairs of sources][16 channels][2]. Of a group, tile h column n is channel n / 4 * 8 + h * 4 + n % 4: the order in
// which the halves of registers come out of an interleaving instruction.
#pragma once
#include <cstdint>

namespace braid::spmm_tiles {

inline constexpr int64_t kRows = 16, kSources = 32, kGroup = 32;
inline constexpr int64_t kPlane = kRows * kSources, kStep = 2 * kPlane;  // BF16 values of the first operand
inline constexpr int64_t kTile = 256;                                    // sums of a tile

struct Factors {
  const uint32_t* mask = nullptr;  // [steps, 16], the sources of each row
  int64_t steps = 0;
  const float *edge = nullptr, *scale = nullptr;      // both null: ones
  const int32_t *order = nullptr, *source = nullptr;  // of edges; order: null where it is theirs
  int64_t* at = nullptr;                              // [16], the next edge of each row; moved on
  uint16_t* out = nullptr;                            // [steps, 2, 16, 32]
};

struct Products {
  const int32_t *source = nullptr, *last = nullptr;  // [steps, 32]; the last step of the graph
  int64_t steps = 0;
  const uint16_t *x = nullptr, *x_after = nullptr;  // at the first channel; of what is read after the last step
  const int32_t* source_after = nullptr;            // the step that is
  int64_t x_stride = 0;                             // values
  const uint16_t* factors = nullptr;
  bool remainder = false;           // of the factors: also multiply what rounding left
  bool wide = false;                // two groups of channels, else one
  bool add = false;                 // to the sums of the steps before
  uint16_t* interleaved = nullptr;  // scratch, [4 tiles][16][16][2]
  float* sums = nullptr;            // [4 tiles][16][16]
};

// A step whose features are prefetched.
struct Ahead {
  const int32_t* source;
  const uint16_t* x;
};

// Terms of a row that are not sums of edges, where a call has any: y = share sum + factor x + factor x.
struct OwnTerms {
  float share[kRows] = {};           // 1, or of a mean one over the edges
  const uint16_t* x[2][kRows] = {};  // null: none
  float factor[2][kRows] = {};
};

struct Put {
  const float* sums = nullptr;
  int64_t groups = 0, rows = 0, channel = 0;
  float* y = nullptr;  // null: BF16. Both at the window's first row
  uint16_t* y_bf16 = nullptr;
  int64_t y_stride = 0;
  bool past_caches = false;  // rows of y are aligned to 64 bytes then
  const OwnTerms* own = nullptr;
};

struct Code {
  void (*begin)();
  void (*end)();                      // also: results are written
  bool (*factors)(const Factors& f);  // whether rounding left anything
  void (*products)(const Products& p);
  bool (*put)(const Put& p);  // whether all sums are finite
};

extern const Code kAmxCode, kSoftCode;

}  // namespace braid::spmm_tiles
