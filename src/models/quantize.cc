#include "models/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "codec/codec.h"
#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "io/model_path.h"
#include "io/safetensors_write.h"
#include "models/config_file.h"
#include "models/experts_apart.h"
#include "models/folder_config.h"
#include "models/load.h"
#include "models/quant_format.h"
#include "models/quant_metadata.h"
#include "models/quant_plan.h"
#include "models/save.h"
#include "models/storage.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::models {
namespace fs = std::filesystem;
namespace {

using SharedKey = std::pair<ScaleKey, QuantFormat>;

// A matrix to quantise: where its values are, and what is known of them while its tensors are written.
struct Job {
  ParamRole role = ParamRole::none;
  QuantRule rule{};
  Weight weight{};
  SharedKey shared{};
  float input = 0;  // input_scale; 0: none
  const CalibratedMatrix* ready = nullptr;
  std::vector<std::byte> scales{};
};

// What matrices that readers join have in common; 0: not known yet, or none.
struct Shared {
  std::vector<const Job*> jobs{};
  float global = 0, input = 0;
};

// `word` is the part of a matrix that follows its name in the files: "", "_scale", "_packed", ..., or "input_scale".
struct Part {
  Job* job = nullptr;  // null: a tensor of its own
  std::string_view word{};
};

class Quantizer {
 public:
  Quantizer(const io::ModelPath& model, const QuantRecipe& recipe, const QuantOptions& options)
      : recipe_(recipe),
        options_(options),
        where_(printable(model.name)),
        config_(load_config(model)),
        json_(folder_config(model)),
        files_(model.weights),
        folder_(open_apart(model, config_)) {
    for (const PlannedMatrix& matrix : quant_plan(config_, recipe_)) plan(matrix);
    for (auto& [name, job] : jobs_) {
      Shared& shared = shared_[job.shared];
      shared.jobs.push_back(&job);
      if (job.input > 0) job.input = shared.input > 0 ? shared.input : 1;
    }
    if (jobs_.empty())
      fail(where_, {.what = "has no matrix that the recipe quantises",
                    .got = report_.misfits.empty() ? printable(recipe.name) : report_.misfits[0]});
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
  QuantModules modules() const;

 private:
  void plan(const PlannedMatrix& matrix) {
    const TensorSpec& tensor = matrix.tensor;
    if (!matrix.misfit.empty()) {
      if (options_.strict)
        fail(where_, {.what = tensor.name + " " + matrix.misfit,
                      .hint = "leaving out --strict, and it stays as it is; or a recipe that says bf16"});
      report_.misfits.push_back(tensor.name + " " + matrix.misfit);
      return add_unfit(matrix);
    }
    const Param param = folder_.source->get(tensor);
    const std::string stack = folder_.source->stack_of(param.name);
    auto amax = options_.input_amax.find(param.name);
    if (amax == options_.input_amax.end() && !stack.empty())  // as a model that read the stack names it
      amax = options_.input_amax.find(fmt::format("{}[{}]", stack, tensor.expert));
    const bool measured = amax != options_.input_amax.end();
    const float input = measured && amax->second > 0 ? input_scale(matrix.rule.format, amax->second) : 0;
    const SharedKey key{scale_key(tensor), matrix.rule.format};
    Job job{.role = tensor.role,
            .rule = matrix.rule,
            .weight = param.value,
            .shared = key,
            .input = measured ? 1.0f : 0.0f};
    shared_[key].input = std::max(shared_[key].input, input);
    if (const auto ready = options_.calibrated.find(param.name); ready != options_.calibrated.end()) {
      job.ready = &ready->second;
      shared_[key].global = job.ready->global;
    }
    if (!stack.empty()) stacks_[stack].push_back(param.name);
    jobs_.try_emplace(param.name, std::move(job));
  }

  void add_unfit(const PlannedMatrix& matrix) {
    const TensorSpec& tensor = matrix.tensor;
    const std::string role = name_of(tensor.role), format = codec_of(matrix.rule.format).name,
                      why = matrix.because == ParamRole::none
                                ? matrix.misfit
                                : fmt::format("is in one module with {}", name_of(matrix.because));
    const auto same = [&](const QuantGroup& g) { return g.role == role && g.format == format && g.why == why; };
    auto group = std::ranges::find_if(report_.unfit, same);
    if (group == report_.unfit.end()) group = report_.unfit.insert(group, {.role = role, .format = format, .why = why});
    const Param param = folder_.source->get(tensor);
    const std::string stack = folder_.source->stack_of(param.name);
    if (unfit_.insert(stack.empty() ? param.name : stack).second) group->tensors += 1;  // a stack is one
    group->values += tensor.rows() * tensor.cols();
    group->bytes += param.value.bytes();
  }

  static std::string input_name(const std::string& weight) {
    return weight.substr(0, weight.rfind('.')) + ".input_scale";
  }

  Part part_of(std::string_view name) {
    if (constexpr std::string_view kInput = "input_scale"; name.ends_with("." + std::string(kInput))) {
      const auto job = jobs_.find(std::string(name.substr(0, name.size() - kInput.size())) + "weight");
      if (job != jobs_.end() && job->second.input > 0) return {&job->second, kInput};
    }
    for (const std::string_view word : {"_scale_2", "_scale", "_packed", "_shape", "_global_scale", ""}) {
      if (!name.ends_with(word)) continue;
      const auto job = jobs_.find(std::string(name.substr(0, name.size() - word.size())));
      if (job != jobs_.end()) return {&job->second, word};
    }
    return {};
  }

  // The first tensor of a matrix in the files is replaced by all tensors of its new format; its others are dropped.
  std::vector<io::TensorSpec> stored() {
    std::vector<io::TensorSpec> specs;
    std::set<const Job*> done;
    for (const io::StoredTensor& tensor : files_.tensors()) {
      if (scales_inputs_of_a_job(tensor.name)) continue;  // of the format that the matrix had
      if (const auto stack = stacks_.find(tensor.name); stack != stacks_.end()) {
        for (const std::string& name : stack->second) add_specs(name, jobs_.at(name), specs);
        continue;
      }
      const Part part = part_of(tensor.name);
      if (!part.job) {
        check_kept(tensor.name);
        specs.push_back({tensor.name, tensor.view.dtype, tensor.view.shape});
      } else if (done.insert(part.job).second) {
        add_specs(tensor.name.substr(0, tensor.name.size() - part.word.size()), *part.job, specs);
      }
    }
    return specs;
  }

  static void add_specs(const std::string& name, const Job& job, std::vector<io::TensorSpec>& specs) {
    for (io::TensorSpec& spec : stored_as(name, {job.weight.rows, job.weight.cols}, job.rule.format))
      specs.push_back(std::move(spec));
    if (job.input > 0) specs.push_back({input_name(name), DType::f32, {}});
  }

  bool scales_inputs_of_a_job(const std::string& name) const {
    const std::string module = name.substr(0, name.rfind('.'));
    return (name.ends_with(".input_scale") || name.ends_with(".input_global_scale")) &&
           jobs_.contains(module + ".weight");
  }

  // The format of a matrix that is quantised in ModelOpt's layout already; nothing for other tensors.
  std::optional<QuantFormat> modelopt_format(const std::string& name) const {
    const View* codes = files_.find(name);
    if (!codes || !files_.find(name + "_scale")) return std::nullopt;
    return codes->dtype == DType::u8 ? QuantFormat::nvfp4 : QuantFormat::fp8;
  }

  // The folder's config could not describe quantised matrices of two layouts.
  void check_kept(const std::string& name) const {
    const bool packed = name.ends_with(".weight_packed");
    if (!packed && !(recipe_.compressed() && modelopt_format(name))) return;
    fail(where_, {.what = name + " is quantised already, and cannot be kept next to what the recipe writes",
                  .expected = "matrices of one layout in a folder",
                  .hint = "quantising the folder that this one was made from"});
  }

  // The next tensor of the files: copied, or a part of a job's output.
  void put(io::SafetensorsWriter& writer, const io::TensorSpec& spec) {
    const auto [job, word] = part_of(spec.name);
    if (!job) {
      const View view = files_.need(spec.name);
      report_.kept.tensors += 1;
      const bool scales = spec.name.ends_with("_scale") || spec.name.ends_with("_scale_2");
      const int64_t each = modelopt_format(spec.name) == QuantFormat::nvfp4 ? 2 : scales ? 0 : 1;
      report_.kept.values += each * view.count();
      report_.kept.bytes += view.bytes();
      if (const auto folded = options_.folded.find(spec.name); folded != options_.folded.end()) {
        CHECK(std::ssize(folded->second) == view.bytes(), "{}: {} bytes", spec.name, folded->second.size());
        return writer.write(spec.name, folded->second);
      }
      return writer.write(spec.name, view);
    }
    if (word == "_shape") {
      const int64_t shape[] = {job->weight.rows, job->weight.cols};
      return writer.write(spec.name, std::as_bytes(std::span(shape)));
    }
    if (spec.dtype == DType::f32) {
      const float scalar = word == "input_scale" ? job->input : global_of(*job);
      return writer.write(spec.name, std::as_bytes(std::span(&scalar, 1)));
    }
    if (word == "_scale") {
      writer.write(spec.name, job->scales);
      job->scales = {};
      return;
    }
    put_codes(writer, spec.name, *job);
  }

  float global_of(const Job& job) {
    Shared& shared = shared_[job.shared];
    if (shared.global > 0) return shared.global;
    for (const Job* each : shared.jobs) {
      const QuantRule& rule = each->rule;
      const float own =
          measured_global(each->weight, rule.format, rule.scales, {where_, name_of(each->role)}, options_.threads);
      shared.global = std::max(shared.global, own);
    }
    if (shared.global == 0) shared.global = 1;
    return shared.global;
  }

  void put_codes(io::SafetensorsWriter& writer, const std::string& name, Job& job) {
    const QuantFormat format = job.rule.format;
    Encoded own;
    if (!job.ready) own = encode(job.weight, format, global_of(job), job.rule.scales, options_.threads);
    const Encoded& matrix = job.ready ? job.ready->matrix : own;
    Sums& sums = squares_[{name_of(job.role), codec_of(format).name}];
    sums.error += matrix.error;
    sums.square += matrix.square;
    sums.tensors += 1;
    sums.values += job.weight.rows * job.weight.cols;
    for (const io::TensorSpec& spec : stored_as("", {job.weight.rows, job.weight.cols}, format))
      sums.bytes += spec.bytes();
    writer.write(name, matrix.codes);
    if (job.ready)
      job.scales = matrix.scales;
    else
      job.scales = std::move(own.scales);
  }

  void finish_report() {
    report_.whole = true;
    const auto without =
        std::count_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return job.second.input == 0; });
    if (!options_.input_amax.empty() && without > 0)
      report_.notes.push_back(fmt::format("matrices without an input_scale, as no pass used them: {}", without));
    if (const int64_t mixed = mixed_modules(); mixed > 0)
      report_.notes.push_back(fmt::format(
          "modules (q, k and v; gate and up; experts) in several formats: {}; Braid reads them, programs that "
          "make one product of a module do not",
          mixed));
    note_tables();
    note_second_rounding();
    for (const auto& [key, s] : squares_) {
      report_.groups.push_back({.role = key.first,
                                .format = key.second,
                                .tensors = s.tensors,
                                .values = s.values,
                                .bytes = s.bytes,
                                .error = std::sqrt(s.error / std::max(s.square, 1e-300))});
    }
  }

