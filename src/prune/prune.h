// Prunes a model to a target: importance from a forward pass over calibration data, a search over sizes, and the best
// candidate as a Hugging Face folder (search.h, measure.h, cut_model.h, write.h).
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "io/model_path.h"
#include "prune/layout.h"
#include "prune/measure.h"
#include "prune/search.h"

namespace braid::prune {

// minitron, reap (the same, but for experts), taylor, random, ungrouped (minitron with Scores::ungrouped)
enum class ScoreKind : uint8_t { minitron, reap, taylor, random, ungrouped };

struct Options {
  Target target{};
  std::string axes{};  // as parse_axes reads it
  ScoreKind score = ScoreKind::minitron;
  Floors floors{};
  bool reset_router_bias = false;        // of routers that lose experts
  int64_t samples = 1024, length = 512;  // rows of calibration data, and their tokens at most
  int64_t quick = 16;                    // rows on which candidates are compared
  int64_t candidates = 8;
  uint64_t seed = 0;
  int threads = 1;
};

// A model as the table shows it.
struct Shown {
  Candidate candidate{};
  int64_t state_bytes = 0;  // of a sequence: convolutions and Mamba's states in FP32
  int64_t kv_bytes = 0;     // of a token, in BF16
};

struct Report {
  bool whole = false;  // false: stopped by `progress`; nothing was written, unless only losses were left to measure
  Shown parent{}, child{};
  double parent_loss = 0, child_loss = 0;  // on all samples; the child's by the folder as it was written
  Sizes full{};
  std::vector<AxisRange> cut{};  // the axes that were searched
  Found found{};
  int64_t samples = 0, tokens = 0;  // of calibration
};

// `stage` is told what is being done, how much of it is done, and of how much; if it returns false the work stops.
using Stage = std::function<bool(const char*, int64_t, int64_t)>;

// Of rows that take long, shown as a stage; of the few on which candidates are compared, within another stage, where a
// signal alone stops it. Both throw sys::Interrupted.
double staged_loss(models::Model& model, std::span<const data::Batch> rows, int threads, const Stage& stage);
double quick_loss(models::Model& model, std::span<const data::Batch> rows, int threads);

// The first `samples` rows that have a target, each by itself. Error when they have too few targets.
std::vector<data::Batch> read_rows(const data::DataSpec& spec, const io::ModelPath& model, const models::Config& config,
                                   int64_t samples);
// Error for weights in formats that cannot be cut.
void refuse_quantised(const io::ModelPath& model, const Layouts& layouts, nn::ParamSource& source);
void refuse_quantised(const io::ModelPath& model, const std::string& name, const QuantSpec& spec);
// Of all tensors of a folder.
int64_t stored_bytes(const std::filesystem::path& weights);

Report prune_model(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
                   const Options& options, const Stage& stage);

// To the given sizes, without a search. False: stopped by `stage`, and nothing was written.
bool prune_to(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
              const Sizes& sizes, const Options& options, const Stage& stage);

}  // namespace braid::prune
