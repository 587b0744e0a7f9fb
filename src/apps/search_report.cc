#include "apps/search_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "io/ordered_json.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;
using puzzle::CostKind;
using report::Align;

const char* kind_of(const models::BlockSpec& block) {
  switch (models::letter_of(block)) {
    case 'M':
      return "mamba";
    case '*':
      return "attention";
    case 'E':
      return "moe";
    case '-':
      return "ffn";
    default:
      return "linear";
  }
}

void print_choice(const puzzle::Report& r, const std::string& score) {
  report::Table table({{"layer"},
                       {"block"},
                       {"choice"},
                       {score, Align::right},
                       {"local error", Align::right},
                       {"bytes", Align::right},
                       {"decode ms", Align::right},
                       {"prefill ms", Align::right}});
  for (size_t s = 0; s < r.sites.size(); ++s) {
    const auto v = static_cast<size_t>(r.choice.variants[s]);
    const puzzle::Rated& rated = r.rated[s][v];
    table.row({std::to_string(r.sites[s].layer), kind_of(r.sites[s].whole()), r.sites[s].variants[v].name,
               fmt::format("{:.4f}", rated.score),
               rated.trained ? fmt::format("{:.3f} -> {:.3f}", rated.untrained, rated.local)
                             : fmt::format("{:.3f}", rated.local),
               report::bytes(static_cast<int64_t>(rated.costs[CostKind::gib])),
               fmt::format("{:.4f}", rated.costs[CostKind::decode_ms]),
               fmt::format("{:.3f}", rated.costs[CostKind::prefill_ms])});
  }
  fmt::print("{}\n", table.plain());
}

void print_models(const puzzle::Report& r) {
  report::Table table({{""},
                       {"parameters", Align::right},
                       {"weights", Align::right},
                       {"states and KV", Align::right},
                       {"decode ms", Align::right},
                       {"prefill ms", Align::right},
                       {"tokens/s, predicted", Align::right},
                       {"measured", Align::right},
                       {"loss", Align::right}});
  const auto row = [&](const char* name, const puzzle::Costs& c, const puzzle::Speed& speed, double loss) {
    table.row({name, report::count(c[CostKind::params]), report::bytes(static_cast<int64_t>(c[CostKind::gib])),
               report::bytes(static_cast<int64_t>(c[CostKind::kv])), fmt::format("{:.3f}", c[CostKind::decode_ms]),
               fmt::format("{:.2f}", c[CostKind::prefill_ms]), fmt::format("{:.1f}", speed.predicted),
               fmt::format("{:.1f}", speed.measured), fmt::format("{:.4f}", loss)});
  };
  row("before", r.parent, r.parent_speed, r.parent_loss);
  row("after", r.chosen, r.chosen_speed, r.parent_loss + r.assembled.loss);
  fmt::print("{}\n", table.plain());
}

ordered_json json_of(const puzzle::Costs& costs) {
  ordered_json j;
  for (size_t i = 0; i < puzzle::kCostKinds; ++i)
    j[i < 2 ? (i == 0 ? "bytes" : "kv_bytes") : puzzle::kCosts[i]] = costs.of[i];
  return j;
}

ordered_json json_of(const puzzle::Difference& d) { return {{"kl", d.kl}, {"loss", d.loss}, {"cosine", d.cosine}}; }

ordered_json json_of(const puzzle::Report& r, size_t site) {
  ordered_json variants = ordered_json::array();
  for (size_t v = 0; v < r.rated[site].size(); ++v) {
    const puzzle::Rated& rated = r.rated[site][v];
    ordered_json j = {{"name", r.sites[site].variants[v].name}, {"score", rated.score}};
    j.update(json_of(rated.difference));
    j["local_error"] = rated.local;
    j["local_error_untrained"] = rated.untrained;
    j["trained"] = rated.trained;
    j.update(json_of(rated.costs));
    variants.push_back(std::move(j));
  }
  return {{"layer", r.sites[site].layer},
          {"part", r.sites[site].part},
          {"block", kind_of(r.sites[site].whole())},
          {"chosen", r.choice.variants[site]},
          {"variants", std::move(variants)}};
}

ordered_json json_of(const compress::Instance& instance) {
  ordered_json layers = ordered_json::array();
  for (const auto& list : instance.layers) {
    ordered_json layer = ordered_json::array();
    for (const compress::Variant& v : list) layer.push_back({{"score", v.score}, {"cost", v.cost}});
    layers.push_back(std::move(layer));
  }
  return {{"layers", std::move(layers)}, {"limits", instance.limits}};
}

ordered_json json_of(const puzzle::Costs& costs, const puzzle::Speed& speed, double loss) {
  ordered_json j = json_of(costs);
  j["tokens_s_predicted"] = speed.predicted;
  j["tokens_s"] = speed.measured;
  j["loss"] = loss;
  return j;
}

}  // namespace

void print_search(const puzzle::Report& r, const std::string& out, const std::string& score) {
  print_choice(r, score);
  print_models(r);
  const compress::Choice& c = r.choice;
  fmt::print("sum of scores {:.4f}, {}; KL of the whole folder {:.4f} nats a token, before any further training\n",
             c.score, c.bound == c.score ? std::string("proven to be the least") : fmt::format("bound {:.4f}", c.bound),
             r.assembled.kl);
  fmt::print("{}: {:.1f}% of the parameters; times are medians measured here\n", printable(out),
             100 * r.chosen[CostKind::params] / r.parent[CostKind::params]);
}

void print_search_json(const puzzle::Report& r, const std::string& model, const std::string& out,
                       const std::string& score) {
  ordered_json sites = ordered_json::array();
  for (size_t s = 0; s < r.sites.size(); ++s) sites.push_back(json_of(r, s));
  ordered_json after = json_of(r.chosen, r.chosen_speed, r.parent_loss + r.assembled.loss);
  after["kl"] = r.assembled.kl;
  after["cosine"] = r.assembled.cosine;
  const ordered_json j = {{"model", model},
                          {"output", out},
                          {"metric", score},
                          {"before", json_of(r.parent, r.parent_speed, r.parent_loss)},
                          {"after", std::move(after)},
                          {"rest", json_of(r.rest)},
                          {"score", r.choice.score},
                          {"bound", r.choice.bound},
                          {"sites", std::move(sites)},
                          {"instance", json_of(r.instance)}};
  fmt::print("{}\n", io::dumped(j));
}

}  // namespace braid::apps
