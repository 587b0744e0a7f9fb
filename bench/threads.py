#!/usr/bin/env python3
"""The cost of a busy machine: generation with models/tiny and training of a small hybrid next to 0, 1, 2 and 4 busy loops.

usage: threads.py NAME=[VARIABLE=VALUE,...:]PROGRAM ... [--neighbours 0,1,2,4] [--rounds 5] [--ahead] [-o RESULTS.json]

    bench/threads.py one=BRAID_THREADS=1:build/release/bin/braid team=build/release/bin/braid \
        passive=OMP_WAIT_POLICY=passive:older/bin/braid

The named programs alternate within every round, so that other load on the machine affects all of them alike. Prints one
JSON object: for each number of neighbours and each name the median tokens per second, its spread, and the seconds of CPU
time (user and system) of the whole process; the load average before and after shows how idle "0" was. --ahead gives
programs and neighbours, as one session, priority over everything else (autogroup nice -20; needs root): the closest a
busy machine comes to a quiet one.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from about import about, steps_per_second, version_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOKENS = 200
STEPS = 12

RECIPE = """
dtype = "f32"
steps = {steps}
batch = 4
length = 64
seed = 1
out = "{out}"
[data]
kind = "markov"
states = 60
branch = 4
[optimizer]
lr = 1e-3
[log]
every = 1
jsonl = "{log}"
[config]
architectures = ["NemotronHForCausalLM"]
model_type = "nemotron_h"
vocab_size = 64
hidden_size = 64
hybrid_override_pattern = "MEM*-"
num_hidden_layers = 5
expand = 2
mamba_num_heads = 4
mamba_head_dim = 32
n_groups = 2
ssm_state_size = 16
conv_kernel = 4
chunk_size = 64
use_conv_bias = true
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 16
intermediate_size = 128
n_routed_experts = 4
num_experts_per_tok = 2
n_shared_experts = 1
moe_intermediate_size = 64
moe_shared_expert_intermediate_size = 64
"""


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def generate(program, environment):
    out = subprocess.run([program, "run", os.path.join(ROOT, "models/tiny"), "-p", "1 + 2 =", "-n", str(TOKENS),
                          "--ignore-eos", "--json"], check=True, stdout=subprocess.PIPE, env=environment, text=True)
    return steps_per_second(json.loads(out.stdout)["timings"])


def train(program, environment):
    with tempfile.TemporaryDirectory() as folder:
        recipe, log = os.path.join(folder, "recipe.toml"), os.path.join(folder, "log.jsonl")
        with open(recipe, "w", encoding="utf-8") as f:
            f.write(RECIPE.format(steps=STEPS, out=os.path.join(folder, "out"), log=log))
        subprocess.run([program, "train", recipe], check=True, stdout=subprocess.DEVNULL, env=environment)
        with open(log, encoding="utf-8") as f:
            return statistics.median([json.loads(line)["tokens_per_second"] for line in f][1:])


WORK = {"generate": generate, "train": train}


class Program:
    def __init__(self, text):
        self.name, _, rest = text.partition("=")
        variables, _, self.path = rest.rpartition(":")
        self.path = os.path.abspath(self.path)
        # Drops the caller's own thread settings.
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "BRAID_"))}
        self.environment |= dict(pair.split("=", 1) for pair in variables.split(",") if pair)
        if not self.name or not os.access(self.path, os.X_OK):
            sys.exit(f"threads.py: not NAME=[VARIABLE=VALUE,...:]PROGRAM: {text}")


def measure(programs, rounds, neighbours):
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(neighbours)]
    samples = {(kind, p.name): [] for kind in WORK for p in programs}
    load = [os.getloadavg()[0]]
    try:
        time.sleep(1)
        for _ in range(rounds):
            for kind, work in WORK.items():
                for p in programs:
                    before = processor_seconds()
                    rate = work(p.path, p.environment)
                    samples[kind, p.name].append((rate, processor_seconds() - before))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    load.append(os.getloadavg()[0])
    result = {"neighbours": neighbours, "load_average": [round(x, 2) for x in load]}
    for (kind, name), pairs in samples.items():
        rates, seconds = zip(*pairs)
        result.setdefault(kind, {})[name] = {
            "tokens_per_second": round(statistics.median(rates), 1), "slowest": round(min(rates), 1),
            "fastest": round(max(rates), 1), "processor_seconds": round(statistics.median(seconds), 2)}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=Program, metavar="NAME=[VARIABLE=VALUE,...:]PROGRAM")
    parser.add_argument("--neighbours", default="0,1,2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ahead", action="store_true")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    if args.ahead and "BRAID_THREADS_AHEAD" not in os.environ:
        again = subprocess.run([sys.executable, *sys.argv], start_new_session=True, check=False,
                               env={**os.environ, "BRAID_THREADS_AHEAD": "1"})
        sys.exit(again.returncode)
    if args.ahead:
        with open("/proc/self/autogroup", "w", encoding="utf-8") as f:
            f.write("-20")
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        cpu = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "?")
    results = {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "rounds": args.rounds,
               "ahead": args.ahead,
               **about(args.programs[0].path, [p.path for p in args.programs[1:]]),
               "programs": {p.name: version_of(p.path) for p in args.programs},
               "results": [measure(args.programs, args.rounds, int(n)) for n in args.neighbours.split(",")]}
    text = json.dumps(results, indent=1)
    print(text)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as f:
            f.write(text + "\n")


if __name__ == "__main__":
    main()
