// One declaration per subcommand; the definitions are in apps/<name>.cc.
#pragma once
#include "apps/cli.h"

namespace braid::apps {

Action setup_bench(Cli& cli);
Action setup_bench_serve(Cli& cli);
Action setup_chat(Cli& cli);
Action setup_comm_bench(Cli& cli);
Action setup_comm_cells(Cli& cli);
Action setup_comm_tune(Cli& cli);
Action setup_convert(Cli& cli);
Action setup_data_bpe(Cli& cli);
Action setup_data_show(Cli& cli);
Action setup_data_synth(Cli& cli);
Action setup_data_graph(Cli& cli);
Action setup_data_tokenize(Cli& cli);
Action setup_info(Cli& cli);
Action setup_eval(Cli& cli);
Action setup_grad(Cli& cli);
Action setup_law_fit(Cli& cli);
Action setup_law_plan(Cli& cli);
Action setup_law_sweep(Cli& cli);
Action setup_list(Cli& cli);
Action setup_merge(Cli& cli);
Action setup_nest(Cli& cli);
Action setup_new(Cli& cli);
Action setup_plan_graph(Cli& cli);
Action setup_plan_layout(Cli& cli);
Action setup_plan_memory(Cli& cli);
Action setup_prune(Cli& cli);
Action setup_quantize(Cli& cli);
Action setup_repro_alcop(Cli& cli);
Action setup_repro_axonn(Cli& cli);
Action setup_repro_spmm_2x2(Cli& cli);
Action setup_repro_eda(Cli& cli);
Action setup_repro_gemstones(Cli& cli);
Action setup_repro_huginn(Cli& cli);
Action setup_repro_gnn_fusion(Cli& cli);
Action setup_repro_goldfish(Cli& cli);
Action setup_repro_megatron_moe(Cli& cli);
Action setup_repro_elastic(Cli& cli);
Action setup_repro_minitron(Cli& cli);
Action setup_repro_nvfp4(Cli& cli);
Action setup_repro_puzzle(Cli& cli);
Action setup_repro_nano(Cli& cli);
Action setup_repro_nvrar(Cli& cli);
Action setup_repro_pccl(Cli& cli);
Action setup_repro_plexus(Cli& cli);
Action setup_repro_recompute(Cli& cli);
Action setup_repro_shfl_bw(Cli& cli);
Action setup_repro_spmm(Cli& cli);
Action setup_run(Cli& cli);
Action setup_score(Cli& cli);
Action setup_search(Cli& cli);
Action setup_serve(Cli& cli);
Action setup_slice(Cli& cli);
Action setup_fuse(Cli& cli);
Action setup_tokenize(Cli& cli);
Action setup_template(Cli& cli);
Action setup_train(Cli& cli);

}  // namespace braid::apps
