#include "layout/machine.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::layout {
namespace {

struct Row {
  const char* name;
  const char* links;  // of comm's presets
  Device device;
  double host_gb_per_s;  // PCIe 4 and 5 with 16 lanes; half of a Grace's NVLink-C2C, or all of it; recalled, too
};

constexpr Row kRows[] = {
    {"dgx-h100",
     "h100-ib",
     {989.4, 3350, 80, 0.6, "H100 SXM data sheet (recalled): 989.4 TFLOP/s BF16, 3.35 TB/s, 80 GB"},
     64},
    {"dgx-h200",
     "h200-ib",
     {989.4, 4800, 141, 0.6, "H200 SXM data sheet (recalled): 989.4 TFLOP/s BF16, 4.8 TB/s, 141 GB"},
     64},
    {"gb200",
     "gb200-nvl",
     {2500, 8000, 186, 0.6, "GB200 NVL72 data sheet (recalled), a GPU: 2.5 PFLOP/s BF16, 8 TB/s, 186 GB"},
     225},
    {"gb300",
     "gb300-nvl",
     {2500, 8000, 279, 0.6, "GB300 NVL72 data sheet (recalled), a GPU: 2.5 PFLOP/s BF16, 8 TB/s, 279 GB"},
     225},
    {"dgx-a100",
     "a100-ib",
     {312, 2039, 80, 0.6, "A100 SXM data sheet (recalled): 312 TFLOP/s BF16, 2.04 TB/s, 80 GB"},
     32},
    {"perlmutter",
     "perlmutter",
     {312, 1555, 40, 0.6, "A100 SXM 40 GB data sheet (recalled): 312 TFLOP/s BF16, 1.56 TB/s"},
     32},
    {"frontier",
     "frontier",
     {191.5, 1600, 64, 0.5, "MI250X data sheet (recalled), a GCD: 191.5 TFLOP/s BF16, 1.6 TB/s, 64 GB"},
     36},
    {"alps", "alps", {989.4, 4000, 96, 0.6, "GH200 data sheet (recalled): 989.4 TFLOP/s BF16, 4 TB/s, 96 GB"}, 450},
};

std::vector<Machine> make_presets() {
  std::vector<Machine> list;
  for (const Row& row : kRows) {
    const comm::Cluster* links = comm::cluster_preset(row.links);
    CHECK(links != nullptr, "{}", row.links);
    Machine& machine = list.emplace_back(Machine{row.name, *links, row.device});
    machine.device.host_gb_per_s = row.host_gb_per_s;
    // Local steps of collectives: a copy moves its bytes twice through memory, a sum three times.
    machine.links.copy_gb_per_s = row.device.gb_per_s / 2;
    machine.links.reduce_gb_per_s = row.device.gb_per_s / 3;
  }
  return list;
}

}  // namespace

std::span<const Machine> machine_presets() {
  static const std::vector<Machine> presets = make_presets();
  return presets;
}

const Machine* machine_preset(std::string_view name) {
  for (const Machine& machine : machine_presets()) {
    if (name == machine.name) return &machine;
  }
  return nullptr;
}

Machine with_ranks(Machine machine, int64_t ranks) {
  comm::Cluster& links = machine.links;
  if (ranks > links.gpus && ranks % links.gpus != 0) {
    const int64_t below = ranks / links.gpus * links.gpus;
    fail("--ranks", {.what = "is not a whole number of nodes",
                     .got = std::to_string(ranks),
                     .expected = fmt::format("a multiple of the {} GPUs of a node", links.gpus),
                     .hint = fmt::format("--ranks {}", below)});
  }
  // Part of a node has its part of the cards.
  if (ranks < links.gpus) {
    links.nics = static_cast<int>(std::max<int64_t>(1, ranks * links.nics / links.gpus));
    links.gpus = static_cast<int>(ranks);
  }
  links.nodes = static_cast<int>(ranks / links.gpus);
  return machine;
}

}  // namespace braid::layout
