#!/usr/bin/env python3
"""Braid against a peer, in one run: the two alternate, so that both see the same machine conditions.

    bench/versus.py train SHAPE BATCH LENGTH --python PYTHON [--dtypes bf16,f32]     PyTorch and transformers
    bench/versus.py infer MODEL --gguf FILE --llama-bench PROGRAM [--tests pp512,tg32]   llama.cpp
    bench/versus.py serve --gguf FILE --llama-server PROGRAM --tokenizer FOLDER          llama.cpp's server
    bench/versus.py graph GRAPH --python PYTHON [--dgl PYTHON] [--kinds gcn,gat]         PyTorch Geometric, DGL

Prints one JSON object, or writes it to --out. Exit code 0: the figures are valid; 3: the run is void, and `void` says why.

In a round every contender runs a few steps while the others are stopped. Rounds are discarded until three in a row
agree within 5% for both; then at least five count, and their median, fastest and slowest are reported. The run is void
if rounds do not settle, if something else used the processors, if a roof measured before or after is more than 10%
below or above the best known of its class (src/sys/best_known.h; on machines without a row there, below the best that
this machine has shown), or if the two sides do not compute the same: training starts from the same weights, and the
losses of its first steps, all on one batch, are compared; they must fall by more than they may differ, so that a
different update shows. For inference only the sizes of the weights in bytes are compared, not the output, as the result
records.
A source tree with changes, or a program of another commit, is a warning, listed under `caveats`.
--raise writes a roof that was more than 10% above both times to that table.

train: SHAPE is a name that `braid new` knows, PYTHON has torch and transformers. The peer is the fastest of eager and
SDPA attention and, for experts, of the implementations in transformers, measured first.
infer: MODEL is the folder that was converted to the GGUF file. --llama-bench may be repeated; the fastest build is used,
and the result records its own description and the flags in the CMakeCache.txt of a parent folder.
graph: training over all of a graph, a file of `braid data graph` with classes; PYTHON has torch and torch_geometric, that of
--dgl torch and dgl. Both sides start from weights that the peer drew. PyTorch Geometric is the faster of its list of edges
and torch's sparse matrix (gat: of edges alone), and DGL with gcn the faster of weights at nodes and at edges. None adds
self-loops or sorts edges again in a step.
serve: both servers load FILE; the loads and the rates that are compared are in versus_serve.py. FOLDER has the
tokenizer.json from whose vocabulary prompts are drawn. --only takes the loads whose names match.
"""
import argparse
import functools
import itertools
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import about
from duel import Contender, compared, duel, fastest
from versus_serve import serve

HERE = os.path.dirname(os.path.abspath(__file__))
BEST_KNOWN = os.path.join(HERE, "..", "src", "sys", "best_known.h")
ROOFS = ("read_gbs_1", "read_gbs", "fp32_gflops", "bf16_gflops", "int8_gops")
# How far the losses of the first steps, all on one batch, may differ, relative to the loss: rounding only.
LOSS_BOUNDS = {"f32": 1e-5, "bf16": 5e-4}
LOSS_STEPS = 5
SIZE_BOUND = 0.05   # relative difference of a model's bytes between the sides: the same formats
# What llama-bench reports about itself; how it was built is in `cmake` (about.py).
PEER_SAYS = ("build_commit", "build_number", "cpu_info", "backends", "model_type", "model_size")


# ---- the machine ----------------------------------------------------------------------------------------------------

def roof_faults(when, machine):
    """`braid info --machine` judges: `low` are roofs far below the best known, `high` far above that of a class."""
    for name in (*machine["low"], *machine["high"]):
        yield f"roof {name} {when}: {machine['roofs'][name]:.1f}, best known {machine['best_known'][name]:.1f}"


