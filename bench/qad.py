#!/usr/bin/env python3
"""models/tiny in four bits: rounded after training (PTQ), and trained to be rounded by quantisation-aware distillation (QAD).

    bench/qad.py BRAID FOLDER [--steps 300] [--seeds 0,1,2] [-o RESULTS.json]

QAD: the model that ships is trained with NVFP4 operands in its products ([precision]) to follow its own distribution
before ([distill]), on conversations of `braid data synth`, and quantised then as PTQ is. Every arm answers the held-out
tasks of that command, thinking and not, and the prompts of bench/data, greedily, its weights in NVFP4 as stored. `KL` is
the divergence from the model that ships over held-out conversations, `bits` the mean over all values in the file. FOLDER
keeps every model; a finished one is not made again.
"""
import argparse
import json
import os
import re
import subprocess
from pathlib import Path

from about import store
from tiny import FIXED, BENCH, Model

TASKS = (("sums, thinking", "arithmetic", "on"), ("sums", "arithmetic", "off"), ("strings", "strings", "on"),
         ("tool calls", "calculator", "on"), ("follow-ups", "follow_up", "on"))


def run(*words):
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def quantised(options, model, out, *words):
    """The folder, and its bits per value."""
    said = out.with_suffix(".txt")
    if not (out / "config.json").exists():
        said.write_text(run(options.braid, "quantize", model, out, "--format", "nvfp4", *words))
    return out, float(re.search(r"([\d.]+) bits per value", said.read_text())[1])


def distilled(options, data, folder, seed):
    out = folder / f"qad-{seed}"
    if (out / "config.json").exists():
        return out
    recipe = folder / f"qad-{seed}.toml"
    recipe.write_text(f"""init = "tiny"
out = {json.dumps(str(out))}
dtype = "bf16"
seed = {seed}
steps = {options.steps}
batch = 8
length = 512
[data]
kind = "jsonl"
path = {json.dumps(str(data / "train.jsonl"))}
strip_thoughts = 0.3
[precision]
recipe = "nvfp4"
weight_scales = "1d"
[distill]
teacher = "tiny"
[optimizer]
lr = {options.lr}
weight_decay = 0.0
[schedule]
kind = "wsd"
warmup = 10
decay = {options.steps // 2}
[log]
every = 50
""")
    run(options.braid, "train", recipe, "--resume", "auto")
    return out


def scores(options, model, data):
    """Right answers by task."""
    asked = Model(options.braid, model)
    out = {name: asked.answers(data / f"{file}.jsonl", think) for name, file, think in TASKS}
    out |= {name: asked.answers(BENCH / f"{file}.jsonl") for name, file in FIXED}
    return {name: {key: score[key] for key in ("right", "n", "accuracy", "interval")} for name, score in out.items()}


def divergence(options, model, data):
    lines = Path(options.folder) / "held-out.jsonl"
    if not lines.exists():
        base = Model(options.braid, "tiny")
        rows = [json.loads(line) for line in (data / "valid.jsonl").open()][:200]
        lines.write_text("".join(json.dumps(base.answer(row["messages"])) + "\n" for row in rows if "tools" not in row))
    found = json.loads(run(options.braid, "eval", model, "--kl", "tiny", "--jsonl", lines, "-c", 4096, "--json"))
    return {key: value for key, value in found.items() if isinstance(value, float)}


def arm(options, data, name, model, bits):
    result = {"arm": name, "bits_per_value": bits, "tasks": scores(options, model, data)}
    if name != "bf16":
        result["divergence"] = divergence(options, model, data)
    print(json.dumps(result), flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("-o", "--out", help="a JSON file for the results")
    options = parser.parse_args()
    options.braid = os.path.abspath(options.braid)
    folder = Path(options.folder).resolve()
    data = folder / "data"
    if not data.exists():
        run(options.braid, "data", "synth", "--out", data, *sorted(BENCH.glob("tiny-*.jsonl")))
    runs = [arm(options, data, "bf16", "tiny", 16), arm(options, data, "ptq", *quantised(options, "tiny", folder / "ptq"))]
    for seed in options.seeds.split(","):
        trained = distilled(options, data, folder, int(seed))
        runs.append(arm(options, data, f"qad, seed {seed}", *quantised(options, trained, folder / f"qad-{seed}-nvfp4")))
    names = list(runs[0]["tasks"])
    print("| arm | bits | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 2))
    for r in runs:
        print(f"| {r['arm']} | {r['bits_per_value']} | " + " | ".join(f"{r['tasks'][name]['accuracy']}" for name in names) + " |")
    if options.out:
        store(options.out, options.braid, options, runs=runs)


if __name__ == "__main__":
    main()
