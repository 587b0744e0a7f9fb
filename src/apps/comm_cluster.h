// Arguments of `braid comm bench` and `braid plan layout`: sizes, algorithms and clusters as users write them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/sim.h"
#include "layout/machine.h"

namespace braid::apps {

// "16K:64M" doubles from one to the other; "1000,16K" are these. K, M and G are powers of 1024. Error for others.
std::vector<int64_t> parse_sizes(const char* flag, const std::string& text);

// Algorithms of an operation by name, comma-separated; "all": those that can do it on such nodes. Error for others.
std::vector<std::string> parse_algorithms(const std::string& text, const comm::Problem& problem);

// A preset by name, else a TOML file with the fields of comm::Cluster, on top of the preset that its `base` names:
//   base = "perlmutter"   nics = 1   network.latency_us = 12   rack.nodes = 16
comm::Cluster find_cluster(const std::string& name_or_file);

// The same with the device of each rank: of a preset, or in the file's [device]:
//   base = "dgx-h100"   device.tflops = 800   device.gb_per_s = 3000   device.memory_gb = 80   device.efficiency = 0.5
layout::Machine find_machine(const std::string& name_or_file);

}  // namespace braid::apps
