// The balance of experts as [loss] asks for it (docs/internals/train.md, Balance of experts): what routers do in the
// passes of a step, and after them the sums over all ranks, what is logged, and the moves of the selection biases.
#pragma once
#include <cstdint>

#include "models/config.h"
#include "models/master_weights.h"
#include "nn/balance.h"
#include "train/mesh.h"
#include "train/objective.h"
#include "train/recipe.h"

namespace braid::train {

// Error when the recipe's ways to balance contradict one another, other words, or the model.
void check_balance(const Recipe& recipe);
void check_balance(const Recipe& recipe, const models::Config& config);

// Error when tokens may choose experts on more than parallel.node_limit of `nodes` nodes that share each layer's. A
// model says where they do: of n_group groups of neighbours a token chooses from topk_group (DeepSeek-V3, arXiv
// 2412.19437, 2.1.2, node-limited routing), and a node has whole groups.
void check_node_limit(const Recipe& recipe, const models::Config& config, int64_t nodes);

// For the passes of a step of `tokens` tokens, over which its losses are means.
void ask_routers(const LossRecipe& loss, int64_t tokens, nn::RouterWatch& routers);
// Afterwards: what the routers of all ranks did.
void share_routers(Mesh& mesh, nn::RouterWatch& routers);
// Into the step's metrics. Nothing where no router did anything.
void add_metrics(const LossRecipe& loss, int64_t tokens, const nn::RouterWatch& routers, Sums& sums);
// After a step that was not skipped.
void move_biases(const LossRecipe& loss, const nn::RouterWatch& routers, models::MasterWeights& masters);

}  // namespace braid::train
