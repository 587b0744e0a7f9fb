#!/usr/bin/env python3
"""What the shipped model can do: exact answers to held-out tasks, thinking on and off, as one JSON object.

usage: tiny.py DATA [--model MODEL] [--braid PROGRAM]

DATA is the folder that `braid data synth --out DATA` wrote: no conversation contains its tasks. Questions about
Braid and off-topic prompts come from bench/data.
"""
import argparse
import json
import pathlib
import subprocess

from about import about

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("data", type=pathlib.Path)
parser.add_argument("--model", default="tiny")
parser.add_argument("--braid", default="build/release/bin/braid")
args = parser.parse_args()
own = pathlib.Path(__file__).parent / "data"
result = {"what": "accuracy of greedy answers, exact match; measured by bench/tiny.py DATA", **about(args.braid)}
for name, file, think in (("arithmetic", args.data / "arithmetic.jsonl", "on"),
                          ("arithmetic, thinking off", args.data / "arithmetic.jsonl", "off"),
                          ("strings", args.data / "strings.jsonl", "on"),
                          ("calculator", args.data / "calculator.jsonl", "on"),
                          ("about Braid", own / "tiny-qa.jsonl", "on"),
                          ("off topic", own / "tiny-off-topic.jsonl", "on")):
    done = subprocess.run([args.braid, "eval", args.model, "--tasks", str(file), "--think", think, "--json"], check=True,
                          stdout=subprocess.PIPE, text=True)
    scores = json.loads(done.stdout)
    result[name] = {key: scores[key] for key in ("think", "right", "n", "accuracy", "tasks")}
print(json.dumps(result, indent=1))
