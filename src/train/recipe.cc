#include "train/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "data/limits.h"
#include "io/toml.h"
#include "kernels/head_loss/distill_loss.h"
#include "models/config.h"
#include "sys/error.h"
#include "sys/nearest.h"
#include "train/recipe_paths.h"

namespace braid::train {
namespace {

constexpr io::IntRange kCount{0, int64_t{1} << 40}, kFromOne{1, int64_t{1} << 40};
constexpr io::NumberRange kNotNegative{0, 1e9}, kPositive{1e-9, 1e9}, kFraction{0, 1}, kRate{0, 0.99};
// In FP32 the next beta rounds to 1, and the first step would divide by 0; eps avoids 0/0 for a gradient of 0.
constexpr io::NumberRange kBeta{0, 0.9999999}, kEpsilon{1e-30, 1e9};
using Choices = std::initializer_list<const char*>;

// Every word: key, variable, allowed values, meaning. `visit` has one overload per type.
template <class D, class Visit>
void each_data_word(D& d, Visit& visit) {
  visit("data.kind", d.kind, Choices{},
        "text, jsonl, indexed, ids, preference, rollouts, or a generated source; empty: by the path");
  visit("data.path", d.path, Choices{}, "a file or a folder");
  visit("data.blend", d.blend, "instead of path: several, or generated kinds, with their weights");
  visit("data.validation", d.validation, kFraction, "share of the documents that is held out");
  visit("data.shuffle", d.shuffle, "false: rows in the order of the data");
  visit("data.strip_thoughts", d.thoughts.strip, kFraction,
        "share of the conversations without thoughts, thinking off");
  visit("data.cut_thoughts", d.thoughts.cut, kFraction, "share whose last thought ends early and is not trained");
  visit("data.states", d.generator.states, kCount, "markov, pcfg, recall, hops: symbols; 0: what fits");
  visit("data.branch", d.generator.branch, kFromOne, "markov: steps from a state");
  visit("data.depth", d.generator.depth, kFromOne, "pcfg: depth of a sentence's tree");
  visit("data.rules", d.generator.rules, kFromOne, "pcfg: rules of a symbol");
  visit("data.modulus", d.generator.modulus, kFromOne, "modular: a op b = c modulo this number");
  visit("data.pairs", d.generator.pairs, kFromOne, "recall: keys with a value each");
  visit("data.hops", d.generator.hops, kFromOne, "hops: most steps from a symbol to the answer");
}

template <class G, class Visit>
void each_graph_word(G& g, Visit& visit) {
  constexpr io::IntRange kWidth{1, 1 << 20};
  visit("graph.path", g.path, Choices{}, "objective graph: a file with the graph, features and classes");
  visit("graph.task", g.task, Choices{"node", "edge", "graph"},
        "classes of nodes, edges between them, or classes of the graphs of a file");
  visit("graph.model", g.model, Choices{"gcn", "sage", "gin", "gat", "edgeconv", "monet"},
        "gcn, sage, gin, gat, edgeconv or monet");
  visit("graph.layers", g.layers, io::IntRange{1, 1000},
        "layers, the last of which gives the classes; other tasks: `hidden` channels");
  visit("graph.hidden", g.hidden, kWidth, "channels between layers; gat: of each head");
  visit("graph.heads", g.heads, io::IntRange{1, 1024}, "gat: attention heads of all layers but the last");
  visit("graph.kernels", g.kernels, io::IntRange{0, 1024}, "monet: Gaussian kernels; 0 counts as 1");
  visit("graph.eps", g.eps, io::NumberRange{-1e9, 1e9}, "gin: a node counts 1 + eps times among its neighbours");
  visit("graph.aggregate", g.aggregate, Choices{"", "add", "mean", "max", "min"},
        "sage, edgeconv, monet: add, mean, max or min; empty: mean, edgeconv max");
  visit("graph.sample", g.sample, io::IntRange{0, 1 << 20},
        "task node: batches of `batch` nodes, each of which samples this many neighbours a layer; 0: the whole graph");
  visit("graph.readout", g.readout, Choices{"mean", "add", "max"},
        "task graph: how the nodes of a graph become one row");
  visit("graph.held_out", g.held_out, kRate, "task edge: share of the edges that no message takes and the loss omits");
  visit("graph.rewrites_off", g.rewrites_off,
        "rewrites of the computation to leave out: postpone, order, fuse, recompute, first");
  visit("graph.dropout", g.dropout, kRate, "of the channels between layers");
  visit("graph.attention_dropout", g.attention_dropout, kRate, "gat: of the weights of attention");
  visit("graph.tiles", g.tiles,
        "forward sums and means in bf16, of 32 k channels, on dense tiles (AMX) if enough edges share a row; other "
        "last bits");
  visit("graph.init", g.init, Choices{}, "a .safetensors file with the first weights; empty: random ones");
}

template <class Loop, class Visit>
void each_loop_word(Loop& loop, Visit& visit) {
  visit("loop.mean", loop.mean, io::IntRange{0, models::kLoopSteps}, "recurrent depth: mean steps; 0: the config's");
  visit("loop.sigma", loop.sigma, io::NumberRange{0, 2}, "of the logarithm of the steps' rate");
  visit("loop.backward", loop.backward, io::IntRange{0, models::kLoopSteps},
        "last steps with gradients; 0: the config's");
}

template <class P, class Visit>
void each_parallel_word(P& p, Visit& visit) {
  visit("parallel.tp", p.tp, io::IntRange{1, 256},
        "ranks that divide heads, channels, experts' width and the vocabulary; the rest of --ranks divides the batch");
  visit("parallel.grid", p.grid, Choices{},
        "instead of all of these, x,y,z,d: x as tp, y divides the width between blocks, z rows and state, d rows; of a "
        "graph x,y,z: each divides nodes, edges and channels");
  visit("parallel.ep", p.ep, io::IntRange{1, 256}, "ranks that divide the experts of a layer; each has whole ones");
  visit("parallel.etp", p.etp, io::IntRange{1, 256},
        "ranks that divide the width of an expert; 1: none if ep > 1, else those of tp");
  visit("parallel.dispatcher", p.dispatcher, Choices{"alltoall", "allgather", "node"},
        "how tokens reach the ranks of their experts: each to its own; all to all; once to every node");
  visit("parallel.node_ranks", p.node_ranks, io::IntRange{0, 1 << 16},
        "consecutive ranks that count as a node for experts; 0: as the machine says");
  visit("parallel.node_limit", p.node_limit, io::IntRange{0, 1 << 16},
        "refuse models whose tokens choose experts on more nodes than this; 0: none");
  visit("parallel.pp", p.pp, io::IntRange{1, 256}, "stages of a pipeline: runs of layers, each on its own ranks");
  visit("parallel.virtual_stages", p.virtual_stages, io::IntRange{1, 64},
        "runs of layers that a stage has: more wait less; `accumulate` is then a multiple of pp");
  visit("parallel.sp", p.sp, "true: the ranks of a model divide the tokens of norms, dropout and residual stream too");
  visit("parallel.cp", p.cp, io::IntRange{1, 256}, "ranks that divide the tokens of every sequence");
  visit("parallel.cp_attention", p.cp_attention, Choices{"", "alltoall", "ring"},
        "alltoall: ranks exchange tokens for heads; ring: they pass keys on; empty: alltoall where heads divide");
  visit("parallel.cp_mamba", p.cp_mamba, Choices{"", "heads", "states"},
        "heads: ranks exchange tokens for heads; states: they pass states on; empty: heads where they divide");
  visit("parallel.zero", p.zero, io::IntRange{0, 3},
        "what a rank keeps a part of: 1: the optimiser's state; 2: gradients too; 3: weights too");
  visit("parallel.muon", p.muon, Choices{"", "gather", "duplicate"},
        "divided matrices go to one rank each; or to all ranks, which compute the same; empty: gather");
  visit("parallel.collectives", p.collectives, Choices{},
        "a table that `braid comm tune -o` wrote: algorithms are chosen by its times; empty: by size");
  visit("parallel.overlap", p.overlap,
        "true: gradients are summed, and weights gathered, while ranks compute; with zero = 0 to 2, or on a grid");
  visit("parallel.exact", p.exact, "true: ranks compute one after the other, with the bits of one rank");
}

template <class R, class Visit>
void each_task_word(R& r, Visit& visit) {
  visit("distill.teacher", r.distill.teacher, Choices{},
        "a model of the same vocabulary, which the trained one follows");
  visit("distill.temperature", r.distill.temperature, io::NumberRange{0.01, 100}, "of both distributions");
  visit("distill.weight", r.distill.weight, kNotNegative, "of the divergence, times the squared temperature");
  visit("distill.ce", r.distill.ce, kNotNegative, "weight of the cross-entropy added to it");
  visit("distill.top_k", r.distill.top_k, io::IntRange{0, kDistillEntries},
        "the teacher's likeliest tokens alone, and a tail of the rest; 0: all");
  visit("distill.cache", r.distill.cache, Choices{}, "with top_k: a folder that keeps them, made if it is missing");
  visit("distill.hidden", r.distill.hidden, kNotNegative,
        "weight of 1 - cosine of the hidden states after each layer and those of the teacher; 0: off");
  visit("preference.kind", r.preference.kind, Choices{"none", "dpo", "ipo", "rpo"},
        "none; dpo, ipo, or rpo (rated pairs): the loss of a pair of answers");
  visit("preference.beta", r.preference.beta, kPositive,
        "factor of the log-odds of a pair; ipo: they tend to 1/(2 beta)");
  visit("preference.eta", r.preference.eta, kNotNegative, "rpo: factor of the gap of the ratings");
  visit("preference.nll", r.preference.nll, kNotNegative, "weight of the loss of the chosen answer's tokens");
  visit("preference.length_average", r.preference.length_average, "true: log-probabilities per token, not per answer");
  visit("policy.advantage", r.policy.advantage, Choices{"none", "leave-one-out", "mean", "std", "teacher"},
        "none; leave-one-out, mean, std: reward over its group's; teacher: distill.teacher's log-ratio");
  visit("policy.clip_low", r.policy.clip_low, kFraction, "ratios count down to 1 - clip_low");
  visit("policy.clip_high", r.policy.clip_high, kNotNegative, "and up to 1 + clip_high");
  visit("policy.dual_clip", r.policy.dual_clip, kNotNegative,
        "and, where the advantage is negative, up to this; 0: any");
  visit("policy.kl", r.policy.kl, kNotNegative, "weight of the divergence from the model at the start");
  visit("policy.aggregate", r.policy.aggregate, Choices{"token", "sequence"},
        "mean over tokens, or over answers' means");
  visit("policy.importance_cap", r.policy.importance_cap, kNotNegative,
        "ratios to the model at the start, weighted by its ratio to logprobs up to this; 0: ratios to logprobs");
  visit("policy.replay_routes", r.policy.replay_routes,
        "true: tokens of generated answers take the experts that the weights which answered choose");
  visit("policy.ratio", r.policy.ratio, Choices{"token", "sequence"}, "of each token, or the answer's geometric mean");
}

template <class R, class Visit>
void each_rollout_word(R& r, Visit& visit) {
  visit("rollout.environments", r.environments,
        "answers are generated and judged by these: addition, sorting, ..., or command:LINE");
  visit("rollout.weights", r.weights, kPositive, "weight of each environment in the mixture; empty: equal");
  visit("rollout.prompts", r.prompts, io::IntRange{1, 1 << 16}, "groups of answers a step");
  visit("rollout.answers", r.answers, io::IntRange{1, 1 << 12}, "answers sampled per prompt, which form a group");
  visit("rollout.tokens", r.tokens, io::IntRange{1, 1 << 20}, "most tokens of an answer");
  visit("rollout.temperature", r.temperature, io::NumberRange{0.01, 100},
        "sampling temperature; values other than 1 need policy.importance_cap");
  visit("rollout.ahead", r.ahead, io::IntRange{0, 1}, "1: answers come from the weights before the last update");
  visit("rollout.format", r.format, Choices{"none", "bf16", "fp8", "nvfp4", "mxfp4", "int8", "int4", "int3"},
        "none; or weights are quantised to it for the answers, every step");
  visit("rollout.think", r.think, "true: prompts ask for thinking");
  visit("rollout.think_share", r.think_share, kFraction, "share of the prompts that do, with rollout.think");
  visit("rollout.effort_cost", r.effort_cost, kFraction,
        "share of its reward that a right answer of rollout.tokens tokens loses, shorter ones in proportion");
  visit("rollout.curriculum", r.curriculum, Choices{"none", "pass-rate"},
        "none: all levels alike; pass-rate: favours levels with intermediate pass rates");
  visit("rollout.refill", r.refill, io::IntRange{0, 100}, "times to redraw groups whose rewards are all equal");
  visit("rollout.mask_cut", r.mask_cut, "true: answers that reach rollout.tokens are not trained");
  visit("rollout.timeout", r.timeout, io::NumberRange{0.01, 86400}, "seconds a command may take to reply");
  visit("rollout.every", r.every, kCount, "steps between those whose answers are in rollouts.jsonl; 0: none are");
}

template <class L, class Visit>
void each_loss_word(L& loss, Visit& visit) {
  visit("loss.mean", loss.mean, Choices{"token", "sample"}, "over tokens, or over each sequence's mean; not mtp's");
  visit("loss.mtp_steps", loss.mtp_steps, io::IntRange{1, models::kMtpSteps}, "times that the prediction block runs");
  visit("loss.mtp_scale", loss.mtp_scale, kNotNegative, "weight of the prediction block's loss");
  visit("loss.z", loss.z, kNotNegative, "weight of the squared log-sum of the logits");
  visit("loss.aux", loss.aux, kNotNegative, "weight of the routers' balance loss over each sequence (a document)");
  visit("loss.seq_aux", loss.seq_aux, kNotNegative, "the same over each row of the batch, all documents in it");
  visit("loss.global_aux", loss.global_aux, kNotNegative, "the same over the batch, all ranks and parts of it so far");
  visit("loss.router_z", loss.router_z, kNotNegative, "weight of the squared log-sum of the router's logits");
  visit("loss.router_bias_rate", loss.router_bias_rate, kNotNegative, "step of the loss-free balance");
  visit("loss.quantile", loss.quantile, kFraction, "step, 0 to 1, of each bias toward the quantile of margins");
  visit("loss.capacity", loss.capacity, kNotNegative,
        "an expert's most tokens of a row, over the mean; others are dropped; 0: none are");
  visit("loss.capacity_drop", loss.capacity_drop, Choices{"probability", "position"},
        "which are: those of the smallest weights, or the last");
  visit("loss.goldfish_k", loss.goldfish_k, kCount, "one token in k is not trained on; 0: all are");
  visit("loss.goldfish", loss.goldfish, Choices{"hash", "place"},
        "choose masked tokens by a hash of them and those before (copies mask the same), or by position, a control");
  visit("loss.goldfish_seed", loss.goldfish_seed, kCount, "of the hash");
}

template <class R, class Visit>
void each_memory_word(R& r, Visit& visit) {
  visit("memory.recompute", r.recompute, Choices{}, "none, selective, full or fit:<GiB>");
  visit("memory.offload", r.offload, Choices{"none", "optimizer", "activations", "all"},
        "what a GPU leaves in its host's memory: none, optimizer, activations or all");
}

template <class R, class Visit>
void each_nest_word(R& r, Visit& visit) {
  visit("nest.budgets", r.budgets, io::NumberRange{1e-6, 1},
        "of a nested model (braid nest): a step trains one of its models of these shares");
  visit("nest.sampling", r.sampling, kNotNegative, "how often each; empty: all alike");
  visit("nest.router", r.router, "true: routers learn the sizes of the smaller models");
  visit("nest.router_lr", r.router_lr, io::NumberRange{0, 1e6}, "of them, times the learning rate of the step");
  visit("nest.router_cost", r.router_cost, kNotNegative,
        "weight of the distance of the cost from the share, over it, in their loss");
}

template <class R, class Visit>
void each_word(R& r, Visit&& visit) {
  visit("objective", r.objective, Choices{"language", "graph"},
        "language, or graph: classes of nodes or graphs, or edges");
  visit("init", r.init, Choices{}, "the model to start from: a folder, org/name or tiny");
  visit("config", r.config, "instead of init: a config.json, a preset, or a table; random weights");
  visit("tokenizer", r.tokenizer, Choices{}, "with config: a folder with tokenizer and chat template");
  visit("dtype", r.dtype, Choices{"f32", "bf16"}, "f32 or bf16: what products read; master weights are FP32");
  visit("exact", r.exact, "losses equal those of braid score --exact bit for bit; slower");
  visit("steps", r.steps, kFromOne, "optimiser steps");
  visit("batch", r.batch, io::IntRange{0, data::kRowsMax}, "sequences per step; 0: from the data");
  visit("accumulate", r.accumulate, kFromOne, "parts of a batch, computed one after the other");
  visit("length", r.length, io::IntRange{0, data::kLengthMax}, "tokens per sequence; 0: from the data");
  visit("seed", r.seed, kCount, "of everything random");
  visit("dropout", r.dropout, kRate, "of embedding and residual branches, instead of the config's");
  visit("out", r.out, Choices{}, "folder of checkpoints and logs");
  each_data_word(r.data, visit);
  visit("optimizer.kind", r.optimizer.kind, Choices{"adamw", "muon"}, "adamw; muon: matrices, with AdamW for all else");
  visit("optimizer.lr", r.optimizer.lr, kNotNegative, "the highest learning rate");
  visit("optimizer.beta1", r.optimizer.beta1, kBeta, "AdamW: of the mean of the gradients");
  visit("optimizer.beta2", r.optimizer.beta2, kBeta, "AdamW: of the mean of their squares");
  visit("optimizer.eps", r.optimizer.eps, kEpsilon, "AdamW: added to the root of that mean");
  visit("optimizer.weight_decay", r.optimizer.weight_decay, kNotNegative, "decoupled, times the learning rate");
  visit("optimizer.no_decay", r.optimizer.no_decay,
        "globs over roles (norm, bias, a_log, ...) and stored names; * crosses dots");
  visit("optimizer.clip", r.optimizer.clip, kNotNegative, "largest global norm of the gradients; 0: any");
  visit("optimizer.keep_zeros", r.optimizer.keep_zeros,
        "true: zeros of the layers' matrices stay zero, as braid prune --pattern leaves them");
  visit("schedule.kind", r.schedule.kind, Choices{"constant", "wsd", "cosine"}, "constant, wsd or cosine");
  visit("schedule.warmup", r.schedule.warmup, kCount, "steps: lr * (step + 1) / warmup");
  visit("schedule.decay", r.schedule.decay, kCount, "steps: the last ones (wsd), or those after warm-up (cosine)");
  visit("schedule.min_lr", r.schedule.min_lr, kNotNegative, "where decay ends");
  each_loss_word(r.loss, visit);
  each_loop_word(r.loop, visit);
  each_task_word(r, visit);
  each_rollout_word(r.rollout, visit);
  each_nest_word(r.nest, visit);
  each_memory_word(r, visit);
  visit("precision.recipe", r.precision, Choices{}, "none, bf16, fp8, fp8-block, mxfp8, mxfp4 or nvfp4");
  visit("precision.stochastic", r.precision_stochastic, "false: gradients are rounded to nearest, an ablation");
  visit("precision.hadamard", r.precision_hadamard, "false: weight gradients without the transform, an ablation");
  visit("precision.weight_scales", r.precision_weight_scales, Choices{"2d", "1d"}, "2d, or 1d: along each depth");
  visit("spike.z", r.spike.z, kNotNegative, "a loss this many deviations over the mean: the step is skipped");
  visit("spike.norm_z", r.spike.norm_z, kNotNegative, "the same for the norm of the gradients");
  visit("spike.window", r.spike.window, io::IntRange{2, 1 << 20}, "steps that the mean is taken over");
  visit("spike.patience", r.spike.patience, kCount, "skipped steps in a row that end the run; 0: none do");
  visit("checkpoint.every", r.checkpoint.every, kCount, "steps between checkpoints; 0: only the last");
  visit("checkpoint.keep", r.checkpoint.keep, kFromOne, "number of the latest that are kept");
  visit("checkpoint.keep_every", r.checkpoint.keep_every, kCount, "those at multiples of this many steps are kept too");
  visit("checkpoint.merge", r.checkpoint.merge, kCount,
        "at the end, write the mean of this many of the last, not counting those of signals");
  visit("checkpoint.async", r.checkpoint.async, "true: written by a copy of the process while training goes on");
  visit("log.every", r.log.every, kFromOne, "steps between lines");
  visit("log.hash_every", r.log.hash_every, kCount, "steps between 64-bit hashes of all weights; 0: none");
  visit("log.jsonl", r.log.jsonl, Choices{}, "file of one object per line, as --json prints them");
  visit("log.tensorboard", r.log.tensorboard, Choices{}, "folder of event files");
  visit("eval.every", r.eval.every, kCount, "steps between held-out losses; 0: none");
  visit("eval.batches", r.eval.batches, kFromOne, "of one held-out loss");
  visit("eval.data", r.eval.data, Choices{}, "a path of the same kind; empty: data.validation");
  visit("ema.decay", r.ema_decay, kFraction, "of the running mean of the weights, written to out/ema; 0: none");
  visit("lora.rank", r.lora.rank, kCount, "of the adapters, everything else frozen; 0: no adapters");
  visit("lora.alpha", r.lora.alpha, kNotNegative, "their output is scaled by alpha / rank");
  visit("lora.dropout", r.lora.dropout, kRate, "of their inputs");
  visit("lora.targets", r.lora.targets, "PEFT's target_modules: in_proj, up_proj, ...; * crosses dots");
  visit("lora.target_parameters", r.lora.target_parameters, "PEFT's target_parameters: experts.up_proj, ...");
  each_parallel_word(r.parallel, visit);
  each_graph_word(r.graph, visit);
}

bool is_table(const std::string& path, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [&](const auto& w) { return w.starts_with(path + "."); });
}

// The word for what other trainers call so; the known words that a table's name is missing from ("lr"), or the word or
// table nearest to a mistyped one.
std::string nearest_word(const std::string& path, const std::vector<std::string>& words) {
  static constexpr std::pair<const char*, const char*> kElsewhere[] = {
      {"learning_rate", "optimizer.lr"}, {"epochs", "steps"},      {"max_steps", "steps"},
      {"batch_size", "batch"},           {"seq_length", "length"}, {"warmup_steps", "schedule.warmup"}};
  for (const auto& [theirs, ours] : kElsewhere) {
    if (path == theirs || path.ends_with(std::string(".") + theirs)) return ours;
  }
  constexpr size_t kListed = 4;  // more are no help
  std::vector<std::string> inside;
  std::copy_if(words.begin(), words.end(), std::back_inserter(inside),
               [&](const std::string& word) { return word.ends_with("." + path); });
  if (!inside.empty() && inside.size() <= kListed) return fmt::format("{}", fmt::join(inside, " or "));
  std::vector<std::string> list = words;
  for (const std::string& word : words) {
    if (const size_t dot = word.find('.'); dot != std::string::npos) list.push_back(word.substr(0, dot));
  }
  if (std::string near = sys::nearest(path, list); !near.empty()) return near;
  const size_t dot = path.find('.');
  return dot == std::string::npos ? "" : sys::nearest(path.substr(0, dot), list);
}

// A key is known when it is a word, or a table of words.
void refuse_unknown(const io::Json& at, const std::string& prefix, const std::vector<std::string>& words) {
  for (const auto& [key, value] : at.members()) {
    const std::string path = prefix + key;
    if (std::find(words.begin(), words.end(), path) != words.end()) continue;
    if (is_table(path, words)) {
      if (!value.is_object()) value.refuse("is a table", "keys inside [" + path + "]");
      refuse_unknown(value, path + ".", words);
      continue;
    }
    fail(at.document(), {.what = "unknown key " + printable(path), .hint = nearest_word(path, words)});
  }
}

struct Reader {
  const io::Json& root;

