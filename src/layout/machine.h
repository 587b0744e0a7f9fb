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
  double kernel_us = 3;      // from the end of a kernel's work to the next one's, assumed
  double tile_rows = 128;    // that products of experts compute at a time, assumed
  double low_precision = 1;  // how much faster products are in a format below BF16: FP8 2; attention and scans are not
  double host_gb_per_s = 0;  // to the memory of its host, and back at the same time; 0: not known
  bool here = false;         // ranks are CPUs like this one, with the workspaces of its kernels

  double flops() const { return tflops * 1e12 * efficiency; }
  double product_flops() const { return flops() * low_precision; }
  double bytes_per_s() const { return gb_per_s * 1e9; }
  double host_bytes_per_s() const { return host_gb_per_s * 1e9; }
  // That a plan may fill: the runtime, buffers of collectives and gaps between tensors take 5%, assumed.
  double memory_bytes() const { return 0.95 * memory_gb * 1e9; }
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
