// A cluster to plan for: what one accelerator does, and the links between them (comm/cluster.h). Rates are recalled
// from the sources that a preset names; `efficiency` is assumed, and so are the latencies of the links.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/cluster.h"

namespace braid::layout {

struct Device {
  double tflops = 0;        // dense products in BF16
  double gb_per_s = 0;      // of its memory
  double memory_gb = 0;     // powers of 1000
  double efficiency = 0.6;  // share of tflops that large products reach
  const char* source = "given";

  double flops() const { return tflops * 1e12 * efficiency; }
  double bytes_per_s() const { return gb_per_s * 1e9; }
  double memory_bytes() const { return memory_gb * 1e9; }
};

struct Machine {
  const char* name = "custom";
  comm::Cluster links{};
  Device device{};
};

std::span<const Machine> machine_presets();
const Machine* machine_preset(std::string_view name);  // null: there is none

// As many nodes as `ranks` need. Error when these are not whole nodes.
Machine with_ranks(Machine machine, int64_t ranks);

}  // namespace braid::layout
