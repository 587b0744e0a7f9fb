#!/usr/bin/env python3
"""Checks folders in the compressed-tensors layout against the library that defines it and against transformers.

    tools/oracle/compressed_in_transformers.py MODEL [--formats int4,int8,int3,mxfp4] [--braid build/release/bin/braid]

MODEL is an unquantised folder that both read. For every format (or recipe, FILE.toml): `braid quantize`, then two things. The packed matrices
are decoded by compressed_tensors and written as an F32 folder, on which Braid must score a prompt as it does on the
quantised one, within 1e-4. And transformers loads the quantised folder by its quantization_config; it decodes and
computes in BF16, so its log-probabilities may differ by 3% of their spread. Needs torch, transformers, safetensors and compressed-tensors.
"""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM


def score(braid, folder, ids):
    r = subprocess.run([braid, "score", folder, "--jsonl", "-", "--path", "prefill", "--dtype", "f32"],
                       input=json.dumps({"ids": ids}), capture_output=True, text=True)
    if r.returncode != 0:
        sys.exit(f"braid score {folder}: {r.stderr}")
    return torch.tensor(json.loads(r.stdout)["logprobs"], dtype=torch.float64)


def decoded(tensors):
    """The tensors of a folder with every packed matrix decoded to F32, and the number of packed matrices."""
    out, packed = {}, 0
    for name, value in tensors.items():
        if not name.endswith("_packed"):
            if not name.endswith((".weight_scale", ".weight_shape")):
                out[name] = value
            continue
        stem, packed = name.removesuffix("_packed"), packed + 1
        scale = tensors[stem + "_scale"]
        if value.dtype == torch.uint8:
            codes = unpack_fp4_from_uint8(value, value.shape[0], 2 * value.shape[1], torch.float32)
            scale = torch.exp2(scale.float() - 127)
        else:
            shape = tensors[stem + "_shape"].tolist()
            codes = unpack_from_int32(value, value.shape[1] * 32 // shape[1], torch.Size(shape)).float()
        out[stem] = codes * scale.float().repeat_interleave(32, 1)
    return out, packed


def check(args, name, folder, ids):
    quantised, plain = f"{folder}/quantised", f"{folder}/plain"
    option = "--recipe" if name.endswith(".toml") else "--format"
    r = subprocess.run([args.braid, "quantize", args.model, quantised, option, name], capture_output=True, text=True)
    if r.returncode != 0:
        sys.exit(r.stderr)
    tensors = {}
    for file in sorted(glob.glob(f"{quantised}/*.safetensors")):
        tensors.update(load_file(file))
    values, packed = decoded(tensors)
    os.mkdir(plain)
    config = json.load(open(f"{quantised}/config.json"))
    del config["quantization_config"]
    json.dump(config, open(f"{plain}/config.json", "w"))
    save_file({k: v.contiguous() for k, v in values.items()}, f"{plain}/model.safetensors", {"format": "pt"})
    ours, exact = score(args.braid, quantised, ids), score(args.braid, plain, ids)
    model = AutoModelForCausalLM.from_pretrained(quantised, dtype=torch.bfloat16)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    theirs = torch.stack([logits[i].log_softmax(-1)[ids[i + 1]] for i in range(len(ids) - 1)])
    apart, rounded = (ours - exact).abs().max().item(), ((ours - theirs).pow(2).mean().sqrt() / ours.std()).item()
    good = packed > 0 and apart <= 1e-4 and rounded <= 0.03
    print(f"{name:6} {packed} matrices; decoded by the library {apart:.1e} apart; transformers {rounded:.2%} of the spread"
          f"{'' if good else '  WRONG'}", flush=True)
    shutil.rmtree(quantised)
    shutil.rmtree(plain)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--formats", default="int4,int8,int3,mxfp4")
    parser.add_argument("--braid", default="build/release/bin/braid")
    args = parser.parse_args()
    vocabulary = json.load(open(f"{args.model}/config.json"))["vocab_size"]
    ids = torch.randint(vocabulary, (48,), generator=torch.Generator().manual_seed(7)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        good = [check(args, name, folder, ids) for name in args.formats.split(",")]
    sys.exit(0 if all(good) else 1)


main()
