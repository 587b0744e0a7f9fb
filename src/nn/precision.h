// Low-precision training (docs/internals/train.md, Low precision), emulated: before each of the three products with a
// weight both operands are quantised and dequantised, each from its high-precision values; the product itself, master
// weights, gradients of parameters and everything between products stay as they are without a recipe.
//
//   fp8        Nemotron-H: one current scale per tensor; E4M3, gradients E5M2
//   fp8-block  Nano 2: E4M3; weights 128x128, the rest 1x128 along the product's depth
//   mxfp8      E4M3 with 1x32 along the product's depth
//   mxfp4      as nvfp4, but MXFP4 with 1x32 also for weights
//   nvfp4      weights 16x16, the rest 1x16 along the product's depth; both operands of a weight's gradient through a
//              Hadamard transform over tokens; stochastic rounding of gradients alone; Mamba's out_proj in MXFP8
//
// A recipe is a policy over roles and layers: embeddings, head, router, MTP and layers at both ends are never
// quantised, and with four bits neither are attention and latent projections. The arithmetic is kernels/quantize.
//
// "A tensor" is the operand of one product: all tokens of a micro-batch, as in the published recipes. So with a recipe
// `accumulate` affects the numerics, which it otherwise does not; threads, recomputation and resuming change no bit.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "core/param.h"
#include "core/seq_map.h"
#include "kernels/experts/experts.h"
#include "kernels/linear/linear.h"
#include "kernels/quantize/quantize.h"

namespace braid::nn {

class Precision;

// A weight that a recipe quantises, or nothing.
struct LowWeight {
  const Precision* precision = nullptr;
  ProductSpecs specs{};
  uint32_t stream = 0;  // of its noise
  uint32_t use = 0;     // of a weight that a pass uses several times: which time (Run::use)

  explicit operator bool() const { return precision != nullptr; }
};

// Parts of a recipe that an ablation leaves out.
struct RecipeParts {
  bool stochastic = true;      // rounding of gradients
  bool hadamard = true;        // of the operands of a weight's gradient
  bool square_weights = true;  // 2D blocks of weights, the same in forward and backward; else along the depth
};

class Precision {
 public:
  // `params`: those of a model, in its order. Error for an unknown recipe, or one that lacks a part to be left out.
  Precision(const std::string& recipe, std::span<Param* const> params, uint64_t seed, const RecipeParts& parts = {});
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

  // The noise of a step depends only on the seed and its number.
  void begin_step(int64_t step) { step_ = step; }
  LowWeight find(const Param& w) const;
  // An arm of an experiment: other operands for every weight that the recipe quantises.
  void replace(const ProductSpecs& specs);
  // One line for logs: what is emulated, and how much of the model stays in high precision.
  std::string describe() const;

  uint64_t seed() const { return seed_; }
  int64_t step() const { return step_; }

 private:
  std::string recipe_, without_;  // without_: of describe()
  uint64_t seed_;
  int64_t step_ = 0;
  int64_t matrices_ = 0, values_ = 0, low_values_ = 0, first_ = 0, last_ = 0;
  std::unordered_map<const Param*, LowWeight> low_;
};

// Whether a word names a recipe that quantises something; "none" and "bf16" do not. Error for an unknown word.
bool is_low_precision(const std::string& recipe);

// The experts of a layer. They are alike: either all are quantised or none.
struct LowExperts {
  const Precision* precision = nullptr;
  std::span<const Param> up{}, gate{}, down{};
  uint32_t use = 0;  // as of a weight

  LowWeight find(std::span<const Param> list) const {
    LowWeight low = precision && !list.empty() ? precision->find(list[0]) : LowWeight();
    low.use = use;
    return low;
  }
};

// The op, on quantised operands where `low` is quantised. `seqs` are those of the micro-batch.
void product(Ctx& ctx, const LowWeight& low, LinearFwd op);
void product(Ctx& ctx, const LowWeight& low, LinearBwdData op, std::span<const Seq> seqs);
void product(Ctx& ctx, const LowWeight& low, const LinearBwdWeight& op, std::span<const Seq> seqs);
void product(Ctx& ctx, const LowExperts& low, const ExpertsFwd& op);
void product(Ctx& ctx, const LowExperts& low, const ExpertsBwd& op, std::span<const Seq> seqs);

}  // namespace braid::nn
