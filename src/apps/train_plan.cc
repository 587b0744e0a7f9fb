#include "apps/train_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "data/loader.h"
#include "models/count.h"
#include "models/empty_model.h"
#include "plan/memory.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/roofs.h"
#include "train/rehearsal.h"
#include "train/session.h"

namespace braid::apps {
namespace {

// Rows of a step and tokens of a row; a set that says its own is asked.
struct Size {
  int64_t rows, length;
};
Size size_of(const train::Recipe& recipe, int64_t vocab) {
  if (recipe.batch > 0 && recipe.length > 0) return {recipe.batch, recipe.length};
  const data::Loader loader = data::open(train::data_spec(recipe), data::Language{.vocabulary = vocab});
  return {loader.rows(), loader.length()};
}

class Memory {
 public:
  void row(const std::string& what, double bytes) {
    if (bytes <= 0) return;
    table_.row({what, report::bytes(static_cast<int64_t>(bytes))});
    sum_ += bytes;
  }
  void print() {
    table_.row({"together", report::bytes(static_cast<int64_t>(sum_))});
    fmt::print("{}\n", table_.plain());
  }

 private:
  report::Table table_{{{"memory of", report::Align::left}, {"bytes", report::Align::right}}};
  double sum_ = 0;
};

const char* name_of_letter(char letter) {
  switch (letter) {
    case 'M':
      return "Mamba-2";
    case '*':
      return "attention";
    case '-':
      return "MLP";
    case 'E':
      return "experts";
    default:
      return "linear";
  }
}

// What layers keep by their type, then all else of the plan: gradients in flight and workspace.
void activations(const train::Recipe& recipe, const models::Config& config, int64_t tokens, const StepPlan& plan,
                 Memory& memory) {
  const Recompute::Kind kind = parse_recompute(recipe.recompute).kind;
  const auto total = static_cast<double>(plan.arena.bytes);
  if (kind == Recompute::Kind::fit) return memory.row("activations, gradients in flight, workspace", total);
  const auto bytes = plan::ElementBytes::of(recipe.dtype == "bf16" ? DType::bf16 : DType::f32);
  std::map<char, double> saved;
  for (const models::LayerSpec& layer : config.layers) {
    for (const models::PartSpec& part : layer.parts)
      saved[letter_of(part.block)] += plan::bytes_per_token(plan::braid_saves(part, config, bytes), kind);
  }
  double left = total;
  for (const auto& [letter, per_token] : saved) {
    const double kept = per_token * static_cast<double>(tokens);
    memory.row(fmt::format("activations, {}", name_of_letter(letter)), kept);
    left -= kept;
  }
  memory.row("gradients in flight, workspace, the rest", left);
}

}  // namespace

void print_train_plan(const train::Recipe& recipe) {
  const models::Config config = train::config_of(recipe);
  const models::Parameters n = models::count_parameters(config);
  const auto all = static_cast<double>(n.total + n.mtp);
  const bool rounded = recipe.dtype == "bf16";
  const auto [rows, length] = size_of(recipe, config.vocab);
  const int64_t part = (rows + recipe.accumulate - 1) / recipe.accumulate * length;
  models::Model model = models::empty_model(config, rounded ? DType::bf16 : DType::f32);
  Arena arena;
  const StepPlan plan = train::rehearse(recipe, model, Ctx{.arena = arena}, rows, length);
  fmt::print("{}\n", train::to_toml(recipe, true));

  Memory memory;
  memory.row("master weights, FP32", 4 * all);
  memory.row("working copy, BF16", rounded ? 2 * all : 0);
  memory.row("gradients, FP32", 4 * all);
  memory.row("moments, FP32", 8 * all);
  memory.row("running mean, FP32", recipe.ema_decay > 0 ? 4 * all : 0);
  activations(recipe, config, part, plan, memory);
  memory.print();

  const sys::Roofs& roofs = sys::roofs();
  const double roof = 1e9 * (rounded ? std::max(roofs.bf16_gflops, roofs.fp32_gflops) : roofs.fp32_gflops);
  const double tokens = static_cast<double>(rows * length), per_token = plan.flops / static_cast<double>(part);
  // Operations at the roof of products and bytes at that of memory, one after the other; the optimiser reads gradient,
  // master and moments and writes all but the first.
  const double moved = plan.bytes_moved * tokens / static_cast<double>(part) + (rounded ? 30 : 28) * all;
  const double seconds = per_token * tokens / roof + moved / (1e9 * roofs.read_gbs);
  const double useful = per_token - plan.flops_again / static_cast<double>(part);
  fmt::print("parameters       {}, {} active\n", report::count(all), report::count(static_cast<double>(n.active)));
  fmt::print("a step           {} rows of {} tokens in {} parts\n", rows, length, recipe.accumulate);
  fmt::print("a token          {}FLOP counted, {:.1f}% of them for the second time; {}FLOP by formula\n",
             report::count(per_token), 100 * plan.flops_again / plan.flops,
             report::count(train::flops_per_token(config, length)));
  fmt::print("this machine     {}FLOP/s, {:.1f} GB/s, measured\n", report::count(roof), roofs.read_gbs);
  fmt::print("to expect        {:.0f} tokens/s at most, MFU {:.0f}%: {} a step\n", tokens / seconds,
             100 * useful * tokens / seconds / roof, report::duration(seconds));
}

}  // namespace braid::apps
