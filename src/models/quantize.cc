#include "models/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "io/atomic_file.h"
#include "io/safetensors_write.h"
#include "math/blocks.h"
#include "models/config_file.h"
#include "models/load.h"
#include "models/save.h"
#include "models/storage.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::models {
namespace fs = std::filesystem;
namespace {

const char* word_of(Format format) { return format == Format::nvfp4 ? "nvfp4" : "fp8"; }

// A matrix to quantise: where its values are, and what is known of them while its tensors are written.
struct Job {
  ParamRole role = ParamRole::none;
  QuantRule rule{};
  Weight weight{};
  float global = 0;  // 0: not known yet
  std::vector<F8E4M3> scales{};
};

class Quantizer {
 public:
  Quantizer(const io::ModelPath& model, const QuantRecipe& recipe, const QuantOptions& options)
      : recipe_(recipe),
        options_(options),
        where_(printable(model.name)),
        config_(load_config(model)),
        json_(io::Json::read(model.folder / "config.json")),
        files_(model.weights),
        folder_(open_folder(model)) {
    for (const TensorSpec& tensor : inventory(config_)) plan(tensor);
    if (jobs_.empty()) fail(where_, {.what = "has no matrix that the recipe quantises", .got = printable(recipe.name)});
  }

  QuantReport write(const fs::path& out, const sys::FunctionRef<bool(int64_t, int64_t)>& progress) {
    const std::vector<io::TensorSpec> specs = stored();
    int64_t total = 0, done = 0;
    for (const io::TensorSpec& spec : specs) total += spec.bytes();
    io::SafetensorsWriter writer(out, specs);
    for (const io::TensorSpec& spec : writer.order()) {
      if (!progress(done, total)) return std::move(report_);
      put(writer, spec);
      done += spec.bytes();
    }
    writer.finish();
    finish_report();
    return std::move(report_);
  }

  const io::Json& json() const { return json_; }
  std::string hf_quant_config() const;
  std::string config_json() const;

 private:
  void plan(const TensorSpec& tensor) {
    const QuantRule* rule = recipe_.find(tensor, config_.pattern());
    if (!rule || rule->format == Format::bf16 || tensor.shape.rank != 2) return;
    if (const std::string why = misfit(tensor, *rule); !why.empty()) {
      if (options_.strict)
        fail(where_, {.what = tensor.name + " " + why,
                      .hint = "leaving out --strict, and it stays as it is; or a recipe that says fp8"});
      report_.misfits.push_back(tensor.name + " " + why);
      return;
    }
    const Param param = folder_.source->get(tensor);
    jobs_.try_emplace(param.name, Job{.role = tensor.role, .rule = *rule, .weight = param.value});
  }

  std::string misfit(const TensorSpec& tensor, const QuantRule& rule) const {
    if (tensor.transposed) return "is stored transposed, which no quantised layout is";
    if (!folder_.source->has(tensor.name)) return "lies in a stack of experts, which no quantised layout has";
    if (rule.format == Format::nvfp4 && tensor.cols() % kNvfp4Block != 0)
      return fmt::format("has rows of {} values, not a multiple of 16 as NVFP4 needs; FP8 holds them", tensor.cols());
    return {};
  }

  // The job of the matrix whose scale this is; nullptr for other tensors.
  Job* job_of_scale(std::string_view name) {
    for (const std::string_view suffix : {"_scale_2", "_scale"}) {
      if (!name.ends_with(suffix)) continue;
      const auto job = jobs_.find(std::string(name.substr(0, name.size() - suffix.size())));
      if (job != jobs_.end()) return &job->second;
    }
    return nullptr;
  }

  std::vector<io::TensorSpec> stored() {
    std::vector<io::TensorSpec> specs;
    for (const io::StoredTensor& tensor : files_.tensors()) {
      if (job_of_scale(tensor.name)) continue;  // the matrix is quantised anew
      const auto job = jobs_.find(tensor.name);
      if (job == jobs_.end()) {
        specs.push_back({tensor.name, tensor.view.dtype, tensor.view.shape});
        continue;
      }
      const Job& j = job->second;
      for (io::TensorSpec& spec : stored_as(tensor.name, {j.weight.rows, j.weight.cols}, j.rule.format))
        specs.push_back(std::move(spec));
    }
    return specs;
  }

