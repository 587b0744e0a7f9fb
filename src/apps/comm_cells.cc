// braid comm cells: NVRAR's LL8 cells beside data and a flag, between two processes of this machine, measured.
//   https://arxiv.org/abs/2511.09557
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/comm_cluster.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "comm/cell_exchange.h"
#include "comm/cells.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

struct CommCellsArgs {
  std::string sizes = "64:64K";
  int64_t rounds = 9, messages = 50;
  bool json = false;
};

int comm_cells(const CommCellsArgs& o) {
  check_range("--rounds", o.rounds, 1, 10000);
  check_range("--messages", o.messages, 1, 1000000);
  const std::vector<int64_t> sizes = parse_sizes("--bytes", o.sizes);
  for (const int64_t bytes : sizes) check_range("--bytes", bytes, 1, comm::cells::kPayloadMost);
  std::optional<report::Progress> progress(std::in_place, "timing", std::ssize(sizes));
  const auto times = comm::time_cells(sizes, static_cast<int>(o.rounds), static_cast<int>(o.messages),
                                      [&](int64_t done) { progress->at(done); });
  progress.reset();
  using report::Align;
  report::Table table({{"size", Align::right},
                       {"cells ns", Align::right},
                       {"data and flag ns", Align::right},
                       {"cells take", Align::right}});
  ordered_json rows = ordered_json::array();
  for (const comm::CellExchange& t : times) {
    table.row({report::bytes(t.bytes), fmt::format("{:.0f}", t.cells_ns), fmt::format("{:.0f}", t.flag_ns),
               fmt::format("{:.2f}x", t.cells_ns / t.flag_ns)});
    rows.push_back({{"bytes", t.bytes}, {"cells_ns", t.cells_ns}, {"flag_ns", t.flag_ns}});
  }
  if (o.json)
    fmt::print("{}\n", ordered_json{{"rounds", o.rounds}, {"messages", o.messages}, {"rows", rows}}.dump());
  else
    fmt::print(
        "one message between two processes, shared memory, measured: the fastest of {} rounds of {}, in turns\n{}",
        o.rounds, o.messages, table.plain());
  return 0;
}

}  // namespace

Action setup_comm_cells(Cli& cli) {
  auto o = std::make_shared<CommCellsArgs>();
  cli.option("--bytes SIZES", o->sizes, "of a message: 64:64K doubles, 100,4K are two");
  cli.option("--rounds", o->rounds, "of both ways, in turns, after a warm-up");
  cli.option("--messages", o->messages, "of a round");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return comm_cells(*o); };
}

}  // namespace braid::apps
