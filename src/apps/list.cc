// braid list: the models on this machine, and which of them Braid can run here.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "io/model_path.h"
#include "io/ordered_json.h"
#include "io/safetensors.h"
#include "models/count.h"
#include "models/load.h"
#include "models/storage.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/machine.h"

namespace braid::apps {
namespace {

struct Entry {
  std::string name, family = "-", format = "-";
  int64_t bytes = 0, needed = 0;  // needed: weights and the states of one sequence
  std::string problem{};          // why it is not supported; empty when it is
  bool fits = false;
};

// The format of most bytes.
std::string main_format(const std::map<std::string, int64_t>& bytes) {
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "-" : most->first;
}

Entry describe(const io::LocalModel& model) {
  Entry e{.name = model.path.name, .bytes = model.bytes, .needed = model.bytes};
  try {
    const models::Config config = models::load_config(model.path);
    e.family = config.family;
    constexpr int64_t kTokens = 4096;
    const models::SequenceValues v = models::count_sequence(config);
    e.needed += 2 * v.kv_per_token * kTokens + 4 * (v.ssm + v.conv);
    if (model.fetched == io::Fetched::lfs_pointers) {
      e.problem = "weights are Git-LFS pointers; git lfs pull";
    } else if (model.fetched == io::Fetched::incomplete) {
      e.problem = "weights are missing; hf download " + printable(model.path.name);
    } else {
      e.format = main_format(models::bytes_by_format(io::Safetensors(model.path.weights)));
    }
  } catch (const Error& error) {
    e.problem = error.what();
  }
  e.fits = static_cast<double>(e.needed) < sys::machine().memory_gib * (1 << 30);
  return e;
}

int list(bool json) {
  report::Table table({{"model"}, {"family"}, {"format"}, {"size", report::Align::right}, {"fits"}, {"supported"}});
  auto all = nlohmann::ordered_json::array();
  for (const io::LocalModel& model : io::find_local_models()) {
    const Entry e = describe(model);
    all.push_back({{"name", e.name},
                   {"folder", model.path.folder.string()},
                   {"family", e.family},
                   {"format", e.format},
                   {"bytes", e.bytes},
                   {"bytes_needed", e.needed},
                   {"fits", e.fits},
                   {"supported", e.problem.empty()},
                   {"problem", e.problem}});
    table.row({printable(e.name), e.family, e.format, report::bytes(e.bytes), e.fits ? "yes" : "no",
               e.problem.empty() ? "yes" : "no: " + e.problem});
  }
  if (json)
    fmt::print("{}\n", io::dumped(all));
  else
    fmt::print("{}", table.plain());
  return 0;
}

}  // namespace

Action setup_list(Cli& cli) {
  auto json = std::make_shared<bool>(false);
  cli.flag("--json", *json, "print one JSON array");
  return [json] { return list(*json); };
}

}  // namespace braid::apps
