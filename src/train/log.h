// The logs of a run: one line per step for people, JSONL, TensorBoard events, loss.csv and loss.svg.
// After a resume the files continue from the checkpoint: lines of later steps are dropped.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/curve.h"
#include "report/tensorboard.h"
#include "train/recipe.h"

namespace braid::train {

struct StepLog {
  int64_t step = 0, steps = 0;  // from 1
  double loss = 0;              // the mean that the objective calls "loss"
  bool judged = false;          // by a full window; until then scores are 0
  double z_score = 0, norm_z_score = 0;
  std::vector<std::pair<const char*, double>> metrics{};  // the objective's other sums, by name
  double grad_norm = 0;                                   // before clipping
  double lr = 0;
  int64_t tokens = 0;  // read so far
  double tokens_per_second = 0;
  double mfu = 0;  // relative to the measured peak; 0: not known
  int64_t memory_bytes = 0;
  std::optional<double> waited_ms{};  // of the step, for sums of gradients over ranks; none: there is one rank
  bool skipped = false;               // changed nothing: a spike, or
  bool empty = false;                 // without a target, so that there is no loss
  std::optional<uint64_t> weight_hash{};
};

struct HeldOutLog {
  int64_t step = 0;
  double loss = 0;
  std::vector<std::pair<const char*, double>> metrics{};  // the objective's other sums, by name
  std::optional<double> ema_loss{};                       // of the running mean of the weights
};

// A checkpoint that a copy of the process wrote (checkpoint.async), or was to write.
struct SavedLog {
  int64_t step = 0;
  double paused = 0, written = 0;  // seconds: training stood still, and until the checkpoint was there
  std::string lost{};              // why it is not there; later ones are written without a copy
  int blind = -1;                  // a rank that does not see it, so that the first one writes what all have
};

std::string line_of(const StepLog& log);
std::string line_of(const HeldOutLog& log);
std::string line_of(const SavedLog& log);
std::string json_of(const StepLog& log);
std::string json_of(const HeldOutLog& log);
std::string json_of(const SavedLog& log);

// Error when a log has the name of what the run writes beside it, would replace a file that is not a log, or its folder
// is outside of `out` and missing.
void check_logs(const std::filesystem::path& out, const LogRecipe& recipe);

// Opens a file of lines {"step": N, ...} to append, after those of steps up to `step`; others are dropped.
std::FILE* reopen_lines(const std::filesystem::path& path, int64_t step);
// Flushed, so that the log of a killed process has every completed step. Error where the disk is full.
void append_lines(const std::string& lines, std::FILE* file, const std::filesystem::path& path);

class Log {
 public:
  // Continues after `step`. Files are in `out` unless the recipe says otherwise.
  Log(const std::filesystem::path& out, const LogRecipe& recipe, int64_t step);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();

  void step(const StepLog& log, bool everywhere);  // otherwise loss.csv alone has the step
  void held_out(const HeldOutLog& log);
  void saved(const SavedLog& log);
  void draw() const;  // loss.svg

 private:
  LogRecipe recipe_;
  std::filesystem::path csv_path_, svg_path_, jsonl_path_;
  std::FILE *csv_ = nullptr, *jsonl_ = nullptr;
  std::unique_ptr<report::EventFile> events_;
  report::Series train_{"training", {}}, held_out_{"held out", {}}, ema_{"held out, running mean", {}};
};

}  // namespace braid::train
