// Attention over tokens that ranks divide, without exchanging heads (arXiv 2310.01889): keys and values go around the
// ranks, each of which attends to them with its own queries and merges the softmaxes. In backward the gradients of keys
// and values go around with them, once more than they to return home.
#pragma once
#include "nn/context_parallel.h"

namespace braid::nn {

// q [own, H, P], k and v [own, G, P] of run.context's tokens -> y [own, H, P] in Numerics::products.
Tensor ring_attention(Run& run, const Tensor& q, const Tensor& k, const Tensor& v, float scale);

}  // namespace braid::nn
