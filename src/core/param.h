// Param: the only named tensor above io. Its Segments say once where the parts of a fused matrix lie (in_proj, conv,
// qkv), and its Shard along which axis it may be cut: import, distribution, pruning, quantisation and optimiser rules
// read them. Adapter: a small trained product beside a frozen one (LoRA, arXiv 2106.09685).
#pragma once
#include <cstdint>
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

struct Adapter;

struct Param {
  std::string name;  // as the family's files spell it
  Weight value{};
  MutView grad{};  // F32 [rows, cols], accumulates; empty outside training and for what is frozen
  std::vector<Segment> segments{};
  Shard shard = Shard::none;
  Adapter* adapter = nullptr;  // of a matrix, added by the product that reads it; its owner outlives the Param
};

// y += scale B (A dropout(x)).
struct Adapter {
  Param a{}, b{};  // [r, K], [N, r]
  float scale = 1;
  float dropout = 0;    // in passes that draw (nn::Run::draws)
  uint32_t number = 0;  // among the adapters of a model: tells their random numbers apart
};

}  // namespace braid
