#!/usr/bin/env python3
"""The balance of experts and its price: one run of `braid train` per way to balance and seed, with the same initial
weights, batches and steps for all ways of a seed.

    bench/balance.py BRAID FOLDER [--steps 400] [--seeds 0,1] [--arms "none;aux"] [-o RESULTS.json]
    bench/balance.py BRAID FOLDER --table [-o RESULTS.json]      the table of the finished runs

The model is a small hybrid: two Mamba, two attention and two expert layers, 16 experts of which a token takes 2, and a
shared one. Its documents are walks of 12 to 60 tokens through 16 Markov chains over overlapping parts of a vocabulary; the
chains differ in how often they come as 1, 1/2, ... 1/16, so that experts who know one have uneven work. Rows hold several
documents. FOLDER keeps every run: a finished one is not repeated.

"load" is the busiest expert's tokens over the mean of all, in the layer where that is largest: the mean over the last
tenth of the steps, of all choices, dropped ones included. "held out" is the loss at the end on documents that training
does not see, where nothing is dropped, in nats per token, and its difference from "none" of the same seed. "dropped" is
the share of choices beyond the capacity. No figure depends on threads or on other load of the machine.
"""
import argparse
import itertools
import json
import os
import random
import shutil
import statistics
import struct
import subprocess

from about import about

# Keys of [loss].
ARMS = {
    "none": {},
    "aux": {"aux": 1e-2},
    "seq_aux": {"seq_aux": 1e-2},
    "global_aux": {"global_aux": 1e-2},
    "bias": {"router_bias_rate": 1e-2},
    "quantile": {"quantile": 0.5},
    "capacity": {"capacity": 1.25},
    "capacity, aux": {"capacity": 1.25, "aux": 1e-2},
}

VOCABULARY, CHAINS, STATES = 256, 16, 48

RECIPE = """
dtype = "f32"
steps = {steps}
batch = 8
length = 128
seed = {seed}
out = "{out}"
[config]
architectures = ["NemotronHForCausalLM"]
model_type = "nemotron_h"
dtype = "bfloat16"
vocab_size = 256
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
n_routed_experts = 16
num_experts_per_tok = 2
n_shared_experts = 1
moe_intermediate_size = 64
moe_shared_expert_intermediate_size = 32
norm_topk_prob = true
n_group = 1
topk_group = 1
routed_scaling_factor = 2.5
layer_norm_epsilon = 1e-5
initializer_range = 0.02
max_position_embeddings = 512
tie_word_embeddings = false
[data]
kind = "indexed"
path = "{corpus}"
validation = 0.1
[optimizer]
lr = 5e-3
[schedule]
kind = "wsd"
warmup = 20
decay = {decay}
[loss]
{loss}
[eval]
every = {steps}
batches = 32
[log]
every = 100
jsonl = "log.jsonl"
"""


def documents(count):
    """Walks through the chains; the same in every campaign."""
    rng = random.Random(7)
    chains = []
    for _ in range(CHAINS):
        tokens = rng.sample(range(1, VOCABULARY), STATES)
        chains.append((tokens, {token: rng.sample(tokens, 4) for token in tokens}))
    shares = list(itertools.accumulate(1 / (1 + i) for i in range(CHAINS)))
    for _ in range(count):
        tokens, steps = rng.choices(chains, cum_weights=shares)[0]
        walk = [rng.choice(tokens)]
        for _ in range(rng.randint(12, 60) - 1):
            walk.append(rng.choices(steps[walk[-1]], (8, 4, 2, 1))[0])
        yield walk


def write_corpus(prefix, count):
    """Megatron's pair of files, of 16-bit tokens."""
    lists = list(documents(count))
    sizes = [len(ids) for ids in lists]
    begins = [2 * n for n in itertools.accumulate([0] + sizes[:-1])]
    with open(prefix + ".bin", "wb") as f:
        for ids in lists:
            f.write(struct.pack(f"<{len(ids)}H", *ids))
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1))
        f.write(struct.pack(f"<{count}i", *sizes) + struct.pack(f"<{count}q", *begins))
        f.write(struct.pack(f"<{count + 1}q", *range(count + 1)))


