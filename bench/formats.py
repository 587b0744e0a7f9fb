#!/usr/bin/env python3
"""The cost of each format: bytes, and the distance from the model it was made from.

    bench/formats.py [--braid BRAID] [--model tiny] [--rows 200] [-o RESULTS.json]

Every format is made with `braid convert` (GGUF) or `braid quantize` (folders) and compared with `braid eval --kl`, in
BF16, on the last answers of conversations that the model was not trained on (`braid data synth` with another seed).
User turns are not scored: the model never learned to predict them. Bits per weight are the mean over all values; `held`
is the share of values stored in the format: rows whose length is not a multiple of its block size get another type,
embedding and head often do, and folders leave those two unquantised, but for those `whole`, in which everything that Q4_0
quantises is, and the prediction block with it. A GGUF file omits that block, a folder keeps it. Methods with data read
other conversations (seed 11, `--calibration` of them) than those of the comparison. The distances are those of a small
model; a large one loses less. Rows that `--only` adds to RESULTS say in which run they were measured.
"""
import argparse
import json
import math
import os
import re
import subprocess
import tempfile

from about import about

GGUF = ("bf16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl", "mxfp4", "nvfp4")
CACHES = (("keys and values fp8", "--kv-cache-dtype", "fp8"), ("keys and values int8", "--kv-cache-dtype", "int8"),
          ("states bf16", "--mamba-ssm-cache-dtype", "bf16", "--chunk", 1), ("states f16", "--mamba-ssm-cache-dtype", "f16", "--chunk", 1),
          ("states int8", "--mamba-ssm-cache-dtype", "int8", "--chunk", 1))  # a state is rounded once per pass, here of one token
FOLDERS = {"fp8": (), "nvfp4": (), "nvfp4 four-over-six": ("--scales", "four-over-six"), "nvfp4 mse": ("--scales", "mse"),
           "mxfp4": (), "int8": (), "int4": (), "int4 mse": ("--scales", "mse"), "int3": (), "int3 mse": ("--scales", "mse")}
ROLES = ("embedding", "head", "q", "k", "v", "attention_out", "mamba_in", "mamba_out", "up", "down", "expert_up", "expert_down",
         "latent_in", "latent_out", "mtp_in")  # of tiny; spelled out, those of the prediction block, too
CALIBRATED = {f"{name} {method}": (*words, "--method", method) for name, words in (
    ("nvfp4", ("--format", "nvfp4")), ("nvfp4 mse", ("--format", "nvfp4", "--scales", "mse")), ("mxfp4", ("--format", "mxfp4")),
    ("int4", ("--format", "int4")), ("int4 mse", ("--format", "int4", "--scales", "mse")), ("int3", ("--format", "int3")))
    for method in (("gptq", "awq", "auto") if name in ("nvfp4", "int4") else ("auto",))}
WHOLE = {f"{name} whole {method}": (name, method) for name in ("nvfp4", "int4") for method in ("rtn", "auto")}
BITS = {f"{name} {bits} bits auto": (name, bits) for name, bits in (("nvfp4", 9.0), ("int4", 7.5))}
INT8 = ("GGUF q8_0", "GGUF q4_k", "GGUF q4_0", "folder nvfp4")  # also with 8-bit activations, for CPUs with such dot products


