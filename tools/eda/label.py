#!/usr/bin/env python3
"""Labels the circuits of designs.py by Debian's yosys and berkeley-abc: what braid repro eda learns from.

usage: label.py OUT [--recipes N] [--steps N] [--designs N] [--measure]

OUT/NAME.aig    a circuit as yosys makes it: an and-inverter graph in binary AIGER
OUT/recipes.txt one recipe a line: six steps of abc, drawn at random
OUT/NAME.csv    of each recipe: gates and levels after its steps, area and delay after mapping to gates.genlib, the first
                recipe with the same netlist (the same bytes before mapping), and milliseconds of abc's CPU time, to 10 of them

A table that exists is not made again. --measure prints the first three rows of each, and writes no table.
"""
import argparse
import hashlib
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import designs

STEPS = {"b": "balance", "rw": "rewrite", "rwz": "rewrite -z", "rf": "refactor", "rfz": "refactor -z", "rs": "resub", "rsz": "resub -z"}
SEED = 1
GATES = Path(__file__).with_name("gates.genlib")
COLUMNS = "recipe,ands,levels,area,delay,same,ms"


def draw_recipes(count, steps):
    draw, recipes = random.Random(SEED), []
    while len(recipes) < count:
        recipe = [draw.choice(list(STEPS)) for _ in range(steps)]
        if recipe not in recipes:
            recipes.append(recipe)
    return recipes


def synthesise(text, folder, out):
    source, circuit = folder / "design.v", folder / "design.aig"
    source.write_text(text)
    steps = "hierarchy -top top; proc -norom; flatten; opt; setundef -zero; techmap; opt; aigmap; setundef -zero; opt_clean -purge"
    subprocess.run(["yosys", "-q", "-p", f"read_verilog {source}; {steps}; write_aiger {circuit}"], check=True)
    out.write_bytes(circuit.read_bytes())


def netlist_hash(path):
    text = re.sub(rb"c\n[^\n]*\n?This file was written by ABC.*", b"", path.read_bytes(), flags=re.S)  # its date
    return hashlib.sha256(text).digest()


def table(circuit, recipes, folder):
    """One process for all: reading the gates takes longer than a recipe on a small circuit."""
    lines = [f"read_genlib {GATES}", "time"]
    for number, recipe in enumerate(recipes):
        steps = "; ".join(STEPS[word] for word in recipe)
        lines.append(f"read_aiger {circuit}; strash; {steps}; print_stats; write_aiger {folder}/{number}.aig; map; print_stats; time")
    script = folder / "script"
    script.write_text("\n".join(lines) + "\n")
    done = subprocess.run(["berkeley-abc", "-f", script], capture_output=True, text=True, errors="replace", check=True)
    gates = re.findall(r"and\s*=\s*(\d+)\s+lev\s*=\s*(\d+)", done.stdout)
    mapped = re.findall(r"area\s*=\s*([\d.]+)\s+delay\s*=\s*([\d.]+)", done.stdout)
    seconds = re.findall(r"elapse:\s*([\d.]+) seconds", done.stdout)[1:]
    if not len(gates) == len(mapped) == len(seconds) == len(recipes):
        sys.exit(f"{circuit}: {len(gates)}, {len(mapped)} and {len(seconds)} results; abc says {done.stdout[-2000:]}")
    rows, first = [COLUMNS], {}
    for number, ((ands, levels), (area, delay), time) in enumerate(zip(gates, mapped, seconds)):
        same = first.setdefault(netlist_hash(folder / f"{number}.aig"), number)
        rows.append(f"{number},{ands},{levels},{float(area):g},{float(delay):g},{same},{1000 * float(time):.0f}")
    return "\n".join(rows) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--recipes", type=int, default=200)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--designs", type=int, default=40)
    parser.add_argument("--measure", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    recipes = draw_recipes(args.recipes, args.steps)
    listed, text = args.out / "recipes.txt", "".join(" ".join(recipe) + "\n" for recipe in recipes)
    if listed.exists() and listed.read_text() != text:  # tables of this folder are of those
        sys.exit(f"{listed} has other recipes than --recipes {args.recipes} --steps {args.steps}; try another folder")
    listed.write_text(text)
    with tempfile.TemporaryDirectory() as name:
        done = 0
        for design, text in designs.all_designs().items():
            circuit, labels = args.out / f"{design}.aig", args.out / f"{design}.csv"
            if done == args.designs:
                break
            if not circuit.exists():
                synthesise(text, Path(name), circuit)
            if args.measure:
                print(design, *table(circuit, recipes[:3], Path(name)).splitlines()[1:], flush=True)
            elif not labels.exists():
                try:
                    labels.write_text(table(circuit, recipes, Path(name)))
                except subprocess.CalledProcessError as error:  # abc aborts on some circuits
                    print(f"{design} is left out: {error}", flush=True)
                    circuit.unlink()
                    continue
            print(design, flush=True)
            done += 1


if __name__ == "__main__":
    main()
