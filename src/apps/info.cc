// braid info: what a model is made of, and with --machine what this computer can do.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/eval_graph.h"
#include "apps/info_machine.h"
#include "apps/model_args.h"
#include "io/ordered_json.h"
#include "io/safetensors.h"
#include "models/count.h"
#include "models/family.h"
#include "models/gguf.h"
#include "models/load.h"
#include "models/presets.h"
#include "models/quant_check.h"
#include "models/storage.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using nlohmann::ordered_json;

struct InfoArgs {
  std::string model;
  int64_t context = 0;
  bool machine = false, json = false;
};

// The shape of a block, as config.json would name its numbers.
struct Describe {
  ordered_json operator()(const nn::Mamba2Spec& m) const {
    return {{"kind", "mamba2"},   {"heads", m.heads},     {"head_dim", m.head_dim}, {"state", m.state},
            {"groups", m.groups}, {"conv", m.conv_width}, {"chunk", m.chunk}};
  }
  ordered_json operator()(const nn::AttentionSpec& a) const {
    return {{"kind", "attention"}, {"heads", a.heads}, {"kv_heads", a.kv_heads}, {"head_dim", a.head_dim}};
  }
  ordered_json operator()(const nn::MlpSpec& m) const {
    return {{"kind", "mlp"}, {"width", m.width}, {"gated", m.gated}};
  }
  ordered_json operator()(const nn::MoeSpec& m) const {
    ordered_json j = {{"kind", "moe"}, {"experts", m.experts}, {"top_k", m.top_k}, {"width", m.width}};
    if (m.shared_width > 0) j["shared_width"] = m.shared_width;
    if (m.latent > 0) j["latent"] = m.latent;
    if (m.n_group > 1) j["groups"] = m.n_group, j["groups_kept"] = m.topk_group;
    return j;
  }
  ordered_json operator()(const models::LinearSpec& l) const { return {{"kind", "linear"}, {"width", l.hidden}}; }
};

// Blocks of one shape together, in the order they first appear.
ordered_json describe_blocks(const models::Config& config) {
  auto blocks = ordered_json::array();
  std::map<std::string, size_t> place;
  for (const models::LayerSpec& layer : config.layers) {
    for (const models::PartSpec& part : layer.parts) {
      ordered_json block = std::visit(Describe{}, part.block);
      const auto [at, fresh] = place.emplace(block.dump(), blocks.size());
      if (fresh) blocks.push_back({{"letter", std::string(1, letter_of(part.block))}, {"count", 0}, {"shape", block}});
      ordered_json& count = blocks[at->second]["count"];
      count = count.get<int64_t>() + 1;
    }
  }
  return blocks;
}

// Bytes of the weights by format, and of a GGUF file the bits that a value of each takes, scales and all.
struct Stored {
  ordered_json bytes{}, bits{};
};
Stored stored_at(const std::optional<io::ModelPath>& path) {
  Stored stored;
  if (path && path->is_gguf()) {
    models::GgufStored all;
    for (const auto& [type, values] : models::gguf_types(io::Gguf(path->weights))) {
      stored.bytes[type] = values.bytes;
      stored.bits[type] = values.bits();
      all.bytes += values.bytes;
      all.values += values.values;
    }
    stored.bits["all"] = all.bits();
  } else if (path && !io::weight_files(path->folder).empty()) {
    stored.bytes = models::bytes_by_format(io::Safetensors(path->weights));
  }
  return stored;
}

// What a sequence of `tokens` takes beside the weights: those that are stored, else in NVFP4.
ordered_json describe_context(const ordered_json& model, const models::SequenceValues& v, int64_t tokens) {
  const ordered_json &stored = model["bytes"]["stored"], &states = model["state_bytes"];
  int64_t weights = stored.is_null() ? model["bytes"]["nvfp4"].get<int64_t>() : 0;
  for (const auto& [format, bytes] : stored.items()) weights += bytes.get<int64_t>();
  const int64_t scales = v.kv_scales_per_token * size_of(DType::f32);
  return {{"tokens", tokens},
          {"kv_bytes",
           {{"bf16", tokens * 2 * v.kv_per_token},
            {"fp8", tokens * v.kv_per_token},
            {"int8", tokens * (v.kv_per_token + scales)}}},
          {"state_bytes", states["ssm"].get<int64_t>() + 2 * states["conv"].get<int64_t>()},  // both FP32
          {"weight_bytes", weights}};
}

