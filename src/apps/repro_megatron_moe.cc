// braid repro megatron-moe: parallel folding, where experts are divided over ranks that also share sequences or
// blocks, against layouts without it, modelled for published shapes and machines, beside published rates; and the
// dispatchers of a layer's tokens.
//   https://arxiv.org/abs/2603.07685 (TFLOP/s of a GPU), https://arxiv.org/abs/2504.14960 (folding, MFU)
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "io/ordered_json.h"
#include "layout/search.h"
#include "models/family.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::apps {
namespace {
using layout::Choice;
using nlohmann::ordered_json;

// Shapes as recalled from these models' configs, in the keys of a family that Braid has; norms of queries and keys,
// which Mixtral lacks, are a few parameters more.
struct MoeShape {
  const char* name;
  int64_t hidden, layers, heads, kv_heads, experts, chosen, width, vocab;
  double fp8;  // the published run's products are in FP8: twice the roof of BF16
  const char *machine, *published;
};
constexpr MoeShape kMoeShapes[] = {
    {"mixtral-8x22b", 6144, 56, 48, 8, 8, 2, 16384, 32768, 1, "dgx-h100", "49.3% MFU (2504.14960)"},
    {"qwen3-235b-a22b", 4096, 94, 64, 4, 128, 8, 1536, 151936, 2, "gb300", "974 TFLOP/s (2603.07685)"},
    {"qwen3-235b-a22b", 4096, 94, 64, 4, 128, 8, 1536, 151936, 2, "gb200", "919 TFLOP/s (2603.07685)"},
};

struct MoeArgs {
  std::string shape = "mixtral-8x22b";
  int64_t ranks = 128, length = 4096, batch = 1024;
  bool json = false;
};

models::Config config_of(const MoeShape& s, int64_t length) {
  const ordered_json j = {{"architectures", {"Qwen3MoeForCausalLM"}},
                          {"model_type", "qwen3_moe"},
                          {"dtype", "bfloat16"},
                          {"vocab_size", s.vocab},
                          {"hidden_size", s.hidden},
                          {"num_hidden_layers", s.layers},
                          {"num_attention_heads", s.heads},
                          {"num_key_value_heads", s.kv_heads},
                          {"head_dim", 128},
                          {"attention_bias", false},
                          {"intermediate_size", s.width},
                          {"moe_intermediate_size", s.width},
                          {"num_experts", s.experts},
                          {"num_experts_per_tok", s.chosen},
                          {"norm_topk_prob", true},
                          {"decoder_sparse_step", 1},
                          {"mlp_only_layers", ordered_json::array()},
                          {"hidden_act", "silu"},
                          {"rms_norm_eps", 1e-6},
                          {"rope_theta", 1e6},
                          {"rope_scaling", nullptr},
                          {"max_position_embeddings", std::max<int64_t>(length, 4096)},
                          {"initializer_range", 0.02},
                          {"tie_word_embeddings", false}};
  return models::read_config(io::Json::parse(j.dump(), s.name));
}

// Without folding experts are divided over ranks that have whole sequences of their own, and as their layer is.
bool unfolded(const train::ParallelRecipe& p, int64_t ranks) {
  if (!p.divides_experts()) return true;
  return p.etp == p.tp && p.shares(ranks) % p.ep == 0;
}

struct MoeRow {
  const MoeShape* shape = nullptr;
  layout::Machine machine{};
  std::optional<Choice> folded{}, plain{};
  double tflops(const Choice& c) const { return c.cost.mfu * machine.device.tflops; }
};

MoeRow row_of(const MoeArgs& o, const MoeShape& shape) {
  MoeRow row{.shape = &shape, .machine = layout::with_ranks(*layout::machine_preset(shape.machine), o.ranks)};
  row.machine.device.tflops *= shape.fp8;
  const layout::Model model(config_of(shape, o.length), {}, o.length);
  const layout::Task task{.ranks = o.ranks, .batch = o.batch, .length = o.length, .bf16_sums = true};
  report::Progress bar(fmt::format("planning {}", shape.name), 0);
  layout::Space space{.grid = false, .zero_most = 1};
  space.progress = [&bar](int64_t done, int64_t) { bar.at(done); };
  for (const Choice& c : layout::find_layouts(model, row.machine, task, space).fitting) {
    if (!row.folded) row.folded = c;
    if (unfolded(c.layout.parallel, o.ranks)) {
      row.plain = c;
      break;
    }
  }
  return row;
}

struct MoeDispatch {
  const char* name;
  double network;  // bytes that a rank sends to other nodes, there and back, for a layer and a part of the batch
  double seconds = 0;
};

// Rows in BF16. allgather: every rank gets all tokens and returns sums; alltoall: a copy of a token for each of its
// experts; node: a copy for each node that has one, and from there to its experts.
std::vector<MoeDispatch> dispatches_of(const MoeArgs& o, const MoeRow& row) {
  const train::ParallelRecipe& p = row.folded->layout.parallel;
  const double tokens = static_cast<double>(o.batch * o.length) /
                        static_cast<double>(p.shares(o.ranks) * row.folded->layout.parts * p.cp * (p.sp ? p.tp : 1));
  const double token = 2 * static_cast<double>(row.shape->hidden), chosen = static_cast<double>(row.shape->chosen);
  const auto ranks = static_cast<int>(p.experts_over());
  const comm::Groups all{ranks, 1};
  const int near = std::max(1, comm::members_per_node(row.machine.links, all)), nodes = ranks / near;
  const comm::Groups node{near, 1}, aligned{nodes, near};
  // Of experts that are chosen at random, without replacement: nodes that have one.
  const double visited = nodes * (1 - std::pow(1 - 1.0 / nodes, chosen));
  const double gathered = ranks * tokens * token, copies = tokens * chosen * token, crossing = tokens * visited * token;
  const double others = 1 - 1.0 / nodes;  // of nodes
  using comm::Op;
  const auto timed = [&](const char* name, double network,
                         std::initializer_list<std::pair<layout::Call, comm::Groups>> calls) {
    MoeDispatch d{name, network};
    for (const auto& [call, group] : calls) {
      if (group.size > 1) d.seconds += layout::seconds_of(call, group, row.machine.links);
    }
    return d;
  };
  return {timed("allgather", 2 * gathered / near * others,
                {{{Op::all_gather, {}, gathered}, all}, {{Op::reduce_scatter, {}, gathered}, all}}),
          timed("alltoall", 2 * copies * others,
                {{{Op::all_to_all, {}, copies}, all}, {{Op::all_to_all, {}, copies}, all}}),
          timed("node", 2 * crossing * others,
                {{{Op::all_to_all, {}, crossing}, aligned},
                 {{Op::all_to_all, {}, copies}, node},
                 {{Op::all_to_all, {}, copies}, node},
                 {{Op::all_to_all, {}, crossing}, aligned}})};
}

std::string text_of(const MoeRow& row, const std::optional<Choice>& c) {
  return c ? fmt::format("{:.0f} ({:.1f}%)", row.tflops(*c), 100 * c->cost.mfu) : "none fits";
}

std::string name_or_none(const std::optional<Choice>& c, int64_t ranks) {
  return c ? layout::name_of(c->layout, ranks) : "-";
}

void print(const MoeArgs& o, const std::vector<MoeRow>& rows) {
  using report::Align;
  report::Table table({{"machine"}, {"experts"}, {"layout"}, {"TFLOP/s a GPU (MFU)", Align::right}, {"published"}});
  for (const MoeRow& row : rows) {
    table.row({row.machine.name, "folded", name_or_none(row.folded, o.ranks), text_of(row, row.folded),
               row.shape->published});
    table.row({row.machine.name, "not folded", name_or_none(row.plain, o.ranks), text_of(row, row.plain), ""});
  }
  fmt::print(
      "{} on {} GPUs, {} sequences of {} tokens: modelled, not measured; the published runs' GPUs and batches are\n"
      "not the same\n{}",
      o.shape, o.ranks, o.batch, o.length, table.plain());
  for (const MoeRow& row : rows) {
    if (!row.folded || row.folded->layout.parallel.experts_over() == 1) continue;
    report::Table costs({{"dispatcher"}, {"to other nodes", Align::right}, {"time", Align::right}});
    for (const MoeDispatch& d : dispatches_of(o, row))
      costs.row({d.name, report::bytes(static_cast<int64_t>(d.network)), report::duration(d.seconds)});
    fmt::print("\nTokens of a layer to {} ranks of experts and back on {}, modelled:\n{}",
               row.folded->layout.parallel.experts_over(), row.machine.name, costs.plain());
  }
}

ordered_json json_of(const MoeArgs& o, const MoeRow& row) {
  ordered_json j = {{"machine", row.machine.name}, {"published", row.shape->published}};
  for (const auto& [name, c] : {std::pair("folded", &row.folded), {"not_folded", &row.plain}}) {
    if (*c)
      j[name] = {{"layout", layout::name_of((*c)->layout, o.ranks)},
                 {"modelled_tflops_per_gpu", row.tflops(**c)},
                 {"modelled_mfu", (*c)->cost.mfu}};
  }
  if (row.folded && row.folded->layout.parallel.experts_over() > 1) {
    for (const MoeDispatch& d : dispatches_of(o, row))
      j["dispatchers"].push_back({{"name", d.name}, {"network_bytes", d.network}, {"modelled_seconds", d.seconds}});
  }
  return j;
}

int repro_megatron_moe(const MoeArgs& o) {
  check_range("--ranks", o.ranks, 1, 4096);
  check_range("--batch", o.batch, 1, 1 << 20);
  check_range("--length", o.length, 1, 1 << 20);
  std::vector<MoeRow> rows;
  for (const MoeShape& shape : kMoeShapes) {
    if (o.shape == shape.name) rows.push_back(row_of(o, shape));
  }
  if (!o.json) {
    print(o, rows);
    return 0;
  }
  ordered_json j = {{"shape", o.shape}, {"ranks", o.ranks}, {"batch", o.batch}, {"length", o.length}};
  for (const MoeRow& row : rows) j["rows"].push_back(json_of(o, row));
  fmt::print("{}\n", io::dumped(j));
  return 0;
}

}  // namespace

Action setup_repro_megatron_moe(Cli& cli) {
  auto o = std::make_shared<MoeArgs>();
  cli.choice("--shape", o->shape, {"mixtral-8x22b", "qwen3-235b-a22b"}, "whose published rates are shown");
  cli.option("--ranks", o->ranks, "GPUs, whole nodes");
  cli.option("--batch", o->batch, "sequences of a step");
  cli.option("--length", o->length, "tokens of a sequence");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return repro_megatron_moe(*o); };
}

}  // namespace braid::apps
