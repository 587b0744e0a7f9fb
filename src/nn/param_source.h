// Where a block's parameters come from: a folder of files, or a list that only records names and shapes (for counting,
// and for writing random weights of any size). A block asks for what it needs; the source checks or records it.
#pragma once
#include <string>
#include <vector>

#include "core/param.h"

namespace braid::nn {

class ParamSource {
 public:
  virtual ~ParamSource() = default;

  // A matrix of any format, [rows, cols]. `keys` names the config entries that fix the shape, for the error message.
  virtual Param matrix(const std::string& name, int64_t rows, int64_t cols, const char* keys) = 0;
  // The same stored transposed, [cols, rows] (GPT-2's Conv1D).
  virtual Param transposed(const std::string& name, int64_t rows, int64_t cols, const char* keys) = 0;
  // Anything small: norms, biases, convolution; stored in `shape`, given as F32 [shape[0], rest] or, for one axis, [1,
  // n]. `plus` is added to every value: LayerNorm1p stores its weight less one.
  virtual Param vector(const std::string& name, const Shape& shape, const char* keys, float plus = 0) = 0;
  // `count` matrices stored in one tensor [count, rows, cols].
  virtual std::vector<Param> stacked(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                                     const char* keys) = 0;
  virtual bool has(const std::string& name) const = 0;
  // The same parameter where a model uses it once more: its gradient is summed apart, so that the order of sums does
  // not depend on how a batch is cut.
  virtual Param again(const Param& p) { return p; }
};

// The values of a Param that is a vector, [n] F32.
inline View vector_of(const Param& p) { return {p.value.codes.data, DType::f32, {p.value.rows * p.value.cols}}; }

}  // namespace braid::nn