ordered_json describe(const models::ConfigSource& source, const models::Config& config) {
  const models::Parameters n = models::count_parameters(config);
  const models::SequenceValues v = models::count_sequence(config);
  const Stored stored = stored_at(source.path);
  ordered_json loop;  // null without one
  if (config.loop)
    loop = {{"layers", {config.loop->begin, config.loop->end - 1}},
            {"steps", config.loop->steps},
            {"backward_steps", config.loop->backward_steps}};
  return {{"name", source.name},
          {"architecture", config.architecture},
          {"family", config.family},
          {"layers", config.layers.size()},
          {"pattern", config.pattern()},
          {"hidden", config.hidden},
          {"vocabulary", config.vocab},
          {"context", config.positions_max},
          {"tied_head", config.tied},
          {"blocks", describe_blocks(config)},
          {"loop", loop},
          {"parameters",
           {{"total", n.total},
            {"active", n.active},
            {"active_without_embedding", n.active - n.embedding},
            {"mtp", n.mtp},
            {"tensors", n.tensors}}},
          {"bytes",
           {{"stored", stored.bytes},
            {"bf16", models::stored_bytes(config, Format::bf16)},
            {"fp8", models::stored_bytes(config, Format::f8_e4m3)},
            {"nvfp4", models::stored_bytes(config, Format::nvfp4)}}},
          {"bits_per_weight", stored.bits},
          {"kv_bytes_per_token", 2 * v.kv_per_token},
          {"state_bytes", {{"ssm", 4 * v.ssm}, {"conv", 2 * v.conv}}}};
}

