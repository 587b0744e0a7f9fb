// The arithmetic behind the table of quantize.cc, for the other op of this folder.
#pragma once
#include "kernels/quantize/quantize.h"

namespace braid {

// x [rows, cols] -> q [quantized_rows, cols]. The result does not depend on `threads`.
void quantize(int threads, const OperandSpec& spec, const View& x, const MutView& q, const Noise& noise = {});

}  // namespace braid