  // The next tensor of the files: copied, or a part of what a job gives.
  void put(io::SafetensorsWriter& writer, const io::TensorSpec& spec) {
    if (const auto job = jobs_.find(spec.name); job != jobs_.end()) return put_codes(writer, job->first, job->second);
    if (Job* job = job_of_scale(spec.name)) {
      if (spec.dtype == DType::f32) {
        const float global = global_of(*job);
        return writer.write(spec.name, std::as_bytes(std::span(&global, 1)));
      }
      writer.write(spec.name, std::as_bytes(std::span(job->scales)));
      job->scales = {};
      return;
    }
    const View view = files_.need(spec.name);
    report_.kept.tensors += 1;
    report_.kept.values += view.count();
    report_.kept.bytes += view.bytes();
    writer.write(spec.name, view);
  }

  float global_of(Job& job) const {
    if (job.global > 0) return job.global;
    const Weight& w = job.weight;
    std::vector<float> largest(static_cast<size_t>(w.rows));
    rows(w, [&](int64_t r, std::span<const float> values) {
      float& amax = largest[static_cast<size_t>(r)];
      for (float v : values) amax = std::isnan(v) ? HUGE_VALF : std::max(amax, std::fabs(v));
    });
    float amax = 0;
    for (float v : largest) {
      if (!std::isfinite(v))
        fail(where_, {.what = "a matrix has a value that is not finite", .got = name_of(job.role)});
      amax = std::max(amax, v);
    }
    return job.global = job.rule.format == Format::nvfp4 ? nvfp4_global(amax, job.rule.scales) : fp8_global(amax);
  }

  // Encodes a matrix and decodes every row again for its error. Squares are summed by row and then in order, so that
  // the figure does not depend on threads.
  void put_codes(io::SafetensorsWriter& writer, const std::string& name, Job& job) {
    const Weight& w = job.weight;
    const bool fp4 = job.rule.format == Format::nvfp4;
    std::vector<uint8_t> codes(static_cast<size_t>(w.rows * w.cols / (fp4 ? 2 : 1)));
    if (fp4) job.scales.resize(static_cast<size_t>(w.rows * w.cols / kNvfp4Block));
    const Weight q = quantised(job, codes);
    const auto n = static_cast<size_t>(w.cols);
    std::vector<double> error(static_cast<size_t>(w.rows)), square(error.size());
    rows(w, [&](int64_t r, std::span<const float> values) {
      const auto row = static_cast<size_t>(r), at = row * n;
      if (fp4) {
        encode_nvfp4_row(values, q.global, &codes[at / 2], &job.scales[at / kNvfp4Block], job.rule.scales);
      } else {
        encode_fp8_row(values, q.global, reinterpret_cast<F8E4M3*>(&codes[at]));
      }
      std::vector<float> back(n);
      decode_row(q, r, 0, q.cols, back.data());
      for (size_t i = 0; i < n; ++i) {
        const auto value = static_cast<double>(values[i]);
        error[row] += std::pow(value - static_cast<double>(back[i]) * static_cast<double>(q.global), 2);
        square[row] += value * value;
      }
    });
    auto& sums = squares_[{name_of(job.role), word_of(job.rule.format)}];
    for (size_t r = 0; r < error.size(); ++r) {
      sums.error += error[r];
      sums.square += square[r];
    }
    sums.tensors += 1;
    sums.values += w.rows * w.cols;
    sums.bytes += q.bytes() + static_cast<int64_t>(sizeof(float));
    writer.write(name, std::as_bytes(std::span(codes)));
  }

  // The matrix as its codes and the scales of its job will have it.
  Weight quantised(Job& job, std::span<const uint8_t> codes) const {
    const bool fp4 = job.rule.format == Format::nvfp4;
    Weight q = job.weight;
    q.spec = {.format = job.rule.format, .block = fp4 ? static_cast<int>(kNvfp4Block) : 0};
    q.codes = View(reinterpret_cast<const std::byte*>(codes.data()), fp4 ? DType::u8 : DType::f8_e4m3,
                   {q.rows, fp4 ? q.cols / 2 : q.cols});
    q.scales = {};
    if (fp4)
      q.scales =
          View(reinterpret_cast<const std::byte*>(job.scales.data()), DType::f8_e4m3, {q.rows, q.cols / kNvfp4Block});
    q.global = global_of(job);
    return q;
  }

