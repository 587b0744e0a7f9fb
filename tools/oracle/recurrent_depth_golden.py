#!/usr/bin/env python3
"""Writes tests/data/huginn: a small model with recurrent depth and random weights, and what the paper's code computes.

    recurrent_depth_golden.py CHECKOUT OUT

CHECKOUT: github.com/seal-rg/recurrent-pretraining, of which recpre/raven_{config,modeling}_minimal.py are used.
needs: torch transformers==4.53 safetensors. Everything is FP32. Two layers in the prelude and four in the core, because
the code's lookup of keys and values that an early exit left out ("latest-m4") knows no other structure.

golden.safetensors: ids@p [T], input_states@p [T, h], logits.R@p [T, V] for R = 1, 4, 9 steps; greedy_prompt, and for
NAME = greedy, warm, shared, kl, latent, entropy, argmax: NAME [N], a greedy continuation from states of zero, and
NAME.steps [N], the steps that each of its tokens took: at most 20; 5 for `warm`, whose tokens start from the state of the
token before, and `shared`, with two sets of keys and values for all steps. A prompt is read without early exits.
loss and grad.TENSOR: of the mean cross-entropy of the next tokens of ids@0 after 3 steps without gradients and 2 with;
every seventh element of each gradient.
"""
import argparse
import importlib.util
import json
import sys
import types

import torch
from safetensors.torch import save_file

EXITS = {"kl": ("kl", 2e-3), "latent": ("latent-diff", 0.08), "entropy": ("entropy-diff", 2e-3),
         "argmax": ("argmax-stability", 5)}
UNTRAINED, TRAINED, EVERY = 3, 2, 7
STEPS, FEW, TOKENS, SHARED, WIDTH = 20, 5, 16, 2, 0.72


def load(checkout):
    package = types.ModuleType("recpre")
    package.__path__ = [f"{checkout}/recpre"]
    sys.modules["recpre"] = package
    for name in ("raven_config_minimal", "raven_modeling_minimal"):
        spec = importlib.util.spec_from_file_location(f"recpre.{name}", f"{checkout}/recpre/{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return sys.modules["recpre.raven_config_minimal"].RavenConfig, module


def draw(model, generator):
    for name, p in model.named_parameters():
        width = 0.1 if "qk_bias" in name else 0.15 if "norm" in name or "ln_f" in name else WIDTH * p.shape[-1] ** -0.5
        value = torch.randn(p.shape, generator=generator) * width
        p.copy_(1 + value if "norm" in name or "ln_f" in name else value)


class Counting:
    """An exit rule that notes after how many checks each token is left."""

    def __init__(self, rule):
        self.rule, self.steps = rule, []

    def init(self, latents):
        self.rule.init(latents)
        self.steps.append(0)

    def check(self, *args):
        self.steps[-1] += 1
        return self.rule.check(*args)


def gradients(model, ids, states):
    """Of the mean cross-entropy of the next tokens: 3 steps without gradients, then 2 with."""
    with torch.enable_grad():
        out = model(ids[None, :-1], input_states=states[None, :-1], labels=ids[None, 1:],
                    num_steps=(torch.tensor(UNTRAINED), torch.tensor(TRAINED)))
        out.loss.backward()
    golden = {"loss": out.loss.detach()}
    for name, p in model.named_parameters():
        if name != "lm_head.weight":
            golden[f"grad.{name}"] = p.grad.flatten()[::EVERY].clone()
            p.grad = None
    return golden


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout")
    parser.add_argument("out")
    args = parser.parse_args()
    Config, modeling = load(args.checkout)
    generator = torch.Generator().manual_seed(5)
    config = Config(n_embd=24, n_heads=2, n_layers=7, block_size=64, vocab_size=96, padding_multiple=8,
                    intermediate_size=40, n_layers_in_recurrent_block=4, n_layers_in_prelude=2, n_layers_in_coda=1,
                    mean_recurrence=6, mean_backprop_depth=3, torch_dtype="float32")
    model = modeling.RavenForCausalLM(config).eval().float()
    model.tie_weights()
    draw(model, generator)
    golden = {}
    for p, tokens in enumerate((40, 5)):
        ids = torch.randint(0, config.vocab_size, (tokens,), generator=generator)
        states = torch.randn(tokens, config.n_embd, generator=generator) * 0.3
        golden |= {f"ids@{p}": ids, f"input_states@{p}": states}
        for r in (1, 4, 9):
            golden[f"logits.{r}@{p}"] = model(ids[None], input_states=states[None],
                                              num_steps=torch.tensor([r])).logits[0]
    golden |= gradients(model, golden["ids@0"], golden["input_states@0"])
    prompt = torch.randint(0, config.vocab_size, (8,), generator=generator)
    golden["greedy_prompt"] = prompt

    def answer(name, rule, steps_max=STEPS, **more):
        counting = Counting(rule)
        ids = model.generate_with_adaptive_compute(prompt[None], exit_evaluator=counting, init_scale=0.0,
                                                   do_not_exit_in_prefill=True, max_new_tokens=TOKENS, num_steps=steps_max,
                                                   **more)
        steps = counting.steps
        steps[0] = steps_max
        golden[name], golden[f"{name}.steps"] = ids[0, len(prompt):], torch.tensor(steps)
        print(name, golden[name].tolist(), steps)

    never = modeling.NoOpExitEvaluator
    answer("greedy", never())
    answer("warm", never(), FEW, continuous_compute=True)
    answer("shared", never(), FEW, cache_lookup_strategy=f"compress-s{SHARED * config.n_layers_in_recurrent_block}")
    for name, (criterion, threshold) in EXITS.items():
        answer(name, modeling.get_adaptive_exit_evaluator(model, criterion, threshold),
               cache_lookup_strategy="latest-m4")
    weights = {n: p.detach().clone() for n, p in model.named_parameters() if n != "lm_head.weight"}
    save_file(weights, f"{args.out}/model.safetensors", {"format": "pt"})
    save_file({n: t.contiguous() for n, t in golden.items()}, f"{args.out}/golden.safetensors")
    kept = {k: v for k, v in config.to_dict().items() if k not in ("init_values", "_name_or_path", "auto_map")}
    with open(f"{args.out}/config.json", "w") as f:
        json.dump({**kept, "architectures": ["RavenForCausalLM"]}, f, indent=1)
        f.write("\n")


main()
