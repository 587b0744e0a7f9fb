#!/usr/bin/env python3
"""Writes tests/data/gradients: the gradients of a loss in whole models, by autograd through transformers in FP64.

    gradient_golden.py HF_FOLDERS OUT NAME...

needs: torch transformers safetensors. OUT/NAME.safetensors holds `ids` [T], `loss` [1] (the mean over t < T - 1 of the
cross-entropy of logits t with id t + 1; no block of multi-token prediction), and for every parameter, under its name in
the file, `NAME` [n] F32 and `NAME@` [n] I32: values and indices of the largest entries of the flattened tensor, and of
as many random ones. Whole tensors would be megabytes.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS, KEPT = 40, 256


SPELLINGS = {"mamba_n_groups": "n_groups", "mamba_d_conv": "conv_kernel", "attention_head_dim": "head_dim",
             "mamba_chunk_size": "chunk_size", "mamba_expand": "expand"}  # older released folders -> transformers


def load(folder):
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        given = json.load(f)
    config = AutoConfig.from_pretrained(folder, **{SPELLINGS[k]: v for k, v in given.items() if k in SPELLINGS})
    model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float64,
                                                 attn_implementation="eager", experts_implementation="eager")
    for name, p in model.named_parameters():
        assert p.dtype == torch.float64, (name, p.dtype)
    for module in model.modules():
        if hasattr(module, "time_step_limit"):  # transformers clamps dt at time_step_min, the models do not
            module.time_step_limit = (0.0, float("inf"))
    return model.eval()


def stored(folder):
    names = {}
    for file in sorted(os.listdir(folder)):
        if file.startswith("model") and file.endswith(".safetensors"):
            names.update(load_file(f"{folder}/{file}"))
    return names


def find(name, tensor, params):
    """The gradient of a stored tensor: transformers may name its parents differently, and stacks experts."""
    for own in (name, name.replace("backbone.", "model."), "transformer." + name):
        if own in params:
            return params[own]
    parts = name.split(".")
    if "experts" in parts and parts[parts.index("experts") + 1].isdigit():
        at = parts.index("experts")
        whole = find(".".join(parts[:at + 1] + parts[at + 2:-1]), None, params)
        return None if whole is None else whole[int(parts[at + 1])]
    return None


def main():
    root, out, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    os.makedirs(out, exist_ok=True)
    draw = torch.Generator().manual_seed(1)
    for name in names:
        folder = f"{root}/{name}"
        model = load(folder)
        ids = torch.randint(3, model.config.vocab_size, (TOKENS,), generator=draw)
        logits = model(ids[None], use_cache=False).logits[0]
        loss = torch.nn.functional.cross_entropy(logits[:-1], ids[1:])
        loss.backward()
        params = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        got, left = {"ids": ids, "loss": loss.detach().float().reshape(1)}, []
        for n, tensor in stored(folder).items():
            grad = find(n, tensor, params)
            if grad is None:
                left.append(n)
                continue
            assert grad.shape == tensor.shape, (n, grad.shape, tensor.shape)
            flat = grad.flatten()
            indices = torch.arange(flat.numel())
            if flat.numel() > 2 * KEPT:
                indices = torch.cat([flat.abs().topk(KEPT).indices,
                                     torch.randperm(flat.numel(), generator=draw)[:KEPT]]).unique()
            got[n], got[n + "@"] = flat[indices].float(), indices.to(torch.int32)
        save_file(got, f"{out}/{name}.safetensors")
        print(f"{name}: loss {loss.item():.6f}, {len(got) // 2 - 1} gradients; without one: {left}")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    main()
