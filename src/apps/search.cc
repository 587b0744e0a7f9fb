// braid search: one variant for every layer, of the least score within limits of cost (compress/choice.h).
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/result.h"
#include "compress/choice.h"
#include "io/json.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

struct SearchArgs {
  std::string instance;
  bool json = false;
};

std::string text_of(const compress::Instance& instance, const compress::Choice& choice,
                    const std::vector<double>& costs) {
  std::string text = fmt::format("choice {}\nscore  {:.9g}", fmt::join(choice.variants, " "), choice.score);
  if (choice.bound == choice.score)
    text += ", proven to be the least\n";
  else
    text += fmt::format(", at most {:.3g} above the least: bound {:.9g}\n", choice.score - choice.bound, choice.bound);
  for (size_t k = 0; k < costs.size(); ++k)
    text += fmt::format("cost   {:.9g} of limits[{}] = {:.9g}\n", costs[k], k, instance.limits[k]);
  text.pop_back();  // print_result ends the line
  return text;
}

int search_command(const SearchArgs& o) {
  if (o.instance.empty()) fail("search", {.what = "no instance is named", .hint = "--solve INSTANCE.json"});
  const io::Json json = io::Json::read(o.instance);
  const compress::Instance instance = compress::read_instance(json);
  const compress::Choice choice = compress::choose(instance, json.document());
  const std::vector<double> costs = compress::costs_of(instance, choice.variants);
  print_result(o.json, {{"choice", choice.variants}, {"score", choice.score}, {"bound", choice.bound}, {"cost", costs}},
               text_of(instance, choice, costs));
  return 0;
}

}  // namespace

Action setup_search(Cli& cli) {
  auto o = std::make_shared<SearchArgs>();
  cli.option("--solve INSTANCE.json", o->instance,
             "{\"layers\": [[{\"score\": 0.1, \"cost\": [2, 3]}, ...], ...], \"limits\": [80, 90]}: variants of each "
             "layer, whose costs of one kind may add up to the limit of that kind; up to 8 limits");
  cli.flag("--json", o->json, "print {choice, score, bound, cost}: an index for each layer, and a lower bound");
  return [o] { return search_command(*o); };
}

}  // namespace braid::apps
