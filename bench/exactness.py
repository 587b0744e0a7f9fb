#!/usr/bin/env python3
"""Log-probabilities of answers that were cached, batched or speculated, against those of the same answers alone.

usage: exactness.py MODEL [--braid build/release/bin/braid] [--tokens 32] [-o RESULTS.json] [-- OPTIONS OF SERVE]

Servers with --exact and without answer the same prompts: one at a time and never seen before (plain); again, when the
prompt or half of it is cached; and all at once. `braid bench --drafts` adds drafts of which half are right, all of them
verified. Prints, for each, how many tokens are the same, the largest difference of a log-probability, and how many tokens
were cached or accepted as drafts: a figure says nothing if none were. Exit code 1 if a difference under --exact is not zero,
or one without it is above the bound that docs/serve.md states.
"""
import argparse
import concurrent.futures
import json
import random
import sys
from pathlib import Path

from about import about, output_of
from served import Served

ROOT = Path(__file__).resolve().parent.parent
PROMPTS, LENGTH = 4, 200
BOUND = 0.05  # nats


def ask(server, prompt, tokens):
    return server.ask("/v1/completions", {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 1, "ignore_eos": True})


def prompts_of(vocabulary):
    draw = random.Random(1)
    for i in range(PROMPTS):
        yield [draw.randrange(3, vocabulary) for _ in range(LENGTH - 7 * i)]


def compared(answers, plain):
    """Tokens equal and largest difference over the common beginning of each answer."""
    same = total = 0
    apart = 0.0
    for answer, want in zip(answers, plain):
        got, want = answer["choices"][0]["logprobs"], want["choices"][0]["logprobs"]
        total += len(want["tokens"])
        for token, other, p, q in zip(got["tokens"], want["tokens"], got["token_logprobs"], want["token_logprobs"]):
            if token != other:
                break
            same, apart = same + 1, max(apart, abs(p - q))
    cached = sum(answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers)
    return {"tokens": total, "same": same, "largest_difference": apart, "cached_tokens": cached}


def drafted(args, options):
    """bench ends with an error where drafts change a token."""
    words = [args.braid, "bench", args.model, "--activations", "auto", "--drafts", "50", "-p", "32", "-n", args.tokens, "-r", "1",
             *options, *args.options]
    row = json.loads(output_of(words))["all_verified"]
    return {"tokens": args.tokens, "same": args.tokens, "largest_difference": row["logprob_difference"],
            "accepted_drafts": row["accepted"], "rejected_drafts": row["drafted"] - row["accepted"]}


def measure(args, prompts, *options):
    def server():
        return Served(args.braid, args.model, "--ctx-size", "1024", "--draft", "off", "--parallel", PROMPTS, *options, *args.options)

    with server() as one:
        plain = [ask(one, prompt, args.tokens) for prompt in prompts]
        rows = {"the same prompt again": compared([ask(one, prompt, args.tokens) for prompt in prompts], plain)}
    with server() as one:
        for prompt in prompts:
            ask(one, prompt[:len(prompt) // 2], 1)
        rows["half of the prompt cached"] = compared([ask(one, prompt, args.tokens) for prompt in prompts], plain)
    with server() as one, concurrent.futures.ThreadPoolExecutor(PROMPTS) as pool:
        rows["all at once"] = compared(list(pool.map(lambda prompt: ask(one, prompt, args.tokens), prompts)), plain)
    return rows | {"drafts": drafted(args, options)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--braid", default=str(ROOT / "build" / "release" / "bin" / "braid"))
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("-o", "--output")
    parser.add_argument("options", nargs="*", help="of serve, after --")
    args = parser.parse_args()
    config = json.loads((Path(args.model) / "config.json").read_text(encoding="utf-8"))
    prompts = list(prompts_of(config["vocab_size"]))
    result = {**about(args.braid), "model": Path(args.model).name, "options": args.options, "bound": BOUND,
              "exact": measure(args, prompts, "--exact"), "default": measure(args, prompts)}
    text = json.dumps(result, indent=2)
    print(text)
    if args.output:
        Path(args.output).write_text(text + "\n", encoding="utf-8")
    unlike = any(row["largest_difference"] > 0 or row["same"] < row["tokens"] for row in result["exact"].values())
    beyond = any(row["largest_difference"] > BOUND for row in result["default"].values())
    return int(unlike or beyond)


if __name__ == "__main__":
    sys.exit(main())
