#!/usr/bin/env python3
"""Braid's tokenizer against Hugging Face's `tokenizers` and tiktoken: the same text, one core, alternating in one run.

usage: tokenizer_peers.py FOLDER --bench build/release/src/text/text_bench [--text FILE] [--rounds N] [-o OUT.json]

FOLDER holds a tokenizer.json. Needs `pip install tokenizers tiktoken` in a virtual environment, and a build with
-DBRAID_BENCH=ON. Without --text, 6 MB of this machine's own files are mixed: 40% code, 40% English prose, 20%
other languages, in documents of 64 kB separated by zero bytes. Loads and rates are CPU time, so that a busy machine
disturbs little; the best and the median of the rounds are kept. Token counts must agree.
"""
import argparse
import glob
import hashlib
import json
import os
import platform
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")


def mixed_text(seed=7, size=6_000_000, document=64_000):
    draw = random.Random(seed)

    def chunks(patterns, share):
        files = [f for p in patterns for f in sorted(glob.glob(p, recursive=True)) if os.path.isfile(f)]
        texts = [Path(f).read_text(errors="replace").replace("\0", " ") for f in files[:300]]
        cut = [t[i:i + 4000] for t in texts for i in range(0, len(t), 4000)]
        draw.shuffle(cut)
        out, total = [], 0
        while cut and total < size * share:
            out.append(cut.pop())
            total += len(out[-1].encode())
        return out

    parts = (chunks(["/usr/lib/python3*/**/*.py", "/usr/include/c++/*/bits/*.h"], .4) +
             chunks(["/usr/share/common-licenses/*", "/usr/share/vim/vim*/doc/*.txt"], .4) +
             chunks(["/usr/share/vim/vim*/tutor/*.utf-8"], .2))
    draw.shuffle(parts)
    text = "".join(parts)
    return "\0".join(text[i:i + document] for i in range(0, len(text), document))


def timed(work):
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def hugging_face(folder, documents):
    import tokenizers
    load, tokenizer = timed(lambda: tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json"))
    encode, count = timed(lambda: sum(len(tokenizer.encode(d, add_special_tokens=False).ids) for d in documents))
    return f"tokenizers {tokenizers.__version__}", load, encode, count


def tiktoken_of(folder, documents):
    """tiktoken reads no tokenizer.json: its ranks are the ids of the byte-level vocabulary. None if that is impossible."""
    import tiktoken
    spec = json.loads(Path(folder, "tokenizer.json").read_text())
    steps = (spec["pre_tokenizer"] or {}).get("pretokenizers") or []
    if len(steps) != 2 or steps[1]["type"] != "ByteLevel" or not spec["model"].get("ignore_merges"):
        return None
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    letters = {chr(b): b for b in printable}
    letters.update((chr(0x100 + i), b) for i, b in enumerate(b for b in range(256) if b not in printable))
    added = {t["content"] for t in spec["added_tokens"]}
    ranks = {bytes(letters[c] for c in token): i for token, i in spec["model"]["vocab"].items() if token not in added}
    pattern = steps[0]["pattern"]["Regex"]
    load, encoding = timed(lambda: tiktoken.Encoding("peer", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}))
    encode, count = timed(lambda: sum(len(encoding.encode_ordinary(d)) for d in documents))
    return f"tiktoken {tiktoken.__version__}", load, encode, count


def braid(bench, folder, path):
    env = {**os.environ, "BRAID_BENCH_TOKENIZER": str(folder), "BRAID_BENCH_TEXT": path}
    run = subprocess.run([bench, "--benchmark_filter=Tokenizer(Load|Encode)", "--benchmark_format=json"], env=env,
                         capture_output=True, text=True, check=True)
    rows = {row["name"]: row for row in json.loads(run.stdout)["benchmarks"]}
    seconds = {name: row["cpu_time"] / 1e3 for name, row in rows.items()}
    return "braid", seconds["TokenizerLoad"], seconds["TokenizerEncode"], int(rows["TokenizerEncode"]["tokens"])


def summary(rounds, megabytes):
    loads = [load for load, _, _ in rounds]
    rates = [megabytes / encode for _, encode, _ in rounds]
    return {"load_s": {"best": round(min(loads), 4), "median": round(statistics.median(loads), 4)},
            "encode_mb_per_s": {"best": round(max(rates), 2), "median": round(statistics.median(rates), 2)},
            "tokens": rounds[0][2]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--bench", required=True)
    parser.add_argument("--text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--out")
    args = parser.parse_args()
    text = Path(args.text).read_text() if args.text else mixed_text()
    documents = text.split("\0")
    raw = text.encode()
    measured = {}
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(raw)
        file.flush()
        for _ in range(args.rounds):
            peers = [braid(args.bench, args.folder, file.name), hugging_face(args.folder, documents),
                     tiktoken_of(args.folder, documents)]
            for name, *figures in filter(None, peers):
                measured.setdefault(name, []).append(figures)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    result = {"what": "tokenizer load and encode, one core, processor time", "commit": commit, "cpu": model,
              "cores": os.cpu_count(), "load_average": os.getloadavg()[0], "python": platform.python_version(),
              "tokenizer": Path(args.folder).name, "rounds": args.rounds,
              "text": {"megabytes": len(raw) / 1e6, "documents": len(documents), "sha256": hashlib.sha256(raw).hexdigest()},
              "peers": {name: summary(rounds, len(raw) / 1e6) for name, rounds in measured.items()}}
    out = json.dumps(result, indent=2) + "\n"
    if args.out:
        Path(args.out).write_text(out)
    print(out, end="")
    counts = {peer["tokens"] for peer in result["peers"].values()}
    if len(counts) != 1:
        raise SystemExit(f"token counts differ: {counts}")


if __name__ == "__main__":
    main()
