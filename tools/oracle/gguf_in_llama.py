#!/usr/bin/env python3
"""GGUF files that Braid writes, in the real llama.cpp: the same logits as Braid's on the folder, within the type's error.

    tools/oracle/gguf_in_llama.py LLAMA_CPP BUILD MODEL... [--types bf16,q8_0,...] [--braid build/release/bin/braid]

LLAMA_CPP is a checkout of llama.cpp, BUILD where it was built (BUILD/bin has libllama.so), MODEL a folder that Braid
reads. For every type: `braid convert`, then the logits of a prompt three times: Braid on the folder (A), Braid on the file
(B), llama.cpp on the file (C), all in FP32 except for what llama.cpp rounds. Printed: the root mean square of B - A (the
type's own error) and of C - B (how far the two programs differ), relative to A's spread; for how many tokens B and C
choose the same next one; and, if the folder has a tokenizer, whether both encode a text to the same ids, and how many of
the first greedy ids after it agree. llama.cpp rounds the activations of a product to the type of its weight, Q8 for
quantised ones, so C - B is as large as Q8_0's own error whatever the type; with F32 weights nothing is rounded. Fails if
C - B is above 1e-4 for f32, or above 2% and 1.5 times the type's own error for others.
Needs g++ and numpy.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.realpath(__file__))
TEXT = """Hello, world! It's 3 + 42 = 45, isn't it?\n\nThe quick brown fox (a "vulpes") jumps over 13 lazy dogs.
def f(x):\n    return x ** 2  # squares\n<|im_start|>user\nReverse the word: braid<|im_end|>\n"""


def build(llama, lib, folder):
    program = f"{folder}/llama_logits"
    subprocess.run(["g++", "-std=c++17", "-O1", f"-I{llama}/include", f"-I{llama}/ggml/include",
                    f"{HERE}/llama_logits.cc", "-o", program, f"-L{lib}", "-lllama", "-lggml", "-lggml-base",
                    f"-Wl,-rpath,{lib}"], check=True)
    return program


def run(*command):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if r.returncode != 0:
        raise RuntimeError(f"{' '.join(str(c) for c in command[:4])}: {r.stderr.strip()[-400:] or r.returncode}")
    return r.stdout


def in_braid(braid, model, ids, folder):
    out = f"{folder}/logits.npy"
    run(braid, "run", model, "--ids", ",".join(map(str, ids)), "-n", 0, "--dtype", "f32", "--dump-logits", out)
    logits = np.load(out).astype(np.float64)
    os.remove(out)  # the next one is a new file
    return logits


def in_llama(program, model, ids, folder):
    out = f"{folder}/logits.f32"
    run(program, model, out, *ids)
    return np.fromfile(out, np.float32).reshape(len(ids), -1).astype(np.float64)


def rms(x):
    return float(np.sqrt(np.mean(x * x)))


def same_tokens(braid, program, model, gguf, folder):
    """Whether both encode a text to the same ids; None without a tokenizer."""
    if not os.path.exists(f"{model}/tokenizer.json"):
        return None
    with open(f"{folder}/text.txt", "w", encoding="utf-8") as f:
        f.write(TEXT)
    run(program, gguf, f"{folder}/ids.i32", "--text", f"{folder}/text.txt")
    theirs = np.fromfile(f"{folder}/ids.i32", np.int32).tolist()
    ours = [int(id) for id in run(braid, "tokenize", model, "--no-special", "-f", f"{folder}/text.txt").split(",")]
    return ours == theirs


def same_answer(braid, program, gguf, folder, length=48):
    """How many of the first greedy ids after the text agree."""
    ids = np.fromfile(f"{folder}/ids.i32", np.int32).tolist()[:40]
    run(program, gguf, f"{folder}/out.i32", "--greedy", length, *ids)
    theirs = np.fromfile(f"{folder}/out.i32", np.int32).tolist()
    ours = json.loads(run(braid, "run", gguf, "--ids", ",".join(map(str, ids)), "-n", length, "--temp", 0, "--dtype",
                          "f32", "--ignore-eos", "--json"))["ids"]
    agree = [a == b for a, b in zip(ours, theirs)]
    return agree.index(False) if False in agree else len(agree)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp")
    parser.add_argument("build")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--types", default="f32,bf16,f16,q8_0,q6_k,q5_k,q5_1,q5_0,q4_k,q4_1,q4_0,iq4_nl,mxfp4,nvfp4")
    parser.add_argument("--braid", default="build/release/bin/braid")
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        program = build(args.llama_cpp, os.path.realpath(f"{args.build}/bin"), folder)
        print(f"{'model':24} {'type':7} {'bits':>6} {'B - A':>9} {'C - B':>9} {'same':>7}  text")
        for model in args.models:
            with open(f"{model}/config.json", encoding="utf-8") as f:
                vocabulary = json.load(f)["vocab_size"]
            ids = np.random.default_rng(5).integers(0, vocabulary, 96).tolist()
            a = in_braid(args.braid, model, ids, folder)
            spread = rms(a - a.mean(1, keepdims=True))
            for kind in args.types.split(","):
                gguf = f"{folder}/model.gguf"
                try:
                    info = json.loads(run(args.braid, "convert", model, gguf, "--type", kind, "--json"))
                except RuntimeError as error:
                    print(f"{os.path.basename(model.rstrip('/')):24} {error}")
                    break
                b = in_braid(args.braid, gguf, ids, folder)
                c = in_llama(program, gguf, ids, folder)
                own, apart = rms(b - a) / spread, rms(c - b) / spread
                same = int((b.argmax(1) == c.argmax(1)).sum())
                tokens = same_tokens(args.braid, program, model, gguf, folder)
                text = "-" if tokens is None else f"{'same' if tokens else 'differ'} {same_answer(args.braid, program, gguf, folder)}/48"
                wrong = not apart <= (1e-4 if kind == "f32" else max(0.02, 1.5 * own))
                bad += wrong
                print(f"{os.path.basename(model.rstrip('/')):24} {kind:7} {info['bits_per_weight']:6.3f} {own:9.2e} "
                      f"{apart:9.2e} {same:3d}/{len(ids):3d}  {text}{'  WRONG' if wrong else ''}", flush=True)
    sys.exit(1 if bad else 0)


main()
