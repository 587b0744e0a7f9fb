// braid bench --explain: the bytes and operations of one generated token, tensor by tensor, the floor that they make
// with the roofs of this machine, and what its context takes.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "apps/bench_report.h"
#include "apps/bench_runs.h"
#include "io/ordered_json.h"
#include "report/table.h"
#include "report/units.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

struct Explained {
  const std::vector<plan::Work>& work;
  plan::Work sum;
  sys::Roofs roofs;
  plan::Rates rates;
  const char* cache_type;
  int64_t depth, chunk, weights, states, cache;  // bytes, the last three
  std::optional<double> prompt_seconds{};        // of one that fills the context; none of an empty one

  double floor_seconds() const { return plan::floor_seconds(sum, rates); }
};

void print_text(const Explained& e) {
  using report::Align;
  report::Table table({{"read for one token"}, {"bytes", Align::right}, {"operations", Align::right}});
  const auto row = [&table](const plan::Work& w) {
    table.row({w.what, fmt::format("{:.0f}", w.bytes), fmt::format("{:.0f}", w.flops)});
  };
  for (const plan::Work& w : e.work) row(w);
  row(e.sum);
  const std::string whole = e.rates.whole == e.rates.real
                                ? ""
                                : fmt::format(" + {:.3f} G / {:.0f} G/s", e.sum.whole / 1e9, e.rates.whole / 1e9);
  fmt::print("{}\n{}; depth {}\nfloor = max({:.3f} GB / {:.1f} GB/s, {:.3f} G / {:.0f} G/s{}) = {:.3f} ms\n",
             table.plain(), roofs_line(e.roofs), e.depth, e.sum.bytes / 1e9, e.roofs.read_gbs,
             (e.sum.flops - (whole.empty() ? 0 : e.sum.whole)) / 1e9, e.rates.real / 1e9, whole,
             1e3 * e.floor_seconds());
  fmt::print("memory = weights {} + states {} + keys and values {} ({}) = {}\n", report::bytes(e.weights),
             report::bytes(e.states), report::bytes(e.cache), e.cache_type,
             report::bytes(e.weights + e.states + e.cache));
  if (e.prompt_seconds)
    fmt::print("floor of a prompt of {} tokens in passes of {} = {}, {}\n", e.depth, e.chunk,
               report::duration(*e.prompt_seconds),
               report::rate(static_cast<double>(e.depth), *e.prompt_seconds, "tokens"));
}

void print_json(const Explained& e, bool lines) {
  const auto of = [](const plan::Work& w) {
    return ordered_json{{"bytes", w.bytes}, {"operations", w.flops}, {"operations_int8", w.whole}};
  };
  ordered_json tensors = ordered_json::array();
  for (const plan::Work& w : e.work) {
    ordered_json row = {{"what", w.what}};
    row.update(of(w));
    tensors.push_back(std::move(row));
  }
  ordered_json j = {{"depth", e.depth},
                    {"tensors", std::move(tensors)},
                    {"sum", of(e.sum)},
                    {"roofs",
                     {{"read_gbs", e.roofs.read_gbs},
                      {"fp32_gflops", e.roofs.fp32_gflops},
                      {"bf16_gflops", e.roofs.bf16_gflops},
                      {"bf16_unit", e.roofs.bf16_unit},
                      {"int8_gops", e.roofs.int8_gops},
                      {"threads", e.roofs.threads}}},
                    {"floor_ns", static_cast<int64_t>(1e9 * e.floor_seconds())},
                    {"weight_bytes", e.weights},
                    {"state_bytes", e.states},
                    {"kv_bytes", e.cache},
                    {"type_kv", e.cache_type},
                    {"prompt_floor_ns", nullptr}};
  if (e.prompt_seconds) j["prompt_floor_ns"] = static_cast<int64_t>(1e9 * *e.prompt_seconds);
  fmt::print("{}\n", io::dumped(j, lines ? -1 : 1));
}

}  // namespace

void BenchReport::explain(const std::vector<plan::Work>& work, int64_t depth) const {
  engine::Runner& runner = model_.runner();
  const Numerics& numerics = runner.options().numerics;
  const sys::Roofs& roofs = sys::roofs(runner.ctx().threads);
  const int64_t states = runner.sequence_bytes_of(0);
  Explained e{.work = work,
              .sum = plan::total(work),
              .roofs = roofs,
              .rates = rates_of(roofs, numerics, on_bytes(runner, true)),
              .cache_type = name_of(numerics.caches().kv),
              .depth = depth,
              .chunk = runner.options().chunk,
              .weights = bytes_,
              .states = states,
              .cache = runner.sequence_bytes_of(depth) - states};
  if (depth > 0)
    e.prompt_seconds = floor_of(runner, {.prompt = depth, .roofs = roofs, .on_bytes = on_bytes(runner, false)});
  form_ == "md" ? print_text(e) : print_json(e, form_ == "jsonl");
}

}  // namespace braid::apps