def run(*command, text=None):
    done = subprocess.run([str(word) for word in command], input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"formats: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def synthesised(args, work, seed, rows):
    run(args.braid, "data", "synth", "--out", work, "--seed", seed, "--train", 1, "--valid", rows, "--tasks", 1)
    with open(os.path.join(work, "valid.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def rendered(args, conversations):
    out = run(args.braid, "template", args.model, "--jsonl", text="".join(json.dumps(c) + "\n" for c in conversations))
    return [json.loads(line)["text"] for line in out.splitlines()]


def calibration(args, work):
    path = os.path.join(work, "calibration.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(rendered(args, synthesised(args, os.path.join(work, "calibration"), 11, args.calibration))))
    return path


def conversations(args, work):
    lines = synthesised(args, work, 7, args.rows)
    whole = rendered(args, lines)
    prompts = rendered(args, (line | line.get("chat_template_kwargs", {}) | {"messages": line["messages"][:-1], "add_generation_prompt": True} for line in lines))
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


def recipe(work, name):
    path = os.path.join(work, f"{name}.toml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"[[rule]]\nroles = {json.dumps(ROLES)}\nformat = \"{name}\"\n")
    return path


def folders(work, data):
    """Names, and the options of `braid quantize` that make them."""
    with_data = ("--data", data, "--samples", 32)
    for name, words in FOLDERS.items():
        yield name, ("--format", name.split()[0], *words)
    for name, words in CALIBRATED.items():
        yield name, (*words, *with_data)
    for name, (form, method) in WHOLE.items():
        yield name, ("--recipe", recipe(work, form), *(("--method", method, *with_data) if method != "rtn" else ()))
    for name, (form, bits) in BITS.items():
        yield name, ("--recipe", recipe(work, form), "--bits", bits, "--method", "auto", *with_data)


def made(args, work):
    """Each format's name, the model in it, its bits per weight, and the share of the values that it holds; last the
    model itself, with its caches and states in fewer bits."""
    wanted = lambda name: re.search(args.only, name)
    for kind in filter(lambda kind: wanted(f"GGUF {kind}"), GGUF):
        path = os.path.join(work, f"{kind}.gguf")
        out = json.loads(run(args.braid, "convert", args.model, path, "--type", kind, "--json"))
        values = [(tensor["type"].lower(), math.prod(tensor["shape"])) for tensor in out["tensors"]]
        yield from plain_and_int8(f"GGUF {kind}", path, out["bits_per_weight"], sum(n for t, n in values if t == kind) / sum(n for _, n in values))
    data = calibration(args, work)
    for name, words in folders(work, data):
        if not wanted(f"folder {name}"):
            continue
        path = os.path.join(work, name.replace(" ", "-"))
        out = json.loads(run(args.braid, "quantize", args.model, path, *words, "--json"))
        held = sum(group["values"] for group in out["groups"])
        yield from plain_and_int8(f"folder {name}", path, out["bits_per_value"], held / (held + out["kept_values"]))
    for name, *words in filter(lambda cache: wanted(cache[0]), CACHES):
        yield (name, args.model, *words), 16, 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/bin/braid")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--rows", type=int, default=200, help="conversations")
    parser.add_argument("--calibration", type=int, default=400, help="conversations that methods with data read")
    parser.add_argument("--only", default="", help="formats whose names this expression finds; other rows of RESULTS stay")
    parser.add_argument("-o", "--out")
    args = parser.parse_args()
    run_fields = about(args.braid) if args.out else {}
    results, own = {"what": f"formats of {args.model}, measured", **run_fields, "rows": []}, {}
    if args.only and args.out and os.path.exists(args.out):
        with open(args.out, encoding="utf-8") as f:
            results = json.load(f)
        own = {"run": run_fields}
    print(f"{'format':28} {'bits':>6} {'held':>6} {'KL':>9} {'+-':>8} {'same top':>9} {'perplexity x':>13}")
    with tempfile.TemporaryDirectory() as work:
        text = conversations(args, work)
        for (name, *model), bits, held in made(args, work):
            kl = json.loads(run(args.braid, "eval", *model, "-c", "4096", "--kl", args.model, "--jsonl", text, "--json"))
            results["rows"] = [row for row in results["rows"] if row["format"] != name]
            results["rows"].append({"format": name, "bits_per_weight": round(bits, 3), "held": round(held, 3)} |
                        {key: kl[key] for key in ("kl", "kl_error", "same_top", "ratio", "base_perplexity", "tokens")} | own)
            print(f"{name:28} {bits:6.2f} {100 * held:5.1f}% {kl['kl']:9.5f} {kl['kl_error']:8.5f} {100 * kl['same_top']:8.2f}% {kl['ratio']:13.4f}")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
