// braid info: what a model is made of, and with --machine what this computer can do.
#include <fmt/format.h>

#include "apps/commands.h"
#include "sys/error.h"
#include "sys/machine.h"

namespace braid::apps {
namespace {

struct Options {
  bool machine = false;
};

int info(const Options& o) {
  if (!o.machine) fail("info", {.what = "nothing to describe", .hint = "braid info --machine"});
  const sys::Machine& m = sys::machine();
  fmt::print("cpu      {} ({} cores, {:.1f} GiB)\nclass    {}\n", m.cpu_name, m.cores, m.memory_gib,
             sys::name_of(m.cpu_class));
  return 0;
}

}  // namespace

Action setup_info(Cli& cli) {
  auto o = std::make_shared<Options>();
  cli.flag("--machine", o->machine, "describe this computer");
  return [o] { return info(*o); };
}

}  // namespace braid::apps
