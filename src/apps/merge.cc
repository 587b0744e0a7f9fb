// braid merge: the weights of a model with an adapter added, as a Hugging Face folder of its own.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/result.h"
#include "io/atomic_file.h"
#include "models/adapter_file.h"
#include "models/presets.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

struct MergeArgs {
  std::string model, adapter, out;
  bool json = false;
};

int merge_command(const MergeArgs& o) {
  if (o.adapter.empty()) fail("merge", {.what = "no adapter is named", .hint = "--adapter FOLDER"});
  if (o.out.empty()) fail("merge", {.what = "no output is named", .hint = "-o FOLDER"});
  io::check_new_folder(o.out);
  io::check_parent(o.out);
  models::merge_adapter(models::find_weights(o.model), o.adapter, o.out);
  print_result(o.json, {{"folder", o.out}, {"adapter", o.adapter}}, printable(o.out));
  return 0;
}

}  // namespace

Action setup_merge(Cli& cli) {
  auto o = std::make_shared<MergeArgs>();
  cli.positional("model", o->model, "a folder, org/name of the Hugging Face cache, or tiny");
  cli.option("--adapter FOLDER", o->adapter, "a LoRA adapter as PEFT and braid train write it");
  cli.option("-o,--output FOLDER", o->out, "folder of the merged model; every weight keeps its name and type");
  cli.flag("--json", o->json, "print the result as a JSON object");
  return [o] { return merge_command(*o); };
}

}  // namespace braid::apps
