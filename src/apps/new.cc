// braid new: a folder of random weights for any config, so that any published shape can be timed without a download.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/new_folder.h"
#include "apps/result.h"
#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "io/model_path.h"
#include "models/config_file.h"
#include "models/family.h"
#include "models/presets.h"
#include "models/random_weights.h"
#include "models/storage.h"
#include "report/progress.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/parallel.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;

struct NewArgs {
  NewFolder folder;
  std::string out;
  int64_t layers = 0;
  bool json = false;
  const Cli* cli = nullptr;
};

Format format_of(const std::string& name) {
  return name == "nvfp4" ? Format::nvfp4 : name == "fp8" ? Format::f8_e4m3 : Format::bf16;
}

void check_room(const fs::path& folder, int64_t bytes) {
  io::check_new_model(folder);
  const fs::path parent = io::check_parent(folder);
  std::error_code failed;
  const fs::space_info space = fs::space(parent, failed);
  if (!failed && space.available < static_cast<uintmax_t>(bytes)) {
    fail_environment(printable(folder.string()), {.what = "not enough room on the disk",
                                                  .got = report::bytes(static_cast<int64_t>(space.available)) + " free",
                                                  .expected = report::bytes(bytes),
                                                  .hint = "--layers N, or --format nvfp4"});
  }
}

}  // namespace

int write_new_folder(const NewFolder& what, const fs::path& folder, std::FILE* to, bool json_result) {
  check_range("--seed", what.seed, 0, INT64_MAX);
  const models::ConfigSource source = models::find_config(what.config);
  const io::Json json = what.layers ? models::first_layers(source.json, *what.layers) : source.json;
  const models::Config config = models::read_config(json);
  const models::RandomWeights options{
      .format = format_of(what.format), .seed = static_cast<uint64_t>(what.seed), .threads = sys::default_threads()};
  const int64_t bytes = models::stored_bytes(config, options.format);
  if (options.format != Format::bf16 && bytes == models::stored_bytes(config, Format::bf16)) {
    fail("--format", {.what = "nothing in this family is quantised", .got = what.format, .expected = "bf16"});
  }
  check_room(folder, bytes);
  sys::catch_requests_to_stop();
  io::AtomicFolder made(folder, io::AtomicFolder::Mark::none);
  {
    report::Progress progress("writing " + printable(folder.filename().string()), bytes);
    const bool whole = models::write_random_weights(config, made.place(), options, [&](int64_t done) {
      progress.at(done);
      return sys::caught_signal() == 0;
    });
    if (!whole) return 128 + sys::caught_signal();
  }
  io::write_text_file(made.place() / "generation_config.json", models::generation_config_text(config));
  if (options.format != Format::bf16)
    io::write_text_file(made.place() / "hf_quant_config.json", models::quant_config_text(config, options.format));
  io::write_text_file(
      made.place() / "config.json",
      models::config_text(json, what.legacy ? models::Spelling::released : models::Spelling::transformers));
  made.commit();
  print_result(
      json_result,
      {{"folder", folder.string()}, {"layers", config.layers.size()}, {"bytes", bytes}, {"format", what.format}},
      fmt::format("{}: {}, {} of random {} weights, no tokenizer (run them with --ids)", printable(folder.string()),
                  report::counted(std::ssize(config.layers), "layer"), report::bytes(bytes), what.format),
      to);
  return 0;
}

Action setup_new(Cli& cli) {
  auto o = std::make_shared<NewArgs>();
  o->cli = &cli;
  std::string names;
  for (const std::string& name : models::preset_names()) names += (names.empty() ? "" : ", ") + name;
  NewFolder& f = o->folder;
  cli.positional("config", f.config,
                 "a folder, a GGUF file, a config.json, org/name of the Hugging Face cache, tiny, or one of: " + names);
  cli.positional("out", o->out, "the folder to create");
  cli.option("--layers", o->layers, "only the first N layers, with all of embedding and head");
  cli.choice("--format", f.format, {"bf16", "fp8", "nvfp4"}, "of the large matrices, in ModelOpt's layout");
  cli.flag("--legacy-config", f.legacy, "spell config.json as the released files do");
  cli.option("--seed", f.seed, "of the random numbers");
  cli.flag("--json", o->json, "print the result as a JSON object");
  return [o] {
    if (o->cli->given("layers")) o->folder.layers = o->layers;
    return write_new_folder(o->folder, o->out, stdout, o->json);
  };
}

}  // namespace braid::apps
