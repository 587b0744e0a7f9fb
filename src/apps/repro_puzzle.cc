// braid repro puzzle: are layers that differ better than layers that are alike? At the same bytes of a small hybrid:
// the search of braid prune over widths and depth, and that of braid search over variants of every block, without and
// with their local distillation; each is then distilled for as many tokens.
//   Puzzle (arXiv 2411.19146); Minitron (arXiv 2407.14679)
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>

#include "apps/arms.h"
#include "apps/commands.h"
#include "apps/cut_args.h"
#include "apps/shrink_study.h"
#include "puzzle/search.h"

namespace braid::apps {
namespace {

constexpr const char* kPuzzleQuoted =
    "Puzzle (quoted): 51 B of Llama-3.1-70B, 2.17 times its tokens a second on one H100 at 98.4% of its accuracy,\n"
    "after 45 B tokens. ModelOpt's studies (quoted): Minitron is ahead at some targets, Puzzle at others.";
constexpr const char *kAlike = "prune", *kSearched = "search", *kSearchedLocally = "search, local distillation";
constexpr int64_t kLocalTokens = 4096, kLocalTokensQuick = 512;

puzzle::Options puzzle_options(const ShrinkSeed& seed, const std::string& limit, int64_t local_tokens) {
  const prune::Options like = seed.prune_options();
  return {.limits = puzzle::parse_limits(limit),
          .samples = like.samples,
          .held = like.samples,
          .row = like.length,
          .times = {.length = like.length, .rounds = 1, .threads = like.threads},
          .distill = {.tokens = local_tokens, .threads = like.threads},
          .seed = like.seed};
}

// `local`: tokens of local distillation for each variant; in all, when it returns.
bool make_smaller(ShrinkSeed& seed, const std::string& arm, double share, const std::string& cut, int64_t& local) {
  const std::string target = fmt::format("gib={:g}x", share);
  const int64_t each = arm == kSearchedLocally ? local : 0;
  local = 0;
  if (arm == kAlike) return seed.prune(target, cut);
  Stages stages;
  const puzzle::Report report = puzzle::search_model(seed.parent(), seed.rows(), seed.path(cut).folder,
                                                     puzzle_options(seed, target, each), std::ref(stages));
  local = report.distilled * each;
  return report.whole;
}

bool puzzle_seed(const ShrinkArgs& o, int64_t number, ArmStudy& study) {
  ShrinkSeed seed(o, number);
  if (!seed.train_parent()) return false;
  study.entropy.push_back(seed.entropy());
  study.at("parent", 1).add(seed.params("parent"), o.tokens(o.steps), seed.loss("parent"));
  for (const double share : kShares) {
    for (const char* arm : {kAlike, kSearched, kSearchedLocally}) {
      const std::string name = fmt::format("{}-{:g}", arm, share), cut = name + "-cut";
      int64_t local = o.quick ? kLocalTokensQuick : kLocalTokens;
      if (!make_smaller(seed, arm, share, cut, local) || !seed.distil(cut, name, o.distill)) return false;
      study.at(arm, share).add(seed.params(name), o.tokens(o.distill) + local, seed.loss(name), seed.loss(cut));
    }
  }
  return true;
}

int repro_puzzle(ShrinkArgs o) {
  o.begin();
  ArmStudy study{.name = "puzzle", .title = "alike layers or different ones at the same bytes", .reference = kAlike};
  if (const int code = over_seeds(o, study, puzzle_seed); code != 0) return code;
  const std::string note = fmt::format(
      "Shares are limits of bytes. All are distilled alike; local distillation reads {} tokens more for\n"
      "each variant, which the column counts.\n{}",
      o.quick ? kLocalTokensQuick : kLocalTokens, kPuzzleQuoted);
  print_study(o, study, note);
  return 0;
}

}  // namespace

Action setup_repro_puzzle(Cli& cli) { return setup_shrink(cli, "puzzle", &repro_puzzle); }

}  // namespace braid::apps
