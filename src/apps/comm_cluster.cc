#include "apps/comm_cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "apps/split.h"
#include "io/toml.h"
#include "sys/error.h"
#include "sys/nearest.h"

namespace braid::apps {
namespace {

constexpr int64_t kSizeMost = int64_t{1} << 40;
constexpr size_t kSizesMost = 64;

int64_t parse_size(const char* flag, const std::string& text) {
  int64_t n = -1;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, n);
  int shift = 0;
  if (rest != end && rest + 1 == end) {
    shift = *rest == 'K' ? 10 : *rest == 'M' ? 20 : *rest == 'G' ? 30 : 0;
    if (shift > 0) ++rest;
  }
  if (error != std::errc() || rest != end || n < 0 || n > kSizeMost >> shift)
    fail(flag,
         {.what = "is not a size", .got = printable(text), .expected = "16K, 1M or a number of bytes, up to 1024G"});
  return n << shift;
}

void read_link(const io::Json& json, const char* name, comm::Link& link) {
  const auto table = json.get({name});
  if (!table) return;
  for (const auto& [key, value] : table->members()) {
    if (key == "latency_us")
      link.latency_us = value.as_number({0, 1e9});
    else if (key == "overhead_us")
      link.overhead_us = value.as_number({0, 1e9});
    else if (key == "gb_per_s")
      link.gb_per_s = value.as_number({1e-6, 1e9});
    else
      value.refuse("is not a field of a link", "latency_us, overhead_us or gb_per_s");
  }
}

comm::Cluster read_cluster(const io::Json& json) {
  comm::Cluster c;
  if (const auto base = json.string_of({"base"})) {
    const comm::Cluster* preset = comm::cluster_preset(*base);
    const layout::Machine* machine = layout::machine_preset(*base);
    if (!preset && !machine)
      json.need({"base"}).refuse("is not a preset", "one that `braid comm bench --clusters` lists");
    c = machine ? machine->links : *preset;
    c.name = "custom";
  }
  for (const auto& [key, value] : json.members()) {
    if (key == "base" || key == "node" || key == "network" || key == "device") continue;
    if (key == "nodes")
      c.nodes = static_cast<int>(value.as_int({1, 65536}));
    else if (key == "gpus")
      c.gpus = static_cast<int>(value.as_int({1, 1024}));
    else if (key == "nics")
      c.nics = static_cast<int>(value.as_int({1, 1024}));
    else if (key == "rack_nodes")
      c.rack_nodes = static_cast<int>(value.as_int({0, 65536}));
    else if (key == "rack_latency_us")
      c.rack_latency_us = value.as_number({0, 1e9});
    else if (key == "taper")
      c.taper = value.as_number({0.01, 1e6});
    else if (key == "launch_us")
      c.launch_us = value.as_number({0, 1e9});
    else if (key == "copy_gb_per_s")
      c.copy_gb_per_s = value.as_number({1e-6, 1e9});
    else if (key == "reduce_gb_per_s")
      c.reduce_gb_per_s = value.as_number({1e-6, 1e9});
    else if (key == "jitter")
      c.jitter = value.as_number({0, 1000});
    else if (key == "seed")
      c.seed = static_cast<uint64_t>(value.as_int({0, int64_t{1} << 53}));
    else
      value.refuse("is not a field of a cluster", "base, nodes, gpus, nics, node, network, rack_nodes, taper, ...");
  }
  if (const auto nics = json.get({"nics"}); nics && c.nics > c.gpus)
    nics->refuse("is more than a node's GPUs, each of which sends by one card", fmt::format("at most {}", c.gpus));
  read_link(json, "node", c.node);
  read_link(json, "network", c.network);
  // A preset with another number of ranks keeps its source; figures of the file's own do not have it.
  const auto counts = {"base", "nodes", "gpus", "device"};
  for (const auto& [key, value] : json.members()) {
    if (std::find(counts.begin(), counts.end(), key) == counts.end()) c.source = "given";
  }
  return c;
}

void device_field(std::string_view key, const io::Json& value, layout::Device& device) {
  struct Field {
    const char* name;
    double layout::Device::*member;
    double least, most;
  };
  constexpr Field kFields[] = {{"tflops", &layout::Device::tflops, 1e-6, 1e9},
                               {"gb_per_s", &layout::Device::gb_per_s, 1e-6, 1e9},
                               {"memory_gb", &layout::Device::memory_gb, 1e-6, 1e9},
                               {"efficiency", &layout::Device::efficiency, 1e-3, 1},
                               {"kernel_us", &layout::Device::kernel_us, 0, 1e6},
                               {"tile_rows", &layout::Device::tile_rows, 0, 1e4},
                               {"host_gb_per_s", &layout::Device::host_gb_per_s, 1e-6, 1e9},
                               {"low_precision", &layout::Device::low_precision, 1e-3, 1e3}};
  if (key == "here") {
    device.here = value.as_bool();
    return;
  }
  for (const Field& field : kFields) {
    if (key != field.name) continue;
    device.*field.member = value.as_number({field.least, field.most});
    return;
  }
  value.refuse("is not a field of a device",
               "tflops, gb_per_s, memory_gb, efficiency, kernel_us, tile_rows, low_precision, host_gb_per_s or here");
}

layout::Machine read_machine(const io::Json& json) {
  layout::Machine machine{.links = read_cluster(json)};
  if (const auto base = json.string_of({"base"})) {
    if (const layout::Machine* preset = layout::machine_preset(*base)) machine.device = preset->device;
  }
  if (const auto table = json.get({"device"})) {
    machine.device.source = "given";
    for (const auto& [key, value] : table->members()) {
      device_field(key, value, machine.device);
    }
  }
  for (const auto& [name, value] :
       {std::pair("tflops", machine.device.tflops), std::pair("gb_per_s", machine.device.gb_per_s),
        std::pair("memory_gb", machine.device.memory_gb)}) {
    if (value == 0)
      fail("--cluster", {.what = fmt::format("has no device.{}", name),
                         .expected = "a [device] with tflops, gb_per_s and memory_gb, or a base that has them"});
  }
  return machine;
}

[[noreturn]] void refuse_cluster(const std::string& name_or_file, const std::vector<std::string>& names) {
  fail("--cluster", {.what = "is neither a preset nor a file",
                     .got = printable(name_or_file),
                     .expected = fmt::format("{}", fmt::join(names, ", ")),
                     .hint = sys::nearest(name_or_file, names)});
}

}  // namespace

