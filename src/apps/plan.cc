// braid plan memory: what the activations of a training step take, from a config alone (plan/memory.h).
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "io/ordered_json.h"
#include "models/family.h"
#include "models/inventory.h"
#include "models/presets.h"
#include "plan/memory.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;
using Kind = Recompute::Kind;

constexpr const char* kPaper = "paper";

struct PlanArgs {
  std::string config, dtype = "bf16", recompute = "selective";
  int64_t tokens = 4096, batch = 1, tensor = 1;
  bool sequence = false, json = false;

  plan::Cut cut() const { return {.tensor = tensor, .sequence = sequence}; }
};

// Bytes per token of all blocks of one kind, those of a loop as often as gradients pass them.
struct Row {
  int64_t count = 0;
  double none = 0, chosen = 0, common = 0, common_selective = 0;
};

std::string number(double n) { return fmt::format("{:.0f}", n); }
std::string whole(double n) { return report::bytes(static_cast<int64_t>(n)); }

// Weights of a rank.
double parameters_of(const models::Config& config, int64_t tensor) {
  double sum = 0;
  for (const models::TensorSpec& t : models::inventory(config))
    sum += static_cast<double>(t.shape.count()) / (divides(t.shard, tensor) ? static_cast<double>(tensor) : 1.0);
  return sum;
}

bool divides_all(const std::vector<models::TensorSpec>& tensors, int64_t ranks) {
  return ranks == 1 || std::ranges::all_of(tensors, [ranks](const models::TensorSpec& t) {
           const bool whole = t.shard.axis == Shard::Axis::whole || t.shard.axis == Shard::Axis::undeclared;
           return whole || divides(t.shard, ranks);
         });
}

// The sums hold where each rank has an equal part of all that divides.
void check_divides(const models::Config& config, int64_t ranks) {
  constexpr int64_t kMost = 1024;
  const std::vector<models::TensorSpec> tensors = models::inventory(config);
  if (divides_all(tensors, ranks)) return;
  std::vector<int64_t> possible;
  for (int64_t n = 1; n <= kMost; ++n) {
    if (divides_all(tensors, n)) possible.push_back(n);
  }
  const auto near = std::ranges::min_element(possible, {}, [ranks](int64_t n) { return std::abs(n - ranks); });
  fail("--tp", {.what = "does not divide the model",
                .got = std::to_string(ranks),
                .expected = fmt::format("{}", fmt::join(possible, ", ")),
                .hint = fmt::format("--tp {}", *near)});
}

std::map<char, Row> rows_of(const models::Config& config, const PlanArgs& o, Kind kind) {
  const auto bytes = plan::ElementBytes::of(o.dtype == "bf16" ? DType::bf16 : DType::f32);
  std::map<char, Row> rows;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const int64_t passes = plan::saving_passes(config, i);
    const auto times = static_cast<double>(passes);
    for (const models::PartSpec& part : config.layers[i].parts) {
      Row& row = rows[letter_of(part.block)];
      const auto ours = plan::braid_saves(part, config, bytes), common = plan::common_saves(part, config);
      row.count += passes;
      row.none += times * bytes_per_token(ours, Kind::none, o.cut());
      row.chosen += times * bytes_per_token(ours, kind, o.cut());
      row.common += times * bytes_per_token(common, Kind::none, o.cut());
      row.common_selective += times * bytes_per_token(common, Kind::selective, o.cut());
    }
  }
  return rows;
}

ordered_json classic_json(const models::Config& config, int64_t length, const plan::Cut& cut) {
  const auto bytes = [&](Kind kind, const plan::Cut& c) {
    return plan::classic_layer_bytes(config, length, kind, c) * static_cast<double>(length);
  };
  const double base = bytes(Kind::none, {.tensor = cut.tensor});
  const plan::Cut split{.tensor = cut.tensor, .sequence = true};
  return {{"tensor_parallel", cut.tensor},
          {"layer", base},
          {"layer_sp", bytes(Kind::none, split)},
          {"layer_selective", bytes(Kind::selective, {.tensor = cut.tensor})},
          {"layer_sp_selective", bytes(Kind::selective, split)},
          {"layer_full", bytes(Kind::full, {.tensor = cut.tensor})},
          {"reduction", base / bytes(Kind::selective, split)}};
}

