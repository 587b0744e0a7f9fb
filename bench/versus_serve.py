"""`versus.py serve`: braid serve and llama-server on one GGUF file, under the same loads in turns.

The load is `braid bench serve` on both: token for token the same random prompts, never the same in two turns, and
answers of a fixed length. A row of LOADS says how many clients send how much, and which rate is compared.
"""
import json
import re
import resource
import subprocess
import time
import urllib.error
import urllib.request
from typing import NamedTuple

import about
from duel import Contender, compared, duel

SLOTS, CONTEXT = 16, 1024   # answers at once, and tokens of each
MEMORY_MIB = 2048           # for cached prefixes; of braid serve for running answers, too
ATTEMPTS = 3                # of a turn: an answer of one token that is no text alone counts as failed with llama-server
COUNT_BOUND = 0.02          # relative difference of the prompt tokens that the sides count (one adds a BOS)


class Load(NamedTuple):
    name: str
    clients: int
    requests: int   # per turn
    prefix: int     # tokens that the prompts of a turn share
    prompt: int     # tokens of each alone
    answer: int
    counts: str     # "prompt": prompt tokens per second; "answer": tokens answered per second; "step": 1 / time per output token


LOADS = [
    Load("prompts, 1 client", 1, 2, 0, 256, 1, "prompt"),
    Load("prompts, 4 clients", 4, 4, 0, 256, 1, "prompt"),
    Load("prompts, 16 clients", 16, 16, 0, 64, 1, "prompt"),
    Load("a shared prefix, 4 clients", 4, 8, 192, 32, 1, "prompt"),
    Load("a shared prefix, 16 clients", 16, 16, 192, 16, 1, "prompt"),
    Load("answers, 1 client", 1, 1, 0, 16, 48, "step"),
    Load("answers, 4 clients", 4, 4, 0, 16, 32, "answer"),
    Load("answers, 16 clients", 16, 16, 0, 16, 32, "answer"),
]


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Server(Contender):
    """A server and the loads that it is sent; `load` is set before the turns."""

    def __init__(self, braid, command, port, tokenizer):
        self.load_command = [braid, "bench", "serve", tokenizer, "--base-url", f"http://127.0.0.1:{port}", "--ignore-eos", "--json"]
        self.load, self.turns, self.repeated, self.clients_used, self.last = None, 0, 0, 0.0, None
        super().__init__(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.healthy(port):
            self.alive(command[0])
            time.sleep(0.2)

    @staticmethod
    def healthy(port):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
                return response.status == 200
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def turn(self, _steps):
        """Seconds of one token as the load counts it."""
        load = self.load
        self.let(True)
        before = children_seconds()
        done = None
        for attempt in range(ATTEMPTS):
            words = [*self.load_command, "--seed", self.turns + 1000 * attempt, "--num-prompts", load.requests, "--max-concurrency",
                     load.clients, "--random-prefix-len", load.prefix, "--random-input-len", load.prompt, "--random-output-len", load.answer]
            done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            self.repeated += 1
        else:
            raise SystemExit(f"versus: {self.process.args[0]}, {load.name}: {(done.stderr or done.stdout).strip()[-400:]}")
        self.last = json.loads(done.stdout)
        self.clients_used += children_seconds() - before
        self.let(False)
        self.turns += 1
        if load.counts == "step":
            return [self.last["mean_tpot_ms"] / 1000]
        return [self.last["duration"] / self.last["total_input_tokens" if load.counts == "prompt" else "total_output_tokens"]]

    def used(self):
        return super().used() + self.clients_used


def same_work(name, ours, theirs, void):
    """The tokens of the last turn on both sides, as they are stored."""
    read, cached, answered = ([last[f"total_{what}_tokens"] for last in (ours, theirs)] for what in ("input", "cached", "output"))
    if abs(read[0] / read[1] - 1) > COUNT_BOUND or answered[0] != answered[1]:
        void.append(f"{name}: the sides count {read} prompt tokens and {answered} of answers: not the same work")
    return {"prompt_tokens_a_turn": read, "cached_tokens_a_turn": cached}


def serve(args, void):
    threads = str(args.threads)
    ours = [args.braid, "serve", args.gguf, "--port", "18431", "--parallel", str(SLOTS), "--ctx-size", str(CONTEXT), "--temp", "0",
            "-t", threads, "--activations", args.activations, "--memory", f"{MEMORY_MIB}MiB"]
    theirs = [args.llama_server, "-m", args.gguf, "--port", "18432", "-np", str(SLOTS), "-c", str(SLOTS * CONTEXT), "-t", threads,
              "--cache-ram", str(MEMORY_MIB)]
    braid = Server(args.braid, ours, 18431, args.tokenizer)
    braid.let(False)
    peer = Server(args.braid, theirs, 18432, args.tokenizer)
    peer.let(False)
    rows = []
    try:
        for load in LOADS:
            if args.only and not re.search(args.only, load.name):
                continue
            braid.load = peer.load = load
            braid.repeated = peer.repeated = 0
            peer.turns = braid.turns = max(braid.turns, peer.turns)  # the same seeds
            row = compared(load.name, duel(args, (braid, peer), (1, 1)), 1, void) | {"load": load._asdict()}
            row["repeated_turns"] = [braid.repeated, peer.repeated]
            row |= same_work(load.name, braid.last, peer.last, void)
            rows.append(row)
    finally:
        for side in (braid, peer):
            side.close()
    version = subprocess.run([args.llama_server, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    return {"comparisons": rows, "activations": args.activations,
            "peer_variant": {"version": version.strip().splitlines(), "cmake": about.peer_flags(args.llama_server),
                             "options": theirs[3:], "same": "one file; the texts of the answers are not compared"}}
