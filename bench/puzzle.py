#!/usr/bin/env python3
"""Layers that differ beside layers that are alike: `braid search` and `braid prune` at the same bytes.

    bench/puzzle.py [--braid BRAID] [--shares 0.75,0.5,0.35] [--distill-tokens 16384] [-o RESULTS.json]

The parent is `tiny` without its prediction block, which `search` leaves as it is. At every share of its bytes: `prune`
with the same rows, `search`, and `search` after local distillation of its variants; no other training. All are judged on
the answers of conversations that none of them read (`braid data synth` with another seed): the divergence from the
parent, the increase of the loss, and accuracy on held-out sums of `tiny`'s tasks. Tokens a second of `search` are
predicted by the sum of its blocks' times and measured, the parent's in turns with the child's.
"""
import argparse
import json
import pathlib
import shutil
import struct
import tempfile

import formats
from about import about


def without_prediction(source, folder):
    """A copy of a folder of one file without the prediction block."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    config["num_nextn_predict_layers"] = 0
    (folder / "config.json").write_text(json.dumps(config))
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    kept, parts, at = {}, [], 0
    for name, tensor in header.items():
        if name == "__metadata__" or name.startswith("mtp."):
            continue
        begin, end = tensor["data_offsets"]
        kept[name] = tensor | {"data_offsets": [at, at + end - begin]}
        parts.append(body[begin:end])
        at += end - begin
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def judged(args, parent, folder, answers, tasks):
    kl = json.loads(formats.run(args.braid, "eval", folder, "-c", 4096, "--kl", parent, "--jsonl", answers, "--json"))
    done = json.loads(formats.run(args.braid, "eval", folder, "--tasks", tasks, "--think", "off", "-n", 24, "--json"))
    return {key: kl[key] for key in ("kl", "kl_error", "same_top", "ratio")} | {"right": done["accuracy"] / 100}


def arms_of(args, share, train):
    """By name: the command and its words. Small targets are out of reach of the defaults of prune."""
    common = ("--data", train, "--samples", args.samples, "--json")
    search = ("search", *common, "--limit", f"gib={share}x", "--length", 128, *(("--variants", args.variants) if args.variants else ()))
    floors = ("--min-width", "0.25", "--min-depth", "0.5") if float(share) < 0.75 else ()
    return {"prune": ("prune", *common, "--target", f"gib={share}x", "--length", 256, *floors),
            "search": search, "search, distilled": (*search, "--distill-tokens", args.distill_tokens)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/bin/braid")
    parser.add_argument("--model", default="models/tiny", type=pathlib.Path, help="a folder of one file")
    parser.add_argument("--shares", default="0.75,0.5,0.35", help="of the parent's bytes")
    parser.add_argument("--rows", default=100, type=int, help="conversations that judge")
    parser.add_argument("--samples", default=32, type=int, help="rows of 256 tokens that the commands read")
    parser.add_argument("--distill-tokens", default=8192, type=int, help="of each variant")
    parser.add_argument("--variants", help="a file for search")
    parser.add_argument("-o", "--out")
    args = parser.parse_args()
    results = {"what": "search beside prune at the same bytes, measured", **(about(args.braid) if args.out else {}), "rows": []}
    print(f"{'share':>6} {'arm':18} {'MiB':>6} {'KL':>8} {'+-':>7} {'perplexity x':>13} {'same top':>9} {'right':>6}   tokens/s")
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        parent = work / "parent"
        without_prediction(args.model, parent)
        formats.run(args.braid, "data", "synth", "--out", work / "data", "--seed", 11, "--train", 400, "--valid", 1, "--tasks", 60)
        answers, tasks = formats.conversations(args, str(work / "judging")), work / "data" / "arithmetic.jsonl"
        for share in ("1", *args.shares.split(",")):
            arms = arms_of(args, share, work / "data" / "train.jsonl") if share != "1" else {"parent": ()}
            for name, words in arms.items():
                out = work / f"{name}-{share}" if words else parent
                told = json.loads(formats.run(args.braid, words[0], parent, out, *words[1:])) if words else {"after": {}}
                after, row = told["after"], judged(args, parent, out, answers, tasks)
                row |= {"share": float(share), "arm": name, "bytes": (out / "model.safetensors").stat().st_size}
                row |= {key: after[key] for key in ("params", "tokens_s", "tokens_s_predicted") if key in after}
                if words and words[0] == "search":
                    row["parent_tokens_s"] = told["before"]["tokens_s"]
                    row["choice"] = [site["variants"][site["chosen"]]["name"] for site in told["sites"]]
                    row["sum_of_scores"] = told["score"]
                results["rows"].append(row)
                speed = f"{row.get('tokens_s_predicted', 0):.0f} predicted, {row['tokens_s']:.0f}" if words[:1] == ("search",) else ""
                print(f"{share:>6} {name:18} {row['bytes'] / 2**20:6.2f} {row['kl']:8.4f} {row['kl_error']:7.4f} {row['ratio']:13.4f} "
                      f"{100 * row['same_top']:8.1f}% {100 * row['right']:5.1f}%   {speed}", flush=True)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
