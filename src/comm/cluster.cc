#include "comm/cluster.h"

#include <array>

namespace braid::comm {
namespace {

// Latencies and overheads of a step are of the order that the cited texts give; rates are per GPU and direction.
constexpr std::array kPresets = {
    Cluster{.name = "h100-ib",
            .source = "data sheets: DGX H100, NVLink 450 GB/s, 8 x 400 Gbit/s; latencies assumed",
            .nodes = 4,
            .gpus = 8,
            .nics = 8,
            .node = {1.5, 0.3, 450},
            .network = {4, 0.7, 50},
            .launch_us = 5},
    Cluster{.name = "perlmutter",
            .source = "hpcgroup/plexus: 200 GB/s within a node of A100, 100 GB/s between; latencies assumed",
            .nodes = 4,
            .gpus = 4,
            .nics = 4,
            .node = {2, 0.5, 200},
            .network = {8, 1, 25},
            .launch_us = 10},
    Cluster{.name = "perlmutter-nvrar",
            .source = "fitted to the six sizes that axonn-ai/yalis tuned NVRAR at (tune_results.json, 16 A100)",
            .nodes = 4,
            .gpus = 4,
            .nics = 4,
            .node = {2, 0.5, 200},
            .network = {4, 0.5, 13.36},
            .launch_us = 35},
    Cluster{.name = "frontier",
            .source = "8 GCDs and 4 Slingshot-11 cards (25 GB/s) a node; other rates and latencies assumed",
            .nodes = 16,
            .gpus = 8,
            .nics = 4,
            .node = {3, 0.5, 50},
            .network = {8, 1, 25},
            .launch_us = 10},
    Cluster{.name = "h200-ib",
            .source = "data sheets (recalled): DGX H200, NVLink 450 GB/s, 8 x 400 Gbit/s; latencies assumed",
            .nodes = 4,
            .gpus = 8,
            .nics = 8,
            .node = {1.5, 0.3, 450},
            .network = {4, 0.7, 50},
            .launch_us = 5},
    Cluster{.name = "a100-ib",
            .source = "data sheets (recalled): DGX A100, NVLink 300 GB/s, 8 x 200 Gbit/s; latencies assumed",
            .nodes = 4,
            .gpus = 8,
            .nics = 8,
            .node = {2, 0.5, 300},
            .network = {5, 1, 25},
            .launch_us = 8},
    // Jobs take 64 of the 72 GPUs of a rack, whose number is a power of two.
    Cluster{
        .name = "gb200-nvl",
        .source =
            "data sheets (recalled): GB200 NVL72, 64 of 72 GPUs, NVLink 900 GB/s, 400 Gbit/s a GPU; latencies assumed",
        .nodes = 1,
        .gpus = 64,
        .nics = 64,
        .node = {1.5, 0.3, 900},
        .network = {4, 0.7, 50},
        .launch_us = 5},
    Cluster{
        .name = "gb300-nvl",
        .source =
            "data sheets (recalled): GB300 NVL72, 64 of 72 GPUs, NVLink 900 GB/s, 800 Gbit/s a GPU; latencies assumed",
        .nodes = 1,
        .gpus = 64,
        .nics = 64,
        .node = {1.5, 0.3, 900},
        .network = {4, 0.7, 100},
        .launch_us = 5},
    Cluster{
        .name = "alps",
        .source = "4 GH200 a node, NVLink 150 GB/s to each other one, Slingshot-11 25 GB/s a GPU; latencies assumed",
        .nodes = 4,
        .gpus = 4,
        .nics = 4,
        .node = {2, 0.5, 450},
        .network = {8, 1, 25},
        .launch_us = 8},
    Cluster{.name = "equal",
            .source = "no machine: one latency and rate everywhere, nothing shared, free arithmetic",
            .nodes = 4,
            .gpus = 4,
            .nics = 4,
            .node = {1, 0, 10},
            .network = {1, 0, 10},
            .copy_gb_per_s = 1e9,
            .reduce_gb_per_s = 1e9},
};

}  // namespace

int level_of(const Cluster& cluster, int from, int to) {
  const int a = from / cluster.gpus, b = to / cluster.gpus;
  if (a == b) return 0;
  return cluster.rack_nodes == 0 || a / cluster.rack_nodes == b / cluster.rack_nodes ? 1 : 2;
}

std::span<const Cluster> cluster_presets() { return kPresets; }

const Cluster* cluster_preset(std::string_view name) {
  for (const Cluster& cluster : kPresets) {
    if (name == cluster.name) return &cluster;
  }
  return nullptr;
}

}  // namespace braid::comm
