// Converts a Hugging Face folder to one with quantised matrices, in ModelOpt's layout (FP8, NVFP4) or that of
// compressed-tensors (docs/internals/formats.md), which Braid and readers of `quant_method: modelopt` or
// `compressed-tensors` load. ModelOpt's layout has the scales of quantised activations, too, where they were measured.
// Matrices that readers join share one scale of a whole tensor (quant_plan.h). Every other tensor, known or not, is
// copied as it is, but for those that a method with data folded scales into; so are tokenizer, template and generation
// settings. Experts that the folder has in a stack become tensors of their own, as both layouts have them, where they
// are quantised.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/model_path.h"
#include "models/quant_format.h"
#include "models/quant_recipe.h"
#include "sys/function_ref.h"

namespace braid::models {

// A matrix that a method with calibration data has quantised (quant/calibrate.h).
struct CalibratedMatrix {
  Encoded matrix{};
  float global = 1;
};

struct QuantOptions {
  bool strict = false;  // a matrix that its format cannot hold is an error
  int threads = 1;
  // Of what each matrix is multiplied by, by the name of its parameter (engine/calibrate.h); empty: no input_scale is
  // written, and activations stay as they are.
  std::map<std::string, float> input_amax{};
  // By the same names: codes to write in place of the nearest ones, in the format that the recipe says; and the bytes
  // of tensors that stay unquantised, into which scales of quantised ones were folded.
  std::map<std::string, CalibratedMatrix> calibrated{};
  std::map<std::string, std::vector<std::byte>> folded{};
};

// Matrices of one role and format.
struct QuantGroup {
  std::string role, format;
  int64_t tensors = 0, values = 0, bytes = 0;
  double error = 0;   // relative: root of the sum of squared errors over squared values
  std::string why{};  // of matrices that stayed as they are, because of their format
};

struct QuantReport {
  bool whole = false;                // false: stopped by `progress`; the folder is incomplete
  std::vector<QuantGroup> groups;    // by role and format; the rest is in `kept`
  QuantGroup kept;                   // all that stayed as it was
  std::vector<QuantGroup> unfit;     // of `kept`, what its format cannot hold, by role and reason
  std::vector<std::string> misfits;  // the matrices of these: "name why"

  std::vector<std::string> notes;  // on which programs can read the folder

  int64_t values() const;
  int64_t bytes() const;
};

// `out` must not exist, or be empty. `progress` gets bytes done and in total; returning false stops.
QuantReport quantize_model(const io::ModelPath& model, const QuantRecipe& recipe, const std::filesystem::path& out,
                           const QuantOptions& options, const sys::FunctionRef<bool(int64_t, int64_t)>& progress);

}  // namespace braid::models
