#include "prune/fuse.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/atomic_file.h"
#include "models/folder_config.h"
#include "models/load.h"
#include "prune/config_edit.h"
#include "prune/cut_model.h"
#include "prune/nested.h"
#include "prune/whole.h"
#include "prune/write.h"
#include "sys/error.h"

namespace braid::prune {
namespace {

using models::Config;

const nn::MlpSpec& spec_at(const Config& config, const BlockAt& at) {
  return std::get<nn::MlpSpec>(config.layers[at.layer].parts[at.part].block);
}

bool fits(const models::PartSpec& part, const nn::MlpSpec* first) {
  const auto* spec = std::get_if<nn::MlpSpec>(&part.block);
  if (!spec || spec->bias || !part.after.empty()) return false;
  return !first || (spec->act == first->act && spec->gated == first->gated);
}

// Makes the parameters of wide blocks from those of their runs.
class Fuser {
 public:
  Fuser(const Config& config, const Layouts& layouts, nn::ParamSource& files)
      : config_(config), layouts_(layouts), files_(files) {}

  const Replacements& values() const { return values_; }

  void fuse(const FfnRun& run) {
    const std::string norm = norm_of(run[0]);
    const View own = whole(norm);
    const MutView ones = store_.make(own.dtype, own.shape);
    for (int64_t i = 0; i < ones.count(); ++i) set_element(ones, i, 1);
    values_[norm] = {.value = ones};
    for (const std::string& name : names_of(run[0])) {
      const ParamRole role = layouts_.of(name).spec.role;
      if (role == ParamRole::norm) continue;
      values_[name] = {.value = role == ParamRole::down ? side_by_side(run, role) : one_below_another(run, role)};
    }
  }

 private:
  std::string norm_of(const BlockAt& at) const { return config_.layers[at.layer].parts[at.part].norm + ".weight"; }
  // Of a block.
  std::vector<std::string> names_of(const BlockAt& at) const {
    std::vector<std::string> names;
    for (const std::string& name : layouts_.names()) {
      const models::TensorSpec& spec = layouts_.of(name).spec;
      if (spec.layer == static_cast<int>(at.layer) && spec.part == static_cast<int>(at.part)) names.push_back(name);
    }
    return names;
  }
  View whole(const std::string& name) const { return files_.get(layouts_.of(name).spec).value.codes; }
  View whole(const BlockAt& at, ParamRole role) const {
    for (const std::string& name : names_of(at)) {
      if (layouts_.of(name).spec.role == role) return whole(name);
    }
    CHECK(false, "layer {} has no {}", at.layer, name_of(role));
  }

  // [W_1 diag(norm_1); W_2 diag(norm_2); ...]: rows of all.
  View one_below_another(const FfnRun& run, ParamRole role) {
    int64_t rows = 0;
    for (const BlockAt& at : run) rows += whole(at, role).dim(0);
    const View first = whole(run[0], role);
    const int64_t cols = first.dim(1);
    const MutView to = store_.make(first.dtype, {rows, cols});
    int64_t next = 0;
    for (const BlockAt& at : run) {
      const View from = whole(at, role), norm = whole(norm_of(at));
      for (int64_t r = 0; r < from.dim(0); ++r) {
        for (int64_t c = 0; c < cols; ++c)
          set_element(to, next++, element(from, r * from.stride(0) + c) * element(norm, c));
      }
    }
    return to;
  }
  // [W_1 W_2 ...]: columns of all.
  View side_by_side(const FfnRun& run, ParamRole role) {
    int64_t cols = 0;
    for (const BlockAt& at : run) cols += whole(at, role).dim(1);
    const View first = whole(run[0], role);
    const MutView to = store_.make(first.dtype, {first.dim(0), cols});
    const auto size = size_of(first.dtype);
    int64_t before = 0;
    for (const BlockAt& at : run) {
      const View from = whole(at, role);
      for (int64_t r = 0; r < from.dim(0); ++r)
        std::memcpy(to.data + (r * cols + before) * size, from.data + r * from.stride(0) * size,
                    static_cast<size_t>(from.dim(1) * size));
      before += from.dim(1);
    }
    return to;
  }

  const Config& config_;
  const Layouts& layouts_;
  nn::ParamSource& files_;
  WeightStore store_;
  Replacements values_;
};

}  // namespace

std::vector<FfnRun> ffn_runs(const Config& config) {
  std::vector<FfnRun> runs;
  FfnRun run;
  const auto end = [&] {
    if (run.size() > 1) runs.push_back(run);
    run.clear();
  };
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const std::vector<models::PartSpec>& parts = config.layers[layer].parts;
    for (size_t part = 0; part < parts.size(); ++part) {
      if (!run.empty() && !fits(parts[part], &spec_at(config, run[0]))) end();
      if (fits(parts[part], nullptr)) run.push_back({layer, part});
    }
  }
  end();
  return runs;
}

FuseReport fuse_model(const io::ModelPath& model, const std::filesystem::path& out, const Stage& stage) {
  io::need_folder(model);
  io::check_new_model(out);
  io::check_parent(out);
  const Config config = models::load_config(model);
  if (config.norm != models::NormKind::rms)
    fail(printable(model.name),
         {.what = "has norms whose weights cannot go into the next matrix", .expected = "RMSNorm"});
  const std::vector<FfnRun> runs = ffn_runs(config);
  if (runs.empty())
    fail(printable(model.name), {.what = "no feed-forward block follows another",
                                 .got = config.pattern(),
                                 .expected = "dense blocks (-) with nothing between them, as braid search leaves "
                                             "them where it removes attention"});
  const models::OpenFolder folder = models::open_folder(model);
  const Layouts layouts(config, folder.source.get());
  refuse_quantised(model, layouts, *folder.source);

  FuseReport report{.layers_before = std::ssize(config.layers)};
  Fuser fuser(config, layouts, *folder.source);
  Config small = config;
  std::vector<bool> gone(config.layers.size());
  for (const FfnRun& run : runs) {
    auto& wide = std::get<nn::MlpSpec>(small.layers[run[0].layer].parts[run[0].part].block);
    std::vector<int64_t>& layers = report.layers.emplace_back();
    for (const BlockAt& at : run) layers.push_back(static_cast<int64_t>(at.layer));
    for (auto at = run.begin() + 1; at != run.end(); ++at) {
      wide.width += spec_at(config, *at).width;
      gone[at->layer] = true;  // nothing else is in it: between two blocks of a run there is nothing
    }
    report.widths.push_back(wide.width);
    fuser.fuse(run);
  }
  Keep keep = order_of(config);  // all units, in their places
  keep.layers.clear();
  std::vector<models::LayerSpec> layers;
  for (size_t layer = 0; layer < gone.size(); ++layer) {
    if (gone[layer]) continue;
    keep.layers.push_back(static_cast<int64_t>(layer));
    layers.push_back(small.layers[layer]);
  }
  small.layers = std::move(layers);
  report.layers_after = std::ssize(small.layers);
  const std::string text = small_config_text(models::folder_config(model), small, keep.layers);
  WeightStore none;
  CutSource source(*folder.source, layouts, keep, none);
  source.replace(fuser.values());
  report.whole = write_small(model, small, source, stacks_experts(layouts), text, out,
                             [&](int64_t done, int64_t total) { return stage("writing", done, total); });
  if (report.whole) report.bytes = stored_bytes(out);
  return report;
}

}  // namespace braid::prune