  std::optional<io::Json> find(std::string_view key) const {
    const size_t dot = key.find('.');
    if (dot == std::string_view::npos) return root.get({key});
    const auto table = root.get({key.substr(0, dot)});
    return table ? table->get({key.substr(dot + 1)}) : std::nullopt;
  }
  void operator()(const char* key, int64_t& value, io::IntRange range, const char*) const {
    if (const auto v = find(key)) value = v->as_int(range);
  }
  void operator()(const char* key, bool& value, const char*) const {
    if (const auto v = find(key)) value = v->as_bool();
  }
  void operator()(const char* key, double& value, io::NumberRange range, const char*) const {
    if (const auto v = find(key)) value = v->as_number(range);
  }
  void operator()(const char* key, std::optional<double>& value, io::NumberRange range, const char*) const {
    if (const auto v = find(key)) value = v->as_number(range);
  }
  void operator()(const char* key, std::string& value, Choices among, const char*) const {
    const auto v = find(key);
    if (!v) return;
    value = v->as_string();
    const auto is_value = [&](const char* choice) { return value == choice; };
    if (among.size() == 0 || std::any_of(among.begin(), among.end(), is_value)) return;
    std::vector<std::string> choices;  // "" stands for what the model or the mesh decides
    for (const char* choice : among) {
      if (*choice) choices.emplace_back(choice);
    }
    v->refuse("is not one of the choices", fmt::format("{}", fmt::join(choices, ", ")), sys::nearest(value, choices));
  }
  void operator()(const char* key, std::vector<std::string>& value, const char*) const {
    const auto v = find(key);
    if (!v) return;
    value.clear();
    for (const io::Json& item : v->items()) value.push_back(item.as_string());
  }
  void operator()(const char* key, std::vector<double>& value, io::NumberRange range, const char*) const {
    const auto v = find(key);
    if (!v) return;
    value.clear();
    for (const io::Json& item : v->items()) value.push_back(item.as_number(range));
  }
  void operator()(const char* key, std::optional<io::Json>& value, const char*) const { value = find(key); }
  void operator()(const char* key, std::vector<data::BlendPart>& value, const char*) const {
    const auto v = find(key);
    if (!v) return;
    value.clear();
    for (const io::Json& part : v->items()) {
      refuse_unknown(part, "", {"path", "weight"});
      value.push_back({part.need({"path"}).as_string(), part.number_of({"weight"}, kNotNegative).value_or(1)});
    }
  }
};

struct Names {
  std::vector<std::string>& list;