// 31,577,937,344
std::string grouped(int64_t n) {
  std::string text = std::to_string(n);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string size_of_entry(const ordered_json& j) { return report::bytes(j.get<int64_t>()); }

void print_text(const ordered_json& j) {
  const auto number = [](const ordered_json& n) { return n.get<int64_t>(); };
  const auto text = [](const ordered_json& s) { return printable(s.get<std::string>()); };
  fmt::print("{}  {} ({})\n", text(j["name"]), text(j["architecture"]), text(j["family"]));
  fmt::print("layers      {}  {}\n", number(j["layers"]), text(j["pattern"]));
  for (const auto& block : j["blocks"]) {
    std::string shape;
    for (const auto& [key, value] : block["shape"].items()) {
      if (key != "kind") shape += fmt::format("{}{} {}", shape.empty() ? "" : ", ", key, value.dump());
    }
    fmt::print("  {} x {:<4}  {:<9}  {}\n", text(block["letter"]), number(block["count"]), text(block["shape"]["kind"]),
               shape);
  }
  if (const ordered_json& loop = j["loop"]; !loop.is_null())
    fmt::print("loop        layers {} to {}, {} times; in training {} with gradients\n", number(loop["layers"][0]),
               number(loop["layers"][1]), number(loop["steps"]), number(loop["backward_steps"]));
  fmt::print("width       {}, vocabulary {}{}, context {}\n", number(j["hidden"]), number(j["vocabulary"]),
             j["tied_head"].get<bool>() ? " (head tied to it)" : "", number(j["context"]));
  const ordered_json& n = j["parameters"];
  fmt::print("parameters  {} ({}) in {} tensors; {} active per token, {} without the embedding\n",
             grouped(number(n["total"])), report::count(n["total"].get<double>()), grouped(number(n["tensors"])),
             report::count(n["active"].get<double>()), report::count(n["active_without_embedding"].get<double>()));
  if (number(n["mtp"]) > 0)
    fmt::print("            and {} that predict one token further: {} in all\n", report::count(n["mtp"].get<double>()),
               report::count(n["total"].get<double>() + n["mtp"].get<double>()));
  const ordered_json& b = j["bytes"];
  std::string stored;
  const ordered_json& bits = j["bits_per_weight"];
  for (const auto& [format, bytes] : b["stored"].items()) {
    stored += fmt::format("{}{} {}", stored.empty() ? "" : ", ", format, size_of_entry(bytes));
    if (!bits.is_null()) stored += fmt::format(" ({:.4g} bits a weight)", bits[format].get<double>());
  }
  if (!bits.is_null()) stored += fmt::format("; {:.2f} bits a weight in all", bits["all"].get<double>());
  fmt::print("stored      {}\nas          BF16 {}, FP8 {}, NVFP4 {}\n", stored.empty() ? "no weights here" : stored,
             size_of_entry(b["bf16"]), size_of_entry(b["fp8"]), size_of_entry(b["nvfp4"]));
  fmt::print("a sequence  {} of keys and values a token (BF16), {} SSM state (FP32), {} conv state (BF16)\n",
             size_of_entry(j["kv_bytes_per_token"]), size_of_entry(j["state_bytes"]["ssm"]),
             size_of_entry(j["state_bytes"]["conv"]));
  if (!j.contains("context_takes")) return;
  const ordered_json &c = j["context_takes"], &kv = c["kv_bytes"];
  const int64_t rest = number(c["state_bytes"]) + number(c["weight_bytes"]);
  fmt::print("            at {} tokens", number(c["tokens"]));
  for (const auto& [name, type] : {std::pair("BF16", "bf16"), {"FP8", "fp8"}, {"INT8", "int8"}})
    fmt::print("{} {} in {}, {} with states and weights", name == std::string_view("BF16") ? ":" : ";",
               size_of_entry(kv[type]), name, report::bytes(rest + number(kv[type])));
  fmt::print("{}\n", b["stored"].is_null() ? " in NVFP4" : "");
}

// A config.json alone is described whatever weights it is of; those of a folder are refused.
void note_quantisation(const io::Json& config) {
  try {
    if (const auto quantisation = config.get({"quantization_config"})) models::check_quantisation(*quantisation);
  } catch (const Error& e) {
    fmt::print(stderr, "note: these weights cannot be run: {}\n", e.what());
  }
}

int info(const InfoArgs& o) {
  if (o.machine) {
    if (!o.model.empty()) fail("info", {.what = "a model and --machine together", .hint = "one at a time"});
    refuse_unread("--machine", {{"--ctx-size", o.context != 0}});
    return print_machine(o.json), 0;
  }
  check_range("--ctx-size", o.context, 0, int64_t{1} << 30);
  if (o.model.empty())
    fail("info", {.what = "nothing to describe", .hint = "braid info MODEL, or braid info --machine"});
  if (const auto graph = describe_graph(o.model)) {
    if (o.context > 0) fail("--ctx-size", {.what = "applies to models of language", .got = "a graph"});
    fmt::print("{}", o.json ? io::dumped(*graph) + "\n" : text_of_graph(*graph));
    return 0;
  }
  const models::ConfigSource source = models::find_config(o.model);
  const models::Config config = source.path ? models::load_config(*source.path) : models::read_config(source.json);
  if (!source.path) note_quantisation(source.json);
  ordered_json j = describe(source, config);
  if (o.context > 0) j["context_takes"] = describe_context(j, models::count_sequence(config), o.context);
  if (o.json)
    fmt::print("{}\n", io::dumped(j));
  else
    print_text(j);
  return 0;
}

}  // namespace

Action setup_info(Cli& cli) {
  auto o = std::make_shared<InfoArgs>();
  cli.positional("model", o->model,
                 "a folder, a GGUF file, a config.json, org/name of the Hugging Face cache, tiny, a shape, or a graph",
                 false);
  cli.option("-c,--ctx-size N", o->context, "also what a sequence of N tokens takes");
  cli.flag("--machine", o->machine, "describe this computer and measure its roofs (about a second)");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return info(*o); };
}

}  // namespace braid::apps
