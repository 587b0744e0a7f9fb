#!/usr/bin/env python3
"""GRPO on skills that models/tiny does not have: a few demonstrations, after which about a third of its answers is right,
then answers of its own.

    bench/skills.py BRAID FOLDER [--demonstrations 1024] [--epochs 4] [--steps 200] [--seeds 0,1,2] [-o RESULTS.json]

Four environments, all levels alike, thinking off: brackets to close, an answer of so many words, a JSON object by a
schema, a text that matches a regular expression. `start`, `shown` and `trained` are shares of right answers, one each to 500 new problems at
temperature 1: of the model that ships, after the demonstrations, and after GRPO. Problems of the three, of the
demonstrations and of GRPO are drawn with seeds of their own, but small environments have few: all 16 of exact-length and
most of the 85 of json-schema occur in all, about half of those of regex and brackets. FOLDER keeps every run; a finished one is not repeated, a stopped one goes on.
"""
import argparse
import json
import os
import random
import re
import subprocess
from pathlib import Path

from about import store

ENVIRONMENTS = ["brackets", "exact-length", "json-schema", "regex"]
CLOSING = dict(zip("([{", ")]}"))
WORDS = "the old house by the lake has a red door and two small windows over a green garden".split()
VALUES = {"name": '"Ann"', "age": "30", "done": "true", "color": '"red"', "scores": "[1, 2]"}


def matching(pattern):
    """The shortest text with the first letter, digit or word of every class."""
    text = re.sub(r"\((\w+)\|\w+\)", r"\1", pattern.replace("\\d", "1")).replace("[a-z]", "a").replace("[A-Z]", "A").replace("[abc]+", "a")
    return re.sub(r"(\w)\{(\d),?\}", lambda part: part[1] * int(part[2]), text)


def solved(environment, prompt):
    """One right answer."""
    if environment == "brackets":
        still_open = []
        for sign in re.sub(r"[^][(){}]", "", prompt):
            still_open.append(CLOSING[sign]) if sign in CLOSING else still_open.pop()
        return "".join(reversed(still_open))
    if environment == "exact-length":
        return " ".join(WORDS[:int(re.search(r"\d+", prompt)[0])])
    if environment == "regex":
        return matching(prompt.split()[-1])
    names = re.findall(r'"(\w+)" \(', prompt)
    return "{" + ", ".join(f'"{name}": {VALUES[name]}' for name in names) + "}"


def train(braid, recipe, *words):
    """To the last step, from where an earlier call was stopped."""
    subprocess.run([braid, "train", recipe, *words, "--resume", "auto"], check=True, stdout=subprocess.DEVNULL)


def rollouts(folder, name, init, seed, rows, **words):
    """A recipe of `rows` problems a step, for train()."""
    recipe = folder / f"{name}.toml"
    lines = {"init": str(init), "out": str(folder / name), "dtype": "bf16", "seed": seed, "length": 160} | words
    recipe.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()) + f"""
[rollout]
environments = {json.dumps(ENVIRONMENTS)}
prompts = {rows}
answers = 8
tokens = 48
every = 1
[policy]
advantage = "leave-one-out"
""")
    return recipe


def drawn(braid, folder, name, init, seed, problems):
    """(environment, prompt, reward) of one answer to each of so many problems, by a step that trains nothing."""
    out = folder / name
    train(braid, rollouts(folder, name, init, seed, problems, steps=1), "rollout.answers=2", "optimizer.lr=0",
          f"accumulate={max(1, problems // 32)}")
    groups = {}
    for line in (out / "rollouts.jsonl").read_text().splitlines():
        row = json.loads(line)
        groups.setdefault(row["group"], (row["environment"], row["prompt"], row["reward"]))
    return list(groups.values())


def shares(rows):
    rewards = {name: [reward for environment, _, reward in rows if environment == name] for name in ENVIRONMENTS}
    return {name: {"right": sum(r), "of": len(r)} for name, r in rewards.items()}


def demonstrated(options, folder, seed):
    """The folder of a model that was shown right answers to new problems."""
    out = folder / "shown"
    rows = drawn(options.braid, folder, "problems", "tiny", 1000 + seed, options.demonstrations)
    random.Random(seed).shuffle(rows)
    data = folder / "demonstrations.jsonl"
    data.write_text("".join(json.dumps({"messages": [{"role": "user", "content": prompt},
                                                     {"role": "assistant", "content": solved(name, prompt)}]}) + "\n"
                            for name, prompt, _ in rows))
    recipe = folder / "shown.toml"
    recipe.write_text(f"""init = "tiny"
out = {json.dumps(str(out))}
dtype = "bf16"
seed = {seed}
steps = {max(1, options.demonstrations * options.epochs // 32)}
batch = 4
length = 512
[data]
kind = "jsonl"
path = {json.dumps(str(data))}
[optimizer]
lr = {options.shown_lr}
weight_decay = 0.0
""")
    train(options.braid, recipe)
    return out


def run(options, seed):
    folder = Path(options.folder).resolve() / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    result = {"seed": seed, "start": shares(drawn(options.braid, folder, "start", "tiny", 2000 + seed, options.problems))}
    shown = demonstrated(options, folder, seed)
    result["shown"] = shares(drawn(options.braid, folder, "after-shown", shown, 2000 + seed, options.problems))
    print(json.dumps(result), flush=True)
    recipe = rollouts(folder, "trained", shown, seed, options.prompts, steps=options.steps)
    train(options.braid, recipe, f"optimizer.lr={options.lr}", "optimizer.weight_decay=0", "optimizer.beta2=0.99",
          "schedule.kind=wsd", "schedule.warmup=5", f"schedule.decay={options.steps // 3}", "rollout.every=0", *options.words)
    result["trained"] = shares(drawn(options.braid, folder, "after-trained", folder / "trained", 2000 + seed, options.problems))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("folder")
    parser.add_argument("--demonstrations", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--shown-lr", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--words", nargs="*", default=[], help="further key=value of GRPO")
    parser.add_argument("-o", "--out", help="a JSON file for the results")
    options = parser.parse_args()
    options.braid = os.path.abspath(options.braid)
    runs = [run(options, int(seed)) for seed in options.seeds.split(",")]
    for r in runs:
        for name in ENVIRONMENTS:
            print(f"seed {r['seed']}  {name:13}" + "".join(
                f"  {when} {r[when][name]['right'] / max(1, r[when][name]['of']):.2f}" for when in ("start", "shown", "trained")))
    if options.out:
        store(options.out, options.braid, options, runs=runs)


if __name__ == "__main__":
    main()
