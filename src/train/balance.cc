#include "train/balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/router/router.h"
#include "nn/precision.h"
#include "sys/error.h"
#include "train/task.h"

namespace braid::train {
namespace {

double total(const std::vector<int32_t>& load) { return std::accumulate(load.begin(), load.end(), 0.0); }

// The balance loss over the batch, by the counts of all of it.
double batch_loss(const nn::RouterWatch::Layer& layer) {
  double sum = 0;
  for (size_t e = 0; e < layer.load.size(); ++e) sum += layer.load[e] * layer.scores[e];
  return sum * static_cast<double>(layer.load.size()) / std::max(total(layer.load), 1.0);
}

}  // namespace

void check_balance(const Recipe& recipe) {
  const LossRecipe& loss = recipe.loss;
  if (loss.quantile > 0 && loss.router_bias_rate > 0) {
    fail("loss.quantile", {.what = "and loss.router_bias_rate both move the selection biases",
                           .expected = "one of them",
                           .hint = "loss.router_bias_rate=0"});
  }
  if (loss.capacity == 0) return;
  const std::pair<bool, const char*> rules[] = {
      {nn::is_low_precision(recipe.precision), "precision.recipe"},
      {recipe.exact, "exact: other passes drop no token"},
      {rates_answers(recipe), "[preference] or [policy]: passes that are compared drop no token"}};
  for (const auto& [set, other] : rules) {
    if (set) fail("loss.capacity", {.what = fmt::format("cannot be used with {}", other), .hint = "loss.capacity=0"});
  }
}

void check_balance(const Recipe& recipe, const models::Config& config) {
  if (recipe.loss.capacity > 0 && config.loop)
    fail("loss.capacity", {.what = "cannot be used with recurrent depth", .hint = "loss.capacity=0"});
  if (recipe.loss.quantile == 0) return;
  models::each_part(config, [](const models::PartSpec& part) {
    const auto* moe = std::get_if<nn::MoeSpec>(&part.block);
    if (moe && moe->n_group > 1) {
      fail("loss.quantile", {.what = "cannot balance experts that are chosen by groups",
                             .got = fmt::format("n_group = {}", moe->n_group),
                             .expected = "n_group = 1",
                             .hint = "loss.router_bias_rate=0.001 in its place"});
    }
  });
}

void check_node_limit(const Recipe& recipe, const models::Config& config, int64_t nodes) {
  const int64_t limit = recipe.parallel.node_limit;
  if (limit == 0 || nodes <= limit) return;
  models::each_part(config, [&](const models::PartSpec& part) {
    const auto* moe = std::get_if<nn::MoeSpec>(&part.block);
    if (!moe || (moe->n_group % nodes == 0 && moe->topk_group <= limit)) return;
    fail("parallel.node_limit",
         {.what = "the model's tokens may choose experts on more nodes",
          .got = fmt::format("{} of {} groups of experts on {} nodes", moe->topk_group, moe->n_group, nodes),
          .expected = fmt::format("at most {} groups, and a multiple of {} in all", limit, nodes),
          .hint = fmt::format("[config] n_group = {}, topk_group = {}", nodes, limit)});
  });
}

void ask_routers(const LossRecipe& loss, int64_t tokens, nn::RouterWatch& routers) {
  const auto per_token = [n = static_cast<double>(std::max<int64_t>(1, tokens))](double weight) {
    return static_cast<float>(weight / n);
  };
  routers.factors = {.sequence = per_token(loss.aux),
                     .row = per_token(loss.seq_aux),
                     .batch = per_token(loss.global_aux),
                     .z = per_token(loss.router_z)};
  routers.count_margins = loss.quantile > 0;
  routers.capacity = loss.capacity;
  routers.drop_last = loss.capacity_drop == "position";
}

void share_routers(Mesh& mesh, nn::RouterWatch& routers) {
  std::vector<double> numbers;
  std::vector<int32_t> margins;
  for (auto& [number, layer] : routers.layers) {
    numbers.insert(numbers.end(), layer.load.begin(), layer.load.end());
    numbers.insert(numbers.end(), layer.scores.begin(), layer.scores.end());
    numbers.insert(numbers.end(), {layer.sequence, layer.row, layer.z, static_cast<double>(layer.dropped)});
    margins.insert(margins.end(), layer.margins.begin(), layer.margins.end());
  }
  mesh.add_up(numbers);
  if (!margins.empty()) mesh.add_up(margins);
  auto next = numbers.begin();
  auto next_margin = margins.begin();
  for (auto& [number, layer] : routers.layers) {
    for (int32_t& load : layer.load) load = static_cast<int32_t>(*next++);
    for (double& score : layer.scores) score = *next++;
    layer.sequence = *next++;
    layer.row = *next++;
    layer.z = *next++;
    layer.dropped = static_cast<int64_t>(*next++);
    for (int32_t& bin : layer.margins) bin = *next_margin++;
  }
}

void add_metrics(const LossRecipe& loss, int64_t tokens, const nn::RouterWatch& routers, Sums& sums) {
  if (routers.layers.empty()) return;
  double sequence = 0, row = 0, batch = 0, z = 0, busiest = 0, dropped = 0, slots = 0;
  for (const auto& [number, layer] : routers.layers) {
    const double sum = total(layer.load), most = *std::max_element(layer.load.begin(), layer.load.end());
    busiest = std::max(busiest, most * static_cast<double>(layer.load.size()) / std::max(sum, 1.0));
    sequence += layer.sequence;
    row += layer.row;
    batch += batch_loss(layer);
    z += layer.z;
    dropped += static_cast<double>(layer.dropped);
    slots += sum;
  }
  const auto put = [&](const char* name, double weight, double sum) {
    if (weight > 0) sums[name].sum = weight * sum / static_cast<double>(std::max<int64_t>(1, tokens));
  };
  put("aux_loss", loss.aux, sequence);
  put("seq_aux_loss", loss.seq_aux, row);
  put("global_aux_loss", loss.global_aux, batch);
  put("router_z_loss", loss.router_z, z);
  sums["load_balance"].sum = busiest;  // tokens of the busiest expert over the mean, of the worst layer
  if (loss.capacity > 0) sums["dropped"].sum = dropped / std::max(slots, 1.0);
}

void move_biases(const LossRecipe& loss, const nn::RouterWatch& routers, models::MasterWeights& masters) {
  for (const auto& [number, layer] : routers.layers) {
    if (!layer.bias) continue;
    const auto experts = std::ssize(layer.load);
    const MutView bias = mut_view_of(&masters.values()[static_cast<size_t>(layer.bias->offset)], {experts});
    if (loss.router_bias_rate > 0)
      update_router_bias(view_of(layer.load.data(), {experts}), static_cast<float>(loss.router_bias_rate), bias);
    if (loss.quantile > 0)
      balance_router_bias(view_of(layer.margins.data(), {experts, kMarginBins}), layer.top_k,
                          static_cast<float>(loss.quantile), bias);
  }
}

}  // namespace braid::train
