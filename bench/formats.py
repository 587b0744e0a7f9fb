#!/usr/bin/env python3
"""The cost of each format: bytes, and the distance from the model it was made from.

    bench/formats.py [--braid BRAID] [--model tiny] [--rows 200] [-o RESULTS.json]

Every format is made with `braid convert` (GGUF) or `braid quantize` (folders) and compared with `braid eval --kl`, in
BF16, on the last answers of conversations that the model was not trained on (`braid data synth` with another seed).
User turns are not scored: the model never learned to predict them. Bits per weight are the mean over all values; `held`
is the share of values stored in the format: rows whose length is not a multiple of its block size get another type,
embedding and head often do, and folders leave those two unquantised. A GGUF file omits the prediction block, a folder
keeps it. The distances are those of a small model; a large one loses less.
"""
import argparse
import json
import math
import os
import subprocess
import tempfile

from about import about

GGUF = ("bf16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl", "mxfp4", "nvfp4")
CACHES = (("keys and values fp8", "--kv-cache-dtype", "fp8"), ("keys and values int8", "--kv-cache-dtype", "int8"),
          ("states bf16", "--mamba-ssm-cache-dtype", "bf16", "--chunk", 1), ("states f16", "--mamba-ssm-cache-dtype", "f16", "--chunk", 1),
          ("states int8", "--mamba-ssm-cache-dtype", "int8", "--chunk", 1))  # a state is rounded once per pass, here of one token
FOLDERS = {"fp8": (), "nvfp4": (), "nvfp4 four-over-six": ("--scales", "four-over-six"), "nvfp4 mse": ("--scales", "mse"),
           "mxfp4": (), "int8": (), "int4": (), "int4 mse": ("--scales", "mse"), "int3": (), "int3 mse": ("--scales", "mse")}
INT8 = ("GGUF q8_0", "GGUF q4_k", "GGUF q4_0", "folder nvfp4")  # also with 8-bit activations, for CPUs with such dot products


def run(*command, text=None):
    done = subprocess.run([str(word) for word in command], input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"formats: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def conversations(args, work):
    run(args.braid, "data", "synth", "--out", work, "--seed", 7, "--train", 1, "--valid", args.rows, "--tasks", 1)
    with open(os.path.join(work, "valid.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]

    def rendered(conversations):
        out = run(args.braid, "template", args.model, "--jsonl", text="".join(json.dumps(c) + "\n" for c in conversations))
        return [json.loads(line)["text"] for line in out.splitlines()]

    whole = rendered(lines)
    prompts = rendered(line | line.get("chat_template_kwargs", {}) | {"messages": line["messages"][:-1], "add_generation_prompt": True} for line in lines)
    path = os.path.join(work, "answers.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        for prompt, text in zip(prompts, whole):
            if not text.startswith(prompt):
                raise SystemExit(f"formats: {prompt!r} does not begin {text!r}")
            f.write(json.dumps({"prompt": prompt, "completion": text[len(prompt):].rstrip()}) + "\n")
    return path


def plain_and_int8(name, path, bits, held):
    yield (name, path), bits, held
    if name in INT8:
        yield (f"{name}, activations int8", path, "--activations", "int8"), bits, held


def made(args, work):
    """Each format's name, the model in it, its bits per weight, and the share of the values that it holds; last the
    model itself, with its caches and states in fewer bits."""
    for kind in GGUF:
        path = os.path.join(work, f"{kind}.gguf")
        out = json.loads(run(args.braid, "convert", args.model, path, "--type", kind, "--json"))
        values = [(tensor["type"].lower(), math.prod(tensor["shape"])) for tensor in out["tensors"]]
        yield from plain_and_int8(f"GGUF {kind}", path, out["bits_per_weight"], sum(n for t, n in values if t == kind) / sum(n for _, n in values))
    for name, words in FOLDERS.items():
        path = os.path.join(work, name.replace(" ", "-"))
        out = json.loads(run(args.braid, "quantize", args.model, path, "--format", name.split()[0], *words, "--json"))
        held = sum(group["values"] for group in out["groups"])
        yield from plain_and_int8(f"folder {name}", path, out["bits_per_value"], held / (held + out["kept_values"]))
    for name, *words in CACHES:
        yield (name, args.model, *words), 16, 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/bin/braid")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--rows", type=int, default=200, help="conversations")
    parser.add_argument("-o", "--out")
    args = parser.parse_args()
    run_fields = about(args.braid) if args.out else {}
    rows = []
    print(f"{'format':28} {'bits':>6} {'held':>6} {'KL':>9} {'+-':>8} {'same top':>9} {'perplexity x':>13}")
    with tempfile.TemporaryDirectory() as work:
        text = conversations(args, work)
        for (name, *model), bits, held in made(args, work):
            kl = json.loads(run(args.braid, "eval", *model, "-c", "4096", "--kl", args.model, "--jsonl", text, "--json"))
            rows.append({"format": name, "bits_per_weight": round(bits, 3), "held": round(held, 3)} |
                        {key: kl[key] for key in ("kl", "kl_error", "same_top", "ratio", "base_perplexity", "tokens")})
            print(f"{name:28} {bits:6.2f} {100 * held:5.1f}% {kl['kl']:9.5f} {kl['kl_error']:8.5f} {100 * kl['same_top']:8.2f}% {kl['ratio']:13.4f}")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump({"what": f"formats of {args.model}, measured", **run_fields, "rows": rows}, f, indent=1)
            f.write("\n")


main()
