#!/usr/bin/env python3
"""Braid's collectives over MPI's messages beside Open MPI's own collectives, on the ranks of one machine.

    bench/mpi_peer.py BRAID [--ranks 4] [--bytes 1K,64K,1M] [--rounds 5] [-o RESULTS.json]

A round times, with `braid comm bench --transport mpi`, all of ours and Open MPI's as its decision function chooses
("native": calls that do not block, "native_blocking": those that do), and then the six all-reduces of its coll/tuned by
name. A time is the fastest of a few calls; times of a round are divided by that round's native_blocking, and the median of
these ratios over the rounds is printed: below 1 is faster than Open MPI. One machine has no network, and more ranks than
cores take turns: the figures compare implementations, not algorithms on a cluster.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from about import about
from ranks import MPI

TUNED = {1: "linear", 2: "reduce+bcast", 3: "recursive doubling", 4: "ring", 5: "segmented ring", 6: "Rabenseifner"}
OPS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast")


def times(o, op, algorithms, env=None):
    """{(bytes, algorithm): us}."""
    command = ["mpirun", "-np", o.ranks, o.braid, "comm", "bench", "--transport", "mpi", "--op", op, "--dtype", "F32", "--gpus",
               o.ranks, "--algorithm", algorithms, "--bytes", o.bytes, "--repeats", 5, "--json"]
    done = subprocess.run([str(word) for word in command], env={**os.environ, **MPI, **(env or {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"mpi_peer.py: {op} failed: {done.stderr}")
    return {(row["bytes"], row["algorithm"]): row["measured_us"] for row in json.loads(done.stdout)["rows"]}


def one_round(o, op):
    found = times(o, op, "all")
    if op == "allreduce":
        for number, name in TUNED.items():
            forced = times(o, op, "native_blocking", {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
                                                      "OMPI_MCA_coll_tuned_allreduce_algorithm": str(number)})
            found.update({(size, f"Open MPI {name}"): us for (size, _), us in forced.items()})
    return {key: us / found[key[0], "native_blocking"] for key, us in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--bytes", default="1K,64K,1M")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--out")
    o = parser.parse_args()
    o.braid = os.path.abspath(o.braid)
    if not shutil.which("mpirun"):
        print("mpi_peer.py: no mpirun; apt-get install openmpi-bin; nothing was measured", file=sys.stderr)
        sys.exit(77)
    rounds = {op: [] for op in OPS}
    for _ in range(o.rounds):
        for op in OPS:
            rounds[op].append(one_round(o, op))
    rows = []
    for op, taken in rounds.items():
        for size, name in taken[0]:
            ratio = statistics.median(x[size, name] for x in taken)
            rows.append({"op": op, "bytes": size, "algorithm": name, "ratio": ratio})
            print(f"{op:14} {size:9} {name:28} {ratio:6.2f}")
    if o.out:
        result = {"benchmark": "mpi_peer", **about(o.braid), "ranks": o.ranks, "rounds": o.rounds, "load": os.getloadavg(),
                  "rows": rows}
        Path(o.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