  template <class... Rest>
  void operator()(const char* key, Rest&&...) const {
    list.emplace_back(key);
  }
};

struct Values {
  std::vector<std::pair<std::string, std::string>>& list;

  void put(const char* key, const nlohmann::json& value) { list.emplace_back(key, value.dump()); }
  void operator()(const char* key, const bool& value, const char*) { put(key, value); }
  template <class Value, class Range>
  void operator()(const char* key, const Value& value, const Range&, const char*) {
    put(key, value);
  }
  void operator()(const char* key, const std::optional<double>& value, const io::NumberRange&, const char*) {
    put(key, value ? nlohmann::json(*value) : nlohmann::json());
  }
  void operator()(const char* key, const std::vector<std::string>& value, const char*) { put(key, value); }
  void operator()(const char* key, const std::vector<data::BlendPart>& value, const char*) {
    nlohmann::json parts = nlohmann::json::array();
    for (const data::BlendPart& part : value) parts.push_back({{"path", part.path}, {"weight", part.weight}});
    put(key, parts);
  }
  void operator()(const char* key, const std::optional<io::Json>& value, const char*) {
    put(key, value ? value->raw() : nlohmann::json());
  }
};

// Inline TOML. Strings of JSON are strings of TOML; nulls are left out.
std::string inline_toml(const nlohmann::json& value) {
  std::string text;
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      if (member.is_null()) continue;
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", nlohmann::json(key).dump(), inline_toml(member));
    }
    return "{" + text + "}";
  }
  if (value.is_array()) {
    for (const auto& member : value) text += (text.empty() ? "" : ", ") + inline_toml(member);
    return "[" + text + "]";
  }
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  }
  return value.dump();
}

