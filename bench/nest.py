#!/usr/bin/env python3
"""Models inside a model beside models of their own: `braid nest` with [nest] against `braid prune` with [distill].

    bench/nest.py [--braid BRAID] [--budgets 0.75,0.5] [--steps 96] [-o RESULTS.json]

The parent is `tiny`, and the teacher of all. Nested: one folder, whose models take turns for all steps. Apart: every
smaller model is pruned to the same share of parameters and distilled by itself; the steps are divided among them, and
the whole, which is the teacher, needs none. So both arms read the same number of tokens in all, in rows of the same
size, with the same schedule over the steps that each has. Both are judged as slices, in BF16, on the answers of
conversations that none of them read (`braid data synth` with another seed): the divergence from the parent with its
standard error, the increase of the perplexity, the same likeliest token, and accuracy on held-out sums of `tiny`'s tasks.
"""
import argparse
import json
import pathlib
import resource
import tempfile

import formats
from about import about

RECIPE = """
init = "{init}"
out = "{out}"
steps = {steps}
batch = {batch}
length = {length}
seed = {seed}
[data]
kind = "jsonl"
path = "{data}"
[optimizer]
lr = {lr}
weight_decay = 0
[schedule]
kind = "cosine"
warmup = {warmup}
[distill]
teacher = "{teacher}"
[log]
every = 1000000
"""


def seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judged(args, folder, answers, tasks):
    kl = json.loads(formats.run(args.braid, "eval", folder, "-c", 4096, "--kl", args.model, "--jsonl", answers, "--json"))
    done = json.loads(formats.run(args.braid, "eval", folder, "--tasks", tasks, "--think", "off", "-n", 24, "--json"))
    return {key: kl[key] for key in ("kl", "kl_error", "same_top", "ratio")} | {"right": done["accuracy"] / 100}


def trained(args, work, name, init, steps, more=""):
    """The folder that a run of so many steps leaves."""
    recipe = work / f"{name}.toml"
    recipe.write_text(RECIPE.format(init=init, out=work / f"run-{name}", steps=steps, batch=args.batch, length=args.length, seed=args.seed,
                                    data=work / "data" / "train.jsonl", lr=args.lr, warmup=max(1, steps // 10), teacher=args.model) + more)
    formats.run(args.braid, "train", recipe, "-t", args.threads)
    return work / f"run-{name}" / "checkpoints" / f"step-{steps:08}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/bin/braid")
    parser.add_argument("--model", default="models/tiny", type=pathlib.Path)
    parser.add_argument("--budgets", default="0.75,0.5", help="shares of its parameters")
    parser.add_argument("--steps", default=96, type=int, help="of the nested models together, and of the others together")
    parser.add_argument("--batch", default=8, type=int)
    parser.add_argument("--length", default=192, type=int)
    parser.add_argument("--lr", default=2e-4, type=float)
    parser.add_argument("--seed", default=1, type=int, help="of the runs")
    parser.add_argument("--samples", default=16, type=int, help="rows of 256 tokens that importance is measured on")
    parser.add_argument("--rows", default=40, type=int, help="conversations that judge")
    parser.add_argument("--min-width", default="0.25")
    parser.add_argument("--threads", default=1, type=int)
    parser.add_argument("-o", "--out")
    args = parser.parse_args()
    args.model = args.model.resolve()
    shares = args.budgets.split(",")
    results = {"what": "nested models trained together beside models pruned and distilled one by one at the same tokens in all, measured",
               **(about(args.braid) if args.out else {}), "steps": args.steps, "tokens": args.steps * args.batch * args.length, "seed": args.seed,
               "lr": args.lr, "rows": []}
    print(f"{'share':>6} {'arm':24} {'params':>8} {'steps':>6} {'KL':>8} {'+-':>7} {'perplexity x':>13} {'same top':>9} {'right':>6}", flush=True)

    def save():  # after every row, so that a run that is stopped leaves what it measured
        if args.out:
            pathlib.Path(args.out).write_text(json.dumps(results, indent=1) + "\n")

    def row(share, arm, steps, folder, params):
        found = {"share": float(share), "arm": arm, "steps": steps, "params": params, **judged(args, folder, answers, tasks)}
        results["rows"].append(found)
        save()
        print(f"{share:>6} {arm:24} {params / 1e6:7.2f}M {steps:6} {found['kl']:8.4f} {found['kl_error']:7.4f} {found['ratio']:13.3f} "
              f"{100 * found['same_top']:8.1f}% {100 * found['right']:5.1f}%", flush=True)

    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        formats.run(args.braid, "data", "synth", "--out", work / "data", "--seed", 11, "--train", 2000, "--valid", 1, "--tasks", 60)
        answers, tasks = formats.conversations(args, str(work / "judging")), work / "data" / "arithmetic.jsonl"
        common = ("--data", work / "data" / "train.jsonl", "--samples", args.samples, "--length", 256, "--min-width", args.min_width,
                  "-t", args.threads, "--json")
        nested = json.loads(formats.run(args.braid, "nest", args.model, work / "nested", "--budgets", ",".join(["1", *shares]), *common))
        params = {b["name"]: b["params"] for b in nested["budgets"]}

        def slices(folder, arm, steps):
            for share in ("1", *shares):
                out = work / f"{arm}-{share}".replace(" ", "-")
                formats.run(args.braid, "slice", folder, out, "--budget", share)
                row(share, arm, steps, out, params[share])

        slices(work / "nested", "nested, untrained", 0)
        before = seconds()
        joint = trained(args, work, "joint", work / "nested", args.steps, f"[nest]\nbudgets = [1, {', '.join(shares)}]\n")
        results["cpu_seconds_nested"] = seconds() - before
        slices(joint, "nested, together", args.steps)
        used = 0
        for share in shares:
            pruned = json.loads(formats.run(args.braid, "prune", args.model, work / f"pruned-{share}", "--target", f"params={share}", *common))
            count = pruned["after"]["params"]
            row(share, "apart, untrained", 0, work / f"pruned-{share}", count)
            before, steps = seconds(), args.steps // len(shares)
            apart = trained(args, work, f"apart-{share}", work / f"pruned-{share}", steps)
            used += seconds() - before
            row(share, "apart, distilled", steps, apart, count)
        results["cpu_seconds_apart"] = used
        results["bytes"] = {"nested": sum(f.stat().st_size for f in joint.glob("*.safetensors"))}
        save()


if __name__ == "__main__":
    main()
