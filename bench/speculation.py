#!/usr/bin/env python3
"""Speculative decoding: tokens per second with drafts over tokens per second without, of models/tiny and of random weights.

usage: speculation.py [--braid build/release/bin/braid] [--rounds 7] [--random MODEL] [-o RESULTS.json]

Two servers, `--draft off` and `--draft auto`, answer the same requests in turns, so that other load on the machine
affects both alike: sums and words, which the model writes as it was taught, texts that repeat themselves, and sums drawn
at temperature 1, which nothing foresees well. Answers that differ end the run. Prints one JSON object: for each kind of
text the tokens per second of both (the time of a whole request), the median of the ratios of rounds, and the share of
drafts that was accepted. --random adds `braid bench --drafts`: drafts of which 0, 50 and 80 percent are right, by force.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from about import about
from served import Served

ROOT = Path(__file__).resolve().parent.parent


def chat(question, **more):
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": question}], "max_tokens": 200, **more}


def repeated(text):
    return "/v1/completions", {"prompt": text * 6, "max_tokens": 200, "ignore_eos": True}


KINDS = {
    "sums": [chat(f"What is {a} + {b}?") for a, b in ((17, 25), (481, 377), (903, 58), (264, 719))],
    "words": [chat(f"Write the word {word} backwards.") for word in ("stone", "planet", "mirror", "garden")],
    "repeated": [repeated(text) for text in ("17 + 25 = 42\n", "the old river and the stone. ", "a1 b2 c3 d4 ")],
    "drawn": [chat(f"What is {a} - {b}?", temperature=1, seed=a) for a, b in ((71, 25), (481, 377), (903, 58), (764, 719))],
}


def timed(server, request):
    """Seconds of a whole request, the answer, and the tokens."""
    started = time.perf_counter()
    answer = server.ask(*request)
    choice = answer["choices"][0]
    return time.perf_counter() - started, choice.get("message") or choice["text"], answer["usage"]


def measure(plain, drafting, requests, rounds):
    rates, ratios, accepted, rejected = [], [], 0, 0
    for turn in range(rounds + 1):  # the first warms both, and lets costs be measured
        seconds, tokens = [0, 0], 0
        for request in requests:
            sides = (plain, drafting) if turn % 2 else (drafting, plain)  # who begins takes turns
            answers = {side: timed(side, request) for side in sides}
            (before, want, _), (after, got, usage) = answers[plain], answers[drafting]
            if got != want:
                sys.exit(f"speculation.py: drafts changed an answer: {want!r} became {got!r}")
            seconds[0] += before
            seconds[1] += after
            tokens += usage["completion_tokens"]
            accepted += usage["completion_tokens_details"]["accepted_prediction_tokens"] if turn else 0
            rejected += usage["completion_tokens_details"]["rejected_prediction_tokens"] if turn else 0
        if turn:
            rates.append([tokens / each for each in seconds])
            ratios.append(seconds[0] / seconds[1])
    without, with_drafts = (round(statistics.median(column), 1) for column in zip(*rates))
    return {"without": without, "with": with_drafts, "ratio": round(statistics.median(ratios), 3),
            "lowest": round(min(ratios), 3), "drafted": accepted + rejected,
            "accepted": round(accepted / max(accepted + rejected, 1), 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default=str(ROOT / "build" / "release" / "bin" / "braid"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--random", metavar="MODEL")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    result = {**about(args.braid), "rounds": args.rounds, "tiny": {}}
    tiny = ROOT / "models" / "tiny"
    with Served(args.braid, tiny, "--parallel", 1, "--draft", "off") as plain, \
            Served(args.braid, tiny, "--parallel", 1, "--draft", "auto") as drafting:
        for kind, requests in KINDS.items():
            result["tiny"][kind] = measure(plain, drafting, requests, args.rounds)
    if args.random:
        out = subprocess.run([args.braid, "bench", args.random, "--activations", "auto", "--drafts", "0,50,80", "-p", "32", "-n", "64", "-r",
                              str(args.rounds)], check=True, stdout=subprocess.PIPE, text=True)
        result["random"] = {"model": Path(args.random).name, "rows": [json.loads(line) for line in out.stdout.splitlines()]}
    text = json.dumps(result, indent=2)
    print(text)
    if args.output:
        Path(args.output).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
