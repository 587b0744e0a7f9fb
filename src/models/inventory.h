// The tensors that a config implies, without any files: names, shapes and kinds in the order a model asks for them. For
// counting parameters and for writing random weights of any size.
#pragma once
#include <string>
#include <vector>

#include "models/config.h"

namespace braid::models {

struct TensorSpec {
  std::string name;
  Shape shape;  // as stored
  bool matrix;  // may be quantised; vectors never are
};

std::vector<TensorSpec> inventory(const Config& config);

}  // namespace braid::models
