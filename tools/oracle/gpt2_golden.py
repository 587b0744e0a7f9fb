#!/usr/bin/env python3
"""Writes tests/data/hf/gpt2: a small GPT-2 with random weights and what transformers computes on it in FP64.

    gpt2_golden.py OUT

needs: torch transformers safetensors. Every bias and norm is random, so that omitting one shows;
n_inner is not four times n_embd, and the prompt reaches the last learned position.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

PROMPTS = (150, 5)
GREEDY_PROMPT, GREEDY = 12, 16
TOO_CLOSE = 2e-3  # gap of the top two logits: rounding may swap them


def draw(model, generator):
    for name, p in model.named_parameters():
        v = torch.randn(p.shape, generator=generator)
        if name.endswith("ln_1.weight") or name.endswith("ln_2.weight") or name.endswith("ln_f.weight"):
            v = 1 + 0.15 * v
        elif name.endswith("bias"):
            v = 0.2 * v
        elif "wte" not in name:
            v = 1.2 * p.shape[0] ** -0.5 * v if "wpe" not in name else 0.5 * v
        p.data.copy_(v.to(torch.bfloat16))


@torch.no_grad()
def main():
    out = sys.argv[1]
    generator = torch.Generator().manual_seed(1)
    config = GPT2Config(vocab_size=160, n_positions=150, n_embd=48, n_layer=2, n_head=4, n_inner=112, bos_token_id=0,
                        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config)
    draw(model, generator)
    model.to(torch.bfloat16).save_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float64, attn_implementation="eager").eval()
    golden = {}
    for p, tokens in enumerate(PROMPTS):
        ids = torch.randint(1, config.vocab_size, (tokens,), generator=generator)
        result = model(ids[None], output_hidden_states=True, use_cache=False)
        golden |= {f"ids@{p}": ids, f"logits@{p}": result.logits[0].float()}
        if p == 1:  # the last one is after the final norm
            golden[f"hidden@{p}"] = torch.stack([h[0] for h in result.hidden_states]).float()
    while True:
        ids = torch.randint(1, config.vocab_size, (GREEDY_PROMPT,), generator=generator)
        golden["greedy_prompt"] = ids.clone()
        gaps = []
        for _ in range(GREEDY):
            top, best = model(ids[None], use_cache=False).logits[0, -1].topk(2)
            gaps.append(top[0] - top[1])
            ids = torch.cat([ids, best[:1]])
        if min(gaps) > TOO_CLOSE:
            break
    golden["greedy"] = ids[GREEDY_PROMPT:]
    save_file({k: v.contiguous() for k, v in golden.items()}, os.path.join(out, "golden.safetensors"))
    print(json.dumps(sorted(os.listdir(out))))


if __name__ == "__main__":
    main()
