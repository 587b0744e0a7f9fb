// Formats of weights in memory: codes in, numbers out (core/weight.h has their layouts). A format is a file with its
// functions and a row of the table in codec.cc, from which products, policies of storage and tests take what they need
// to know of it. The formats that `braid quantize` writes: codec/quant_codec.h.
#pragma once
#include <cstdint>
#include <vector>

#include "core/weight.h"

namespace braid {

template <class Num>
using DecodeRow = void(const Weight& w, int64_t r, int64_t begin, int64_t n, Num* values);

struct Codec {
  bool dense = false;          // codes are numbers, without scales
  bool in_place = false;       // products of its type multiply the codes themselves; others are decoded
  bool exact_in_bf16 = false;  // every code times the scale of its block is
  DecodeRow<float>* f32 = nullptr;
  DecodeRow<Bf16>* bf16 = nullptr;
};
const Codec& codec_of(Format format);
inline const Codec& codec_of(const Weight& w) { return codec_of(w.spec.format); }

// Values of row r, columns [begin, begin + n), without `global` (a product applies it once, to the sum). begin must be
// a multiple of the block, except for Format::ggml. What is not exact in BF16 is rounded to it.
inline void decode_row(const Weight& w, int64_t r, int64_t begin, int64_t n, float* values) {
  codec_of(w).f32(w, r, begin, n, values);
}
inline void decode_row(const Weight& w, int64_t r, int64_t begin, int64_t n, Bf16* values) {
  codec_of(w).bf16(w, r, begin, n, values);
}

// The whole matrix with `global` applied, for references.
std::vector<double> decode(const Weight& w);

}  // namespace braid