std::vector<int64_t> parse_sizes(const char* flag, const std::string& text) {
  std::vector<int64_t> sizes;
  if (const auto ends = split(text, ':'); ends.size() == 2) {
    const int64_t last = parse_size(flag, ends[1]);
    int64_t n = parse_size(flag, ends[0]);
    if (n < 1 || n > last) fail(flag, {.what = "is an empty range", .got = printable(text), .expected = "LOW:HIGH"});
    for (; n <= last; n *= 2) sizes.push_back(n);
  } else {
    for (const std::string& part : split(text)) sizes.push_back(parse_size(flag, part));
  }
  if (sizes.size() > kSizesMost)
    fail(flag, {.what = "are too many sizes",
                .got = fmt::format("{}", sizes.size()),
                .expected = fmt::format("at most {}", kSizesMost)});
  return sizes;
}

std::vector<std::string> parse_algorithms(const std::string& text, const comm::Problem& problem) {
  if (text != "all") {
    std::vector<std::string> names = split(text);
    for (const std::string& name : names) {
      comm::algorithm_for(problem, name, "--algorithm");
      if (std::ranges::count(names, name) > 1)
        fail("--algorithm", {.what = "is named twice", .got = printable(name), .expected = "each once"});
    }
    return names;
  }
  std::vector<std::string> names;
  for (const comm::Algorithm& a : comm::every_algorithm()) {
    if (a.op == problem.op && a.refuses(problem) == nullptr) names.emplace_back(a.name);
  }
  return names;
}

comm::Cluster find_cluster(const std::string& name_or_file) {
  if (const comm::Cluster* preset = comm::cluster_preset(name_or_file)) return *preset;
  if (std::filesystem::exists(name_or_file)) return read_cluster(io::read_toml(name_or_file));
  std::vector<std::string> names;
  for (const comm::Cluster& c : comm::cluster_presets()) names.emplace_back(c.name);
  refuse_cluster(name_or_file, names);
}

layout::Machine find_machine(const std::string& name_or_file) {
  if (const layout::Machine* preset = layout::machine_preset(name_or_file)) return *preset;
  if (std::filesystem::exists(name_or_file)) return read_machine(io::read_toml(name_or_file));
  std::vector<std::string> names;
  for (const layout::Machine& m : layout::machine_presets()) names.emplace_back(m.name);
  refuse_cluster(name_or_file, names);
}

}  // namespace braid::apps
