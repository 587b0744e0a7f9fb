// What a run writes down: one line a step for people, JSONL, TensorBoard events, and loss.csv with loss.svg beside it.
// After a resume the files go on where the checkpoint stands: lines of later steps are dropped.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/curve.h"
#include "report/tensorboard.h"
#include "train/recipe.h"

namespace braid::train {

struct StepLog {
  int64_t step = 0, steps = 0;  // from 1
  double loss = 0;              // mean over the trained tokens, nats
  double z_score = 0;
  std::optional<double> mtp_loss{};
  std::optional<double> aux_loss{};      // what the routers' balance adds to the total
  std::optional<double> load_balance{};  // tokens of the busiest expert over the mean, of the worst layer
  double grad_norm = 0;                  // before clipping
  double lr = 0;
  int64_t tokens = 0;  // read so far
  double tokens_per_second = 0;
  double mfu = 0;  // of the measured roof; 0: not known
  int64_t memory_bytes = 0;
  bool skipped = false;
  std::optional<uint64_t> weight_hash{};
};

std::string line_of(const StepLog& log);
std::string json_of(const StepLog& log);

class Log {
 public:
  // Continues after `step`. Files lie in `out` unless the recipe says otherwise.
  Log(const std::filesystem::path& out, const LogRecipe& recipe, int64_t step);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();

  void step(const StepLog& log);
  void held_out(int64_t step, double loss);
  void draw() const;  // loss.svg

 private:
  void append(const std::string& line, std::FILE* file, const std::filesystem::path& path) const;

  LogRecipe recipe_;
  std::filesystem::path csv_path_, svg_path_, jsonl_path_;
  std::FILE *csv_ = nullptr, *jsonl_ = nullptr;
  std::unique_ptr<report::EventFile> events_;
  report::Series train_{"training", {}}, held_out_{"held out", {}};
};

}  // namespace braid::train
