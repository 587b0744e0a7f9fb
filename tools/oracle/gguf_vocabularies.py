#!/usr/bin/env python3
"""The vocabularies of llama.cpp's own tests: Braid must encode their texts to the same ids.

    tools/oracle/gguf_vocabularies.py LLAMA_CPP [--braid build/release/bin/braid]

LLAMA_CPP is a checkout; its models/ggml-vocab-*.gguf have texts in .inp and their ids in .out. A vocabulary of a kind or
pre-tokenizer that Braid does not read is reported as skipped; one that gives other ids is a failure.
"""
import argparse
import glob
import json
import os
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("llama")
    parser.add_argument("--braid", default="build/release/bin/braid")
    args = parser.parse_args()
    wrong, same = 0, 0
    for path in sorted(glob.glob(f"{args.llama}/models/ggml-vocab-*.gguf")):
        if not os.path.exists(path + ".inp"):
            continue
        with open(path + ".inp", encoding="utf-8") as f:
            texts = f.read().split("\n__ggml_vocab_test__\n")
        with open(path + ".out", encoding="utf-8") as f:
            want = [[int(word) for word in line.split()] for line in f.read().split("\n")]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        r = subprocess.run([args.braid, "tokenize", path, "--no-special", "--jsonl"], input=lines, text=True, capture_output=True)
        name = os.path.basename(path)
        if r.returncode != 0:
            print(f"{name}: skipped: {r.stderr.strip()[:160]}")
            continue
        got = [json.loads(line)["ids"] for line in r.stdout.splitlines()]
        bad = [text for text, g, w in zip(texts, got, want, strict=True) if g != w]
        print(f"{name}: {len(texts)} texts, {len(bad)} differ {bad[:2] if bad else ''}")
        wrong, same = wrong + bool(bad), same + (not bad)
    sys.exit(1 if wrong or not same else 0)


main()
