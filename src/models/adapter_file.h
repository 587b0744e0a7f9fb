// Adapters as PEFT writes and reads them: a folder with adapter_config.json and adapter_model.safetensors, in which
// module M has base_model.model.M.lora_A.weight [r, K] and lora_B.weight [N, r] (adapter_sites.h has the stacks).
#pragma once
#include <filesystem>
#include <memory>
#include <span>

#include "io/model_path.h"
#include "models/adapters.h"
#include "sys/function_ref.h"

namespace braid::models {

using io::kAdapterConfig;
using io::kAdapterWeights;

std::string lora_a_name(const AdapterSite& site);
std::string lora_b_name(const AdapterSite& site);

// The model of `path` with the adapter of a folder, for products in `products`, F32 or BF16. Error for anything that
// does not fit: another kind of adapter, a module that the model lacks, a wrong shape.
std::unique_ptr<Model> load_adapted(const io::ModelPath& path, const std::filesystem::path& adapter, DType products);

// The weights of `path` with the adapter added, written tensor by tensor, with the same names, types and shapes, to
// another folder. Error when an adapted weight is quantised. `progress` gets bytes done and in total; returning false
// stops, and nothing is written. Returns whether it is whole.
using MergeProgress = sys::FunctionRef<bool(int64_t, int64_t)>;
bool merge_adapter(
    const io::ModelPath& path, const std::filesystem::path& adapter, const std::filesystem::path& out,
    const MergeProgress& progress = [](int64_t, int64_t) { return true; });

// adapter_config.json of trained adapters. `base` is where the model came from.
std::string adapter_config_text(const AdapterSpec& spec, std::span<const AdapterSite> sites, const std::string& base);

}  // namespace braid::models
