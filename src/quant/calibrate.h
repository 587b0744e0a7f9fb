// Quantising a model with calibration data, layer by layer in order: the inputs of a layer's matrices are those that
// the layers before it produce as they were quantised, and only one layer's inputs and Hessians are in memory at a
// time. Every sample passes each layer twice, before and after its matrices are quantised. What stays in memory to the
// end are the codes, as many bytes as the files will have, and the residual stream of the samples.
//
//   gptq  rounding with error feedback (quant/feedback.h); a row whose output error on the samples it would raise is
//         rounded to the nearest instead
//   awq   channels of a matrix's inputs are scaled before rounding to the nearest (quant/fold.h)
//   auto  both, each where it lowers the output error on samples that it was not fitted to, a quarter of all; then
//         fitted again to all of them
//
// Matrices that no pass uses (the prediction block, tied tables, embeddings) are rounded to the nearest, and so are
// those of experts that few tokens chose.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/model_path.h"
#include "models/quantize.h"
#include "sys/function_ref.h"

namespace braid::quant {

enum class Method : uint8_t { gptq, awq, automatic };

struct CalibrateOptions {
  Method method = Method::automatic;
  double damping = 0.01;  // quant/feedback.h
  int64_t rows_min = 32;  // inputs that a matrix must have been multiplied by, and at least as many as it has columns
  int threads = 1;
};

// Output errors are relative: the root of the sum of e G e^T over that of w G w^T, on all samples.
struct MatrixResult {
  std::string name;
  ParamRole role = ParamRole::none;
  QuantFormat format = QuantFormat::bf16;
  bool feedback = false, scaled = false;
  double nearest = 0, chosen = 0, outputs = 0;  // sums of e G e^T, and of w G w^T
};

struct Calibrated {
  bool whole = false;  // false: stopped by `progress`
  std::map<std::string, models::CalibratedMatrix> matrices{};
  std::map<std::string, std::vector<std::byte>> folded{};
  std::map<std::string, float> input_amax{};
  std::vector<MatrixResult> results{};
  std::vector<std::string> few{};  // rounded to nearest, too few inputs: "name: inputs"
};

using Progress = sys::FunctionRef<bool(int64_t done, int64_t total)>;

// `samples` are sequences of token ids of the model, each from empty states. Error for a model with a loop of layers,
// for samples with ids outside of the vocabulary, and for inputs that are not finite.
Calibrated calibrate(const io::ModelPath& path, const models::QuantRecipe& recipe,
                     std::span<const std::vector<int32_t>> samples, const CalibrateOptions& options,
                     const Progress& progress);

}  // namespace braid::quant
