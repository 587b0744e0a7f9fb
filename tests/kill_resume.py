"""A run that is killed at any instant and resumed ends with the bits of one that was not.

usage: kill_resume.py BRAID [TRIES]
Trains the hybrid of tests/data (Mamba, attention, latent experts, prediction block) on a generated source: once whole, then
TRIES times (5) killed with SIGKILL at a random instant, also inside a save, and resumed with another cut of the
batch; every second try is in BF16. The final checkpoints must be equal byte for byte.
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BRAID, TRIES = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
MODEL = Path(__file__).resolve().parent / "data" / "hf" / "nemotron-h-latent-mtp"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("BRAID_")}
STEPS = 6
RECIPE = f"""
init = "{MODEL}"
steps = {STEPS}
batch = 4
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
every = 1
keep = 2
[log]
jsonl = "log.jsonl"
"""


def command(recipe, out, *more):
    return [BRAID, "train", str(recipe), f"out={out}", "--threads", "1", *more]


def run(*arguments):
    done = subprocess.run(command(*arguments), capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {done.stderr}")


def state_of(out):
    folder = out / "checkpoints" / f"step-{STEPS:08}"
    return {name: (folder / name).read_bytes()
            for name in ("model.safetensors", "training/state.safetensors", "training/state.json", "config.json")}


def main():
    seed = int(os.environ.get("SEED", time.time_ns() % 10**6))
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        recipe = root / "recipe.toml"
        recipe.write_text(RECIPE)
        wanted, seconds = {}, {}
        for dtype in ("f32", "bf16"):
            begin = time.monotonic()
            run(recipe, root / dtype, f"dtype={dtype}")
            seconds[dtype] = time.monotonic() - begin
            wanted[dtype] = state_of(root / dtype)
        killed = 0
        for i in range(TRIES):
            dtype, out = ("f32", "bf16")[i % 2], root / f"try{i}"
            child = subprocess.Popen(command(recipe, out, f"dtype={dtype}"), stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, env=ENVIRONMENT)
            time.sleep(chance.uniform(0, seconds[dtype]))
            child.send_signal(signal.SIGKILL)
            killed += child.wait() == -signal.SIGKILL
            run(recipe, out, f"dtype={dtype}", "--resume", "auto", f"accumulate={chance.choice((1, 2, 4))}")
            got = state_of(out)
            for name, data in wanted[dtype].items():
                if got[name] != data:
                    sys.exit(f"try {i} of seed {seed} ({dtype}): {name} differs")
            steps = [line.split(",")[0] for line in (out / "loss.csv").read_text().splitlines()[1:]]
            if steps != [str(s + 1) for s in range(STEPS)]:
                sys.exit(f"try {i} of seed {seed}: loss.csv holds steps {steps}")
    print(f"{TRIES} tries, {killed} killed while running: the same bits (seed {seed})")


main()
