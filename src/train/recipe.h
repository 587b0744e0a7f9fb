// A recipe: everything that defines a training run, as plain structs. One table (recipe.cc) holds every word with its
// range and meaning; it reads TOML and `key=value` overrides, prints the resolved recipe, and rejects unknown words,
// suggesting the nearest. 0, empty or "none" means off.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/numerics.h"
#include "data/loader.h"
#include "io/json.h"
#include "train/grid.h"
#include "train/schedule.h"

namespace braid::train {

struct OptimizerRecipe {
  std::string kind = "adamw";  // adamw, muon
  double lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  // Roles, or stored names; globs. Nemotron's rules: no decay on norms, biases, A_log, D, dt_bias, embeddings.
  std::vector<std::string> no_decay = {"*norm", "*bias", "a_log", "d_skip", "embedding", "positions"};
  double clip = 1;  // of the global norm
  bool keep_zeros = false;
};

struct LossRecipe {
  std::string mean = "token";  // or sample
  int64_t mtp_steps = 1;
  double mtp_scale = 0, z = 0;
  // Of experts (balance.h).
  double aux = 0, seq_aux = 0, global_aux = 0, router_z = 0, router_bias_rate = 0, quantile = 0, capacity = 0;
  std::string capacity_drop = "probability";  // or position
  int64_t goldfish_k = 0;
  std::string goldfish = "hash";
  int64_t goldfish_seed = 0;  // not the run's seed: every run over a corpus masks the same tokens
};

// Of a model with recurrent depth (depth.h); 0: as its config says.
struct LoopRecipe {
  int64_t mean = 0, backward = 0;
  double sigma = 0.5;
};

// A step is skipped if its loss is `z` standard deviations above the mean of the last `window` steps, or its gradient
// norm `norm_z` above its mean.
struct SpikeRecipe {
  double z = 0, norm_z = 0;
  int64_t window = 128;
  int64_t patience = 32;  // this many consecutive skipped steps end the run; 0: off
};

struct CheckpointRecipe {
  int64_t every = 0;       // steps; 0: only at the end
  int64_t keep = 2;        // latest checkpoints
  int64_t keep_every = 0;  // steps; checkpoints at multiples of it are never deleted
  int64_t merge = 0;       // at the end, the mean of this many of the latest, which are retained, is written as well
  bool async = false;      // a copy of the process writes them while training goes on (forked_writer.h)
};

struct LogRecipe {
  int64_t every = 1, hash_every = 0;
  std::string jsonl, tensorboard;  // files below `out` unless absolute; tensorboard names a folder
};

struct EvalRecipe {
  int64_t every = 0, batches = 8;
  std::string data{};  // a path of the same kind; empty: the share that [data] validation holds out
};

struct LoraRecipe {
  int64_t rank = 0;
  double alpha = 16, dropout = 0;
  std::vector<std::string> targets, target_parameters;
};

// What is trained after pretraining (task.h): at most one of the three, except that a teacher may also be the advantage
// of a policy.
struct DistillRecipe {
  std::string teacher{};  // a model folder or name; empty: off
  double temperature = 1, weight = 1, ce = 0;
  int64_t top_k = 0;    // entries of the teacher's distribution; 0: all of it
  std::string cache{};  // a folder for them; empty: the teacher runs beside the student
  double hidden = 0;    // weight of the distance of hidden states (hidden_states.h); 0: off
};
struct PreferenceRecipe {
  std::string kind = "none";  // none, dpo, ipo, rpo
  double beta = 0.1, eta = 1, nll = 0;
  bool length_average = false;
};
struct PolicyRecipe {
  std::string advantage = "none";  // none, leave-one-out, mean, std, teacher
  double clip_low = 0.2, clip_high = 0.28, dual_clip = 0, kl = 0, importance_cap = 0;
  std::string aggregate = "token", ratio = "token";  // or sequence
  bool replay_routes = false;                        // experts are those that the generator chose
};

// Answers that the policy is trained on, generated step by step (rollout.h).
struct RolloutRecipe {
  std::vector<std::string> environments{};  // empty: off
  std::vector<double> weights{};            // of the environments; empty: all alike
  int64_t prompts = 8, answers = 8;         // of a step, and to each
  int64_t tokens = 64;                      // of an answer at most
  double temperature = 1;
  int64_t ahead = 0;            // steps
  std::string format = "none";  // of the weights that answer
  bool think = false;
  double think_share = 1;           // of the prompts, with `think`
  double effort_cost = 0;           // share of a right answer's reward at `tokens` tokens, less for shorter ones
  std::string curriculum = "none";  // none, pass-rate
  int64_t refill = 0;               // times that groups without an advantage are drawn again
  bool mask_cut = false;
  double timeout = 10;  // seconds, of a command
  int64_t every = 1;    // steps between those in rollouts.jsonl
};

// Models inside a nested one that are trained together (nest.h); no budgets: off.
struct NestRecipe {
  std::vector<double> budgets{};   // shares, as nested.json lists them
  std::vector<double> sampling{};  // how often a step trains each; empty: all alike
  // The sizes of the smaller ones are learnt (nest_router.h): by routers, at router_lr times the rate of the weights,
  // from the loss and router_cost |cost - share| / share.
  bool router = false;
  double router_lr = 100, router_cost = 1;
};

// How ranks share a run (mesh.h).
struct ParallelRecipe {
  int64_t tp = 1, cp = 1, ep = 1, etp = 1, pp = 1, virtual_stages = 1, zero = 0;
  std::string grid{};  // x,y,z,d (grid.h); empty: tp ranks of x, and of d the others
  std::string dispatcher = "alltoall";
  int64_t node_ranks = 0, node_limit = 0;  // 0: as the machine says; none
  std::string cp_attention{}, cp_mamba{};  // empty: what divides
  std::string collectives{};  // a file of timed calls (comm/selector.h); empty: algorithms are chosen by size
  std::string muon{};         // gather, duplicate (divided_matrices.h); empty: gather
  bool sp = false, exact = false, overlap = false;

