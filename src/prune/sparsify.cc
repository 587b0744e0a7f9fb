#include "prune/sparsify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "io/model_path.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "models/config_file.h"
#include "models/folder_config.h"
#include "models/load.h"
#include "models/save.h"
#include "prune/cut_model.h"
#include "prune/input_norms.h"
#include "prune/row_pass.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::prune {
namespace {

class Sparsifier {
 public:
  Sparsifier(const io::ModelPath& path, const data::DataSpec& data, const SparseOptions& options, const Stage& stage)
      : path_(path),
        options_(options),
        stage_(stage),
        config_(models::load_config(path)),
        files_(path.weights),
        folder_(models::open_folder(path)) {
    find_matrices();
    rows_ = read_rows(data, path, config_, options.samples);
  }

  SparseReport run(const std::filesystem::path& out) {
    report_.samples = std::ssize(rows_);
    for (const data::Batch& row : rows_) report_.tokens += std::ssize(row.ids);
    const auto model = whole_model(config_, *folder_.source);
    if (options_.score == WeightScore::activations && !measure(*model)) return std::move(report_);
    if (!write(out)) return std::move(report_);
    report_.parent_loss = staged_loss(*model, rows_, options_.threads, stage_);
    const io::ModelPath written{.name = out.string(), .folder = out, .weights = out};
    report_.child_loss = staged_loss(*models::load_model(written), rows_, options_.threads, stage_);
    for (const auto& [role, group] : groups_) report_.groups.push_back(group);
    report_.whole = true;
    return std::move(report_);
  }

 private:
  void find_matrices() {
    for (const models::TensorSpec& spec : stored_inventory(config_, *folder_.source)) {
      const Param param = folder_.source->get(spec);
      report_.params += spec.shape.count();
      if (!is_prunable(spec.role)) continue;
      refuse_quantised(path_, param.name, param.value.spec);
      const int64_t rows = spec.rows() / stacked(spec);
      if (const std::string why = masks::misfit(options_.spec, rows, spec.cols()); !why.empty())
        report_.misfits.push_back(param.name + " " + why);
      else
        matrices_.try_emplace(param.name, spec);
    }
    if (matrices_.empty())
      fail(printable(path_.name), {.what = "has no matrix that the pattern fits",
                                   .got = report_.misfits.empty() ? "no matrices in layers" : report_.misfits[0],
                                   .hint = "another --pattern"});
  }

  static int64_t stacked(const models::TensorSpec& spec) { return spec.shape.rank == 3 ? spec.shape[0] : 1; }

  bool measure(models::Model& model) {
    Arena arena;
    Ctx ctx{.arena = arena, .threads = options_.threads};
    const RowPass pass{.ctx = ctx, .observer = &norms_};
    for (int64_t i = 0; i < std::ssize(rows_); ++i) {
      if (!stage_("measuring inputs", i, std::ssize(rows_))) return false;
      pass(model, rows_[static_cast<size_t>(i)], 1, true);
    }
    return true;
  }

  bool write(const std::filesystem::path& out) {
    std::vector<io::TensorSpec> specs;
    int64_t total = 0, done = 0;
    for (const io::StoredTensor& t : files_.tensors()) {
      specs.push_back({t.name, t.view.dtype, t.view.shape});
      total += t.view.bytes();
    }
    io::AtomicFolder made(out, io::AtomicFolder::Mark::none);
    io::SafetensorsWriter writer(made.place(), std::move(specs));
    for (const io::TensorSpec& spec : writer.order()) {
      if (!stage_("choosing weights", done, total)) return false;
      const View view = files_.need(spec.name);
      const auto matrix = matrices_.find(spec.name);
      if (matrix == matrices_.end()) {
        writer.write(spec.name, view);
      } else {
        std::vector<std::byte> bytes(view.data, view.data + view.bytes());
        prune(matrix->second, spec.name, MutView(bytes.data(), view.dtype, view.shape));
        writer.write(spec.name, bytes);
      }
      done += view.bytes();
    }
    writer.finish();
    models::copy_companions(path_.folder, made.place());
    io::write_text_file(made.place() / "config.json", config_text());
    made.commit();
    return true;
  }

