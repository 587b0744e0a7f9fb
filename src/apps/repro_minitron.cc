// braid repro minitron: what does ranking Mamba heads inside their groups of B and C give, and what does a smaller
// model gain from its parent? A small hybrid loses a quarter and half of its Mamba heads and feed-forward channels,
// those of least importance with heads ranked inside groups, over all groups, or at random; each is distilled for a
// tenth of the parent's tokens, beside models of that size from random weights with as many tokens and with the
// parent's.
//   Minitron (arXiv 2407.14679); group-aware pruning of hybrids (arXiv 2504.11409)
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>

#include "apps/arms.h"
#include "apps/commands.h"
#include "apps/cut_args.h"
#include "apps/shrink_study.h"

namespace braid::apps {
namespace {

constexpr const char* kMinitronQuoted =
    "Minitron (quoted): up to 40 times fewer tokens for each model that is made of a larger one. Nemotron-H 4B\n"
    "(quoted): made of the 8B with more than 96% of its accuracy, heads ranked inside groups.";
struct HeadRanking {
  const char* name;
  prune::ScoreKind score;
};
constexpr HeadRanking kHeadRankings[] = {{"inside groups", prune::ScoreKind::minitron},
                                         {"over all groups", prune::ScoreKind::ungrouped},
                                         {"at random", prune::ScoreKind::random}};
constexpr const char *kAxesCut = "mamba_heads,ffn", *kFewTokens = "from nothing",
                     *kManyTokens = "from nothing, all tokens";

// One ranking at one share. False: a signal stopped it.
bool cut_and_distil(ShrinkSeed& seed, const ShrinkArgs& o, const HeadRanking& ranking, double share, ArmStudy& study) {
  const std::string name = fmt::format("{}-{:g}", ranking.name, share), cut = name + "-cut";
  prune::Options options = seed.prune_options();
  options.axes = kAxesCut;
  options.score = ranking.score;
  Stages stages;
  if (!prune::prune_to(seed.parent(), seed.rows(), seed.path(cut).folder, seed.sizes(kAxesCut, share), options,
                       std::ref(stages)))
    return false;
  stages.end();
  const double before = seed.loss(cut);
  if (!seed.distil(cut, name, o.distill)) return false;
  study.at(ranking.name, share).add(seed.params(name), o.tokens(o.distill), seed.loss(name), before);
  return true;
}

bool train_small(ShrinkSeed& seed, const ShrinkArgs& o, const char* arm_name, int64_t steps, double share,
                 ArmStudy& study) {
  const std::string name = fmt::format("{}-{:g}", arm_name, share);
  if (!seed.train_from_nothing(fmt::format("{}-{:g}", kHeadRankings[0].name, share), name, steps)) return false;
  study.at(arm_name, share).add(seed.params(name), o.tokens(steps), seed.loss(name));
  return true;
}

bool minitron_seed(const ShrinkArgs& o, int64_t number, ArmStudy& study) {
  ShrinkSeed seed(o, number);
  if (!seed.train_parent()) return false;
  study.entropy.push_back(seed.entropy());
  study.at("parent", 1).add(seed.params("parent"), o.tokens(o.steps), seed.loss("parent"));
  for (const double share : kShares) {
    for (const HeadRanking& ranking : kHeadRankings) {
      if (!cut_and_distil(seed, o, ranking, share, study)) return false;
    }
    if (!train_small(seed, o, kFewTokens, o.distill, share, study) ||
        !train_small(seed, o, kManyTokens, o.steps, share, study))
      return false;
  }
  return true;
}

int repro_minitron(ShrinkArgs o) {
  o.begin();
  ArmStudy study{
      .name = "minitron", .title = "smaller models, distilled or from nothing", .reference = kHeadRankings[0].name};
  if (const int code = over_seeds(o, study, minitron_seed); code != 0) return code;
  print_study(o, study, kMinitronQuoted);
  return 0;
}

}  // namespace

Action setup_repro_minitron(Cli& cli) { return setup_shrink(cli, "minitron", &repro_minitron); }

}  // namespace braid::apps
