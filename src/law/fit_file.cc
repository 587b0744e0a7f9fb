#include "law/fit_file.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace braid::law {
namespace {
using nlohmann::ordered_json;

constexpr const char* kFormat = "braid-law-1";
constexpr int64_t kDrawsMax = 100'000;
constexpr io::NumberRange kPositive{.min = 1e-200, .max = 1e200}, kExponent{.min = 1e-3, .max = 1e3},
    kLog{.min = -1e4, .max = 1e4}, kSlope{.min = -1e3, .max = 1e3};

ordered_json pair_json(const Range& r) { return {r.low, r.high}; }

// `values` with an interval for each where there are draws.
template <class Draws>
ordered_json with_intervals(
    const Draws& draws,
    std::initializer_list<std::pair<const char*, double (*)(const typename Draws::value_type&)>> list,
    const typename Draws::value_type& best) {
  ordered_json j;
  for (const auto& [name, value] : list) {
    j[name] = {{"value", value(best)}};
    if (!draws.empty()) j[name]["interval"] = pair_json(interval_of(draws, value));
  }
  return j;
}

Range range_of(const io::Json& json, std::string_view key) {
  const std::vector<io::Json> items = json.need({key}).items();
  if (items.size() != 2) json.need({key}).refuse("is not a range", "two numbers");
  return {items[0].as_number(kPositive), items[1].as_number(kPositive)};
}

Law law_of(const std::vector<io::Json>& x) {
  return {.alpha = x[0].as_number(kExponent),
          .beta = x[1].as_number(kExponent),
          .log_a = x[2].as_number(kLog),
          .log_b = x[3].as_number(kLog),
          .log_e = x[4].as_number(kLog)};
}

Frontier frontier_of(const std::vector<io::Json>& x) {
  return {.params = {x[0].as_number(kSlope), x[1].as_number(kLog)},
          .tokens = {x[2].as_number(kSlope), x[3].as_number(kLog)}};
}

std::vector<io::Json> row_of(const io::Json& json, size_t size) {
  std::vector<io::Json> items = json.items();
  if (items.size() != size) json.refuse("has the wrong length", fmt::format("{} numbers", size));
  return items;
}

ShapeLaw shape_law_of(const std::vector<io::Json>& x) {
  ShapeLaw law{.log_e = x[2 * kTerms].as_number(kLog)};
  for (size_t k = 0; k < kTerms; ++k) {
    law.exponent[k] = x[k].as_number(kSlope);
    law.log_factor[k] = x[kTerms + k].as_number(kLog);
  }
  return law;
}

std::vector<io::Json> draws_of(const io::Json& json, std::string_view key) {
  const auto list = json.get({key});
  if (!list) return {};
  std::vector<io::Json> items = list->items();
  if (std::ssize(items) > kDrawsMax) list->refuse("is too long", fmt::format("at most {}", kDrawsMax));
  return items;
}

ordered_json row(const Law& l) { return {l.alpha, l.beta, l.log_a, l.log_b, l.log_e}; }
ordered_json row(const Frontier& f) {
  return {f.params.exponent, f.params.intercept, f.tokens.exponent, f.tokens.intercept};
}

ordered_json row(const ShapeLaw& l) {
  ordered_json list = l.exponent;
  for (const double f : l.log_factor) list.push_back(f);
  list.push_back(l.log_e);
  return list;
}

template <class Draws>
ordered_json rows(const Draws& draws) {
  ordered_json list = ordered_json::array();
  for (const auto& d : draws) list.push_back(row(d));
  return list;
}

}  // namespace