  std::string config_text() const {
    const io::Json json = models::folder_config(path_);
    nlohmann::json config = json.raw();
    config["sparsity"] = {{"pattern", name_of(options_.spec.pattern)}, {"density", density_found()}};
    if (options_.spec.pattern != masks::Pattern::unstructured && options_.spec.pattern != masks::Pattern::two_four)
      config["sparsity"]["block"] = options_.spec.block;
    return models::config_text(std::move(config));
  }

  // Of the matrices that the pattern fits: edges and whole blocks may leave more than was asked for.
  double density_found() const {
    double kept = 0, values = 0;
    for (const auto& [role, group] : groups_) {
      kept += static_cast<double>(group.kept);
      values += static_cast<double>(group.values);
    }
    return values > 0 ? kept / values : 1;
  }

  // Zeros in a tensor as files hold it, and what they cost in the report.
  void prune(const models::TensorSpec& spec, const std::string& name, const MutView& stored) {
    const int64_t count = stacked(spec), rows = spec.rows() / count, cols = spec.cols();
    CHECK(stored.count() == count * rows * cols, "{}: {}", name, to_string(stored.shape));
    SparseGroup& group = groups_[spec.role];
    group.role = name_of(spec.role);
    std::vector<float> scores(static_cast<size_t>(rows * cols));
    for (int64_t e = 0; e < count; ++e) {
      const auto at = [&](int64_t r, int64_t c) { return spec.transposed ? c * rows + r : (e * rows + r) * cols + c; };
      const std::vector<float> norms = norms_.of(spec, spec.shape.rank == 3 ? static_cast<int>(e) : spec.expert, cols);
      for (int64_t i = 0; i < rows * cols; ++i) {
        const auto w = static_cast<float>(element(stored, at(i / cols, i % cols)));
        if (!std::isfinite(w)) fail(printable(path_.name), {.what = name + " has a value that is not finite"});
        const float score = std::fabs(w) * norms[static_cast<size_t>(i % cols)];
        if (!std::isfinite(score))
          fail(printable(path_.name),
               {.what = "inputs of " + name + " are not finite on the calibration data", .hint = "other --data"});
        scores[static_cast<size_t>(i)] = score;
      }
      const masks::Mask mask = find_mask(options_.spec, scores, rows, cols);
      for (int64_t i = 0; i < rows * cols; ++i) {
        const auto s = static_cast<double>(scores[static_cast<size_t>(i)]);
        group.score += s;
        if (mask.keep[static_cast<size_t>(i)])
          group.kept_score += s;
        else
          set_element(stored, at(i / cols, i % cols), 0);
      }
      group.matrices += 1;
      group.values += rows * cols;
      group.kept += mask.kept();
    }
  }

  const io::ModelPath& path_;
  const SparseOptions& options_;
  const Stage& stage_;
  models::Config config_;
  io::Safetensors files_;
  models::OpenFolder folder_;
  std::map<std::string, models::TensorSpec> matrices_;  // that are pruned, by name in the files
  std::vector<data::Batch> rows_;
  InputNorms norms_;  // empty: scores are magnitudes
  std::map<ParamRole, SparseGroup> groups_;
  SparseReport report_;
};

}  // namespace

bool is_prunable(ParamRole role) {
  switch (role) {
    case ParamRole::q:
    case ParamRole::k:
    case ParamRole::v:
    case ParamRole::qkv:
    case ParamRole::attention_out:
    case ParamRole::linear_attention:
    case ParamRole::mamba_in:
    case ParamRole::mamba_out:
    case ParamRole::up:
    case ParamRole::gate:
    case ParamRole::gate_up:
    case ParamRole::down:
    case ParamRole::linear_mlp:
    case ParamRole::expert_up:
    case ParamRole::expert_gate:
    case ParamRole::expert_down:
    case ParamRole::latent_in:
    case ParamRole::latent_out:
      return true;
    default:
      return false;
  }
}

SparseReport sparsify_model(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
                            const SparseOptions& options, const Stage& stage) {
  io::need_folder(model);
  io::check_new_model(out);
  io::check_parent(out);
  try {
    return Sparsifier(model, data, options, stage).run(out);
  } catch (const sys::Interrupted&) {
    return {};
  }
}

}  // namespace braid::prune
