#!/usr/bin/env python3
"""What the shipped model can do, as one JSON object: exact greedy answers to held-out tasks.

usage: tiny.py DATA [--model MODEL] [--braid PROGRAM] [--quick]

DATA is the folder that `braid data synth --out DATA bench/data/tiny-*.jsonl` wrote: no conversation contains its tasks,
nor anything near the prompts of bench/data. Every task is asked at turns 1, 4, 8 and 12 of a conversation, at the first
sums and the prompts of bench/data also with thinking off, and sums with budgets of 16, 64 and 256 tokens of thinking. Shares are
percentages with 95% intervals (Wilson). Also the rate at which the prediction block drafts the model's own text, and how far the 4-bit model is from
this one (KL divergence over held-out conversations).
"""
import argparse
import json
import math
import pathlib
import subprocess
import tempfile

from about import about

TURNS = (1, 4, 8, 12)
BUDGETS = (16, 64, 256)
FIXED = (("about Braid", "tiny-qa"), ("off topic", "tiny-off-topic"), ("off range", "tiny-off-range"))
BENCH = pathlib.Path(__file__).parent / "data"


def interval(right, n):
    """Wilson's 95% interval of a share, in percent."""
    z = 1.96
    centre, half = (right + z * z / 2) / (n + z * z), z / (n + z * z) * math.sqrt(right * (n - right) / n + z * z / 4)
    return [round(100 * (centre - half), 1), round(100 * (centre + half), 1)]


def score(right, n):
    return {"right": right, "n": n, "accuracy": round(100 * right / n, 1), "interval": interval(right, n)}


class Model:
    def __init__(self, braid, model):
        self.braid, self.model = braid, model

    def run(self, *words):
        done = subprocess.run([self.braid, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def answers(self, file, think="on", *more):
        with tempfile.TemporaryDirectory() as folder:
            said = pathlib.Path(folder) / "answers"
            scores = json.loads(self.run("eval", self.model, "--tasks", file, "--think", think, "--json",
                                         "--answers", said, *more))
            rows = [json.loads(line) for line in said.open()]
        out = {**score(scores["right"], scores["n"]),
               "calls without tools": sum("<tool_call>" in row["answer"] for row in rows if "tools" not in row),
               "tasks": {name: score(task["right"], task["n"]) for name, task in scores["tasks"].items()}}
        if "mtp" in scores:
            out["mtp"] = {**scores["mtp"], "rate": round(100 * scores["mtp"]["accepted"] / scores["mtp"]["drafted"], 1)}
        return out

    def answers_to(self, rows):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "tasks.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            return self.answers(file)

    def four_bits(self, data, format):
        """KL of a quantised copy against this model, over the answers of held-out conversations: no words of users."""
        with tempfile.TemporaryDirectory() as folder:
            small, lines = pathlib.Path(folder) / "small", pathlib.Path(folder) / "lines.jsonl"
            self.run("quantize", self.model, small, "--format", format)
            rows = [json.loads(line) for line in (data / "valid.jsonl").open()][:200]
            answers = [self.answer(row["messages"]) for row in rows if "tools" not in row]
            lines.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
            found = json.loads(self.run("eval", small, "--kl", self.model, "--jsonl", lines, "-c", 4096,
                                        "--json"))
            # What the model was taught has little surprise in it: else something untrained is among the tokens.
            assert found["base_perplexity"] < 1.1, found
            bytes_of = lambda path: sum(f.stat().st_size for f in pathlib.Path(path).glob("*.safetensors"))
            return {"format": format, "bytes": bytes_of(small), **{k: v for k, v in found.items() if isinstance(v, float)}}

    def answer(self, messages):
        """The last answer of a conversation after all before it, both as the model reads them. The prompt opens the
        thinking or closes it, as the template does, and training ends with the end token: only what is between counts."""
        opened = "<think>\n" if messages[-1].get("reasoning_content") else "<think></think>"
        whole, before = self.render(messages), self.render(messages[:-1]) + "<|im_start|>assistant\n" + opened
        assert whole.startswith(before)
        return {"prompt": before, "completion": whole[len(before):].removesuffix("\n")}

    def render(self, messages):
        out = ""
        for m in messages:
            if m["role"] in ("user", "system"):
                out += f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n"
            elif m["role"] == "assistant":
                thought = m.get("reasoning_content")
                out += "<|im_start|>assistant\n" + (f"<think>\n{thought}\n</think>\n" if thought else "<think></think>")
                out += f"{m['content']}<|im_end|>\n"
        return out


def later(rows, talk):
    """The tasks of one file at the end of the conversations that those of another end."""
    tasks, before = ([json.loads(line) for line in file.open()] for file in (rows, talk))
    for i, task in enumerate(tasks):
        yield {**task, "messages": before[i % len(before)]["messages"][:-1] + task["messages"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--braid", default="build/release/bin/braid")
    parser.add_argument("--quick", action="store_true", help="turn 1 alone, without budgets and 4 bits")
    args = parser.parse_args()
    model = Model(args.braid, args.model)
    at = lambda turn: args.data if turn == 1 else args.data / f"turn-{turn}"
    result = {"what": "accuracy of greedy answers, exact match; measured by bench/tiny.py DATA", **about(args.braid)}
    for turn in TURNS[:1] if args.quick else TURNS:
        result[f"turn {turn}"] = {
            "sums": model.answers(at(turn) / "arithmetic.jsonl", "on", *(["--mtp"] if turn == 1 else [])),
            "sums, thinking off": model.answers(at(turn) / "arithmetic.jsonl", "off"),
            "strings": model.answers(at(turn) / "strings.jsonl"),
            "tool calls": model.answers(at(turn) / "calculator.jsonl"),
        }
    result["follow-ups"] = model.answers(args.data / "follow_up.jsonl")
    for name, file in FIXED:
        result[name] = model.answers(BENCH / f"{file}.jsonl")
        result[f"{name}, thinking off"] = model.answers(BENCH / f"{file}.jsonl", "off")
    if not args.quick:
        for turn in TURNS[1:]:
            for name, file in (("follow-ups", args.data / "follow_up.jsonl"), *((n, BENCH / f"{f}.jsonl") for n, f in FIXED)):
                result[f"turn {turn}"][name] = model.answers_to(later(file, at(turn) / "strings.jsonl"))
        for budget in BUDGETS:
            result[f"sums, {budget} tokens of thinking"] = model.answers(args.data / "arithmetic.jsonl", "on",
                                                                         "--reasoning-budget", budget)
        result["four bits"] = [model.four_bits(args.data, format) for format in ("nvfp4", "int4")]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
