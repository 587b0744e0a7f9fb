#include "models/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "codec/codec.h"
#include "io/atomic_folder.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "models/load.h"
#include "models/save.h"
#include "sys/error.h"

namespace braid::models {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRoot = "base_model.model.";
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";

struct FileConfig {
  double alpha = 0;
  bool root_of_rank = false;  // scale alpha / sqrt(r)
  std::vector<std::string> parameters{};
};

FileConfig read_config_of(const fs::path& folder) {
  const io::Json json = io::Json::read(folder / kAdapterConfig);
  const io::Json type = json.need({"peft_type"});
  if (type.as_string() != "LORA") type.refuse("is another kind of adapter", "LORA");
  const auto refuse = [&](const char* key, auto&& set) {
    if (const auto value = json.get({key}); value && set(*value)) value->refuse("is not supported", "none");
  };
  const auto is_true = [](const io::Json& v) { return v.as_bool(); };
  for (const char* key : {"use_dora", "use_qalora", "lora_bias"}) refuse(key, is_true);
  for (const char* key : {"alpha_pattern", "rank_pattern"})
    refuse(key, [](const auto& v) { return !v.members().empty(); });
  for (const char* key : {"modules_to_save", "layer_replication", "use_bdlora", "alora_invocation_tokens"})
    refuse(key, [](const auto&) { return true; });
  refuse("bias", [](const auto& v) { return v.as_string() != "none"; });
  FileConfig config{.alpha = json.need({"lora_alpha"}).as_number({-1e9, 1e9}),
                    .root_of_rank = json.bool_of({"use_rslora"}).value_or(false)};
  if (const auto list = json.get({"target_parameters"})) {
    for (const io::Json& word : list->items()) config.parameters.push_back(word.as_string());
  }
  return config;
}

// The sites of a file; their A and B view it.
std::vector<AdapterSite> read_sites(const AdapterPlaces& places, const FileConfig& config, const io::Safetensors& file,
                                    const std::string& where) {
  std::vector<AdapterSite> sites;
  std::set<std::string> taken;
  const auto check = [&](const std::string& name, const View& view, const Shape& shape) {
    if (view.dtype != DType::f32 && view.dtype != DType::f16 && view.dtype != DType::bf16)
      fail(where, {.what = "tensor " + printable(name) + " has the wrong type",
                   .got = name_of(view.dtype),
                   .expected = "F32, F16 or BF16"});
    if (view.shape != shape)
      fail(where, {.what = "tensor " + printable(name) + " has the wrong shape",
                   .got = to_string(view.shape),
                   .expected = to_string(shape)});
  };
  for (const io::StoredTensor& tensor : file.tensors()) {
    if (tensor.name.ends_with(kB)) continue;  // comes with its A
    if (!tensor.name.starts_with(kRoot) || !tensor.name.ends_with(kA))
      fail(where, {.what = "tensor " + printable(tensor.name) + " does not belong to an adapter",
                   .expected = std::string(kRoot) + "MODULE" + std::string(kA)});
    const std::string stem = tensor.name.substr(0, tensor.name.size() - kA.size());
    AdapterSite site = places.find_module(stem.substr(std::string_view(kRoot).size()), config.parameters, where);
    if (!taken.insert(site.matrices[0].name).second) fail(where, {.what = "has two adapters of " + printable(stem)});
    const int64_t rows = tensor.view.shape.rank == 2 ? tensor.view.dim(0) : 0;
    if (rows <= 0 || rows % site.count != 0)
      fail(where, {.what = "tensor " + printable(tensor.name) + " has no rank",
                   .got = to_string(tensor.view.shape),
                   .expected = fmt::format("[{} r, {}]", site.count, site.in)});
    site.rank = rows / site.count;
    check(tensor.name, tensor.view, {rows, site.in});
    const std::string b = stem + std::string(kB);
    check(b, file.need(b), {site.out, rows});
    const auto rank = static_cast<double>(site.rank);
    const auto param = [](ParamRole role, const std::string& name, const View& values) {
      return Param{{.name = name, .role = role}, dense_weight(values)};
    };
    site.adapter = {.a = param(ParamRole::lora_a, tensor.name, tensor.view),
                    .b = param(ParamRole::lora_b, b, file.need(b))};
    site.adapter.scale = static_cast<float>(config.alpha / (config.root_of_rank ? std::sqrt(rank) : rank));
    sites.push_back(std::move(site));
  }
  if (std::ssize(file.tensors()) != 2 * std::ssize(sites))
    fail(where, {.what = fmt::format("has {} tensors for {} adapters", file.tensors().size(), sites.size()),
                 .expected = "an A and a B each"});
  return sites;
}

// A folder with adapters over it, which the store keeps.
struct AdaptedFolder {
  OpenFolder base;
  Adapters* adapters = nullptr;
};

AdaptedFolder open_adapted(const io::ModelPath& path, const fs::path& folder, const Config& config, bool fold_all,
                           std::optional<DType> dtype) {
  const std::string where = printable(folder.string());
  if (!fs::exists(folder / kAdapterConfig))
    fail(where, {.what = "is not an adapter",
                 .expected = fmt::format("a folder with {} and {}", kAdapterConfig, kAdapterWeights)});
  const FileConfig file = read_config_of(folder);
  OpenFolder base = open_folder(path);
  const auto weights = std::make_shared<const io::Safetensors>(folder / kAdapterWeights);
  base.store->keep(weights);
  auto sites = read_sites(AdapterPlaces(config, *base.source), file, *weights, where);
  for (AdapterSite& site : sites) site.folded = site.folded || fold_all;
  const auto adapters = std::make_shared<Adapters>(std::move(sites), *base.store, Adapters::Options{.dtype = dtype});
  base.store->keep(adapters);
  adapters->apply(sys::default_threads());
  return {std::move(base), adapters.get()};
}

// The bytes of a merged matrix as its files hold them.
void write_merged(io::SafetensorsWriter& writer, const io::TensorSpec& spec, const View& merged, bool transposed) {
  if (merged.dtype == spec.dtype && !transposed) return writer.write(spec.name, merged);
  std::vector<std::byte> bytes(static_cast<size_t>(merged.count() * size_of(spec.dtype)));
  const int64_t rows = merged.dim(0), cols = merged.dim(1);
  const MutView out(bytes.data(), spec.dtype, transposed ? Shape{cols, rows} : Shape{rows, cols});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c)
      set_element(out, transposed ? c * rows + r : r * cols + c, element(merged, r * cols + c));
  }
  writer.write(spec.name, bytes);
}

