// The step loop. It knows what it trains only as an Objective; a batch is a function of the step number alone. A run
// that is killed and resumed is therefore bit-identical to one that was not, for any number of threads and parts.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/ctx.h"
#include "train/checkpoint.h"
#include "train/forked_writer.h"
#include "train/log.h"
#include "train/mesh.h"
#include "train/objective.h"
#include "train/optimizer.h"
#include "train/recipe.h"
#include "train/running_mean.h"

namespace braid::train {

// Callbacks for every step, for logged ones (the first of this process, multiples of log.every and the last), for
// held-out losses and for checkpoints that were written meanwhile.
struct Watcher {
  std::function<void(int64_t done)> progress{};
  std::function<void(const StepLog&)> step{};
  std::function<void(const HeldOutLog&)> held_out{};
  std::function<void(const SavedLog&)> saved{};
};

enum class Outcome { finished, stopped };  // stopped: by a signal, with a checkpoint

// Does the log of a run with these weights show its share of the machine's roofs, which take a second to measure? Not
// of a toy.
bool measures_roof(const models::MasterWeights& masters);

// A checkpoint that all ranks write.
struct Saving {
  SavedLog log{};
  std::unique_ptr<SharedFolder> folder{};
  bool done = false;               // this rank with its part of it, well or not:
  std::optional<Error> problem{};  // what it could not write
  std::string lost{}, uncopied{};  // why its copy ended early, or why there was none
};

class Trainer {
 public:
  // All outlive this. `mesh`: the ranks that share the run; null: this one alone.
  Trainer(const Recipe& recipe, Objective& objective, Ctx& ctx, Mesh* mesh = nullptr);
  // Error naming each difference when the checkpoint does not match the recipe (manifest.h); with `force` they are
  // returned. Error when it is past the recipe's last step: the requested model no longer exists.
  std::vector<std::string> resume(const std::filesystem::path& checkpoint, bool force = false);
  // To the last step, or to a signal (sys/interrupt.h); the state is saved either way. Error (a failed run) when a loss
  // is not finite: the batch is first written next to the checkpoints; and when too many steps in a row are skipped.
  Outcome train(const Watcher& watcher);
  const Progress& progress() const { return progress_; }

 private:
  class MeanInPlace;
  int64_t draw();
  void save_at_an_error();
  StepLog step();
  void parts(int64_t rows, bool backward);
  bool stands_out(StepLog& log);
  [[noreturn]] void give_up(const char* what);
  [[noreturn]] void fail_run(const Message& message);
  bool should_stop();
  HeldOutLog held_out();
  double held_out_loss();
  void save();
  bool leads() const { return !mesh_ || mesh_->first(); }  // writes the files of the run
  Arrays arrays();
  void settle() {  // before anything but the next passes reads the weights
    if (mesh_) mesh_->settle();
  }
  bool divides() const { return mesh_ && (mesh_->divides_state() || mesh_->divides_model()); }
  std::span<const TensorElements> written() { return mesh_->written(objective_.masters(), objective_.whole()); }
  void save_parts(std::chrono::steady_clock::time_point begin);
  void finish_parts(bool wait);
  void save_whole(std::chrono::steady_clock::time_point begin);
  void write_mean();
  void write_merged();
  void write(const Arrays& arrays, std::chrono::steady_clock::time_point begin);
  void tell(const SavedLog& saved);
  void tell_saved(bool wait);
  std::vector<Range> own_elements() const;  // of the masters' arrays that its optimiser updates
  std::vector<Range> own_values() const;    // of the weights that it has between passes

  const Recipe& recipe_;
  Objective& objective_;
  Ctx& ctx_;
  Mesh* mesh_;
  std::vector<Param*> params_;
  Optimizer optimizer_;
  RunningMean mean_;
  Checkpoints checkpoints_;
  Facts facts_;  // of the objective
  Progress progress_;
  std::unique_ptr<Log> log_;  // where this leads
  Sums sums_;
  std::vector<Range> parts_;          // of the batch: rows, a part each
  double roof_flops_ = 0;             // of this machine; 0 for a toy model
  int64_t saved_ = -1;                // step of the last checkpoint
  bool async_ = false;                // checkpoints are written by a copy of the process
  ForkedWriter writer_;               // of these
  SavedLog writing_;                  // what it writes
  std::optional<Saving> saving_;      // by all ranks, each a part
  bool gathers_ = false;              // ranks do not see the first one's files: it writes all
  const Watcher* watcher_ = nullptr;  // during train()
};

}  // namespace braid::train
