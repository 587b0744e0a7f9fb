"""A run that is killed at any instant and resumed ends bit-identical to an uninterrupted one.

usage: kill_resume.py BRAID [TRIES [RANKS | layouts]]
Trains the hybrid of tests/data (Mamba, attention, latent experts, prediction block) on a generated source: once without
interruption, then TRIES times (5) killed with SIGKILL at a random instant, and resumed with another split of the batch.
Every second try is in BF16. Two of four tries are killed between two checkpoints, so that steps are lost; the others at
any instant, also inside a save. In every third try a copy of the process writes the checkpoints. Each kill must hit the run alive and in the middle of its steps, the resumed run must
start right after the newest checkpoint, and the final checkpoints, their mean and the running mean must be equal byte for byte.
Of several RANKS one is killed, any of them, and the others must end by themselves. `layouts`: ranks that divide the model or
its state, in another way in every try, and write each checkpoint together; a resumed run has the same layout.
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.program import braid, start
from support.training import HYBRID, checkpoints, logged_steps, printed_steps, state_of

TRIES = int(sys.argv[1]) if len(sys.argv) > 1 else 5
LAYOUTS = [(2, "parallel.tp=2"), (2, "parallel.zero=3"), (2, "parallel.pp=2", "accumulate=2"), (2, "parallel.ep=2"),
           (4, "parallel.tp=2", "parallel.zero=1"), (4, "parallel.pp=2", "parallel.tp=2", "accumulate=2"),
           (4, "parallel.ep=2", "parallel.zero=2")]
WHAT = sys.argv[2] if len(sys.argv) > 2 else "1"
if WHAT != "layouts":
    LAYOUTS = [(int(WHAT),)]
BATCH, STEPS, EVERY = 4, 9, 3
AGAIN = 20  # retries of kills that come too late, after the process ran ahead
RECIPE = f"""
init = "{HYBRID}"
steps = {STEPS}
batch = {BATCH}
length = 24
[data]
kind = "markov"
[optimizer]
kind = "muon"
[schedule]
kind = "wsd"
warmup = 2
decay = 3
[loss]
mtp_scale = 0.3
aux = 1e-3
router_bias_rate = 1e-3
[ema]
decay = 0.9
[checkpoint]
every = {EVERY}
keep = 2
merge = 3
[log]
jsonl = "log.jsonl"
"""


def line(recipe, out, layout, *more):
    ranks, *words = layout
    return "train", recipe, f"out={out}", "--threads", ranks, "--ranks", ranks, *words, *more


def ranks_of(run, ranks):
    """The first is `run` itself, which starts the others; after them come copies that write checkpoints."""
    with open(f"/proc/{run.pid}/task/{run.pid}/children", encoding="ascii") as children:
        return [run.pid, *map(int, children.read().split())][:ranks]


def result_of(out):
    """The files of a finished run."""
    means = {f"{name}/model.safetensors": (out / name / "model.safetensors").read_bytes() for name in ("merged", "ema")}
    return {**state_of(out, STEPS), **means}


def run(*arguments):
    done = braid(*line(*arguments), timeout=600)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {done.stderr}")
    return done


def kill(recipe, out, layout, words, after, delay, victim):
    """Kills rank `victim` of a run `delay` seconds after it printed step `after`. Returns the last step printed; None if the run was done."""
    with start(*line(recipe, out, layout, *words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        printed = ""
        while printed_steps(printed)[-1:] != [after]:
            text = child.stdout.readline()
            if not text:
                sys.exit(f"the run ended before step {after}: {child.wait()}")
            printed += text
        time.sleep(delay)
        ranks = ranks_of(child, layout[0])
        alive = child.poll() is None and len(ranks) == layout[0]
        if alive:
            os.kill(ranks[victim], signal.SIGKILL)
        printed += child.stdout.read()
        child.wait(timeout=60)
    last = printed_steps(printed)[-1]
    killed = child.returncode == -signal.SIGKILL if victim == 0 else child.returncode != 0
    if not alive or not killed or STEPS in (last, *checkpoints(out)):
        return None
    return last


def attempt(recipe, root, layout, words, seconds, chance, between):
    """A killed run: its folder, its last step, and the step of its newest checkpoint, 0 if a copy died before the first was whole."""
    for i in range(AGAIN):
        out = root / f"{len(list(root.iterdir()))}"
        after = EVERY * chance.randrange(1, STEPS // EVERY) + 1 if between else chance.randrange(EVERY + 1, STEPS - 1)
        delay = 0 if between else chance.uniform(0, seconds / STEPS)
        last = kill(recipe, out, layout, words, after, delay, chance.randrange(layout[0]))
        if last is None:
            continue
        saved = max(checkpoints(out), default=0)
        if not saved <= last < STEPS:
            sys.exit(f"killed after step {last}, and the newest checkpoint is {saved}")
        if last > saved or not between:
            return out, last, saved
    sys.exit(f"{AGAIN} kills came too late")


def main():
    seed = int(os.environ.get("SEED", time.time_ns() % 10**6))
    chance = random.Random(seed)
    lost = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        recipe = root / "recipe.toml"
        recipe.write_text(RECIPE)
        wanted, seconds = {}, {}
        for i in range(TRIES):
            dtype, layout = ("f32", "bf16")[i % 2], LAYOUTS[i % len(LAYOUTS)]
            kind = dtype, layout
            if kind not in wanted:
                begin = time.monotonic()
                whole = root / f"whole-{len(wanted)}"
                run(recipe, whole, layout, f"dtype={dtype}")
                seconds[kind] = time.monotonic() - begin
                wanted[kind] = result_of(whole)
            words = f"dtype={dtype}", f"checkpoint.async={'true' if i % 3 == 1 else 'false'}"
            out, last, saved = attempt(recipe, root, layout, words, seconds[kind], chance, i // 2 % 2 == 0)
            lost += last - saved
            name = f"try {i} of seed {seed} ({dtype}, {layout}, killed after step {last}, resumed from {saved})"
            parts = () if layout[1:] else (f"accumulate={chance.choice([n for n in (1, 2, 4) if n * layout[0] <= BATCH])}",)
            done = run(recipe, out, layout, *words, "--resume", "auto", *parts)
            if printed_steps(done.stdout) != list(range(saved + 1, STEPS + 1)):
                sys.exit(f"{name}: the resumed run did steps {printed_steps(done.stdout)}")
            for file, data in result_of(out).items():
                if data != wanted[kind][file]:
                    sys.exit(f"{name}: {file} differs")
            if logged_steps(out) != list(range(1, STEPS + 1)):
                sys.exit(f"{name}: loss.csv holds steps {logged_steps(out)}")
    if lost < TRIES // 2:
        sys.exit(f"only {lost} steps were lost: the kills proved nothing")
    print(f"{TRIES} tries of {WHAT if WHAT == 'layouts' else WHAT + ' ranks'}, all killed in the middle, {lost} steps repeated: bit-identical (seed {seed})")


main()