def raise_table(machines, table=BEST_KNOWN):
    """Writes the lower of the two measurements of every roof that was above the table both times."""
    higher = {n: min(m["roofs"][n] for m in machines) for n in machines[0]["high"] if all(n in m["high"] for m in machines)}
    if not higher:
        return {}
    with open(table, encoding="utf-8") as f:
        text = f.read()
    row = re.search(r'\{\.row = "%s",[^}]*\}' % re.escape(machines[0]["row"]), text)
    if not row:
        return {}
    changed = row.group(0)
    for name, value in higher.items():
        changed = re.sub(rf"\.{name} = [0-9.]+", f".{name} = {value:.0f}", changed)
    with open(table, "w", encoding="utf-8") as f:
        f.write(text.replace(row.group(0), changed))
    return higher


# ---- contenders -----------------------------------------------------------------------------------------------------

class Braid(Contender):
    """`braid train`, timed by its own log of steps. A step interrupted by a stop is not counted. `recipe` is TOML without
    what every run has."""

    RECIPE = """steps = 1000000
out = "{out}"
{recipe}
[schedule]
kind = "constant"
[log]
jsonl = "log.jsonl"
"""

    def __init__(self, args, recipe, name, work):
        out = os.path.join(work, "braid-" + name)
        self.log_path, self.log, self.seen, self.read = os.path.join(out, "log.jsonl"), [], 0, 0
        self.recipe = out + ".toml"
        with open(self.recipe, "w", encoding="utf-8") as f:
            f.write(self.RECIPE.format(out=out, recipe=recipe))
        super().__init__([args.braid, "train", self.recipe], stdout=subprocess.DEVNULL)
        self.wait(LOSS_STEPS)
        self.let(False)
        self.tokens = self.lines()[0]["tokens"]  # of a step
        self.losses = [line["loss"] for line in self.lines()[:LOSS_STEPS]]
        self.seen = len(self.lines())

    def lines(self):
        """The log so far; reads only what is new, so that waiting takes nothing from the other side."""
        if os.path.exists(self.log_path) and os.path.getsize(self.log_path) > self.read:
            with open(self.log_path, "rb") as f:
                f.seek(self.read)
                new = f.read()
            new = new[:new.rfind(b"\n") + 1]
            self.read += len(new)
            self.log += [json.loads(line) for line in new.splitlines()]
        return self.log

    def wait(self, count):
        while len(self.lines()) < self.seen + count:
            self.alive("braid train")
            time.sleep(0.01)

    def turn(self, steps):
        self.let(True)
        self.wait(steps + 1)
        self.let(False)
        lines = self.lines()
        mine, self.seen = lines[self.seen + 1:], len(lines)
        return [self.tokens / line["tokens_per_second"] for line in mine[:steps]]

    def memory(self):
        return self.lines()[-1]["memory_bytes"]


