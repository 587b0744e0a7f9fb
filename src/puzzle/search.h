// Puzzle (arXiv 2411.19146): variants of every block, trained one by one to do what their parent does, scored by what
// the model loses with each alone, timed, and the choice of one for every block within limits of cost, written as a
// folder (variants.h, distill.h, judge.h, times.h, compress/choice.h).
#pragma once
#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "compress/choice.h"
#include "data/loader.h"
#include "io/model_path.h"
#include "puzzle/distill.h"
#include "puzzle/times.h"

namespace braid::puzzle {

// What limits are about, in the order of kCosts.
enum class CostKind : uint8_t { gib, kv, params, decode_ms, prefill_ms };
inline constexpr size_t kCostKinds = 5;
extern const char* const kCosts[kCostKinds];

// gib: bytes of the files; kv: bytes of the states and of keys and values (BF16) of all sequences at their length.
struct Costs {
  std::array<double, kCostKinds> of{};
  double& operator[](CostKind k) { return of[static_cast<size_t>(k)]; }
  double operator[](CostKind k) const { return of[static_cast<size_t>(k)]; }
  Costs& operator+=(const Costs& other);
};

struct Limit {
  CostKind kind = CostKind::gib;
  double value = 0;    // GiB, parameters or milliseconds
  bool share = false;  // of the parent's
};
// "gib=75%,decode_ms=12". Error for anything else, and for a kind that is named twice.
std::vector<Limit> parse_limits(const std::string& text);

struct Options {
  std::vector<Limit> limits{};
  Lists lists{};  // none: the defaults of the family
  Metric metric = Metric::kl;
  int64_t samples = 64, held = 16, row = 256;  // rows to fit to, rows to judge by, and their tokens
  TimeOptions times{};
  DistillOptions distill{};
  uint64_t seed = 0;
  // Where finished variants are kept, so that the same search goes on from them (work.h); removed at the end. Limits,
  // the metric and what is timed may be others then. Empty: nowhere.
  std::filesystem::path work{};
};

struct Rated {
  Difference difference{};
  double score = 0;  // by the metric
  double local = 0;  // error of the block's output, after training
  double untrained = 0;
  bool trained = false;  // whether training lowered that
  Costs costs{};
};

// Tokens a second of steps of the whole batch: the sum of the blocks' times, and a whole model's.
struct Speed {
  double predicted = 0, measured = 0;
};

struct Report {
  bool whole = false;  // false: stopped by `stage`, and nothing was written
  std::vector<Site> sites{};
  std::vector<std::vector<Rated>> rated{};  // by site and variant
  int64_t distilled = 0;                    // variants that were trained
  int64_t reused = 0;                       // variants that an earlier search had finished
  Costs rest{}, parent{}, chosen{}, limits{};
  compress::Instance instance{};
  compress::Choice choice{};
  double parent_loss = 0;
  Difference assembled{};  // of the folder as it was written
  Speed parent_speed{}, chosen_speed{};
  int64_t bytes = 0;  // of the folder's tensors
};

using Stage = std::function<bool(const char*, int64_t, int64_t)>;

Report search_model(const io::ModelPath& model, const data::DataSpec& data, const std::filesystem::path& out,
                    const Options& options, const Stage& stage);

}  // namespace braid::puzzle