  void note_tables() {
    const QuantModules written = modules();
    if (written.tables.empty()) return;
    const bool nvfp4 = std::ranges::all_of(
        written.tables, [&](const std::string& table) { return written.quantised.at(table) == QuantFormat::nvfp4; });
    report_.notes.push_back(nvfp4 ? "an embedding table is quantised: Braid reads it, vLLM where it knows nvfp4_embed"
                                  : "an embedding table is quantised: Braid reads it, transformers and vLLM do not");
    if (config_.tied) report_.notes.push_back("the head is the embedding table, and is quantised with it");
  }

  // Errors are measured against the values that the folder has.
  void note_second_rounding() {
    std::map<std::string, int64_t> before;
    for (const auto& [name, job] : jobs_) {
      const QuantSpec& spec = job.weight.spec;
      if (!codec_of(spec.format).dense) ++before[name_of(spec)];
    }
    for (const auto& [format, matrices] : before) {
      report_.notes.push_back(
          fmt::format("rounded for the second time, matrices that were {} already: {}; the errors are of this rounding "
                      "alone, and quantising the folder that this one was made from loses less",
                      format, matrices));
    }
  }

  // For parts of which the recipe has several formats.
  int64_t mixed_modules() const {
    std::map<ModuleKey, std::set<QuantFormat>> formats;
    const std::string pattern = config_.pattern();
    for (const TensorSpec& t : inventory(config_)) {
      const QuantRule* rule = recipe_.find(t, pattern);
      if (is_matrix(t.role)) formats[module_key(t)].insert(rule ? rule->format : QuantFormat::bf16);
    }
    return std::ranges::count_if(formats, [](const auto& module) { return module.second.size() > 1; });
  }

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
  OpenApart folder_;
  std::map<std::string, Job> jobs_;                         // by name in the files that are written
  std::map<std::string, std::vector<std::string>> stacks_;  // of the files that are read, and the jobs made of them
  std::map<SharedKey, Shared> shared_;
  std::set<std::string> unfit_;  // names in the files
  std::map<std::pair<std::string, std::string>, Sums> squares_;
  QuantReport report_;
};