  // body(row, values) for every row of a matrix, in parallel; values have `global` in them.
  void rows(const Weight& w, const sys::FunctionRef<void(int64_t, std::span<const float>)>& body) const {
    sys::parallel_for(options_.threads, w.rows, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> values(static_cast<size_t>(w.cols));
      for (int64_t r = begin; r < end; ++r) {
        decode_row(w, r, 0, w.cols, values.data());
        for (float& v : values) v *= w.global;
        body(r, values);
      }
    });
  }

  void finish_report() {
    report_.whole = true;
    for (const auto& [key, s] : squares_) {
      report_.groups.push_back({.role = key.first,
                                .format = key.second,
                                .tensors = s.tensors,
                                .values = s.values,
                                .bytes = s.bytes,
                                .error = std::sqrt(s.error / std::max(s.square, 1e-300))});
    }
  }

  nlohmann::json modules() const;

  struct Sums {
    double error = 0, square = 0;
    int64_t tensors = 0, values = 0, bytes = 0;
  };
  const QuantRecipe& recipe_;
  const QuantOptions& options_;
  std::string where_;
  Config config_;
  io::Json json_;
  io::Safetensors files_;
  OpenFolder folder_;
  std::map<std::string, Job> jobs_;  // by name in the files
  std::map<std::pair<std::string, std::string>, Sums> squares_;
  QuantReport report_;
};

// What both spellings of the metadata say: the algorithm, and the modules that it covers or leaves out.
nlohmann::json Quantizer::modules() const {
  std::set<std::string> algorithms;
  nlohmann::json layers = nlohmann::json::object(), excluded = nlohmann::json::array();
  const auto module = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  for (const auto& [name, job] : jobs_) {
    const bool fp4 = job.rule.format == Format::nvfp4;
    const char* algorithm = fp4 ? "W4A16_NVFP4" : "FP8";
    algorithms.insert(algorithm);
    layers[module(name)] = {{"quant_algo", algorithm}};
    if (fp4) layers[module(name)]["group_size"] = kNvfp4Block;
  }
  for (const io::StoredTensor& tensor : files_.tensors()) {
    const bool matrix = tensor.name.ends_with(".weight") && tensor.view.shape.rank == 2;
    if (matrix && !jobs_.contains(tensor.name)) excluded.push_back(module(tensor.name));
  }
  nlohmann::json out = {{"kv_cache_quant_algo", nullptr}, {"exclude_modules", std::move(excluded)}};
  if (algorithms.size() > 1) {
    out["quant_algo"] = "MIXED_PRECISION";
    out["quantized_layers"] = std::move(layers);
  } else {
    out["quant_algo"] = *algorithms.begin();
    if (algorithms.contains("W4A16_NVFP4")) out["group_size"] = kNvfp4Block;
  }
  return out;
}

std::string Quantizer::hf_quant_config() const {
  const nlohmann::json j = {{"producer", {{"name", "braid"}}}, {"quantization", modules()}};
  return j.dump(2) + "\n";
}

std::string Quantizer::config_json() const {
  nlohmann::json quantisation = modules();
  quantisation["quant_method"] = "modelopt";
  quantisation["ignore"] = quantisation["exclude_modules"];
  quantisation.erase("exclude_modules");
  return config_text(json_, quantisation);
}

}  // namespace

int64_t QuantReport::values() const {
  int64_t n = kept.values;
  for (const QuantGroup& group : groups) n += group.values;
  return n;
}

int64_t QuantReport::bytes() const {
  int64_t n = kept.bytes;
  for (const QuantGroup& group : groups) n += group.bytes;
  return n;
}

QuantReport quantize_model(const io::ModelPath& model, const QuantRecipe& recipe, const fs::path& out,
                           const QuantOptions& options, const sys::FunctionRef<bool(int64_t, int64_t)>& progress) {
  if (model.is_gguf()) fail(printable(model.name), {.what = "is a GGUF file", .expected = "a Hugging Face folder"});
  io::check_new_folder(out);
  io::check_parent(out);
  Quantizer quantizer(model, recipe, options);
  QuantReport report = quantizer.write(out, progress);
  if (!report.whole) return report;
  copy_companions(model.folder, out);
  io::write_text_file(out / "hf_quant_config.json", quantizer.hf_quant_config());
  io::write_text_file(out / "config.json", quantizer.config_json());  // comes last: a folder that has one is whole
  return report;
}

}  // namespace braid::models