// The words of a spec, or if they have globs, which PEFT does not support, the full names that they matched.
std::vector<std::string> words_of(const AdapterSpec& spec, std::span<const AdapterSite> sites, bool parameters) {
  const std::vector<std::string>& words = parameters ? spec.target_parameters : spec.targets;
  const auto is_glob = [](const std::string& word) { return word.find_first_of("*?") != std::string::npos; };
  if (std::none_of(words.begin(), words.end(), is_glob)) return words;
  std::vector<std::string> names;
  for (const AdapterSite& site : sites) {
    if (site.parameter.empty() != parameters) names.push_back(parameters ? site.parameter : site.module);
  }
  return names;
}

}  // namespace

std::string lora_a_name(const AdapterSite& site) { return kRoot + site.module + std::string(kA); }
std::string lora_b_name(const AdapterSite& site) { return kRoot + site.module + std::string(kB); }

std::unique_ptr<Model> load_adapted(const io::ModelPath& path, const fs::path& adapter, DType products) {
  Config config = load_config(path);
  AdaptedFolder folder = open_adapted(path, adapter, config, false, products);
  auto model = folder.adapters->build(std::move(config), *folder.base.source);
  model->store = std::move(folder.base.store);
  return model;
}

bool merge_adapter(const io::ModelPath& path, const fs::path& adapter, const fs::path& out,
                   const MergeProgress& progress) {
  if (path.is_gguf())
    fail(path.name, {.what = "cannot merge an adapter into a GGUF file", .hint = "--adapter where it is used"});
  const AdaptedFolder files = open_adapted(path, adapter, load_config(path), true, std::nullopt);
  struct Merged {
    View values;
    bool transposed;
  };
  std::map<std::string, Merged> merged;  // by the names of files
  for (const AdapterSite& site : files.adapters->sites()) {
    for (const SiteMatrix& matrix : site.matrices) {
      const QuantSpec& spec = matrix.base.value.spec;
      if (!codec_of(spec.format).dense)
        fail(path.name, {.what = "cannot merge an adapter into quantised weights",
                         .got = fmt::format("{} in {}", matrix.base.name, name_of(spec)),
                         .expected = "F32, F16 or BF16",
                         .hint = "--adapter where it is used"});
      merged[matrix.stored] = {files.adapters->working(matrix.name), site.transposed};
    }
  }
  const io::Safetensors weights(path.weights);
  std::vector<io::TensorSpec> specs;
  int64_t done = 0, total = 0;
  for (const io::StoredTensor& t : weights.tensors()) {
    specs.push_back({t.name, t.view.dtype, t.view.shape});
    total += t.view.bytes();
  }
  io::AtomicFolder folder(out, io::AtomicFolder::Mark::none);
  io::SafetensorsWriter writer(folder.place(), std::move(specs));
  for (const io::TensorSpec& spec : writer.order()) {
    if (const auto found = merged.find(spec.name); found != merged.end()) {
      write_merged(writer, spec, found->second.values, found->second.transposed);
    } else {
      writer.write(spec.name, weights.need(spec.name));
    }
    if (!progress(done += spec.bytes(), total)) return false;
  }
  writer.finish();
  copy_companions(path.folder, folder.place());
  copy_nested(path.folder, folder.place());
  copy_config(path.folder, folder.place());
  folder.commit();
  return true;
}

std::string adapter_config_text(const AdapterSpec& spec, std::span<const AdapterSite> sites, const std::string& base) {
  const std::vector<std::string> modules = words_of(spec, sites, false), parameters = words_of(spec, sites, true);
  nlohmann::ordered_json json = {{"peft_type", "LORA"},
                                 {"task_type", "CAUSAL_LM"},
                                 {"base_model_name_or_path", base},
                                 {"r", spec.rank},
                                 {"lora_alpha", spec.alpha},
                                 {"lora_dropout", spec.dropout},
                                 {"bias", "none"},
                                 {"fan_in_fan_out", !sites.empty() && sites[0].transposed},
                                 {"inference_mode", true},
                                 {"init_lora_weights", true},
                                 {"target_modules", modules}};
  if (modules == std::vector<std::string>{"all-linear"}) json["target_modules"] = modules[0];
  if (!parameters.empty()) json["target_parameters"] = parameters;
  return json.dump(2) + "\n";
}

}  // namespace braid::models
