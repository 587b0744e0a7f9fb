// Views as ops that exchange rows with other ranks use them.
#pragma once
#include <cstring>

#include "core/view.h"

namespace braid::nn {

inline View flat(const View& v) { return {v.data, v.dtype, {v.count()}}; }
inline MutView flat(const MutView& v) { return {v.data, v.dtype, {v.count()}}; }

inline void copy_bytes(const View& from, const MutView& to) {
  std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
}

}  // namespace braid::nn
