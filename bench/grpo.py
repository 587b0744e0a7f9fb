#!/usr/bin/env python3
"""GRPO on models/tiny with answers that the run generates (recipes/tiny-grpo.toml): what number formats of the generator
do to the distance between generator and trainer, and what parts of the recipe are worth.

    bench/grpo.py BRAID FOLDER [--steps 50] [--seeds 0] [--arms exact-bf16,int4] [-o RESULTS.json]

FOLDER keeps every run and its answers; a finished one is not repeated. Columns, means over the steps: `mismatch`, the
mean distance of the log-probabilities of a step's tokens as recorded by the generator from those of training before its
update, the largest over the steps too; `KL`, an estimate of the divergence of generator from trainer (k3, over the
tokens); `ratio`, the mean ratio that the loss sees, 1 where answers are on policy. `before` and `after`: greedy answers
to the 500 sums of `braid data synth`, thinking off, which no run draws.
"""
import argparse
import json
import os
import subprocess
from pathlib import Path

from about import about

ROOT = Path(__file__).resolve().parent.parent
ARMS = {
    "exact-bf16": [],
    "exact-f32": ["dtype=f32"],
    "not-exact": ["exact=false"],
    "ahead": ["rollout.ahead=1"],
    "fp8": ["rollout.format=fp8"],
    "fp8-corrected": ["rollout.format=fp8", "policy.importance_cap=5"],
    "int4": ["rollout.format=int4"],
    "int4-corrected": ["rollout.format=int4", "policy.importance_cap=5"],
    "int4-replayed": ["rollout.format=int4", "policy.importance_cap=5", "policy.replay_routes=true"],
    "no-curriculum": ["rollout.curriculum=none"],
    "group-mean": ["policy.advantage=mean"],
    "no-refill": ["rollout.refill=0"],
}


def run(*words):
    return subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def accuracy(braid, model, tasks):
    """Right answers of 500, by task and in all."""
    done = json.loads(run(braid, "eval", model, "--tasks", tasks, "--think", "off", "-t", "1", "--json"))
    return {name: score["right"] for name, score in done["tasks"].items()} | {"all": done["right"]}


def result_of(options, tasks, arm, seed):
    out = Path(options.folder) / f"{arm}-{seed}"
    kept = out.with_suffix(".json")
    if kept.exists():
        found = json.loads(kept.read_text())
        if found.pop("options", None) == [options.steps, options.words]:
            return found
    words = [f"out={out}", f"seed={seed}", f"steps={options.steps}", "checkpoint.every=25", "checkpoint.keep=1",
             "log.every=1", "-t", "1", *ARMS[arm], *options.words]
    run(options.braid, "train", ROOT / "recipes" / "tiny-grpo.toml", *words, "--resume", "auto")
    steps = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    mean = lambda key, among=steps: sum(step.get(key, 0) for step in among) / len(among)
    tenth = max(1, len(steps) // 5)
    result = {"arm": arm, "seed": seed, "steps": len(steps), "mismatch": mean("mismatch"),
              "mismatch_max": max(step["mismatch"] for step in steps), "mismatch_kl": mean("mismatch_kl"), "ratio": mean("ratio"),
              "clipped": mean("clipped"), "entropy_first": mean("entropy", steps[:tenth]), "entropy_last": mean("entropy", steps[-tenth:]),
              "zero_variance": mean("zero_variance"), "after": accuracy(options.braid, out, tasks)}
    kept.write_text(json.dumps(result | {"options": [options.steps, options.words]}))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--words", nargs="*", default=[], help="further key=value of every run")
    parser.add_argument("-o", "--out", help="a JSON file for the results")
    options = parser.parse_args()
    options.braid = os.path.abspath(options.braid)
    data = Path(options.folder) / "data"
    if not data.exists():
        run(options.braid, "data", "synth", "--out", data, "--train", "100", "--valid", "10",
            *sorted((ROOT / "bench" / "data").glob("tiny-*.jsonl")))
    tasks = data / "arithmetic.jsonl"
    before = accuracy(options.braid, "tiny", tasks)
    runs = [result_of(options, tasks, arm, int(seed)) for arm in options.arms.split(",") for seed in options.seeds.split(",")]
    print(f"before: {before}\n| arm | seed | mismatch | largest | KL | ratio | sums right of 500 |\n|---|---|---|---|---|---|---|")
    for r in runs:
        print(f"| {r['arm']} | {r['seed']} | {r['mismatch']:.2g} | {r['mismatch_max']:.2g} | {r['mismatch_kl']:.2g} | {r['ratio']:.4f} | {r['after']['all']} |")
    if options.out:
        Path(options.out).write_text(json.dumps({**about(options.braid), "words": options.words, "before": before, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