ordered_json to_json(const Fit& f, bool draws) {
  ordered_json j = {{"format", kFormat},
                    {"runs", f.runs},
                    {"rows", f.rows},
                    {"sizes", f.sizes},
                    {"params", pair_json(f.params)},
                    {"tokens", pair_json(f.tokens)},
                    {"flops", pair_json(f.flops)},
                    {"loss", pair_json(f.loss)},
                    {"flops_per_param_token", f.flops_factor},
                    {"delta", f.delta},
                    {"objective", f.objective},
                    {"rms_log_residual", f.rms},
                    {"starts_near", f.starts_near}};
  j["law"] = with_intervals(f.draws,
                            {{"alpha", [](const Law& l) { return l.alpha; }},
                             {"beta", [](const Law& l) { return l.beta; }},
                             {"log_A", [](const Law& l) { return l.log_a; }},
                             {"log_B", [](const Law& l) { return l.log_b; }},
                             {"E", [](const Law& l) { return l.irreducible(); }},
                             {"params_exponent", [](const Law& l) { return l.size_exponent(); }}},
                            f.law);
  j["parameters"] = row(f.law);
  if (f.frontier) {
    j["hull"] = with_intervals(f.frontier_draws,
                               {{"params_exponent", [](const Frontier& h) { return h.params.exponent; }},
                                {"tokens_exponent", [](const Frontier& h) { return h.tokens.exponent; }}},
                               *f.frontier);
    j["hull"]["points"] = f.frontier->points;
    j["hull"]["parameters"] = row(*f.frontier);
  }
  if (f.shapes) {
    j["shapes"] = with_intervals(f.shape_draws,
                                 {{"width_exponent", [](const ShapeLaw& l) { return l.exponent[0]; }},
                                  {"depth_exponent", [](const ShapeLaw& l) { return l.exponent[1]; }},
                                  {"params_exponent", [](const ShapeLaw& l) { return l.exponent[2]; }},
                                  {"tokens_exponent", [](const ShapeLaw& l) { return l.exponent[3]; }},
                                  {"E", [](const ShapeLaw& l) { return l.irreducible(); }}},
                                 f.shapes->law);
    j["shapes"]["rms_log_residual"] = f.shapes->rms;
    j["shapes"]["parameters"] = row(f.shapes->law);
  }
  j["left_out"] = {{"sizes", f.left_out.sizes},
                   {"mean_error", f.left_out.mean},
                   {"rms_error", f.left_out.rms},
                   {"worst_error", f.left_out.worst},
                   {"worst_params", f.left_out.worst_params}};
  j["warnings"] = f.warnings;
  if (!draws) return j;
  j["draws"] = rows(f.draws);
  j["hull_draws"] = rows(f.frontier_draws);
  if (f.shapes) j["shape_draws"] = rows(f.shape_draws);
  return j;
}

Fit fit_from_json(const io::Json& json) {
  const io::Json format = json.need({"format"});
  if (format.as_string() != kFormat) format.refuse("is not a fit of a scaling law", kFormat);
  Fit f{.params = range_of(json, "params"), .tokens = range_of(json, "tokens"), .flops = range_of(json, "flops")};
  f.flops_factor = json.need({"flops_per_param_token"}).as_number(kPositive);
  f.law = law_of(row_of(json.need({"parameters"}), 5));
  for (const io::Json& draw : draws_of(json, "draws")) f.draws.push_back(law_of(row_of(draw, 5)));
  if (const auto hull = json.get({"hull"})) {
    f.frontier = frontier_of(row_of(hull->need({"parameters"}), 4));
    for (const io::Json& draw : draws_of(json, "hull_draws")) f.frontier_draws.push_back(frontier_of(row_of(draw, 4)));
  }
  if (const auto shapes = json.get({"shapes"})) {
    f.shapes = ShapeFit{.law = shape_law_of(row_of(shapes->need({"parameters"}), 2 * kTerms + 1))};
    for (const io::Json& draw : draws_of(json, "shape_draws"))
      f.shape_draws.push_back(shape_law_of(row_of(draw, 2 * kTerms + 1)));
  }
  const io::Json left_out = json.need({"left_out"});
  f.left_out.sizes = left_out.need({"sizes"}).as_int({.min = 0});
  f.left_out.rms = left_out.need({"rms_error"}).as_number({.min = 0, .max = 1e9});
  return f;
}

}  // namespace braid::law
