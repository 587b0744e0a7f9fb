// Tables of the IQ1, IQ2 and IQ3 kinds of GGUF: the points that groups of values are rounded to. An entry holds the
// codes of 8 values, 2 bits each, or for IQ3 of 4 values, 3 bits each, the first lowest.
#pragma once
#include <cstdint>

namespace braid {

extern const uint16_t kIq1[2048], kIq2Xxs[256], kIq2Xs[512], kIq2S[1024], kIq3Xxs[256], kIq3S[512];

}  // namespace braid
