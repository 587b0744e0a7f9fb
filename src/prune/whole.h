// A model that is to be cut: opened, checked for what its family can say, and measured over calibration data.
#pragma once
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "io/json.h"
#include "models/load.h"
#include "prune/cut_model.h"
#include "prune/prune.h"
#include "prune/write.h"

namespace braid::prune {

class Whole {
 public:
  // Error for recurrent depth, quantised weights, axes that the family cannot say, and too little data. All outlive
  // this.
  Whole(const io::ModelPath& path, const data::DataSpec& data, const Options& options, const Stage& stage);

  const models::Config& config() const { return config_; }
  const Layouts& layouts() const { return *layouts_; }
  nn::ParamSource& files() { return *folder_.source; }
  const std::shared_ptr<models::Model>& model() const { return model_; }
  const std::array<AxisRange, kAxes>& ranges() const { return ranges_; }
  const std::vector<Axis>& axes() const { return axes_; }  // that may be cut
  const Scores& scores() const { return scores_; }
  std::span<const data::Batch> rows() const { return rows_; }
  std::span<const data::Batch> quick() const;  // the first of them, on which candidates are compared
  int64_t tokens() const;                      // of all rows

  // Importance; the energies that norms are scaled by are measured whatever the score. False: stopped.
  bool measure();
  // What `keep` leaves, with these sizes, as a folder. False: stopped, and nothing was written.
  bool write(const Keep& keep, const Sizes& sizes, const std::filesystem::path& out, const NestedFiles& nested = {});

 private:
  void check_axes();

  const io::ModelPath& path_;
  const Options& options_;
  const Stage& stage_;
  io::Json json_;
  models::Config config_;
  models::OpenFolder folder_;
  std::array<AxisRange, kAxes> ranges_;
  std::vector<Axis> axes_;
  std::optional<Layouts> layouts_;
  std::shared_ptr<models::Model> model_;
  std::vector<data::Batch> rows_;
  Scores scores_;
};

// Whether experts are stacked, which is the same for all layers of a folder.
bool stacks_experts(const Layouts& layouts);

}  // namespace braid::prune
