// braid fuse: feed-forward blocks that follow each other as one wide block (prune/fuse.h).
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/cut_args.h"
#include "io/ordered_json.h"
#include "models/presets.h"
#include "prune/fuse.h"
#include "report/units.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

struct FuseArgs {
  std::string model, out;
  bool json = false;
};

int fuse_command(const FuseArgs& o) {
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
  Stages stages;
  const prune::FuseReport r = prune::fuse_model(models::find_weights(o.model), o.out, std::ref(stages));
  stages.end();
  if (!r.whole) return 128 + sys::caught_signal();
  if (o.json) {
    ordered_json runs = ordered_json::array();
    for (size_t i = 0; i < r.layers.size(); ++i) runs.push_back({{"layers", r.layers[i]}, {"width", r.widths[i]}});
    const ordered_json j = {{"model", o.model},         {"output", o.out},  {"layers_before", r.layers_before},
                            {"layers", r.layers_after}, {"bytes", r.bytes}, {"fused", std::move(runs)}};
    fmt::print("{}\n", io::dumped(j));
    return 0;
  }
  for (size_t i = 0; i < r.layers.size(); ++i)
    fmt::print("layers {}: one block of {} channels\n", fmt::join(r.layers[i], ", "), r.widths[i]);
  fmt::print("{}: {} of {}, {}\n", printable(o.out), report::counted(r.layers_after, "layer"), r.layers_before,
             report::bytes(r.bytes));
  return 0;
}

}  // namespace

Action setup_fuse(Cli& cli) {
  auto o = std::make_shared<FuseArgs>();
  cli.positional("model", o->model, "a folder, org/name of the Hugging Face cache, or tiny");
  cli.positional("out", o->out, "the folder to create");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return fuse_command(*o); };
}

}  // namespace braid::apps
