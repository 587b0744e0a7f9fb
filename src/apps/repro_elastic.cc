// braid repro elastic: are nested models as good as separate ones? A small hybrid is nested, and its 100%, 75% and 50%
// models are trained in turns, in one run. For comparison the 75% and 50% models are also pruned and distilled
// separately. Both use the same number of tokens in total, and the parent as the teacher.
//   Nemotron Elastic (arXiv 2511.16664)
#include <fmt/format.h>

#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "apps/arms.h"
#include "apps/commands.h"
#include "apps/cut_args.h"
#include "apps/shrink_study.h"
#include "prune/nest.h"

namespace braid::apps {
namespace {

constexpr const char* kElasticQuoted =
    "Nemotron Elastic (quoted): 12 B with 9 B and 6 B inside from 110 B tokens, 7 times fewer than compressing one\n"
    "after the other, over 360 times fewer than training each from nothing.";
constexpr const char *kNestedArm = "nested", *kApartArm = "apart";

// One of the models inside `folder` -> its loss.
bool slice_loss(const ShrinkSeed& seed, const std::string& folder, double share, double& loss, int64_t& params) {
  const std::string name = fmt::format("{}-{:g}", folder, share);
  Stages stages;
  if (!prune::slice_model(seed.path(folder), fmt::format("{:g}", share), seed.path(name).folder, std::ref(stages))
           .whole)
    return false;
  loss = seed.loss(name);
  params = seed.params(name);
  return true;
}

bool run_nested(ShrinkSeed& seed, const ShrinkArgs& o, ArmStudy& study) {
  prune::NestOptions options{.prune = seed.prune_options()};
  std::vector<double> budgets = {1};
  budgets.insert(budgets.end(), std::begin(kShares), std::end(kShares));
  options.budgets = prune::parse_budgets(fmt::format("{:g}", fmt::join(budgets, ",")));
  {
    Stages stages;
    if (!prune::nest_model(seed.parent(), seed.rows(), seed.path("nested-cut").folder, options, std::ref(stages)).whole)
      return false;
  }
  if (!seed.distil_nested("nested-cut", "nested", o.distill, budgets)) return false;
  for (const double share : budgets) {
    double before = 0, after = 0;
    int64_t params = 0;
    if (!slice_loss(seed, "nested-cut", share, before, params) || !slice_loss(seed, "nested", share, after, params))
      return false;
    study.at(kNestedArm, share).add(params, o.tokens(o.distill), after, before);
  }
  return true;
}

bool run_apart(ShrinkSeed& seed, const ShrinkArgs& o, ArmStudy& study) {
  const int64_t steps = o.distill / static_cast<int64_t>(std::size(kShares));
  for (const double share : kShares) {
    const std::string name = fmt::format("apart-{:g}", share), cut = name + "-cut";
    if (!seed.prune(fmt::format("params={:g}", share), cut) || !seed.distil(cut, name, steps)) return false;
    study.at(kApartArm, share).add(seed.params(name), o.tokens(steps), seed.loss(name), seed.loss(cut));
  }
  return true;
}

bool elastic_seed(const ShrinkArgs& o, int64_t number, ArmStudy& study) {
  ShrinkSeed seed(o, number);
  if (!seed.train_parent()) return false;
  study.entropy.push_back(seed.entropy());
  study.at("parent", 1).add(seed.params("parent"), o.tokens(o.steps), seed.loss("parent"));
  return run_nested(seed, o, study) && run_apart(seed, o, study);
}

int repro_elastic(ShrinkArgs o) {
  constexpr auto kApart = static_cast<int64_t>(std::size(kShares));
  if (o.distill % kApart != 0)
    fail("--distill-steps", {.what = "is divided among the models that are trained apart",
                             .got = std::to_string(o.distill),
                             .expected = fmt::format("a multiple of {}", kApart)});
  o.begin();
  ArmStudy study{.name = "elastic", .title = "models inside a model, and apart", .reference = kApartArm};
  if (const int code = over_seeds(o, study, elastic_seed); code != 0) return code;
  print_study(o, study,
              std::string("Nested models share their tokens; both ways read as many in all. The whole alone is what "
                          "its teacher was.\n") +
                  kElasticQuoted);
  return 0;
}

}  // namespace

Action setup_repro_elastic(Cli& cli) { return setup_shrink(cli, "elastic", &repro_elastic); }

}  // namespace braid::apps
