#!/usr/bin/env python3
"""Prunes folders along every axis that they have and loads the results in transformers: the same logits as Braid's.

    tools/oracle/prune_in_transformers.py FOLDER... [--braid build/release/bin/braid]

FOLDERs are models that both read, with or without a tokenizer: the calibration data are random ids. For every axis by
itself, and for all together, `braid prune` and then load_in_transformers.py, which compares logits in FP32 within 1e-4.
Needs numpy, safetensors, torch and transformers; without them it prints that they are missing and exits with 0. The
prediction block is Braid's own: transformers ignores it by design.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
AXES = ("hidden", "ffn", "heads", "kv_groups", "mamba_heads", "mamba_head_dim", "experts", "expert_ffn", "shared_ffn",
        "latent", "layers")


def vocabulary(folder):
    return json.loads((folder / "config.json").read_text())["vocab_size"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--braid", default="build/release/bin/braid")
    args = parser.parse_args()
    try:
        import numpy
        import torch  # noqa: F401, of load_in_transformers.py
        import transformers  # noqa: F401
        from safetensors.numpy import save_file
    except ImportError as error:
        print(f"SKIPPED prune_in_transformers: {error}")
        return 0
    wrong, right = 0, 0
    for folder in args.folders:
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place)
            draw = numpy.random.default_rng(1)
            save_file({"batches": draw.integers(0, vocabulary(folder), (8, 2, 33))}, place / "ids.safetensors")
            for axis in (*AXES, "all"):
                out = place / axis
                words = [args.braid, "prune", folder, out, "--data", place / "ids.safetensors", "--kind", "ids",
                         "--target", "params=0.9999", "--candidates", "2", "--quick", "2"]
                if axis != "all":
                    words += ["--axes", axis]
                else:
                    words[words.index("params=0.9999")] = "params=0.8"
                done = subprocess.run(words, capture_output=True, text=True, check=False)
                if axis != "all" and "cannot be cut along" in done.stderr:
                    continue
                check = done
                if done.returncode == 0:
                    check = subprocess.run([sys.executable, HERE / "load_in_transformers.py", out, args.braid],
                                           capture_output=True, text=True, check=False)
                says = (check.stdout + check.stderr).strip().splitlines()
                line = next((line for line in says if line.startswith("logits differ")), says[-1] if says else "")
                print(f"{folder.name} {axis}: {'ok' if check.returncode == 0 else 'WRONG'}, {line}", flush=True)
                wrong += check.returncode != 0
                right += check.returncode == 0
    print(f"{right} right, {wrong} wrong")
    return 1 if wrong or not right else 0


if __name__ == "__main__":
    sys.exit(main())