class Torch(Contender):
    """A script beside this one that reads a number of steps per line and answers with a line of JSON."""

    def __init__(self, python, script, words, variant):
        self.variant = variant
        super().__init__([python, os.path.join(HERE, script), *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"})
        self.about = self.answer()
        self.losses = self.ask(LOSS_STEPS)["losses"]
        self.let(False)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.alive("the peer")
        return json.loads(line)

    def ask(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        got = self.answer()
        self.about["memory_bytes"] = got["memory_bytes"]
        return got

    def turn(self, steps):
        self.let(True)
        seconds = self.ask(steps + 1)["seconds"][1:]  # the first refills caches that the other side evicted
        self.let(False)
        return seconds

    def memory(self):
        return self.about["memory_bytes"]


class Runs(Contender):
    """A bench that reports the end of each repetition (`--progress`). One interrupted by a stop is not counted."""

    def __init__(self, command, **more):
        first = about.output_of([*command, "-r", "1"], stderr=subprocess.DEVNULL, **more)
        self.about = json.loads(first)[-1]
        super().__init__([*command, "-r", "1000", "--progress"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)
        self.turn(1)
        self.let(False)

    def run(self):
        """Seconds of the repetition that ends next."""
        begin = time.monotonic()
        while True:
            line = self.process.stderr.readline()
            if not line:
                self.process.wait()
                self.alive(self.process.args[0])
            if re.search(r" run \d+/\d+", line):
                time_ns = re.search(r": (\d+) ns", line)  # llama-bench prints no time, but does nothing between two runs
                return int(time_ns.group(1)) / 1e9 if time_ns else time.monotonic() - begin

    def turn(self, _steps):
        self.let(True)
        self.run()
        seconds = self.run()
        self.let(False)
        return [seconds]


# ---- training -------------------------------------------------------------------------------------------------------

def write_batches(path, vocab, batch, length, count=64):
    """Tokens of a chain in which every state has four successors, as the I64 tensor `batches` of a safetensors file. The
    first LOSS_STEPS batches are identical."""
    state, ids, size = 1, [], batch * (length + 1)
    while len(ids) < count * size:
        ids.append(state)
        draw = (state * 6364136223846793005 + len(ids) * 1442695040888963407) >> 33 & 3
        state = (state * 48271 + draw * 16807 + 11) % vocab
        if len(ids) == size:
            ids *= LOSS_STEPS
    data = struct.pack(f"<{len(ids)}q", *ids)
    head = json.dumps({"batches": {"dtype": "I64", "shape": [count, batch, length + 1], "data_offsets": [0, len(data)]}}).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)


RECIPE = """init = "{folder}"
dtype = "{dtype}"
[data]
kind = "ids"
path = "{batches}"
[optimizer]
lr = {lr}
clip = 1.0"""


def torch_of(args, folder, dtype, batches, attention, experts):
    return Torch(args.python, "versus_torch.py", [folder, batches, dtype, attention, experts, args.lr],
                 {"dtype": dtype, "attention": attention, "experts": experts})


def fastest_torch(args, folder, dtype, batches, found):
    """The fastest variant, by a few steps each."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        has_experts = "n_routed_experts" in json.load(f)

    def seconds_of(peer):
        seconds = min(peer.turn(2))
        found.append(peer.variant | {"seconds": round(seconds, 4)})
        return seconds

    variants = itertools.product(("eager", "sdpa"), args.experts.split(",") if has_experts else ["none"])
    return fastest([functools.partial(torch_of, args, folder, dtype, batches, *variant) for variant in variants], seconds_of)


def same_losses(dtype, braid, peer, void, what=None):
    what = what or dtype
    bound = LOSS_BOUNDS[dtype] * braid.losses[0]
    apart = [abs(ours - theirs) for ours, theirs in zip(braid.losses, peer.losses)]
    for step, difference in enumerate(apart, 1):
        if not difference <= bound:
            void.append(f"{what}: the losses of step {step} differ by {difference:.2g}: not the same model or update")
    for side, losses in (("braid", braid.losses), ("the peer", peer.losses)):
        fallen = [before - after for before, after in zip(losses, losses[1:])]
        if not min(fallen) > bound:
            void.append(f"{what}: a loss of {side} falls by only {min(fallen):.2g}: too little to compare the updates")
    return {"losses": {"braid": braid.losses, "peer": peer.losses, "apart": apart, "bound": bound}}


def duel_of_steps(args, name, braid, peer, tokens, void):
    """A turn takes about as long on either side, so that both see the same conditions."""
    theirs = args.steps or max(1, round(4 / statistics.median(peer.turn(1))))
    ours = args.steps or max(2, round(4 / statistics.median(braid.turn(1))))
    got = duel(args, (braid, peer), (ours, theirs))
    row = compared(name, got, tokens, void)
    return got, row | {"steps_a_turn": [ours, theirs], "peer_variant": peer.variant, "peer_about": peer.about,
                       "memory_bytes": [braid.memory(), peer.memory()]}


def train(args, void):
    out, variants = [], []
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        folder = os.path.join(work, "model")
        about.output_of([args.braid, "new", args.shape, folder])
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            vocab = json.load(f)["vocab_size"]
        batches = os.path.join(work, "batches.safetensors")
        write_batches(batches, vocab, args.batch, args.length)
        tokens = args.batch * args.length
        for dtype in args.dtypes.split(","):
            peer = fastest_torch(args, folder, dtype, batches, variants)
            braid = Braid(args, RECIPE.format(folder=folder, dtype=dtype, batches=batches, lr=args.lr), dtype, work)
            if args.losses_only:
                out.append({"what": dtype} | same_losses(dtype, braid, peer, void))
                braid.close()
                peer.close()
                continue
            got, row = duel_of_steps(args, f"{args.shape} {args.batch} x {args.length}, {dtype}", braid, peer, tokens, void)
            row |= same_losses(dtype, braid, peer, void)
            plan = json.loads(about.output_of([args.braid, "train", braid.recipe, "--dry-run", "--json"]))
            row["floor"] = {n: plan[n] for n in ("floor_seconds", "flops_per_token", "roof_flops_per_second", "roof_bytes_per_second")}
            row["floor_fraction"] = round(plan["floor_seconds"] / statistics.median(ours_ for ours_, _ in got["rounds"]), 3)
            for contender in (braid, peer):
                contender.close()
            out.append(row)
    more = {}
    if len(out) > 1 and not args.losses_only:  # each side with its faster dtype
        best = {side: max(row[side]["tokens_per_second"] for row in out) for side in ("braid", "peer")}
        more["best_to_best"] = round(best["braid"] / best["peer"], 3)
    return {"comparisons": out, "peer_variants": variants} | more


# ---- graph networks -------------------------------------------------------------------------------------------------

GRAPH_RECIPE = """objective = "graph"
dtype = "f32"
[graph]
path = "{graph}"
init = "{init}"
model = "{kind}"
layers = {layers}
hidden = {hidden}
{heads}
[optimizer]
lr = {lr}
beta2 = 0.999
weight_decay = 0.0
clip = 0.0"""


# script, and the layouts of a kind in which it may be fastest
GRAPH_PEERS = {
    "PyTorch Geometric": ("versus_pyg.py", lambda kind: ("edges",) if kind == "gat" else ("edges", "csr")),
    "DGL": ("versus_dgl.py", lambda kind: ("nodes", "edges") if kind == "gcn" else ("nodes",)),
}


def fastest_graph_peer(args, library, python, init, path, kind, variants):
    script, layouts = GRAPH_PEERS[library]

    def peer_of(layout):
        words = [path, init, kind, args.layers, args.hidden, args.heads, layout, args.lr]
        return Torch(python, script, words, {"library": library, "kind": kind, "layout": layout})

    def seconds_of(peer):
        seconds = min(peer.turn(2))
        variants.append(peer.variant | {"seconds": round(seconds, 4)})
        return seconds

    return fastest([functools.partial(peer_of, layout) for layout in layouts(kind)], seconds_of)


def graph(args, void):
    out, variants = [], []
    path = os.path.abspath(args.graph)
    pythons = {"PyTorch Geometric": args.python} | ({"DGL": args.dgl} if args.dgl else {})
    with tempfile.TemporaryDirectory(dir=args.work) as work:
        for kind, (library, python) in itertools.product(args.kinds.split(","), pythons.items()):
            run = f"{kind}-{library.replace(' ', '-')}"
            init = os.path.join(work, run + ".safetensors")
            peer = fastest_graph_peer(args, library, python, init, path, kind, variants)
            recipe = GRAPH_RECIPE.format(graph=path, init=init, kind=kind, layers=args.layers, hidden=args.hidden,
                                          heads=f"heads = {args.heads}" if kind == "gat" else "", lr=args.lr)
            braid = Braid(args, recipe, run, work)
            name = f"{os.path.basename(path)}, {kind}, {args.layers} layers of {args.hidden}, {library}"
            if args.losses_only:
                out.append({"what": name, "memory_bytes": [braid.memory(), peer.memory()]} | same_losses("f32", braid, peer, void, name))
            else:
                _, row = duel_of_steps(args, name, braid, peer, braid.tokens, void)
                out.append(row | same_losses("f32", braid, peer, void, name))
            for contender in (braid, peer):
                contender.close()
    return {"comparisons": out, "peer_variants": variants}


# ---- inference ------------------------------------------------------------------------------------------------------

def same_weights(name, ours, theirs, void):
    if abs(ours / theirs - 1) > SIZE_BOUND:
        void.append(f"{name}: {ours} bytes of weights against {theirs}: other formats")


def infer(args, void):
    threads = str(args.threads)
    out = []
    for test in args.tests.split(","):
        kind, count = test[:2], int(test[2:])
        sizes = ["-p", str(count) if kind == "pp" else "0", "-n", str(count) if kind == "tg" else "0", "-r", "1"]
        builds = [[p, "-m", args.gguf, *sizes, "-t", threads, "-o", "json"] for p in args.llama_bench]
        peer = fastest([functools.partial(Runs, build) for build in builds], lambda runs: min(runs.turn(1)[0] for _ in range(2)))
        braid = Runs([args.braid, "bench", args.model, *sizes, "-t", threads, "--activations", args.activations, "-o", "json"])
        got = duel(args, (braid, peer), (1, 1))
        for contender in (braid, peer):
            contender.close()
        row = compared(f"{os.path.basename(args.model.rstrip('/'))}, {test}", got, count, void)
        row["peer_variant"] = {n: peer.about.get(n) for n in PEER_SAYS}
        row["peer_variant"]["cmake"] = about.peer_flags(peer.process.args[0])
        row["same"] = "bytes of weights within 5%; the output is not compared"
        row |= {name: braid.about[name] for name in ("model_size", "dtype", "activations")}
        same_weights(row["what"], row["model_size"], peer.about["model_size"], void)
        row["floor_fraction"] = round(1e-9 * braid.about["floor_ns"] / statistics.median(ours for ours, _ in got["rounds"]), 3)
        out.append(row)
    return {"comparisons": out}


# ---- all of it ------------------------------------------------------------------------------------------------------

def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--braid", default="build/release/bin/braid")
    common.add_argument("--rounds", type=int, default=5)
    common.add_argument("--warm-max", type=int, default=12)
    common.add_argument("--out")
    common.add_argument("--raise", dest="raise_roofs", action="store_true")
    modes = parser.add_subparsers(dest="mode", required=True)
    t = modes.add_parser("train", parents=[common])
    t.add_argument("shape")
    t.add_argument("batch", type=int)
    t.add_argument("length", type=int)
    t.add_argument("--python", required=True)
    t.add_argument("--dtypes", default="bf16,f32")
    t.add_argument("--experts", default="eager,grouped_mm", help="implementations of transformers")
    t.add_argument("--steps", type=int, default=0, help="per turn; default: as many as take four seconds")
    t.add_argument("--lr", type=float, default=1e-4, help="learning rate of both sides")
    t.add_argument("--losses-only", action="store_true", help="compare the losses and stop, without measuring speed")
    t.add_argument("--work", help="a folder for weights and logs")
    i = modes.add_parser("infer", parents=[common])
    i.add_argument("model")
    i.add_argument("--gguf", required=True)
    i.add_argument("--llama-bench", action="append", required=True)
    i.add_argument("--tests", default="pp512,tg32")
    i.add_argument("--activations", default="auto", help="of Braid; llama.cpp rounds its own to 8 bits if weights are quantised")
    s = modes.add_parser("serve", parents=[common])
    s.add_argument("--gguf", required=True)
    s.add_argument("--llama-server", required=True)
    s.add_argument("--tokenizer", required=True)
    s.add_argument("--activations", default="int8", help="of Braid; llama.cpp rounds its own to 8 bits if weights are quantised")
    s.add_argument("--only", metavar="REGEX")
    g = modes.add_parser("graph", parents=[common])
    g.add_argument("graph")
    g.add_argument("--python", required=True)
    g.add_argument("--dgl", metavar="PYTHON", help="a Python with DGL, to be compared with, too")
    g.add_argument("--losses-only", action="store_true", help="compare the losses and stop, without measuring speed")
    g.add_argument("--kinds", default="gcn,gat", help="of gcn, sage, gin, gat")
    g.add_argument("--layers", type=int, default=2)
    g.add_argument("--hidden", type=int, default=64)
    g.add_argument("--heads", type=int, default=4, help="of gat")
    g.add_argument("--steps", type=int, default=0, help="per turn; default: as many as take four seconds")
    g.add_argument("--lr", type=float, default=1e-2, help="learning rate of both sides")
    g.add_argument("--work", help="a folder for weights and logs")
    args = parser.parse_args()
    args.threads = int(os.environ.get("BRAID_THREADS", len(os.sched_getaffinity(0))))
    if args.rounds < 5:
        parser.error("--rounds: at least 5")
    return args


def asked(args):
    """The command line that repeats this run, without the paths of this machine."""
    def name(path):
        return os.path.basename(path.rstrip("/"))
    words = {
        "train": lambda: [args.shape, args.batch, args.length, "--python", "PYTHON", "--dtypes", args.dtypes],
        "graph": lambda: [name(args.graph), "--python", "PYTHON", *(["--dgl", "PYTHON"] if args.dgl else []), "--kinds", args.kinds, "--layers", args.layers, "--hidden", args.hidden,
                          "--heads", args.heads, "--lr", args.lr],
        "infer": lambda: [name(args.model), "--gguf", name(args.gguf), "--llama-bench", "PROGRAM", "--tests", args.tests,
                          *(["--activations", args.activations] if args.activations != "auto" else [])],
        "serve": lambda: ["--gguf", name(args.gguf), "--llama-server", "PROGRAM", "--tokenizer", "FOLDER", "--activations",
                          args.activations, *(["--only", args.only] if args.only else [])],
    }[args.mode]()
    return " ".join(map(str, ["bench/versus.py", args.mode, *words, "--rounds", args.rounds]))


def source_of():
    """The commit, and the hash of the working tree: if a commit of main has the same tree, the sources are identical, whatever was rebased."""
    def git(*words, **more):
        return about.output_of(["git", "-C", HERE, *words], stderr=subprocess.DEVNULL, **more).strip()
    try:
        with tempfile.TemporaryDirectory() as folder:
            index = os.environ | {"GIT_INDEX_FILE": os.path.join(folder, "index")}
            git("read-tree", "HEAD", env=index)
            git("add", "-A", ":/", env=index)
            return {"commit": git("describe", "--always", "--dirty", "--abbrev=12"), "tree": git("write-tree", env=index)}
    except (OSError, subprocess.CalledProcessError):
        return {}


def main():
    args, void = parsed(), []
    if getattr(args, "losses_only", False):
        print(json.dumps({"train": train, "graph": graph}[args.mode](args, void), indent=1))
        for reason in void:
            print(f"versus: void: {reason}", file=sys.stderr)
        return 3 if void else 0
    load = os.getloadavg()[0]
    before = about.measured_machine(args.braid)
    header = {"what": asked(args), **about.about(args.braid, machine=before), "source": source_of()}
    result = {"train": train, "graph": graph, "infer": infer, "serve": serve}[args.mode](args, void)
    after = about.measured_machine(args.braid)
    faults = [*roof_faults("before", before), *roof_faults("after", after)]
    raised = raise_table([before, after]) if args.raise_roofs else {}
    header |= {"roofs": {"before": before["roofs"], "after": after["roofs"], "best_known": before["best_known"]},
               "load_average_before": load, "void": faults + void}
    text = json.dumps(header | result | ({"raised": raised} if raised else {}), indent=1)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(text + "\n")
    else:
        print(text)
    for row in result["comparisons"]:
        print(f"{row['what']}: {row['braid']['tokens_per_second']} against {row['peer']['tokens_per_second']} tokens/s, "
              f"{row['ratio']}x" + (f"; {row['floor_fraction']} of the floor" if "floor_fraction" in row else ""), file=sys.stderr)
        if "losses" in row:
            print(f"  losses {row['losses']['braid']} and {row['losses']['peer']}", file=sys.stderr)
    for reason in faults + void:
        print(f"versus: void: {reason}", file=sys.stderr)
    return 3 if faults + void else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        Contender.close_all()
