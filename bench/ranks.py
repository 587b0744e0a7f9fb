#!/usr/bin/env python3
"""What ranks cost on one machine: steps of hybrid-8.5m by one rank of two threads, two ranks of one thread each (data
parallel), and one rank under `mpirun -n 1` beside the plain program.

    bench/ranks.py BRAID [--rounds 5] [--steps 6] [-o RESULTS.json]

Settings take turns, round by round, so that other load of the machine falls on all of them. A figure is the ratio of a
setting's rate to that of the plain program of as many threads: the median over the rounds. The first step of a run, which
plans, is not counted.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from about import about

RECIPE = """
config = "hybrid-8.5m"
batch = 4
length = 128
dtype = "f32"
[data]
kind = "markov"
[log]
jsonl = "log.jsonl"
[checkpoint]
every = 0
"""
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
       "OMPI_MCA_btl": "self,vader", "OMPI_MCA_hwloc_base_binding_policy": "none"}
# Words before the program, and options of it; then the setting that it is compared with.
SETTINGS = {
    "1 rank, 2 threads": ([], ["-t", 2], None),
    "2 ranks, 1 thread each": ([], ["--ranks", 2, "-t", 1], "1 rank, 2 threads"),
    "2 ranks, 1 thread each, overlap": ([], ["--ranks", 2, "-t", 1, "parallel.overlap=true"], "1 rank, 2 threads"),
    "mpirun -n 1, 2 threads": (["mpirun", "-n", "1"], ["-t", 2], "1 rank, 2 threads"),
    "mpirun -n 2, 1 thread each": (["mpirun", "-n", "2"], ["-t", 1], "1 rank, 2 threads"),
}


def rate(o, folder, before, words):
    out = Path(folder, "run")
    command = [*before, o.braid, "train", f"{folder}/recipe.toml", f"out={out}", f"steps={o.steps}", *words]
    done = subprocess.run([str(word) for word in command], env={**os.environ, **MPI}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"ranks.py: {' '.join(map(str, command))} failed: {done.stdout}")
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    shutil.rmtree(out)
    return statistics.harmonic_mean([line["tokens_per_second"] for line in lines[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("-o", "--out")
    o = parser.parse_args()
    o.braid = os.path.abspath(o.braid)
    settings = {name: s for name, s in SETTINGS.items() if not s[0] or shutil.which(s[0][0])}
    rates = {name: [] for name in settings}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "recipe.toml").write_text(RECIPE, encoding="utf-8")
        for _ in range(o.rounds):
            for name, (before, words, _) in settings.items():
                rates[name].append(rate(o, folder, before, words))
    ratios = {name: statistics.median(a / b for a, b in zip(rates[name], rates[beside]))
              for name, (_, _, beside) in settings.items() if beside}
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f} of the rate of {settings[name][2]}")
    if o.out:
        result = {"benchmark": "ranks", **about(o.braid), "rounds": o.rounds, "steps": o.steps, "load": os.getloadavg(),
                  "tokens_per_second": rates, "ratio": ratios}
        Path(o.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
