// Importance measured by passes over calibration data, forward only and one sample at a time: what is kept are sums per
// channel. A sample is a row of the data; over its tokens a score is the mean of magnitudes, over samples the root of
// the sum of squares (Minitron, arXiv 2407.14679, section 2.2).
//   hidden          outputs of the norms of the stack, summed over norms
//   ffn, shared_ffn what the down product reads; expert_ffn the same for an expert, over the tokens that chose it
//   heads           norm of a head's output
//   mamba_heads     x of the in_proj (arXiv 2504.11409, section 3), by channel
//   latent          what experts read and, added, what they write
//   experts         norm of an expert's output times its weight: the mean over all tokens, or over those that chose it
//                   (REAP, arXiv 2510.13999)
//   layers          1 - cosine of the residual stream before and after, the mean over tokens
#pragma once
#include <cstdint>
#include <span>

#include "data/batch.h"
#include "io/model_path.h"
#include "models/model.h"
#include "prune/scores.h"
#include "sys/function_ref.h"

namespace braid::prune {

enum class ExpertScore : uint8_t { all_tokens, routed_tokens };

// `progress` gets samples done; if it returns false, measuring stops and what was seen counts.
using Progress = sys::FunctionRef<bool(int64_t)>;

// Every row is one sample. Error (a failed run) when a value is not finite.
Scores measured_scores(models::Model& model, std::span<const data::Batch> rows, ExpertScore experts, int threads,
                       const Progress& progress);

// |sum of value times gradient| of the parameters that a channel, head or expert has, the gradient of a sample's mean
// loss: how much the loss changes, to first order, without it (arXiv 1906.10771). Samples as above; layers are ranked
// by all their parameters. It needs an FP32 copy of the weights and their gradients, and a backward pass a sample.
// Energies are not measured.
Scores taylor_scores(const io::ModelPath& path, std::span<const data::Batch> rows, int threads,
                     const Progress& progress);

// Mean loss of the targets, without the prediction block's. Interrupted (sys/interrupt.h) if `progress` returns false:
// of some of the rows it would be another number.
double mean_loss(models::Model& model, std::span<const data::Batch> rows, int threads, const Progress& progress);

}  // namespace braid::prune
