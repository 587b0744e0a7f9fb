// Decoders of the IQ1, IQ2 and IQ3 kinds, for ggml_blocks.cc: one block of 256 values each. Each group of values is
// stored as an index of a point in a table (ggml_grids.h).
#pragma once
#include <cstdint>

namespace braid::ggml {

void iq1_s(const uint8_t* block, float* y);
void iq1_m(const uint8_t* block, float* y);
void iq2_xxs(const uint8_t* block, float* y);
void iq2_xs(const uint8_t* block, float* y);
void iq2_s(const uint8_t* block, float* y);
void iq3_xxs(const uint8_t* block, float* y);
void iq3_s(const uint8_t* block, float* y);

}  // namespace braid::ggml
