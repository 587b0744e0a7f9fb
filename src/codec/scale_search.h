// How encoders choose the scale of a block.
#pragma once
#include <cstdint>

namespace braid {

// NVFP4: max maps the largest value of a block to 6; four_over_six is the better, by squared error, of that and mapping
// it to 4 (arXiv 2512.02010; the codes between 4 and 6 are far apart); mse is the best of all from half to twice the
// first. Other formats: codec/compressed_rows.h.
enum class ScaleSearch : uint8_t { max, four_over_six, mse };

}  // namespace braid