bool has_word(std::string_view text, std::string_view word) {
  const auto inside = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !inside(text[at - 1])) && (end == text.size() || !inside(text[end]))) return true;
  }
  return false;
}

struct Printer {
  bool explain;
  std::set<std::string_view> left_out{};
  std::map<std::string, std::string> tables{};  // lines by table, "" for the top

  void line(std::string_view key, const nlohmann::json& value, const char* meaning) {
    if (left_out.contains(key)) return;
    const size_t dot = key.find('.');
    const bool top = dot == std::string_view::npos;
    std::string& text = tables[top ? "" : std::string(key.substr(0, dot))];
    std::string row = fmt::format("{} = {}", top ? key : key.substr(dot + 1), inline_toml(value));
    if (explain && *meaning) row = fmt::format("{:<34}  # {}", row, meaning);
    text += row + "\n";
  }
  template <class Value, class Range>
  void operator()(const char* key, const Value& value, const Range&, const char* meaning) {
    line(key, value, meaning);
  }
  // The choices follow, unless the meaning names them all.
  void operator()(const char* key, const std::string& value, Choices among, const char* meaning) {
    std::vector<std::string> list;
    for (const char* choice : among) {
      if (*choice) list.emplace_back(choice);
    }
    const bool named = std::ranges::all_of(list, [&](const std::string& choice) { return has_word(meaning, choice); });
    line(key, value, (named ? meaning : fmt::format("{} ({})", meaning, fmt::join(list, ", "))).c_str());
  }
  void operator()(const char* key, const bool& value, const char* meaning) { line(key, value, meaning); }
  void operator()(const char* key, const std::optional<double>& value, const io::NumberRange&, const char* meaning) {
    if (value) line(key, *value, meaning);
  }
  void operator()(const char* key, const std::vector<std::string>& value, const char* meaning) {
    line(key, value, meaning);
  }
  void operator()(const char* key, const std::vector<data::BlendPart>& value, const char* meaning) {
    if (value.empty()) return;
    nlohmann::json list;
    for (const data::BlendPart& part : value) list.push_back({{"path", part.path}, {"weight", part.weight}});
    line(key, list, meaning);
  }
  void operator()(const char* key, const std::optional<io::Json>& value, const char* meaning) {
    if (value) line(key, value->raw(), meaning);
  }
};

}  // namespace

