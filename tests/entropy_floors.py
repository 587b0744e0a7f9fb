"""A small hybrid on each generated source: how close the loss gets to the entropy of the source.

usage: entropy_floors.py BRAID
A mean over the last steps that is below the floor by more than chance means that the answer leaks; one far above it,
that the trainer does not learn.
"""
import csv
import sys
import tempfile
from pathlib import Path

from support.program import braid

STEPS, LAST = 400, 50
SOURCES = {  # its recipe lines, and how far above the floor the mean may end, in nats
    "markov": ("states = 24\nbranch = 4", 0.03),
    "pcfg": ("states = 6\ndepth = 2\nrules = 3", 0.10),
    "modular": ("modulus = 7", 0.05),
    "recall": ("states = 8\npairs = 2", 0.08),
}
BELOW = 0.03
RECIPE = """
steps = {steps}
batch = 16
length = 60
dtype = "f32"
out = "{out}"
[data]
kind = "{kind}"
{words}
[optimizer]
kind = "muon"
lr = 5e-3
clip = 1.0
[schedule]
kind = "wsd"
warmup = 20
decay = 200
[config]
architectures = ["NemotronHForCausalLM"]
model_type = "nemotron_h"
dtype = "bfloat16"
vocab_size = 32
hidden_size = 64
hybrid_override_pattern = "M*EM*E"
num_hidden_layers = 6
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 16
mamba_num_heads = 4
mamba_head_dim = 32
ssm_state_size = 16
n_groups = 1
conv_kernel = 4
chunk_size = 32
mamba_hidden_act = "silu"
mlp_hidden_act = "relu2"
intermediate_size = 128
n_routed_experts = 4
num_experts_per_tok = 2
n_shared_experts = 1
moe_intermediate_size = 64
moe_shared_expert_intermediate_size = 64
norm_topk_prob = true
n_group = 1
topk_group = 1
routed_scaling_factor = 2.5
layer_norm_epsilon = 1e-5
initializer_range = 0.02
max_position_embeddings = 512
tie_word_embeddings = false
"""


def main():
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind, (words, above) in SOURCES.items():
            out = Path(folder) / kind
            recipe = Path(folder) / f"{kind}.toml"
            recipe.write_text(RECIPE.format(steps=STEPS, out=out, kind=kind, words=words))
            done = braid("train", recipe, timeout=None)
            if done.returncode:
                sys.exit(f"{kind}: exit code {done.returncode}: {done.stderr}")
            floor = next(float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("entropy floor"))
            with open(out / "loss.csv", encoding="utf-8") as f:
                losses = [float(row["loss"]) for row in csv.DictReader(f)]
            got = sum(losses[-LAST:]) / LAST
            ok = -BELOW < got - floor < above
            wrong += not ok
            print(f"{'    ' if ok else 'BAD '}{kind:8} from {losses[0]:.3f} to {got:.4f}, floor {floor:.4f}: "
                  f"{got - floor:+.4f} nats")
    sys.exit(wrong > 0)


main()
