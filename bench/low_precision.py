#!/usr/bin/env python3
"""The loss that low-precision recipes cost a hybrid of 8.5 million parameters: one run of `braid train` per arm and
seed, with the same initial weights and batches for all arms of a seed. Numerics only: the formats are emulated.

    bench/low_precision.py BRAID FOLDER [--steps 5000] [--seeds 0,1,2] [--arms bf16,nvfp4] [-o RESULTS.json]
    bench/low_precision.py BRAID FOLDER --pilot          one run of bf16, to see whether the steps are enough
    bench/low_precision.py BRAID FOLDER --table          the table of the finished runs

The corpus needs depth: rows of recall (4 keys with values, queried again), of a grammar (trees of depth 3, three rules
per symbol) and of sums (mod 7), in equal shares; none can be predicted from the last token alone. FOLDER keeps every
run: a finished one is not repeated and an interrupted one resumes from its last checkpoint, so a campaign can be
stopped at any time. RESULTS.json keeps the mean loss of each hundredth of every finished run: with that file a campaign
can continue on another machine.
No result depends on threads: campaigns of different --seeds can share FOLDER and the machine (and write RESULTS.json
with --table when both have ended).

The loss of a run is the mean over the last tenth of its steps, all on new rows. Its gap is the difference from bf16 of
the same seed, in % of bf16's loss, and in % of what bf16 has left to learn: its loss minus the entropy of the sources, the
lower bound for any model. An ablation has a second gap, to nvfp4 of the same seed: the effect of the part it leaves out.
A gap is printed with its 95% interval by Student's t over the seeds (three: 4.3 standard errors to either side), and is
significant if that excludes zero, each arm by itself: with nine such gaps, one campaign in three has one by chance. A gap
that is not significant does not prove that a format costs nothing, only that it costs less than the width of the interval,
in this model, at this learning rate, with the first and last layers in high precision. Arms quantise unequal shares of the
values (see the note of each). "learnt" is when a run first comes within LEARNT nats of the entropy, in % of its steps: arms
may differ in that and still end at the same loss. The bf16 curve has to be flat: before the learning rate decays, the loss
of the last fifth of the constant steps is less than FLAT below that of the fifth before. Otherwise the table prints NOT
FLAT, and its gaps prove nothing.
"""
import argparse
import hashlib
import json
import math
import os
import shutil
import statistics
import subprocess
import time

from about import about, version_of

FLAT = 0.015
LEARNT = 0.1
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}  # 97.5% points by number of seeds; more: that of five

# The [precision] section of each arm; bf16 is the baseline.
ARMS = {
    "bf16": {},
    "fp8": {"recipe": '"fp8"'},
    "mxfp8": {"recipe": '"mxfp8"'},
    "nvfp4": {"recipe": '"nvfp4"'},
    "nvfp4-no-sr": {"recipe": '"nvfp4"', "stochastic": "false"},
    "nvfp4-no-hadamard": {"recipe": '"nvfp4"', "hadamard": "false"},
    "nvfp4-1d": {"recipe": '"nvfp4"', "weight_scales": '"1d"'},
}
ABLATIONS = [arm for arm in ARMS if arm.startswith("nvfp4-")]  # of nvfp4

SOURCES = ("recall", "pcfg", "modular")  # in equal shares of rows

RECIPE = """
config = "hybrid-8.5m"
dtype = "bf16"
steps = {steps}
batch = {batch}
length = {length}
seed = {seed}
out = "{out}"
[precision]
{precision}
[data]
states = 8
pairs = 4
depth = 3
rules = 3
modulus = 7
{sources}
[optimizer]
lr = {lr}
[schedule]
kind = "wsd"
warmup = {warmup}
decay = {decay}
[loss]
aux = 1e-3
[checkpoint]
every = {every}
keep = 1
[log]
every = 1
jsonl = "log.jsonl"
"""


