// What a run trains. The loop (trainer.h) sees only this interface: parameters with their gradients, batches that are a
// function of the step alone and can be split by rows, and sums by name, of which "loss" is watched. Language modelling
// is one (language.h).
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ctx.h"
#include "core/param.h"
#include "models/master_weights.h"
#include "sys/error.h"
#include "train/manifest.h"

namespace braid::train {

// Sums over the parts of a batch. Each part continues the sums of the one before it, so that splitting changes no bit.
// Names are literals; the order is that of their first use.
class Sums {
 public:
  struct Sum {
    const char* name;
    double sum = 0;
    double count = 0;  // what it is a mean over
    double mean() const { return count > 0 ? sum / count : sum; }
  };
  Sum& operator[](std::string_view name);     // created if missing; `name` outlives this
  double mean(std::string_view name) const;   // 0 if there is none
  double count(std::string_view name) const;  // 0 if there is none
  void add(std::string_view name, double sum, double count) {
    Sum& to = (*this)[name];
    to.sum += sum;
    to.count += count;
  }
  std::span<const Sum> all() const { return sums_; }
  void clear() { sums_.clear(); }  // keeps the capacity

 private:
  std::vector<Sum> sums_;
};

// An error that all ranks throw together: they can still save.
class CommonError : public Error {
 public:
  using Error::Error;
};

class Objective {
 public:
  virtual ~Objective() = default;

  // What the optimiser updates.
  virtual models::MasterWeights& masters() = 0;
  virtual std::vector<Param*> params() = 0;
  // Where ranks have parts of the masters: tensors as files have them, on the rank that writes files.
  virtual const models::MasterWeights& whole() { return masters(); }

  // Loads the batch of step `step`, from 0, of training or held out, and returns its number of rows.
  virtual int64_t draw(int64_t step, bool held_out) = 0;
  virtual bool holds_out() const = 0;                     // is there a held-out batch?
  virtual int64_t held_out_batches() const { return 0; }  // until they come again; 0: as many as are asked for
  virtual int64_t tokens() const = 0;                     // of the batch; for tokens per second
  virtual double flops_per_token() const { return 0; }
  // Adds what rows [begin, end) of the batch contribute to the sums, among them "loss", and with `backward` to the
  // gradients, of a mean over the whole batch. The names and their order are the recipe's, whatever the rows are, even
  // without a target: ranks add up the numbers alone.
  virtual void run(Ctx& ctx, int64_t begin, int64_t end, bool backward, Sums& sums) = 0;
  // The same for all parts of a batch of this rank: one after the other, unless ranks of a pipeline take turns.
  virtual void run_parts(Ctx& ctx, std::span<const Range> parts, bool backward, Sums& sums);
  // Of all parts of a step, or of all held-out batches: factors and means that the sums lack.
  virtual void complete(Sums& /*sums*/) {}
  // After the optimiser, or instead of it if the step was skipped: the objective's own updates, and sums of the whole
  // step.
  virtual void finish(bool updated, Sums& sums) = 0;

  // A model of these values (the masters', or a mean of them), and its file or folder with the tensors.
  virtual void write(std::span<const float> values, const std::filesystem::path& folder) = 0;
  virtual std::filesystem::path weights_in(const std::filesystem::path& folder) const = 0;
  // The same folder with anything in the place of the values, which ranks write that have parts of them
  // (shared_folder.h). For objectives whose masters are divided.
  virtual void lay_out(const std::filesystem::path& folder);
  // What else the next steps depend on, besides weights and step: in the folder of a checkpoint's state.
  virtual void write_state(const std::filesystem::path&) const {}
  virtual void read_state(const std::filesystem::path&) {}
  // The batch, to investigate a step that failed.
  virtual void write_batch(const std::filesystem::path& file) const = 0;
  // What determines the bits of a run besides its recipe.
  virtual Facts facts() const = 0;
  // What is known before the first step, a line each.
  virtual std::vector<std::string> describe() const { return {}; }
  // And after the last one.
  virtual std::vector<std::string> results() const { return {}; }
};

}  // namespace braid::train