  Grid axes() const { return grid.empty() ? Grid{.x = tp} : parse_grid(grid); }
  int64_t shares(int64_t ranks) const { return ranks / (pp * cp * axes().model()); }  // of the rows of a batch
  // Whether experts are divided apart from their layer. Else they are cut by tp, as all else.
  bool divides_experts() const { return ep > 1 || (etp > 1 && etp != tp); }
  int64_t experts_over() const { return divides_experts() ? ep * etp : 1; }  // ranks
  bool divides_model() const { return axes().model() > 1 || pp > 1 || divides_experts(); }
};

// Of objective = "graph" (graph_weights.h).
struct GraphRecipe {
  std::string path, init;                   // files; init: the first weights, empty: random ones
  std::string task = "node";                // node (nodes.h), edge (links.h), graph (graphs.h)
  std::string model = "gcn";                // gnn/network.h
  std::string readout = "mean";             // task graph: mean, add, max
  double held_out = 0.1;                    // task edge: share of the edges
  std::vector<std::string> rewrites_off{};  // gnn/rewrites.h
  int64_t layers = 2, hidden = 16, heads = 1, kernels = 1;
  int64_t sample = 0;  // neighbours of a node in each layer of a batch; 0: full batches
  double eps = 0, dropout = 0, attention_dropout = 0;
  std::string aggregate{};  // empty: the model's own
  bool tiles = false;       // sums on dense tiles where that pays (sparse/plan.h)
};

struct Recipe {
  std::string objective = "language";  // language, graph
  std::string init;                    // a model folder or name
  std::optional<io::Json> config;      // instead of init: a config.json by path, a preset, or its content as a table
  std::string tokenizer;               // with config: the folder whose tokenizer and template the model gets
  std::string dtype = "bf16";          // f32, bf16
  bool exact = false;                  // Numerics::exact
  int64_t steps = 1000, batch = 0, accumulate = 1, length = 0, seed = 0;
  std::optional<double> dropout;  // of embedding and residual branches, instead of what the model's config says
  std::string out;
  data::DataSpec data;  // without batch, length, seed and goldfish, which are separate words: see data_spec()
  OptimizerRecipe optimizer;
  ScheduleRecipe schedule;
  LossRecipe loss;
  LoopRecipe loop;
  DistillRecipe distill;
  PreferenceRecipe preference;
  PolicyRecipe policy;
  RolloutRecipe rollout;
  NestRecipe nest;
  std::string recompute = "none";  // [memory]: none, selective, full, fit:<GiB>
  std::string offload = "none";    // [memory]: what a GPU's host keeps: none, optimizer, activations, all
  std::string precision = "none";  // [precision] recipe
  bool precision_stochastic = true, precision_hadamard = true;
  std::string precision_weight_scales = "2d";  // 1d: blocks of weights along the depth of each product
  SpikeRecipe spike;
  CheckpointRecipe checkpoint;
  LogRecipe log;
  EvalRecipe eval;
  double ema_decay = 0;  // [ema] decay
  LoraRecipe lora;
  ParallelRecipe parallel;
  GraphRecipe graph;
};

Recipe read_recipe(const io::Json& root);
// Relative paths in the file start in its folder, those of `overrides` in the working folder (recipe_paths.h).
Recipe read_recipe(const std::filesystem::path& file, std::span<const std::string> overrides);

// Error where memory.offload asks for what ranks on a CPU, on which all training runs, do not have: a second memory.
void check_offload(const Recipe& recipe);

// The choice of number formats and product classes that its passes use.
Numerics numerics_of(const Recipe& recipe);

// The recipe's data, with batch, length, seed and goldfish filled in.
data::DataSpec data_spec(const Recipe& recipe);

// Every word with its value as JSON, for the manifest of a checkpoint (manifest.h).
std::vector<std::pair<std::string, std::string>> words_of(const Recipe& recipe);

// Those that differ from their defaults.
std::vector<std::pair<std::string, std::string>> changed_words(const Recipe& recipe);

// Whether objective = "graph" reads this word: others it refuses, where they differ from their defaults.
bool is_of_graphs(std::string_view word);

// TOML that reads back as the same recipe; with `explain`, the meaning of every word in a comment. A recipe of a graph
// is without the words that its objective does not read.
std::string to_toml(const Recipe& recipe, bool explain);

}  // namespace braid::train
