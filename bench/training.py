#!/usr/bin/env python3
"""Whole steps of training beside PyTorch, in one run: forward, backward, clipping, AdamW; random tokens of a Markov chain.

usage: training.py SHAPE BATCH LENGTH [--steps N] [--braid PROGRAM] [--python PYTHON_WITH_TORCH]

SHAPE is a config that `braid new` knows. Prints one JSON object: tokens per second (median of the steps after the first)
of Braid and of transformers' model of the same config on torch, FP32 and BF16 (autocast), peak memory of each process,
and beside Braid's rate the floor of a step: what it counts of operations and bytes at this machine's measured roofs.
Without --python the peer is left out and said to be.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

PEER = r"""
import json, os, resource, sys, time
import torch, transformers
folder, batch, length, steps, bf16 = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(os.cpu_count())
transformers.logging.set_verbosity_error()
torch.manual_seed(0)
config = transformers.AutoConfig.from_pretrained(folder)
config._attn_implementation = "sdpa" if config.model_type == "gpt2" else "eager"
model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
ids = torch.randint(0, config.vocab_size, (batch, length))
seconds = []
for _ in range(steps):
    t = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=bool(bf16)):
        logits = model(ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    seconds.append(time.perf_counter() - t)
print(json.dumps({"seconds": seconds, "memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                  "torch": torch.__version__, "transformers": transformers.__version__}))
"""

RECIPE = """config = "{shape}"
dtype = "{dtype}"
steps = {steps}
batch = {batch}
length = {length}
out = "{out}"
[data]
kind = "markov"
[optimizer]
lr = 3e-4
clip = 1.0
[log]
jsonl = "{log}"
"""


def summary(rates, memory):
    return {"tokens_per_second": round(statistics.median(rates[1:]), 1), "fastest": round(max(rates), 1),
            "samples": [round(r, 1) for r in rates], "memory_bytes": memory}


def braid(args, folder, dtype):
    log, recipe = os.path.join(folder, "log.jsonl"), os.path.join(folder, "recipe.toml")
    if os.path.exists(log):
        os.unlink(log)
    with open(recipe, "w", encoding="utf-8") as f:
        f.write(RECIPE.format(shape=args.shape, dtype=dtype, steps=args.steps, batch=args.batch, length=args.length,
                              out=os.path.join(folder, dtype), log=log))
    plan = json.loads(subprocess.run([args.braid, "train", recipe, "--dry-run", "--json"], check=True,
                                     stdout=subprocess.PIPE, text=True).stdout)
    subprocess.run([args.braid, "train", recipe], check=True, stdout=subprocess.DEVNULL)
    with open(log, encoding="utf-8") as f:
        steps = [json.loads(line) for line in f]
    out = summary([s["tokens_per_second"] for s in steps], max(s["memory_bytes"] for s in steps))
    return out | {"roof": {name: round(plan[name], 3) for name in (
        "roof_flops_per_second", "roof_bytes_per_second", "flops_per_token", "floor_seconds", "roof_tokens_per_second")}}


def peer(args, folder, bf16):
    config = os.path.join(folder, "bf16", "init")
    run = subprocess.run([args.python, "-c", PEER, config, str(args.batch), str(args.length), str(args.steps), str(bf16)],
                         check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    got = json.loads(run.stdout.splitlines()[-1])
    out = summary([args.batch * args.length / s for s in got["seconds"]], got["memory_bytes"])
    return out | {"torch": got["torch"], "transformers": got["transformers"]}


def command(args):
    """How to ask for this again, without the paths of this machine."""
    return f"bench/training.py {args.shape} {args.batch} {args.length} --steps {args.steps}" + (
        " --python PYTHON" if args.python else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape")
    parser.add_argument("batch", type=int)
    parser.add_argument("length", type=int)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--braid", default="build/release/bin/braid")
    parser.add_argument("--python")
    args = parser.parse_args()
    machine = json.loads(subprocess.run([args.braid, "info", "--machine", "--json"], check=True, stdout=subprocess.PIPE,
                                        text=True).stdout)
    out = {"what": f"training steps of {args.shape}, {args.batch} x {args.length}: " + command(args), "machine": machine}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("bf16", "f32"):
            out[f"braid_{dtype}"] = braid(args, folder, dtype)
        if args.python:
            for name, bf16 in (("bf16", 1), ("f32", 0)):
                out[f"torch_{name}"] = peer(args, folder, bf16)
        else:
            out["torch"] = "SKIPPED: no --python with torch and transformers"
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
