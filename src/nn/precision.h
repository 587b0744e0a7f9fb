// Low-precision training (training.md 5, nemotron.md 7.1 and 7.2), emulated: before each of the three products with a
// weight both operands are quantised and dequantised, each from its high-precision values; the product itself, master
// weights, gradients of parameters and everything between products stay as they are without a recipe.
//
//   fp8        Nemotron-H: one current scale a tensor; E4M3, gradients E5M2
//   fp8-block  Nano 2: E4M3; weights 128x128, the rest 1x128 along the product's depth
//   mxfp8      E4M3 with 1x32 along the product's depth
//   mxfp4      as nvfp4, but MXFP4 with 1x32 also for weights
//   nvfp4      weights 16x16, the rest 1x16 along the product's depth; both operands of a weight's gradient through a
//              Hadamard transform over tokens; stochastic rounding of gradients alone; Mamba's out_proj in MXFP8
//
// A recipe is a policy over names: embeddings, head, router, MTP and layers at both ends are never quantised, and
// with four bits neither are attention and latent projections.
//
// "A tensor" is the rows of one sequence, as Megatron's micro-batches of one: how a batch is cut changes no bit.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "core/param.h"
#include "core/seq_map.h"
#include "kernels/linear/linear.h"
#include "math/quantizer.h"

namespace braid::nn {

// The operands of y = x W^T, of dx = dy W, and of dW = dy^T x.
struct ProductSpecs {
  OperandSpec forward_x{}, forward_w{};
  OperandSpec data_dy{}, data_w{};
  OperandSpec weight_dy{}, weight_x{};
};

class Precision;

// A weight that a recipe quantises, or nothing.
struct LowWeight {
  const Precision* precision = nullptr;
  ProductSpecs specs{};
  uint32_t stream = 0;  // of its noise

  explicit operator bool() const { return precision != nullptr; }
};

class Precision {
 public:
  // `params`: of a model, in its order. Error for a word that names no recipe.
  Precision(const std::string& recipe, std::span<Param* const> params, uint64_t seed);
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

  // The noise of a step depends on nothing but seed and number.
  void begin_step(int64_t step) { step_ = step; }
  LowWeight find(const Param& w) const;
  // An arm of an experiment: other operands for every weight that the recipe quantises.
  void replace(const ProductSpecs& specs);
  // One line for logs: what is emulated, and how much of the model stays high.
  std::string describe() const;

  uint64_t seed() const { return seed_; }
  int64_t step() const { return step_; }

 private:
  std::string recipe_;
  uint64_t seed_;
  int64_t step_ = 0;
  int64_t matrices_ = 0, values_ = 0, low_values_ = 0, first_ = 0, last_ = 0;
  std::unordered_map<const Param*, LowWeight> low_;
};

// Whether a word names a recipe that quantises something; "none" and "bf16" do not. Error for one that nothing knows.
bool is_low_precision(const std::string& recipe);

// The op, on quantised operands where `low` is a weight. The rows of each sequence are quantised on their own.
void product(Ctx& ctx, const LowWeight& low, LinearFwd op, std::span<const Seq> seqs);
void product(Ctx& ctx, const LowWeight& low, LinearBwdData op, std::span<const Seq> seqs);
void product(Ctx& ctx, const LowWeight& low, const LinearBwdWeight& op, std::span<const Seq> seqs);

}  // namespace braid::nn