QuantModules Quantizer::modules() const {
  const auto module = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  QuantModules out;
  out.cache = config_.kv_cache == DType::f8_e4m3 ? "FP8" : "";
  for (const auto& [name, job] : jobs_) {
    out.quantised[module(name)] = job.rule.format;
    if (job.input > 0) out.scaled.insert(module(name));
    if (job.role == ParamRole::embedding || job.role == ParamRole::positions) out.tables.insert(module(name));
  }
  for (const io::StoredTensor& tensor : files_.tensors()) {
    const bool stack =
        tensor.view.shape.rank == 3 && !tensor.name.ends_with(".weight") && !stacks_.contains(tensor.name);
    if (stack && (out.kept.empty() || out.kept.back() != module(tensor.name))) out.kept.push_back(module(tensor.name));
    if (!tensor.name.ends_with(".weight") || tensor.view.shape.rank < 2 || jobs_.contains(tensor.name)) continue;
    if (const auto format = modelopt_format(tensor.name)) {
      out.quantised[module(tensor.name)] = *format;
      if (files_.find(module(tensor.name) + ".input_scale")) out.scaled.insert(module(tensor.name));
    } else {
      out.kept.push_back(module(tensor.name));
    }
  }
  // Readers treat a head that shares the embedding as its own module, though the files do not have it.
  if (!files_.find("lm_head.weight") && !out.quantised.contains("lm_head")) out.kept.push_back("lm_head");
  return out;
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
  io::need_folder(model);
  io::check_new_model(out);
  io::check_parent(out);
  Quantizer quantizer(model, recipe, options);
  io::AtomicFolder made(out, io::AtomicFolder::Mark::none);
  QuantReport report = quantizer.write(made.place(), progress);
  if (!report.whole) return report;
  copy_companions(model.folder, made.place());
  const QuantModules modules = quantizer.modules();
  if (!recipe.compressed()) io::write_text_file(made.place() / "hf_quant_config.json", hf_quant_config(modules));
  io::write_text_file(made.place() / "config.json", config_text(quantizer.json(), quantization_config(modules)));
  made.commit();
  return report;
}

}  // namespace braid::models
