// The smaller model as a Hugging Face folder, which Braid and transformers load: weights under the names and in the
// types of the parent's files, config.json, tokenizer, template and generation settings.
#pragma once
#include <filesystem>
#include <string>

#include "io/model_path.h"
#include "models/save.h"
#include "prune/cut_model.h"
#include "sys/function_ref.h"

namespace braid::prune {

using models::kNestedFile;

// What a nested folder has besides (nested.h).
struct NestedFiles {
  bool exact_norms = false;  // weights of norms in FP32: smaller models scale them, and what they get is not rounded
  std::string sizes{};       // nested.json; empty: none
};

// `out` must not exist, or be empty; it appears when all is written. `source` cuts the
// tensors of `small`, a config under the parent's names; `config_text` is of small_config_text. `progress` gets bytes
// done and in total; if it returns false, writing stops and nothing stays. Returns whether all was written.
bool write_small(const io::ModelPath& parent, const models::Config& small, CutSource& source, bool stacked,
                 const std::string& config_text, const std::filesystem::path& out,
                 const sys::FunctionRef<bool(int64_t, int64_t)>& progress, const NestedFiles& nested = {});

}  // namespace braid::prune
