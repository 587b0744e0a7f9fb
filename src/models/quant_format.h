// Matrices in the formats that `braid quantize` writes (codec/quant_codec.h): their tensors in files, their codes, and
// the weights that a reader of the files gets.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codec/quant_codec.h"
#include "core/weight.h"
#include "core/weight_store.h"
#include "io/safetensors_write.h"
#include "sys/function_ref.h"

namespace braid::models {

// What files hold for the matrix `name`, codes before scales.
std::vector<io::TensorSpec> stored_as(const std::string& name, const Shape& shape, QuantFormat format);

// Codes and scales of a matrix, and their error.
struct Encoded {
  std::vector<std::byte> codes, scales;
  double error = 0, square = 0;  // sums over all values, in the order of rows whatever the threads
};
// The scale of a whole tensor in ModelOpt's layout whose largest magnitude is `amax`; 1 in the other layout.
float global_scale(QuantFormat format, float amax, ScaleSearch search);
// The same of a matrix, measured; 0 where all values are below the smallest normal number, so that any scale will do.
// Error, naming `model` and the matrix, where a value is not finite or larger than the
// format holds.
struct MatrixName {
  const std::string& model;
  const char* matrix;
};
float measured_global(const Weight& w, QuantFormat format, ScaleSearch search, const MatrixName& name, int threads);
// The scale of inputs (ModelOpt's input_scale) whose largest magnitude is `amax`; 1 where all are zero.
float input_scale(QuantFormat format, float amax);
Encoded encode(const Weight& w, QuantFormat format, float global, ScaleSearch search, int threads);
// The operand of products that a reader of the files gets, made in `store`.
Weight weight_of(const Encoded& matrix, int64_t rows, int64_t cols, QuantFormat format, float global,
                 WeightStore& store);

// body(row, values) for every row of a matrix, in parallel; values include the factor `global`.
void for_each_row(const Weight& w, int threads, const sys::FunctionRef<void(int64_t, std::span<const float>)>& body);

}  // namespace braid::models
