// From a Hugging Face folder to a Model. Matrices stay mapped as they are stored, quantised ones too; small vectors
// become FP32. Weights are not read before they are used.
#pragma once
#include <memory>

#include "io/model_path.h"
#include "models/model.h"

namespace braid::models {

// Error for anything that does not fit: unknown architecture, missing tensor, wrong shape or type, unknown format.
std::unique_ptr<Model> load_model(const io::ModelPath& path);

// config.json together with generation_config.json, whose EOS ids count too.
Config load_config(const io::ModelPath& path);

// The weights of a folder, by the names that a Config uses; a Param's own name is the one in the files.
struct OpenFolder {
  std::shared_ptr<WeightStore> store;  // what the Params view
  std::unique_ptr<nn::ParamSource> source;
};
// Error for a weight or bias in a layer that the config does not imply: it would be missing in silence.
OpenFolder open_folder(const io::ModelPath& path);

// Formats of quantised files are known by the scale tensors that accompany a weight (docs/internals/formats.md):
//   U8 weight + weight_scale [rows, cols/16] F8 + weight_scale_2 []  -> nvfp4
//   F8_E4M3 weight + weight_scale []                                 -> fp8
// The lists in hf_quant_config.json and config.json can be wrong; they are read to refuse algorithms that are not
// known.

}  // namespace braid::models
