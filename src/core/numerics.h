// Numerics: the one choice of number formats and product classes of a pass, given to the engine and the trainer alike.
// Two passes with equal Numerics and `exact` give a token the same bits, whether in a training batch, in a prompt or as
// a step through caches.
#pragma once
#include <cstdint>
#include <optional>

#include "core/dtype.h"

namespace braid {

// Which of the two families of product rows a pass uses; each sums in its own order.
//   panel   weights read in place (math/panel.h): for the few rows of a step
//   packed  both operands packed first (math/packed.h): faster for the many rows of training
enum class ProductClass : uint8_t { panel, packed };

// How products over weights in codes of 4 to 8 bits take their activations, if the CPU has byte dot products:
//   none  as BF16, like other weights
//   a16   rounded to 16 bits: a class for the few rows of a step (math/codes_dot.h)
//   a8    rounded to 8 bits: for any number of rows (math/codes_a8.h)
enum class CodeDots : uint8_t { none, a16, a8 };

// Types of the state that a sequence carries from one pass to the next.
struct CacheTypes {
  DType kv = DType::f32;   // keys and values: F32, BF16, F8_E4M3 or I8
  DType ssm = DType::f32;  // states of Mamba: F32, BF16, F16 or I8
};

struct Numerics {
  DType products = DType::f32;     // of the operands of products: F32 or BF16
  DType activations = DType::f32;  // between products, except the FP32 residual stream
  ProductClass product_class = ProductClass::panel;
  // The scan always uses its chunked form, and the cache holds `activations`: a result does not depend on how its
  // sequence was cut into passes.
  bool exact = false;
  // Steps over weights in 4-bit codes are integer sums (math/codes_dot.h), a class made for one row at a time: for
  // passes of one sequence only. With several it would be slower than a product that they share, and than `int8`
  // always.
  bool code_steps = false;
  // Products over weights in codes round their activations to 8 bits, except where steps are as above. Only with BF16
  // products.
  bool int8 = false;

  // Another type for the keys and values that are kept for later passes: F32, BF16, F8_E4M3 or I8. Not with `exact`.
  std::optional<DType> kv{};
  DType ssm = DType::f32;  // of Mamba's states between passes; with `exact` F32

  CacheTypes caches() const { return {.kv = kv.value_or(exact ? activations : products), .ssm = ssm}; }

  // The defaults of the engine and the trainer. With `exact` both are the same choice: the activations of training,
  // since those are what its backward pass saves, and the products of the engine, since a step would pack every weight
  // for a single token.
  static constexpr Numerics serving(DType products, bool exact = false) {
    return {.products = products, .activations = exact ? products : DType::f32, .exact = exact};
  }
  static constexpr Numerics training(DType products, bool exact = false) {
    return {.products = products,
            .activations = products,
            .product_class = exact ? ProductClass::panel : ProductClass::packed,
            .exact = exact};
  }

  bool operator==(const Numerics&) const = default;
};

}  // namespace braid
