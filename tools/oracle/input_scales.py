#!/usr/bin/env python3
"""The input_scale of every matrix, measured by transformers.

    tools/oracle/input_scales.py MODEL --data TEXT [--format nvfp4|fp8] [--braid build/release/bin/braid] [--json OUT]

MODEL is an unquantised folder that both read, with a tokenizer. Every product that transformers computes in FP32 over
windows of 512 tokens is observed, and the largest magnitude of its input compared with what `braid quantize --data`
wrote: within 1e-4. Experts that no token chose are compared with their layer's largest. --json writes what transformers
measured, for tests. Needs torch, transformers and safetensors.
"""
import argparse
import glob
import json
import re
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

WINDOW = 512


def measured(folder, text):
    """Largest input by the name of the matrix in files, without .weight; experts that were not chosen are left out."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, experts_implementation="eager").eval()
    for module in model.modules():
        if hasattr(module, "time_step_limit"):  # transformers clamps dt at time_step_min, the models do not
            module.time_step_limit = (0.0, float("inf"))
    names = {}
    for name, value in model.named_parameters():
        name = name.removesuffix(".weight").replace("model.layers", "backbone.layers", 1)
        if value.dim() == 2:
            names[value.data_ptr()] = name
        elif value.dim() == 3 and ".experts." in name:
            stem, which = name.rsplit(".", 1)
            for e in range(value.shape[0]):
                names[value[e].data_ptr()] = f"{stem}.{e}.{which}"
    seen, plain = {}, torch.nn.functional.linear

    def linear(x, weight, *rest, **named):
        name = names.get(weight.data_ptr())
        if name:
            seen[name] = max(seen.get(name, 0.0), x.abs().max().item())
        return plain(x, weight, *rest, **named)

    torch.nn.functional.linear = linear
    ids = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    with torch.no_grad():
        for begin in range(0, len(ids), WINDOW):
            model(torch.tensor([ids[begin:begin + WINDOW]]), use_cache=False)
    torch.nn.functional.linear = plain
    return seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--format", default="nvfp4", choices=("nvfp4", "fp8"))
    parser.add_argument("--braid", default="build/release/bin/braid")
    parser.add_argument("--json")
    args = parser.parse_args()
    with open(args.data, encoding="utf-8") as f:
        seen = measured(args.model, f.read())
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({name: seen[name] for name in sorted(seen)}, f, indent=0)
            f.write("\n")
    worst, count, unseen = 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        out = folder + "/out"
        subprocess.run([args.braid, "quantize", args.model, out, "--format", args.format, "--data", args.data], check=True)
        for file in glob.glob(out + "/*.safetensors"):
            with safe_open(file, "pt") as tensors:
                for key in tensors.keys():
                    if not key.endswith(".input_scale"):
                        continue
                    name = key.removesuffix(".input_scale")
                    want = seen.get(name)
                    if want is None:
                        unseen += 1
                        layer = re.sub(r"\.\d+\.(\w+)$", r".*.\1", name)
                        want = max(v for n, v in seen.items() if re.sub(r"\.\d+\.(\w+)$", r".*.\1", n) == layer)
                    got = tensors.get_tensor(key).item() * (6 * 448 if args.format == "nvfp4" else 448)
                    worst, count = max(worst, abs(got - want) / want), count + 1
    print(f"{count} input scales, {unseen} of experts without a token: at most {worst:.1e} apart")
    sys.exit(0 if count and worst < 1e-4 else 1)


if __name__ == "__main__":
    main()
