// Param: the only named tensor above io. Its Segments say once where the parts of a fused matrix lie (in_proj, conv,
// qkv), and its Shard along which axis it may be cut: import, distribution, pruning, quantisation and optimiser rules
// read them.
#pragma once
#include <string>
#include <vector>

#include "core/view.h"
#include "core/weight.h"

namespace braid {

struct Segment {
  const char* name;
  int64_t begin, rows;
};

enum class Shard : uint8_t { none, rows, cols };

struct Param {
  std::string name;  // as the family's files spell it
  Weight value{};
  MutView grad{};  // F32 [rows, cols], accumulates; empty outside training and for what is frozen
  std::vector<Segment> segments{};
  Shard shard = Shard::none;
};

}  // namespace braid