// The published shapes, a layer and rank at micro-batch 1: tensor parallelism, then with each of the two tricks.
int paper(const PlanArgs& o) {
  ordered_json all;
  report::Table table({{"GPT, a layer and rank"},
                       {"TP", report::Align::right},
                       {"+ SP", report::Align::right},
                       {"+ selective", report::Align::right},
                       {"+ both", report::Align::right},
                       {"full", report::Align::right},
                       {"reduction", report::Align::right}});
  for (const plan::PaperShape& shape : plan::paper_shapes()) {
    if (shape.heads % o.tensor != 0)
      fail("--tp", {.what = fmt::format("{} heads of {} do not divide by it", shape.heads, shape.name),
                    .got = std::to_string(o.tensor)});
    const ordered_json j = classic_json(config_of(shape), plan::kPaperLength, o.cut());
    all[shape.name] = j;
    const auto cell = [&j](const char* key) { return whole(j.at(key).get<double>()); };
    table.row({shape.name, cell("layer"), cell("layer_sp"), cell("layer_selective"), cell("layer_sp_selective"),
               cell("layer_full"), fmt::format("{:.2f}x", j.at("reduction").get<double>())});
  }
  if (o.json)
    fmt::print("{}\n", io::dumped(all));
  else
    fmt::print("{}", table.plain());
  return 0;
}

bool is_classic(const models::Config& config) {
  if (config.norm == models::NormKind::rms || config.layers.empty()) return false;
  for (const models::LayerSpec& layer : config.layers) {
    for (const models::PartSpec& part : layer.parts) {
      const char letter = letter_of(part.block);
      if (letter != '*' && letter != '-') return false;
    }
  }
  return true;
}

void print(const models::Config& config, const PlanArgs& o, const ordered_json& j, const std::map<char, Row>& rows) {
  const double tokens = static_cast<double>(o.tokens) * static_cast<double>(o.batch);
  report::Table table({{"layer"},
                       {"count", report::Align::right},
                       {"B/token", report::Align::right},
                       {o.recompute, report::Align::right},
                       {"2-byte", report::Align::right},
                       {"selective", report::Align::right},
                       {"all, " + o.recompute, report::Align::right}});
  for (const auto& [letter, r] : rows) {
    const auto n = static_cast<double>(r.count);
    table.row({std::string(1, letter), std::to_string(r.count), number(r.none / n), number(r.chosen / n),
               number(r.common / n), number(r.common_selective / n), whole(r.chosen * tokens)});
  }
  fmt::print("{}\n", table.plain());
  fmt::print(
      "M Mamba-2, * attention, - MLP, E experts; B/token: what a token saves for the backward pass, then under\n"
      "--recompute, and by the usual count of two bytes a value; all: of the {:.0f} tokens\n{}\n",
      tokens, config.loop ? fmt::format("layers of the loop count {} times\n", config.loop->backward_steps) : "");
  const auto line = [](const char* what, const ordered_json& bytes) {
    fmt::print("{:<28} {:>10}\n", what, whole(bytes.get<double>()));
  };
  line("activations of layers", j.at("activations").at("layers"));
  line("besides layers", j.at("activations").at("outside"));
  line("weights, FP32 masters", j.at("state").at("masters"));
  line("weights, working copy", j.at("state").at("working"));
  line("gradients", j.at("state").at("gradients"));
  line("moments", j.at("state").at("moments"));
  line("together", j.at("together"));
  if (!is_classic(config)) return;
  fmt::print("\nwith stored softmax and dropout masks, a layer and rank\n");
  for (const char* what : {"layer", "layer_sp", "layer_selective", "layer_sp_selective", "layer_full"})
    line(what, j.at("classic").at(what));
}

