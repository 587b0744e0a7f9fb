// What `braid info --machine` prints: this computer and its measured roofs.
#include "apps/info_machine.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/best_roofs.h"
#include "core/device/gpu.h"
#include "io/ordered_json.h"
#include "report/units.h"
#include "sys/machine.h"
#include "sys/roofs.h"

namespace braid::apps {
namespace {

// One line of the table of roofs.
struct RoofLine {
  const char* key;
  std::string label;
  double value, best;
};

std::vector<RoofLine> roof_lines(const sys::Roofs& r, const sys::Roofs& best) {
  std::vector<RoofLine> lines = {
      {"read_gbs_1", "read, 1 thread, GB/s", r.read_gbs_1, best.read_gbs_1},
      {"read_gbs", fmt::format("read, {}, GB/s", report::counted(r.threads, "thread")), r.read_gbs, best.read_gbs},
      {"fp32_gflops", "FP32, GFLOP/s", r.fp32_gflops, best.fp32_gflops},
      {"bf16_gflops", fmt::format("BF16 ({}), GFLOP/s", r.bf16_unit), r.bf16_gflops, best.bf16_gflops},
      {"int8_gops", fmt::format("INT8 ({}), GOP/s", r.int8_unit), r.int8_gops, best.int8_gops},
  };
  std::erase_if(lines, [](const RoofLine& line) { return line.value == 0; });
  return lines;
}

nlohmann::ordered_json gpus_json() {
  auto list = nlohmann::ordered_json::array();
  for (const Gpu& gpu : gpus()) {
    const GpuRoofs r = measure_gpu_roofs(gpu.number);
    list.push_back({{"name", gpu.name},
                    {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                    {"units", gpu.units},
                    {"memory_bytes", gpu.memory},
                    {"copy_gbs", r.copy_gbs},
                    {"bf16_tflops", r.bf16_tflops},
                    {"fp8_tflops", r.fp8_tflops}});
  }
  return list;
}

void print_gpus() {
  for (const Gpu& gpu : gpus()) {
    const GpuRoofs r = measure_gpu_roofs(gpu.number);
    fmt::print("\ngpu {}    {} ({} units, {}, sm_{}{})\n", gpu.number, gpu.name, gpu.units, report::bytes(gpu.memory),
               gpu.major, gpu.minor);
    fmt::print("{:<28} {:>9.1f}\n{:<28} {:>9.1f}\n", "copy, GB/s", r.copy_gbs, "BF16, TFLOP/s", r.bf16_tflops);
    if (r.fp8_tflops > 0) fmt::print("{:<28} {:>9.1f}\n", "FP8, TFLOP/s", r.fp8_tflops);
  }
}

void print_json(const sys::Machine& m, const sys::Roofs& r, const std::vector<RoofLine>& lines) {
  nlohmann::ordered_json j = {{"cpu", m.cpu_name},          {"cores", m.cores},
                              {"memory_gib", m.memory_gib}, {"class", sys::name_of(m.cpu_class)},
                              {"threads", r.threads},       {"bf16_unit", r.bf16_unit},
                              {"int8_unit", r.int8_unit}};
  auto roofs = nlohmann::ordered_json::object(), known = roofs;
  const bool of_class = best_roofs(r.threads).of_class;
  auto low = nlohmann::ordered_json::array(), high = low;
  for (const RoofLine& line : lines) {
    roofs[line.key] = line.value;
    if (line.best > 0) known[line.key] = line.best;
    if (sys::too_low(line.value, line.best)) low.push_back(line.key);
    if (!sys::too_low(line.value, line.best) && off(line.value, line.best, of_class)) high.push_back(line.key);
  }
  j["roofs"] = roofs;
  j["best_known"] = known;
  j["row"] = of_class ? sys::best_known_row() : "";  // of the table of best known roofs, if it was taken
  j["low"] = low;
  j["high"] = high;
  j["gpus"] = gpus_json();
  fmt::print("{}\n", io::dumped(j));
}

void print_table(const sys::Machine& m, const std::vector<RoofLine>& lines, int threads) {
  fmt::print("cpu      {} ({} cores, {:.1f} GiB)\nclass    {}\n\n{:<28} {:>9} {:>11}\n", m.cpu_name, m.cores,
             m.memory_gib, sys::name_of(m.cpu_class), "roof", "measured", "best known");
  const bool of_class = best_roofs(threads).of_class;
  std::string low, high;
  for (const RoofLine& line : lines) {
    fmt::print("{:<28} {:>9.1f} {:>11}\n", line.label, line.value,
               line.best > 0 ? fmt::format("{:.1f}", line.best) : "-");
    if (sys::too_low(line.value, line.best)) low += (low.empty() ? "" : "; ") + line.label;
    if (!sys::too_low(line.value, line.best) && off(line.value, line.best, of_class))
      high += (high.empty() ? "" : "; ") + line.label;
  }
  if (!low.empty()) {
    fmt::print("\nwarning: more than 10% below the best of {}: {}. Is something else running?\n",
               of_class ? "the class" : "this machine", low);
  }
  if (!high.empty()) {
    fmt::print(
        "\nwarning: more than 10% above the best known of the class: {}. Should src/sys/best_known.h be raised?\n",
        high);
  }
}

}  // namespace

void print_machine(bool json) {
  const sys::Machine& m = sys::machine();
  const sys::Roofs& r = sys::roofs();
  const auto lines = roof_lines(r, best_roofs(r.threads).roofs);
  remember_roofs(r);
  if (json) return print_json(m, r, lines);
  print_table(m, lines, r.threads);
  print_gpus();
}

}  // namespace braid::apps
