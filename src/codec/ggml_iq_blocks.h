// Decoders of the IQ1, IQ2 and IQ3 kinds, for ggml_blocks.cc: one block, as GGUF stores it, to y [256] F32. Each group
// of values is stored as an index of a point in a table (ggml_grids.h).
#pragma once
#include <cstdint>

namespace braid::ggml {

void iq1_s(const uint8_t* block, float* y);    // 50 bytes
void iq1_m(const uint8_t* block, float* y);    // 56 bytes
void iq2_xxs(const uint8_t* block, float* y);  // 66 bytes
void iq2_xs(const uint8_t* block, float* y);   // 74 bytes
void iq2_s(const uint8_t* block, float* y);    // 82 bytes
void iq3_xxs(const uint8_t* block, float* y);  // 98 bytes
void iq3_s(const uint8_t* block, float* y);    // 110 bytes

}  // namespace braid::ggml
