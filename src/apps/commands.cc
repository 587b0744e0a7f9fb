// The table of subcommands, in the order `braid --help` prints them.
#include "apps/commands.h"

#include <iterator>

namespace braid::apps {

const Command kCommands[] = {
    {"chat", "talk to a model; piped input is one message", &setup_chat, "chat"},
    {"run", "one prompt, one answer; dumps of ids, logits and states", &setup_run, "chat"},
    {"serve", "a model behind OpenAI's and Anthropic's HTTP APIs", &setup_serve, "serve"},
    {"bench serve", "load on a server: throughput and latencies", &setup_bench_serve, "benchmarks"},
    {"bench", "speed of a model, and the limit that the machine sets", &setup_bench, "benchmarks"},
    {"info", "layers, parameters, bytes; --machine: this computer", &setup_info, "commands"},
    {"train", "run a recipe: pretrain, continue or fine-tune a model", &setup_train, "training"},
    {"eval", "perplexity of a text, or accuracy on tasks", &setup_eval, "evaluation"},
    {"score", "log-probabilities of given tokens", &setup_score, "training"},
    {"grad", "loss and gradients of given tokens", &setup_grad, "commands"},
    {"quantize", "large matrices in FP8 or in 3 to 8 bits, as a folder", &setup_quantize, "models"},
    {"prune", "fewer channels, heads, experts or layers, to a target", &setup_prune, "training"},
    {"search", "the best variant of each layer within limits of cost", &setup_search, "training"},
    {"fuse", "feed-forward blocks with nothing between them as one", &setup_fuse, "training"},
    {"nest", "units in order of importance: smaller models are its prefixes", &setup_nest, "training"},
    {"slice", "one of the models inside a nested one, as a folder", &setup_slice, "training"},
    {"merge", "one model from several, or from one and its adapter", &setup_merge, "training"},
    {"convert", "a folder as a GGUF file for llama.cpp, and back", &setup_convert, "models"},
    {"list", "models on this machine, and whether they run here", &setup_list, "models"},
    {"new", "random weights of any config, to time its shape", &setup_new, "models"},
    {"repro nemotron3-nano", "Nemotron 3 Nano's published speedup, on this machine", &setup_repro_nano, "commands"},
    {"repro nvrar", "NVRAR's published times against the simulation's", &setup_repro_nvrar, "comm"},
    {"repro goldfish", "what goldfish loss keeps from being memorised", &setup_repro_goldfish, "training"},
    {"repro gemstones", "a scaling law of small models against a known entropy", &setup_repro_gemstones, "training"},
    {"repro huginn", "recurrent depth: right answers by steps, early exits, drafts", &setup_repro_huginn, "training"},
    {"repro minitron", "pruned hybrids distilled, by how Mamba heads are ranked", &setup_repro_minitron, "training"},
    {"repro puzzle", "layers that differ against layers alike, at equal bytes", &setup_repro_puzzle, "training"},
    {"repro elastic", "models inside a model against models of their own", &setup_repro_elastic, "training"},
    {"repro nvfp4-pretraining", "the loss that NVFP4 and parts of its recipe cost", &setup_repro_nvfp4, "training"},
    {"repro eda", "quality of logic synthesis by recipe, predicted", &setup_repro_eda, "graphs"},
    {"repro gnn-fusion", "what each rewrite of a graph network's step saves", &setup_repro_gnn_fusion, "graphs"},
    {"repro pccl", "PCCL's published speedups against the simulation's", &setup_repro_pccl, "comm"},
    {"repro plexus", "steps of graph networks on 1 to 2,048 ranks, modelled", &setup_repro_plexus, "graphs"},
    {"repro axonn", "AxoNN's published rates against grids, TP and FSDP, modelled", &setup_repro_axonn, "training"},
    {"repro megatron-moe", "folded experts against none, modelled, and published rates", &setup_repro_megatron_moe,
     "training"},
    {"repro recompute", "recomputed activations: memory and time, published and here", &setup_repro_recompute,
     "training"},
    {"repro alcop", "pipelined products on a GPU, chosen by a model", &setup_repro_alcop, "commands"},
    {"repro shfl-bw", "a model pruned to patterns, and the product that skips zeros", &setup_repro_shfl_bw, "training"},
    {"repro spmm-2x2", "a sparse product by balance and by reduction", &setup_repro_spmm_2x2, "graphs"},
    {"repro spmm", "ways to run a graph's sparse product, and the choice", &setup_repro_spmm, "graphs"},
    {"plan memory", "memory of a training step, from a config alone", &setup_plan_memory, "training"},
    {"plan layout", "which ranks divide what: layouts of a cluster, modelled", &setup_plan_layout, "training"},
    {"plan graph", "grids of ranks that train a graph network, modelled", &setup_plan_graph, "graphs"},
    {"comm bench", "collectives on simulated clusters, or measured", &setup_comm_bench, "comm"},
    {"comm cells", "LL8 cells against data and a flag, in shared memory", &setup_comm_cells, "comm"},
    {"comm tune", "times of collectives to choose by, and what choices lose", &setup_comm_tune, "comm"},
    {"law fit", "a scaling law fitted to a table of runs", &setup_law_fit, "training"},
    {"law sweep", "a grid of small models trained for a law's table", &setup_law_sweep, "training"},
    {"law plan", "parameters and tokens for a budget, by a fitted law", &setup_law_plan, "training"},
    {"data show", "a row of a training set, with the trained tokens marked", &setup_data_show, "training"},
    {"data tokenize", "text to a corpus of token ids, Megatron's .bin and .idx", &setup_data_tokenize, "training"},
    {"data bpe", "train a byte-level BPE vocabulary on text", &setup_data_bpe, "training"},
    {"data synth", "the training text of the model that ships with Braid", &setup_data_synth, "training"},
    {"data graph", "a graph to train on: Matrix Market, edges or generated", &setup_data_graph, "graphs"},
    {"tokenize", "text to token ids and back", &setup_tokenize, "commands"},
    {"template", "render a chat template: {\"messages\": [...]} in, text out", &setup_template, "commands"},
};
const int kCommandCount = static_cast<int>(std::size(kCommands));

const Group kGroups[] = {
    {"repro", "published results against ours"},
    {"plan", "estimate memory and time before running"},
    {"comm", "collectives on simulated clusters, or measured"},
    {"law", "scaling laws"},
    {"data", "corpora, vocabularies and graphs to train on"},
};
const int kGroupCount = static_cast<int>(std::size(kGroups));

}  // namespace braid::apps