int memory(const PlanArgs& o) {
  for (const auto& [name, n] :
       {std::pair("--tokens", o.tokens), std::pair("--batch", o.batch), std::pair("--tp", o.tensor)}) {
    if (n < 1 || n > (int64_t{1} << 24))
      fail(name, {.what = "out of range", .got = std::to_string(n), .expected = "1 to 16777216"});
  }
  if (o.sequence && o.tensor == 1)
    fail("--sp", {.what = "divides tokens among the ranks of --tp", .got = "1 rank", .hint = "--tp 2 --sp"});
  const Recompute recompute = parse_recompute(o.recompute, "--recompute");
  if (recompute.kind == Kind::fit)
    fail("--recompute", {.what = "a budget depends on the step",
                         .hint = "braid train RECIPE --dry-run memory.recompute=" + printable(o.recompute)});
  if (o.config == kPaper) return paper(o);
  const models::ConfigSource source = models::find_config(o.config);
  const models::Config config = models::read_config(source.json);
  check_divides(config, o.tensor);
  const std::map<char, Row> rows = rows_of(config, o, recompute.kind);
  const double tokens = static_cast<double>(o.tokens) * static_cast<double>(o.batch);
  const double parameters = parameters_of(config, o.tensor);
  const auto bytes = plan::ElementBytes::of(o.dtype == "bf16" ? DType::bf16 : DType::f32);
  ordered_json j = {
      {"name", source.name}, {"tokens", o.tokens}, {"batch", o.batch}, {"recompute", o.recompute}, {"dtype", o.dtype}};
  double sum = 0;
  for (const auto& [letter, r] : rows) {
    const auto n = static_cast<double>(r.count);
    j["layers"][std::string(1, letter)] = {{"count", r.count},
                                           {"bytes_per_token", r.none / n},
                                           {"bytes_per_token_recompute", r.chosen / n},
                                           {"two_byte", r.common / n},
                                           {"two_byte_selective", r.common_selective / n}};
    sum += r.chosen * tokens;
  }
  j["activations"] = {
      {"layers", sum},
      {"outside", tokens * bytes_per_token(plan::braid_saves_outside(config, bytes), Kind::none, o.cut())}};
  j["state"] = {{"masters", 4 * parameters},
                {"working", o.dtype == "bf16" ? 2 * parameters : 0.0},
                {"gradients", 4 * parameters},
                {"moments", 8 * parameters}};
  double together = sum + j["activations"]["outside"].get<double>();
  for (const auto& [what, part] : j["state"].items()) together += part.get<double>();
  j["together"] = together;
  if (is_classic(config)) j["classic"] = classic_json(config, o.tokens, o.cut());
  if (o.json)
    fmt::print("{}\n", io::dumped(j));
  else
    print(config, o, j, rows);
  return 0;
}

}  // namespace

Action setup_plan_memory(Cli& cli) {
  auto o = std::make_shared<PlanArgs>();
  cli.positional("config", o->config,
                 "a folder, a GGUF file, a config.json, org/name of the Hugging Face cache, tiny, a shape of braid "
                 "new, or paper: the shapes of 2205.05198");
  cli.option("--tokens,--length", o->tokens, "tokens of a sequence");
  cli.option("--batch", o->batch, "sequences per micro-batch");
  cli.choice("--dtype", o->dtype, {"f32", "bf16"}, "dtype of the operands of matrix products");
  cli.option("--tp", o->tensor, "ranks that split heads, widths and experts");
  cli.flag("--sp", o->sequence, "the ranks split the tokens elsewhere (sequence parallel)");
  cli.option("--recompute", o->recompute, "none, selective or full");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return memory(*o); };
}

}  // namespace braid::apps
