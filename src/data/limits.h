// Sizes of batches, 1 to these: of recipes and of what reads data.
#pragma once
#include <cstdint>

namespace braid::data {

inline constexpr int64_t kRowsMax = int64_t{1} << 20;    // of a step
inline constexpr int64_t kLengthMax = int64_t{1} << 22;  // tokens of a row

}  // namespace braid::data