Recipe read_recipe(const io::Json& root) {
  Recipe recipe;
  std::vector<std::string> words;
  each_word(recipe, Names{words});
  refuse_unknown(root, "", words);
  each_word(recipe, Reader{root});
  return recipe;
}

namespace {

// A file of another program: no key is of recipes. One alone may be mistyped.
void refuse_foreign(const io::Json& root) {
  std::vector<std::string> words, keys;
  Recipe any;
  each_word(any, Names{words});
  for (const auto& [key, value] : root.members()) {
    if (std::find(words.begin(), words.end(), key) != words.end() || is_table(key, words)) return;
    keys.push_back(key);
  }
  if (keys.empty() || (keys.size() == 1 && !nearest_word(keys[0], words).empty())) return;
  constexpr size_t kShown = 3;
  const bool more = keys.size() > kShown;
  keys.resize(std::min(keys.size(), kShown));
  fail(root.document(),
       {.what = "is not a recipe: no key in it is of recipes",
        .got = fmt::format("{}{}", printable(fmt::format("{}", fmt::join(keys, ", "))), more ? ", ..." : ""),
        .expected = "init or config, out, steps, [data] and others",
        .hint = "braid train --help"});
}

}  // namespace

Recipe read_recipe(const std::filesystem::path& file, std::span<const std::string> overrides) {
  read_recipe(io::parse_toml("", "command line", overrides));  // whose mistakes are not the file's
  check_recipe_file(file);
  refuse_foreign(io::read_toml(file));
  Recipe recipe = read_recipe(io::read_toml(file, overrides));
  std::error_code none;
  const bool a_file = std::filesystem::is_regular_file(file, none);  // not a pipe, whose folder says nothing
  resolve_paths(recipe, a_file ? file.parent_path() : std::filesystem::path(), overrides);
  return recipe;
}

