#!/usr/bin/env python3
"""Do eight ranks compute what one does? Losses and norms of gradients of 50 steps in FP32, for every axis of [parallel]
alone and for mixtures of them, beside one rank; and runs that eight ranks save and other meshes resume.

    bench/meshes.py BRAID [MODEL...] [--steps 50] [--more 20] [-o RESULTS.json]

MODEL is a shape of `braid new` or a folder, by default hybrid-8.5m. A figure is the largest relative difference of any
step, of the loss and of the norm of the gradients. A layout that the model's shape refuses is listed with the reason. Nothing here is
timed: eight ranks may share two cores.
"""
import argparse
import hashlib
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from about import about

RANKS = 8
RECIPE = """
{model}
batch = 8
length = 64
dtype = "f32"
[data]
kind = "markov"
[optimizer]
lr = 3e-4
[log]
jsonl = "log.jsonl"
"""
GRIDS = [grid for grid in itertools.product((1, 2, 4, 8), repeat=4) if grid[0] * grid[1] * grid[2] * grid[3] == RANKS]
EXPERTS = "tp=2 cp=2 ep=4 etp=1"
# Words of [parallel]; of others all of the word.
LAYOUTS = ["", "zero=1", "zero=2", "zero=3", "overlap=true", "tp=2", "tp=4", "tp=8", "tp=2 sp=true", "tp=4 sp=true", "tp=8 sp=true",
           "cp=2", "cp=4", "cp=8", "cp=8 cp_attention=ring", "cp=8 cp_mamba=states", "cp=8 cp_attention=ring cp_mamba=states",
           "ep=2", "ep=4", "ep=8", "etp=2", "etp=4", "etp=8", "pp=2", "pp=4", "pp=8", "pp=4 virtual_stages=2 accumulate=4",
           EXPERTS, EXPERTS + " dispatcher=allgather", EXPERTS + " dispatcher=node node_ranks=4", "tp=2 cp=2 zero=3"]
# Saved by eight ranks of the first, resumed by each of the second on so many ranks.
SAVED = "tp=2 cp=2 zero=1"
RESUMED = [(8, SAVED), (1, ""), (2, "tp=2"), (2, "zero=3"), (4, "cp=2 zero=1"), (4, "pp=2"), (8, "tp=4"), (8, "")]


def key(word):
    return word if word.startswith("accumulate") else f"parallel.{word}"


class Runs:
    def __init__(self, o, model, folder):
        self.o, self.folder = o, Path(folder)
        is_shape = "/" not in model
        line = f'config = "{model}"' if is_shape else f'init = "{os.path.abspath(model)}"'
        (self.folder / "recipe.toml").write_text(RECIPE.format(model=line), encoding="utf-8")

    def train(self, name, ranks, layout, *words):
        """The lines of the log; or why there are none."""
        command = [self.o.braid, "train", self.folder / "recipe.toml", f"out={self.folder / name}", *map(key, layout.split()),
                   "--ranks", ranks, "-t", ranks, *words]
        done = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 1 and done.stderr.startswith("braid: "):
            return done.stderr.strip().splitlines()[-1].removeprefix("braid: ")
        if done.returncode != 0:
            sys.exit(f"meshes.py: exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stderr}")
        return [json.loads(line) for line in (self.folder / name / "log.jsonl").read_text(encoding="utf-8").splitlines()]

    def bits(self, name):
        """A hash of the weights and of the optimiser's state at the end of a run."""
        last = max((self.folder / name / "checkpoints").glob("step-*"))
        files = [last / "model.safetensors", last / "training" / "state.safetensors"]
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]

    def drop(self, name):
        shutil.rmtree(self.folder / name, ignore_errors=True)


def difference(lines, wanted):
    """The largest, relative."""
    if [x["step"] for x in lines] != [x["step"] for x in wanted]:
        sys.exit("meshes.py: other steps were logged")
    all_of = [abs(a[name] - b[name]) / abs(b[name]) for a, b in zip(lines, wanted) for name in ("loss", "grad_norm")]
    if not all(map(math.isfinite, all_of)):
        sys.exit("meshes.py: a loss or a norm is not finite")
    return max(all_of)


def layouts_of(o, runs):
    words = f"steps={o.steps}"
    one = runs.train("one", 1, "", words)
    if isinstance(one, str):
        sys.exit(f"meshes.py: one rank does not train: {one}")
    rows = {}
    for layout in [*LAYOUTS, *("grid=" + json.dumps(",".join(map(str, grid))) for grid in GRIDS)]:
        lines = runs.train("some", RANKS, layout, words)
        row = {"refused": lines} if isinstance(lines, str) else {"difference": difference(lines, one), "bits": runs.bits("some")}
        runs.drop("some")
        rows[layout or "data parallel"] = row
        print(f"  {layout or 'data parallel':<44} {row.get('refused') or format(row['difference'], '.1e')}", flush=True)
    return rows


def resumed_of(o, runs):
    """Relative differences of the `more` steps after a checkpoint of eight ranks, from those of the ranks that go on."""
    saved, whole = f"steps={o.steps}", f"steps={o.steps + o.more}"
    reason = runs.train("saved", RANKS, SAVED, saved)
    if isinstance(reason, str):
        return {"refused": reason}
    shutil.copytree(runs.folder / "saved", runs.folder / "on")
    wanted = runs.train("on", RANKS, SAVED, whole, "--resume", "auto")[-o.more:]
    bits, rows = runs.bits("on"), {}
    for ranks, layout in RESUMED:
        runs.drop("on")
        shutil.copytree(runs.folder / "saved", runs.folder / "on")
        lines = runs.train("on", ranks, layout, whole, "--resume", "auto")
        name = f"{ranks} ranks{', ' * bool(layout)}{layout}"
        if isinstance(lines, str):
            rows[name] = {"refused": lines}
        else:
            rows[name] = {"difference": difference(lines[-o.more:], wanted), "same_bits": runs.bits("on") == bits}
        print(f"  resumed by {name:<33} {rows[name]}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("models", nargs="*", default=["hybrid-8.5m"], metavar="MODEL")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--more", type=int, default=20, help="steps after resuming")
    parser.add_argument("-o", "--out")
    o = parser.parse_args()
    o.braid = os.path.abspath(o.braid)
    result = {"benchmark": "meshes", **about(o.braid), "ranks": RANKS, "steps": o.steps, "more": o.more, "models": {}}
    for model in o.models:
        print(model, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            runs = Runs(o, model, folder)
            result["models"][Path(model).name] = {"layouts": layouts_of(o, runs), "resumed": resumed_of(o, runs)}
        if o.out:  # a run that is stopped keeps the models it has finished
            Path(o.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
