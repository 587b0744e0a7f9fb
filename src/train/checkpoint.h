// Checkpoints of a run, out/checkpoints/step-00000100 and so on. Each is a model as its objective writes one (a Hugging
// Face folder, or an adapter's: models/save.h), with a folder `training` of what else a run needs:
//   state.safetensors  m.NAME, v.NAME and, if there is one, ema.NAME of every tensor in its global shape, F32;
//                      master.NAME if the model's own file does not hold every bit, or holds none of it
//   state.json         step, tokens, the windows of losses and of gradient norms
//   rollout.json       pass rates, and answers generated ahead, if the run generates answers (rollout.h)
//   manifest.json      what decides the bits of the run (manifest.h)
//   recipe.toml        as it was resolved
// and the file DONE, without which it is incomplete (io/atomic_folder.h). A checkpoint does not depend on threads,
// layout or micro-batches.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/master_weights.h"
#include "sys/error.h"
#include "sys/function_ref.h"
#include "train/manifest.h"
#include "train/mesh.h"
#include "train/objective.h"
#include "train/recipe.h"
#include "train/shared_folder.h"

namespace braid::train {

struct Progress {
  int64_t step = 0;                   // steps done: also the cursor of data and randomness
  int64_t tokens = 0;                 // read so far
  int64_t updates = 0;                // steps that were not skipped
  int64_t skipped = 0;                // consecutive steps, up to now
  std::vector<double> losses, norms;  // of the last steps (spike.h)
};

// What a rank has of an array parallel to the masters: all of it, or the elements `own`, which are at their places or,
// if it is packed, one after the other.
struct ArrayPart {
  std::span<float> array{};
  std::vector<Range> own{};  // empty: all
  bool packed = false;

  std::span<float> at(const Range& elements) const;
};

// The arrays parallel to the masters, or what a rank has of them.
struct Arrays {
  const models::MasterWeights& masters;
  ArrayPart values{}, first{}, second{}, mean{};  // mean: empty without [ema]
};

// Complete checkpoints in out/checkpoints, by step.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& out);
// Those that lack DONE, as after a copy that was interrupted: no run resumes from them.
std::vector<std::filesystem::path> list_incomplete(const std::filesystem::path& out);

// Error when a run would overwrite files that are not a run's: `out` has no checkpoint, and holds something that a run
// stopped before its first checkpoint does not leave there. Or it is a file.
void check_out(const Recipe& recipe);

// Error when a run of this recipe makes fewer checkpoints than checkpoint.merge asks for.
void check_merge(const Recipe& recipe);

// A regular checkpoint is one that an uninterrupted run makes, too: at a multiple of checkpoint.every or at the last
// step. The others, written on a signal, neither enter a merge nor count among the latest that are kept for it.
class Checkpoints {
 public:
  // The objective, which outlives this, writes the models. `writes`: false on ranks that only read.
  Checkpoints(const Recipe& recipe, Objective& objective, bool writes = true);

  // Writes a checkpoint and makes `out` itself the newest model; afterwards removes those that need not be kept. An
  // Error (a full disk) leaves the existing ones.
  void save(const Arrays& arrays, const Progress& progress, const Recipe& recipe, const Facts& manifest) const;
  // The same where ranks have parts of all arrays, which they write together (shared_folder.h): begin() and, when all
  // have called write_parts() for what is theirs, finish(). All ranks call begin().
  std::unique_ptr<SharedFolder> begin(comm::Group& world, const Arrays& arrays, const Progress& progress,
                                      const Recipe& recipe, const Facts& manifest) const;
  void write_parts(const SharedFolder& folder, const Arrays& arrays, std::span<const TensorElements> written) const;
  void finish(SharedFolder& folder) const;
  // A model of other values, such as a running mean, into out/name. All ranks call it; false: not all of them see
  // `out`.
  bool write_shared(comm::Group& world, const ArrayPart& values, std::span<const TensorElements> written,
                    const char* name) const;
  bool merge_shared(comm::Group& world, std::span<const TensorElements> written, int64_t count) const;

  // The mean of the weights of the last `count` regular ones into out/merged. Error when there are fewer.
  void merge(const models::MasterWeights& masters, int64_t count) const;
  // Fills `arrays` from a checkpoint folder. One Error, naming tensor and shapes, when it belongs to another model.
  Progress load(const std::filesystem::path& folder, const Arrays& arrays) const;
  // Before the first step after that checkpoint, of step `step`: sets aside the later ones of `out` (left-00000200),
  // which are not part of the run that continues, and publishes the newest. Error when fewer checkpoints would be in
  // `out` at the end than checkpoint.merge asks for, since those before are in another folder or were not kept.
  void go_on_from(const std::filesystem::path& folder, int64_t step) const;
  // Whether a checkpoint is one of `out`.
  bool owns(const std::filesystem::path& folder) const;
  // Throws `error`; if the checkpoint's files cannot be read, with the newest readable one as a hint.
  [[noreturn]] void refuse(const Error& error, const std::filesystem::path& folder) const;
  // A model of other values, such as a running mean, into out/name.
  void write(std::span<const float> values, const char* name) const;

 private:
  std::filesystem::path path_of(int64_t step) const;
  bool share(comm::Group& world, const char* name, sys::FunctionRef<void()> prepare,
             sys::FunctionRef<void(const std::filesystem::path& weights)> write) const;
  bool is_readable(const std::filesystem::path& folder) const;
  void remove_old() const;
  void check_merge_after(const std::filesystem::path& folder, int64_t step) const;
  void set_aside_after(int64_t step) const;
  void publish(const std::filesystem::path& checkpoint) const;

  std::vector<std::filesystem::path> list_regular() const;
  std::vector<std::filesystem::path> last_regular(int64_t count) const;

  std::filesystem::path out_;
  CheckpointRecipe recipe_;
  int64_t steps_;
  Objective& objective_;
  bool writes_;
};

// Error for what is no complete checkpoint.
void check_checkpoint(const std::filesystem::path& folder);

// Each difference between the manifest in a checkpoint and this one; a missing manifest is a difference.
std::vector<std::string> manifest_differences(const std::filesystem::path& folder, const Facts& manifest);

}  // namespace braid::train
