#include "apps/cut_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "apps/model_args.h"
#include "data/read_text.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {

// As prune::ScoreKind has them, then of single weights, as prune::WeightScore does.
const std::vector<std::string> kScores = {"minitron",  "reap",      "taylor",     "random",
                                          "ungrouped", "magnitude", "activations"};
constexpr int64_t kUnitScores = 5, kNestScores = 4;  // the units of a nested model have to stay in their groups

}  // namespace

data::DataSpec rows_of(const std::string& path, const std::string& kind, int64_t length, uint64_t seed) {
  data::DataSpec data{.kind = kind, .path = path, .batch = 1, .length = length, .seed = seed};
  if ((kind.empty() ? data::kind_of(path) : kind) == "ids") data.batch = data.length = 0;  // as they are stored
  return data;
}

bool Stages::operator()(const char* name, int64_t done, int64_t total) {
  if (current_ != name) progress_.emplace(current_ = name, total);
  progress_->at(done);
  return sys::caught_signal() == 0;
}

void CutArgs::declare(Cli& cli, bool zeros) {
  cli.option("--data F", data, "calibration data: text, JSON lines, or token ids, as braid train reads them");
  cli.choice("--kind", kind, data::kKinds, "of the data; default: guessed from the path");
  cli.option("--axes", prune.axes,
             "what may be cut: hidden, ffn, heads, kv_groups, mamba_heads, mamba_head_dim, experts, expert_ffn, "
             "shared_ffn, latent, layers; default: all that the model has");
  const std::string units =
      "importance: activations (minitron; reap: experts over the tokens that chose them), gradients times weights, or "
      "none; default: minitron";
  cli.choice("--score", score, {kScores.begin(), zeros ? kScores.end() : kScores.begin() + kNestScores},
             units + (zeros ? "; ungrouped: minitron with Mamba heads ranked over all groups; with --pattern "
                              "magnitude, or activations: times the norms of inputs"
                            : ""));
  cli.option("--samples", prune.samples, "rows of data that are read");
  cli.option("--length", prune.length, "tokens of a row");
  cli.option("--quick", prune.quick, "rows on which candidates are compared");
  cli.option("--candidates", prune.candidates, "combinations of cuts whose loss is measured");
  cli.option("--min-width", prune.floors.width, "smallest share of an axis to keep");
  cli.option("--min-depth", prune.floors.depth, "smallest share of the layers to keep");
  cli.option("--seed", seed, "of the order of the data, and of --score random");
  cli.option("-t,--threads", threads, "0: one per core");
}

void CutArgs::check(const char* command, bool zeros) {
  if (data.empty()) fail(command, {.what = "there is no data to calibrate with", .hint = "--data FILE"});
  check_range("--samples", prune.samples, 1, 1 << 20);
  check_range("--length", prune.length, 2, 1 << 17);
  check_range("--quick", prune.quick, 1, 1 << 20);
  check_range("--candidates", prune.candidates, 1, 1024);
  check_range("--threads", threads, 0, 1024);
  check_range("--seed", seed, 0, INT64_MAX);
  for (const auto& [flag, share] :
       {std::pair("--min-width", prune.floors.width), std::pair("--min-depth", prune.floors.depth)}) {
    if (!(share > 0 && share <= 1))
      fail(flag, {.what = "is out of range", .got = fmt::format("{}", share), .expected = "above 0, up to 1"});
  }
  prune.threads = threads > 0 ? static_cast<int>(threads) : sys::default_threads();
  prune.seed = static_cast<uint64_t>(seed);
  if (score.empty()) score = zeros ? "activations" : "minitron";
  const int64_t at = std::find(kScores.begin(), kScores.end(), score) - kScores.begin();
  if ((at >= kUnitScores) != zeros)
    fail("--score", {.what = fmt::format("does not go with {}", zeros ? "--pattern" : "--target"),
                     .got = score,
                     .expected = zeros ? "magnitude or activations" : "minitron, reap, taylor, random or ungrouped"});
  if (!zeros) prune.score = static_cast<prune::ScoreKind>(at);
}

int stopped(const std::string& out) {
  std::error_code none;
  if (std::filesystem::exists(std::filesystem::path(out) / "config.json", none))
    fmt::print(stderr, "stopped while losses were measured; {} is complete\n", printable(out));
  return 128 + sys::caught_signal();
}

std::string sizes_text(const prune::Sizes& sizes, const prune::Sizes& full, const char* none) {
  std::string text;
  for (size_t i = 0; i < prune::kAxes; ++i) {
    const auto axis = static_cast<prune::Axis>(i);
    if (sizes[axis] > 0 && sizes[axis] != full[axis])
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(axis), sizes[axis]);
  }
  return text.empty() ? none : text;
}

nlohmann::ordered_json sizes_json(const prune::Sizes& sizes, const prune::Sizes& full) {
  nlohmann::ordered_json j = nlohmann::ordered_json::object();
  for (size_t i = 0; i < prune::kAxes; ++i) {
    const auto axis = static_cast<prune::Axis>(i);
    if (full[axis] > 0) j[name_of(axis)] = sizes[axis] > 0 ? sizes[axis] : full[axis];
  }
  return j;
}

}  // namespace braid::apps