void check_offload(const Recipe& recipe) {
  if (recipe.offload == "none") return;
  fail("memory.offload", {.what = "leaves in the memory of the host what a GPU has no room for, and this rank is a CPU",
                          .got = recipe.offload,
                          .expected = "none",
                          .hint = "parallel.zero or memory.recompute, which save memory on a CPU as well"});
}

Numerics numerics_of(const Recipe& recipe) {
  return Numerics::training(recipe.dtype == "bf16" ? DType::bf16 : DType::f32, recipe.exact);
}

data::DataSpec data_spec(const Recipe& recipe) {
  data::DataSpec spec = recipe.data;
  spec.batch = recipe.batch;
  spec.length = recipe.length;
  spec.seed = static_cast<uint64_t>(recipe.seed);
  spec.goldfish.k = recipe.loss.goldfish_k;
  spec.goldfish.seed = static_cast<uint64_t>(recipe.loss.goldfish_seed);
  spec.goldfish.by_position = recipe.loss.goldfish == "place";
  const std::string& advantage = recipe.policy.advantage;
  spec.rated = recipe.preference.kind == "rpo" || (advantage != "none" && advantage != "teacher");
  return spec;
}

std::vector<std::pair<std::string, std::string>> words_of(const Recipe& recipe) {
  std::vector<std::pair<std::string, std::string>> list;
  each_word(recipe, Values{list});
  return list;
}

