#!/usr/bin/env python3
"""LoRA over NVFP4: the speed of `braid train` of an adapter whose base is stored in NVFP4, beside the same model in BF16.

    bench/adapters.py BRAID FOLDER [--model hybrid-1b] [--format nvfp4] [--batch 2] [--length 128] [--steps 3] [--rounds 5]
                      [-o RESULTS.json]

FOLDER gets random weights of the shape in BF16, and in the format, unless it has them. A round is a run of each, in turns,
so that what else the machine does affects both; the first step of a run, which maps the weights, does not count. The ratio
is the median over the rounds of the format's tokens per second over BF16's; that of CPU seconds (user and system, of whole
runs, start included) is printed too, as are the losses: both runs do the same work, on nearly the same model.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess

from about import about

RECIPE = """
init = "{model}"
dtype = "bf16"
steps = {steps}
batch = {batch}
length = {length}
seed = 1
out = "{out}"
[lora]
rank = 16
alpha = 32
targets = ["in_proj", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj"]
[data]
kind = "markov"
states = 60
branch = 4
[optimizer]
lr = 1e-4
[log]
every = 1
jsonl = "{log}"
"""


def seconds_used():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def models(options):
    plain, coded = (os.path.join(options.folder, f"{os.path.basename(options.model)}-{name}") for name in ("bf16", options.format))
    os.makedirs(options.folder, exist_ok=True)
    if not os.path.exists(os.path.join(plain, "config.json")):
        subprocess.run([options.braid, "new", options.model, plain], check=True, stdout=subprocess.DEVNULL)
    if not os.path.exists(os.path.join(coded, "config.json")):
        subprocess.run([options.braid, "quantize", plain, coded, "--format", options.format], check=True, stdout=subprocess.DEVNULL)
    return {"bf16": plain, options.format: coded}


def run(options, name, model):
    """Tokens per second of each step but the first, the losses, and CPU seconds."""
    out = os.path.abspath(os.path.join(options.folder, "run-" + name))
    log = out + ".jsonl"
    subprocess.run(["rm", "-rf", out, log], check=True)
    with open(out + ".toml", "w", encoding="ascii") as file:
        file.write(RECIPE.format(model=os.path.abspath(model), steps=options.steps + 1, batch=options.batch, length=options.length,
                                 out=out, log=log))
    before = seconds_used()
    subprocess.run([options.braid, "train", out + ".toml"], check=True, stdout=subprocess.DEVNULL)
    used = seconds_used() - before
    with open(log, encoding="utf-8") as file:
        steps = [entry for entry in map(json.loads, file) if "tokens_per_second" in entry]
    return {"tokens_per_second": [step["tokens_per_second"] for step in steps[1:]], "loss": [step["loss"] for step in steps],
            "cpu_seconds": used}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("folder")
    parser.add_argument("--model", default="hybrid-1b")
    parser.add_argument("--format", default="nvfp4")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    options.braid = os.path.abspath(options.braid)
    arms, rounds = models(options), []
    for number in range(options.rounds):
        names = list(arms) if number % 2 == 0 else list(reversed(arms))
        rounds.append({name: run(options, name, arms[name]) for name in names})
        rate = {name: statistics.median(rounds[-1][name]["tokens_per_second"]) for name in arms}
        print(f"round {number + 1}: " + ", ".join(f"{name} {value:.2f} tokens/s" for name, value in rate.items()), flush=True)
    ratios = sorted(statistics.median(r[options.format]["tokens_per_second"]) / statistics.median(r["bf16"]["tokens_per_second"])
                    for r in rounds)
    cpu = sorted(r["bf16"]["cpu_seconds"] / r[options.format]["cpu_seconds"] for r in rounds)
    result = {"what": f"LoRA on {options.model}: {options.format} over bf16, {options.rounds} interleaved rounds", **about(options.braid),
              "model": options.model, "format": options.format, "batch": options.batch, "length": options.length,
              "steps": options.steps, "rounds": rounds, "ratio": statistics.median(ratios), "ratios": ratios,
              "cpu_ratio": statistics.median(cpu)}
    print(f"{options.format} over bf16: {result['ratio']:.2f} of the tokens per second ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
          f"{result['cpu_ratio']:.2f} by CPU time")
    if options.output:
        with open(options.output, "w", encoding="ascii") as file:
            json.dump(result, file)
            file.write("\n")


if __name__ == "__main__":
    main()
