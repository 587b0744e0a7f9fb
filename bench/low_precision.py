#!/usr/bin/env python3
"""How much loss low-precision recipes cost a small hybrid: braid train on a source of known entropy, one run a recipe
and seed, same seeds and same order of data for all. Numerics only: the formats are emulated.

    bench/low_precision.py build/release/bin/braid [--steps 300] [--seeds 2] [--recipes bf16,fp8,nvfp4] [-o RESULTS.json]

A gap is of the mean loss of the last tenth of the steps, in % over bf16 of the same seed. Between seeds losses differ as
well; a gap below that spread says nothing.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

RECIPE = """
dtype = "bf16"
steps = {steps}
batch = 8
length = 64
seed = {seed}
out = "{out}"
[precision]
recipe = "{recipe}"
[data]
kind = "markov"
states = 60
branch = 4
[optimizer]
lr = 3e-3
[schedule]
kind = "wsd"
warmup = 20
decay = {decay}
[log]
every = {steps}
jsonl = "log.jsonl"
[config]
architectures = ["NemotronHForCausalLM"]
model_type = "nemotron_h"
vocab_size = 64
hidden_size = 96
hybrid_override_pattern = "MEM*MEMEM-"
num_hidden_layers = 10
expand = 2
mamba_num_heads = 6
mamba_head_dim = 32
n_groups = 2
ssm_state_size = 32
conv_kernel = 4
chunk_size = 64
use_conv_bias = true
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 24
intermediate_size = 192
n_routed_experts = 8
num_experts_per_tok = 2
n_shared_experts = 1
moe_intermediate_size = 64
moe_shared_expert_intermediate_size = 96
n_group = 1
topk_group = 1
norm_topk_prob = true
routed_scaling_factor = 1.0
layer_norm_epsilon = 1e-5
max_position_embeddings = 128
tie_word_embeddings = false
"""


def train(braid, recipe, seed, steps, folder):
    """The mean loss of the last tenth of the steps, the source's entropy, and what the run says of itself."""
    out = os.path.join(folder, f"{recipe}-{seed}")
    path = out + ".toml"
    with open(path, "w") as f:
        f.write(RECIPE.format(steps=steps, seed=seed, out=out, recipe=recipe, decay=steps // 5))
    done = subprocess.run([braid, "train", path], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    with open(os.path.join(out, "log.jsonl")) as f:
        losses = [json.loads(line)["loss"] for line in f]
    lines = done.stdout.splitlines()
    floor = next(float(line.split()[-1]) for line in lines if line.startswith("entropy floor"))
    note = next((line for line in lines if "emulated" in line), "")
    return statistics.mean(losses[-max(1, steps // 10):]), floor, note


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--recipes", default="bf16,fp8,fp8-block,mxfp8,mxfp4,nvfp4")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    rows, notes, floor = {}, {}, None
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            for recipe in options.recipes.split(","):
                loss, floor, notes[recipe] = train(options.braid, recipe, seed, options.steps, folder)
                rows.setdefault(recipe, []).append(loss)
                print(f"{recipe:10} seed {seed}  {loss:.4f}", flush=True)
    base = rows[options.recipes.split(",")[0]]
    result = {"what": "loss of a small hybrid on a Markov chain, by recipe; emulated, numerics only",
              "steps": options.steps, "entropy_floor": floor, "recipes": {}}
    print(f"\nentropy floor {floor:.4f}")
    for recipe, losses in rows.items():
        gaps = [100 * (loss / plain - 1) for loss, plain in zip(losses, base)]
        print(f"{recipe:10} loss {statistics.mean(losses):.4f}  gap {statistics.mean(gaps):+.2f}%  "
              f"between seeds {100 * (max(losses) - min(losses)) / statistics.mean(losses):.2f}%  {notes[recipe]}")
        result["recipes"][recipe] = {"loss": losses, "gap_percent": gaps, "note": notes[recipe]}
    if options.output:
        with open(options.output, "w") as f:
            json.dump(result, f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    main()