std::vector<std::pair<std::string, std::string>> changed_words(const Recipe& recipe) {
  auto changed = words_of(recipe);
  const auto defaults = words_of(Recipe{});
  std::erase_if(changed, [&, i = size_t{0}](const auto& word) mutable { return word == defaults[i++]; });
  return changed;
}

bool is_of_graphs(std::string_view word) {
  constexpr std::string_view kLanguage[] = {"init",         "config",
                                            "tokenizer",    "exact",
                                            "length",       "accumulate",
                                            "dropout",      "data.",
                                            "loss.",        "loop.",
                                            "distill.",     "parallel.",
                                            "preference.",  "policy.",
                                            "rollout.",     "nest.",
                                            "memory.",      "precision.",
                                            "lora.",        "eval.data",
                                            "eval.batches", "optimizer.keep_zeros"};
  if (word == "parallel.grid" || word == "parallel.collectives") return true;
  return std::ranges::none_of(
      kLanguage, [&](std::string_view own) { return own.back() == '.' ? word.starts_with(own) : word == own; });
}

std::string to_toml(const Recipe& recipe, bool explain) {
  Printer printer{explain};
  const auto words = words_of(recipe), changed = changed_words(recipe);
  for (const auto& word : words) {
    const bool has_default = std::ranges::find(changed, word) == changed.end();
    if (recipe.objective == "graph" && has_default && !is_of_graphs(word.first)) printer.left_out.insert(word.first);
  }
  each_word(recipe, printer);
  std::string text;
  for (const auto& [table, lines] : printer.tables) {
    text += table.empty() ? lines : fmt::format("\n[{}]\n{}", table, lines);
  }
  return text;
}

}  // namespace braid::train