def write_json(path, value):
    with open(path + ".part", "w", encoding="ascii") as f:
        json.dump(value, f)
        f.write("\n")
    os.replace(path + ".part", path)


def train(braid, folder, arm, seed, steps):
    out = os.path.join(folder, f"{arm.replace(', ', '-')}-{seed}")
    shutil.rmtree(out, ignore_errors=True)
    loss = "\n".join(f"{key} = {value}" for key, value in ARMS[arm].items())
    with open(out + ".toml", "w", encoding="ascii") as f:
        f.write(RECIPE.format(steps=steps, seed=seed, out=out, corpus=os.path.join(folder, "corpus"), loss=loss,
                              decay=steps // 5))
    done = subprocess.run([braid, "train", out + ".toml", "log.every=1"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{arm}, seed {seed}: {done.stderr}")
    with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    shutil.rmtree(out)
    last = [line for line in lines if "load_balance" in line][-max(1, steps // 10):]
    return {"load": round(statistics.mean(line["load_balance"] for line in last), 4),
            "dropped": round(statistics.mean(line.get("dropped", 0) for line in last), 5),
            "held_out": round(next(line["held_out_loss"] for line in reversed(lines) if "held_out_loss" in line), 5)}


def summary(runs, arms, seeds):
    table = {}
    for arm in arms:
        mine = {seed: runs[arm, seed] for seed in seeds if (arm, seed) in runs and ("none", seed) in runs}
        if mine:
            table[arm] = {"keys": ARMS[arm], "seeds": list(mine), **{key: [run[key] for run in mine.values()]
                                                                   for key in ("load", "dropped", "held_out")},
                          "over_none": [round(run["held_out"] - runs["none", seed]["held_out"], 5)
                                        for seed, run in mine.items()]}
    return table


def show(table):
    print("| balance | load | dropped | held out | over none, by seed |\n|---|---|---|---|---|")
    for arm, row in table.items():
        keys = ", ".join(f"`{key} = {value}`" for key, value in row["keys"].items()) or "none"
        dropped = f"{100 * statistics.mean(row['dropped']):.1f}%" if "capacity" in row["keys"] else "-"
        over = "-" if arm == "none" else ", ".join(f"{gap:+.4f}" for gap in row["over_none"])
        print(f"| {keys} | {statistics.mean(row['load']):.2f} | {dropped} | {statistics.mean(row['held_out']):.4f} | {over} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--arms", default=";".join(ARMS), help="separated by ;")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    braid, folder = os.path.abspath(options.braid), os.path.abspath(options.folder)
    seeds = sorted({int(seed) for seed in options.seeds.split(",")})
    arms = ["none"] + [arm for arm in options.arms.split(";") if arm != "none"]
    unknown = [arm for arm in arms if arm not in ARMS]
    if unknown:
        raise SystemExit(f"no arm {unknown[0]}; expected {'; '.join(ARMS)}")
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(os.path.join(folder, "corpus.idx")):
        write_corpus(os.path.join(folder, "corpus"), 20_000)
    runs = {}
    for seed, arm in itertools.product(seeds, arms):
        path = os.path.join(folder, f"{arm.replace(', ', '-')}-{seed}-{options.steps}.json")
        if not os.path.exists(path) and not options.table:
            write_json(path, train(braid, folder, arm, seed, options.steps))
        if os.path.exists(path):
            with open(path, encoding="ascii") as f:
                runs[arm, seed] = json.load(f)
            print(f"{arm}, seed {seed}: {runs[arm, seed]}", flush=True)
    table = summary(runs, arms, seeds)
    show(table)
    if options.output:
        write_json(options.output, {"what": "balance of 16 experts and held-out loss by the way to balance",
                                    **about(braid), "steps": options.steps, "arms": table})


if __name__ == "__main__":
    main()