class Campaign:
    """The runs of a folder, all of one schedule."""

    def __init__(self, options):
        self.braid, self.folder = os.path.abspath(options.braid), os.path.abspath(options.folder)
        self.schedule = {"steps": options.steps, "batch": options.batch, "length": options.length, "lr": options.lr,
                         "recipe": hashlib.sha256(repr((RECIPE, SOURCES, ARMS)).encode()).hexdigest()[:16]}
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, "schedule.json")
        if os.path.exists(path):
            with open(path, encoding="ascii") as f:
                kept = json.load(f)
            if kept != self.schedule:
                raise SystemExit(f"{self.folder} holds runs of {kept}, not of {self.schedule}; try another folder")
        else:
            write_json(path, self.schedule)
        self.kept = kept_runs(options.output, self.schedule) if options.output else {}

    def decay(self):
        return self.schedule["steps"] // 5

    def path(self, arm, seed):
        return os.path.join(self.folder, f"{arm}-{seed}")

    def result(self, arm, seed):
        if (arm, seed) in self.kept:
            return self.kept[arm, seed]
        path = self.path(arm, seed) + ".json"
        if not os.path.exists(path):
            return None
        with open(path, encoding="ascii") as f:
            return json.load(f)

    def train(self, out, sources, words):
        """Trains over these sources; returns the program's output."""
        blend = "\n".join(f'[[data.blend]]\npath = "{source}"' for source in sources)
        data = blend if len(sources) > 1 else f'kind = "{sources[0]}"'
        steps = words["steps"]
        with open(out + ".toml", "w", encoding="ascii") as f:
            f.write(RECIPE.format(**words, out=out, sources=data, warmup=max(1, steps // 30), decay=self.decay(),
                                  every=max(1, steps // 20)))
        done = subprocess.run([self.braid, "train", out + ".toml", "--resume", "auto"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{out}: {done.stderr}")
        return done.stdout

    def entropy(self):
        """Nats per token of each source, as `braid train` prints them before its first step."""
        found = {}
        for source in SOURCES:
            out = os.path.join(self.folder, "entropy-" + source)
            shutil.rmtree(out, ignore_errors=True)
            printed = self.train(out, [source], {**self.schedule, "steps": 1, "seed": 0, "precision": ""})
            found[source] = float(next(line.split()[-1] for line in printed.splitlines() if line.startswith("entropy floor")))
        return found

    def run(self, arm, seed):
        """Trains to the end, from the last checkpoint if there is one, and stores the result."""
        if self.result(arm, seed):
            return
        out, steps = self.path(arm, seed), self.schedule["steps"]
        words = "\n".join(f"{word} = {value}" for word, value in ARMS[arm].items())
        started = time.monotonic()
        printed = self.train(out, SOURCES, {**self.schedule, "seed": seed, "precision": words})
        losses = read_losses(os.path.join(out, "log.jsonl"))
        if sorted(losses) != list(range(1, steps + 1)):
            raise SystemExit(f"{out}/log.jsonl has {len(losses)} of {steps} steps")
        note = next((line for line in printed.splitlines() if "emulated" in line), "")
        write_json(out + ".json", {"arm": arm, "seed": seed, "note": note, "braid": version_of(self.braid),
                                   "seconds_of_last_start": round(time.monotonic() - started),
                                   "curve": curve_of([losses[step] for step in range(1, steps + 1)])})


def write_json(path, value):
    with open(path + ".part", "w", encoding="ascii") as f:
        json.dump(value, f)
        f.write("\n")
    os.replace(path + ".part", path)


def read_losses(path):
    """Losses by step. An interrupted run has some steps twice, with identical values."""
    losses = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            entry = json.loads(line)
            if "loss" in entry and "step" in entry:
                losses[entry["step"]] = entry["loss"]
    return losses


def curve_of(losses):
    """The mean loss of each hundredth of the run."""
    bounds = [len(losses) * i // 100 for i in range(101)]
    return [round(statistics.mean(losses[begin:end]), 6) for begin, end in zip(bounds, bounds[1:]) if begin < end]


def kept_runs(path, schedule):
    """The runs in RESULTS.json by arm and seed; refuses those of another schedule."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="ascii") as f:
        results = json.load(f)
    if any(results.get(key) != value for key, value in schedule.items()):
        raise SystemExit(f"{path} holds results of another schedule than {schedule}; move it away to start over")
    return {(arm, int(seed)): {"note": row["note"], "curve": curve}
            for arm, row in results["arms"].items() for seed, curve in row["curves"].items()}


def final(curve):
    return statistics.mean(curve[-max(1, len(curve) // 10):])


def slope(curve):
    """How far the last fifth of the constant learning rate (four fifths of the run) is below the fifth before, relative
    to it."""
    constant = curve[:len(curve) * 4 // 5]
    fifth = max(1, len(constant) // 5)
    return 1 - statistics.mean(constant[-fifth:]) / statistics.mean(constant[-2 * fifth:-fifth])


def learnt(curve, entropy):
    """When the run learnt, in % of its steps; None: not by its end."""
    return next((100 * i // len(curve) for i, loss in enumerate(curve) if loss < entropy + LEARNT), None)


def gap(curves, base, entropy):
    """The gap from `base` to `curves`, both by seed, over their common seeds."""
    pairs = [(final(curve), final(base[seed])) for seed, curve in curves.items() if seed in base]
    shares = [100 * (ours / theirs - 1) for ours, theirs in pairs]
    error = statistics.stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else None
    interval = STUDENT.get(len(shares), 2.78) * error if error is not None else None
    return {"percent": shares, "mean": statistics.mean(shares), "interval_95": interval,
            "of_what_is_left": statistics.mean(100 * (ours - theirs) / (theirs - entropy) for ours, theirs in pairs),
            "counts": interval is not None and abs(statistics.mean(shares)) > interval}


def summary(campaign, arms, seeds):
    """The table over the seeds that have finished in both an arm and bf16."""
    sources = campaign.entropy()
    entropy = statistics.mean(sources.values())
    runs = {arm: {seed: campaign.result(arm, seed) for seed in seeds if campaign.result(arm, seed)} for arm in ARMS}
    curves = {arm: {seed: run["curve"] for seed, run in found.items() if seed in runs["bf16"]} for arm, found in runs.items()}
    table = {}
    for arm in arms:
        mine = curves[arm]
        if not mine:
            continue
        table[arm] = {"seeds": sorted(mine), "loss": [final(curve) for curve in mine.values()],
                      "slope": [slope(curve) for curve in mine.values()],
                      "learnt": [learnt(curve, entropy) for curve in mine.values()]}
        if arm != "bf16":
            table[arm]["gap"] = gap(mine, curves["bf16"], entropy)
        if arm in ABLATIONS and set(mine) & set(curves["nvfp4"]):
            table[arm]["gap_to_nvfp4"] = gap(mine, curves["nvfp4"], entropy)
        table[arm] |= {"note": next(iter(runs[arm].values()))["note"], "curves": mine}
    slopes = [slope(curve) for curve in curves["bf16"].values()]
    return {"what": "loss of hybrid-8.5m on recall, a grammar and sums, by recipe; emulated, numerics only",
            **campaign.schedule, "entropy": sources, "flat": bool(slopes) and max(slopes) < FLAT, "arms": table}


def in_words(found):
    if not found:
        return f"{'':>19}"
    if found["interval_95"] is None:
        return f"{found['mean']:>+7.2f}% one seed "
    return f"{found['mean']:>+7.2f}% +-{found['interval_95']:5.2f}{' *' if found['counts'] else '  '}"


def show(result):
    slopes = ", ".join(f"{100 * s:.2f}%" for s in result["arms"].get("bf16", {"slope": []})["slope"])
    print(f"{result['steps']} steps of {result['batch']} x {result['length']} tokens; bf16 still falls by {slopes} "
          f"per fifth: {'flat' if result['flat'] else 'NOT FLAT, no gap is evidence; try more --steps'}")
    print(f"entropy of the sources {statistics.mean(result['entropy'].values()):.4f}; * significant")
    print(f"{'arm':<18} {'loss':>7} {'spread':>7} {'gap to bf16, 95%':>19} {'of the rest':>11} {'to nvfp4, 95%':>19}  learnt at, %")
    for arm, row in result["arms"].items():
        spread = 100 * (max(row["loss"]) - min(row["loss"])) / statistics.mean(row["loss"])
        rest = f"{row['gap']['of_what_is_left']:+.1f}%" if "gap" in row else ""
        late = ", ".join("-" if at is None else str(at) for at in row["learnt"])
        print(f"{arm:<18} {statistics.mean(row['loss']):>7.4f} {spread:>6.2f}% {in_words(row.get('gap'))} {rest:>11} "
              f"{in_words(row.get('gap_to_nvfp4'))}  {late}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--pilot", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    arms = options.arms.split(",")
    seeds = sorted({int(seed) for seed in options.seeds.split(",")})
    unknown = [arm for arm in arms if arm not in ARMS]
    if unknown:
        raise SystemExit(f"no arm {unknown[0]}; expected {', '.join(ARMS)}")
    arms = ["bf16"] + [arm for arm in arms if arm != "bf16"]
    campaign = Campaign(options)
    if options.pilot:
        campaign.run("bf16", seeds[0])
    elif not options.table:
        for seed in seeds:  # seed by seed: partial results are useful before the last one ends
            for arm in arms:
                campaign.run(arm, seed)
                print(f"{arm} of seed {seed}: {final(campaign.result(arm, seed)['curve']):.4f}", flush=True)
    result = summary(campaign, arms, seeds)
    show(result)
    if options.output:
        run_fields = about(campaign.braid)
        others = sum((campaign.result(arm, seed) or run_fields).get("braid") != run_fields["braid"] for arm in arms for seed in seeds)
        if others:
            run_fields.setdefault("caveats", []).append(f"{others} of the runs are from another build of the program, or do not name theirs")
        write_json(options.output, {"what": result["what"], **run_fields, **result})


if __name__ == "__main__":
    main()
