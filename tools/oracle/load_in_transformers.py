#!/usr/bin/env python3
"""Loads a folder that Braid wrote in transformers: no missing or unexpected tensors, and the same logits.

usage: load_in_transformers.py FOLDER [BRAID] [--ids 1,2,3]
Needs torch and transformers; without them it says so and exits with 0. The prediction block is Braid's own:
transformers ignores it by design.
"""
import argparse
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("braid", nargs="?", default="build/release/bin/braid")
parser.add_argument("--ids", default="5,9,2,14,7,3,11,8,6,10,4,12")
args = parser.parse_args()
try:
    import numpy
    import torch
    from transformers import AutoModelForCausalLM
except ImportError as error:
    print(f"SKIPPED load_in_transformers: {error}")
    sys.exit(0)

model, info = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32, output_loading_info=True,
                                                   experts_implementation="eager")
for module in model.modules():  # transformers clamps dt at time_step_min, which is meant for initialisation
    if hasattr(module, "time_step_limit"):
        module.time_step_limit = (0.0, float("inf"))
wrong = [f"missing {n}" for n in info["missing_keys"]]
wrong += [f"unexpected {n}" for n in info["unexpected_keys"] if not n.startswith("mtp.")]
if wrong:
    sys.exit("\n".join(wrong))
ids = [int(i) for i in args.ids.split(",")]
with torch.no_grad():
    expected = model(torch.tensor([ids]), use_cache=False).logits[0]
with tempfile.NamedTemporaryFile(suffix=".npy") as file:
    subprocess.run([args.braid, "run", args.folder, "--ids", args.ids, "--dtype", "f32", "--dump-logits", file.name, "-n", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    got = torch.from_numpy(numpy.load(file.name))
error = (got - expected).abs().max().item() / expected.abs().max().item()
print(f"logits differ by {error:.1e} of the largest")
sys.exit(error > 1e-4)
