#include "apps/quantize_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/ordered_json.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

double bits(int64_t bytes, int64_t values) {
  return 8 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, values));
}

void print_some(const char* what, const std::vector<std::string>& names) {
  constexpr size_t kNamed = 5;
  for (size_t i = 0; i < std::min(kNamed, names.size()); ++i) fmt::print(stderr, "{}: {}\n", what, names[i]);
  if (names.size() > kNamed) fmt::print(stderr, "{}: {} more like these\n", what, names.size() - kNamed);
}

void print_table(const QuantizeArgs& o, const models::QuantReport& report) {
  using report::Align;
  report::Table table({{"matrices"},
                       {"format"},
                       {"number", Align::right},
                       {"values", Align::right},
                       {"bytes", Align::right},
                       {"bits each", Align::right},
                       {"error", Align::right},
                       {""}});
  const auto row = [&](const models::QuantGroup& g, const std::string& error) {
    table.row({g.role, g.format, std::to_string(g.tensors), report::count(static_cast<double>(g.values)),
               report::bytes(g.bytes), fmt::format("{:.2f}", bits(g.bytes, g.values)), error, g.why});
  };
  for (const models::QuantGroup& g : report.groups) row(g, fmt::format("{:.2f}%", 100 * g.error));
  models::QuantGroup kept = report.kept;
  kept.role = "the rest";
  kept.format = "as it was";
  for (models::QuantGroup g : report.unfit) {
    kept.tensors -= g.tensors;
    kept.values -= g.values;
    kept.bytes -= g.bytes;
    g.format = "as it was";
    row(g, "0");
  }
  row(kept, "0");
  fmt::print("{}\n{}: {}, {:.2f} bits per value\n", table.plain(), printable(o.out), report::bytes(report.bytes()),
             bits(report.bytes(), report.values()));
  for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
  if (o.bits > 0) fmt::print("\n{}", bits_table(o.choice));
  if (o.samples > 0)
    fmt::print("\n{}\n{}, layer by layer over quantised layers; output errors are those on them\n",
               outputs_table(o.method), report::counted(o.samples, "sample"));
  print_some("rounded to nearest, too few inputs", o.method.few);
}

void print_json(const QuantizeArgs& o, const models::QuantReport& report) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const models::QuantGroup& g : report.groups) {
    groups.push_back({{"role", g.role},
                      {"format", g.format},
                      {"tensors", g.tensors},
                      {"values", g.values},
                      {"bytes", g.bytes},
                      {"bits", bits(g.bytes, g.values)},
                      {"relative_error", g.error}});
  }
  nlohmann::ordered_json j = {{"model", o.model},
                              {"output", o.out},
                              {"recipe", o.recipe.empty() ? o.format : o.recipe},
                              {"groups", std::move(groups)},
                              {"kept_bytes", report.kept.bytes},
                              {"kept_values", report.kept.values},
                              {"misfits", report.misfits},
                              {"notes", report.notes},
                              {"bytes", report.bytes()},
                              {"bits_per_value", bits(report.bytes(), report.values())}};
  if (o.bits > 0) {
    j["choice"] = bits_json(o.choice);
    j["choice_kl"] = o.choice.kl;
    j["choice_kl_bound"] = o.choice.bound;
  }
  if (o.samples > 0) {
    j["method"] = o.calibration.method;
    j["samples"] = o.samples;
    j["outputs"] = outputs_json(o.method);
    j["few_inputs"] = o.method.few;
  }
  fmt::print("{}\n", io::dumped(j));
}

}  // namespace

void print_quantized(const QuantizeArgs& o, const models::QuantReport& report) {
  if (o.json)
    print_json(o, report);
  else
    print_table(o, report);
}

}  // namespace braid::apps
