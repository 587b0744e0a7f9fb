#!/usr/bin/env python3
"""Random configs of every family that transformers has, with random weights: logits (whole and in chunks of 7) and gradients
beside transformers' in FP64. Sizes are odd, heads are not the hidden size, biases, ties, RoPE scalings, norms of routers,
groups of experts and latent widths come and go.

usage: random_configs.py BRAID [--seeds 0:100] [--no-gradients]
Needs torch and transformers; without them it says so and exits with 0. Exit code 1 if any config is computed otherwise or
refused.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
try:
    import numpy
    import torch
    import transformers as hf
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"SKIPPED random_configs: {missing}")
    sys.exit(0)
torch.set_num_threads(1)

ALLOWED = 1e-4  # of logits; of gradients times their largest; or three times what transformers' own FP32 is off
TINY = 1e-6  # gradients whose largest is below that of the model's largest are zero but for rounding


def rope(one):
    kind = one(["default", "default", "linear", "dynamic", "yarn", "llama3"])
    o = {"rope_type": kind, "rope_theta": one([1e4, 5e5, 100.0]) if kind == "default" else 1e4}
    if kind in ("linear", "dynamic"):
        o["factor"] = one([2.0, 4.5])
    elif kind == "yarn":
        o |= {"factor": one([2.0, 4.0]), "original_max_position_embeddings": one([16, 32])}
        o |= one([{}, {"beta_fast": 16.0, "beta_slow": 2.0}, {"attention_factor": 0.9}, {"mscale": 0.8, "mscale_all_dim": 0.5},
                  {"truncate": False}])
    elif kind == "llama3":
        o |= {"factor": one([4.0, 8.0]), "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": one([16, 32, 64])}
    return o


def gpt2(one):
    heads, tie = one([1, 2, 3, 4]), one([True, True, False])
    return hf.GPT2LMHeadModel, hf.GPT2Config(
        vocab_size=one([61, 200]), n_embd=heads * one([8, 16, 20]), n_head=heads, n_layer=one([1, 2, 3]), n_positions=128,
        n_inner=one([None, 56]), activation_function=one(["gelu_new", "relu", "gelu"]), tie_word_embeddings=tie,
        layer_norm_epsilon=one([1e-5, 1e-2]), initializer_range=one([0.02, 0.2]), bos_token_id=1, eos_token_id=2)


def common(one):
    heads = one([1, 2, 3])
    return {"vocab_size": one([61, 97, 128, 200]), "hidden_size": one([36, 72, 108]), "num_key_value_heads": heads,
            "num_attention_heads": heads * one([1, 2, 3]), "head_dim": one([8, 16, 20, 32, 48]), "pad_token_id": None,
            "intermediate_size": one([40, 64, 72, 136]), "max_position_embeddings": one([64, 512]), "bos_token_id": 1,
            "eos_token_id": 2, "tie_word_embeddings": one([True, False]), "attention_bias": one([True, False]),
            "initializer_range": one([0.02, 0.2])}


def stack(one):
    return common(one) | {"num_hidden_layers": one([1, 2, 3, 4]), "rms_norm_eps": one([1e-6, 1e-5, 1e-2]), "rope_parameters": rope(one)}


def llama(one):
    acts = one(["silu", "gelu", "relu", "gelu_pytorch_tanh"])
    return hf.LlamaForCausalLM, hf.LlamaConfig(**stack(one), mlp_bias=one([True, False]), hidden_act=acts)


def qwen3(one):
    return hf.Qwen3ForCausalLM, hf.Qwen3Config(**stack(one))


def qwen3_moe(one):
    experts = one([2, 5, 8])
    return hf.Qwen3MoeForCausalLM, hf.Qwen3MoeConfig(
        **stack(one), num_experts=experts, num_experts_per_tok=one(range(1, min(experts, 4) + 1)), norm_topk_prob=one([True, False]),
        moe_intermediate_size=one([24, 40, 72]), decoder_sparse_step=one([1, 1, 2]), mlp_only_layers=one([[], [0]]))


def nemotron(one):
    return hf.NemotronForCausalLM, hf.NemotronConfig(
        **common(one), num_hidden_layers=one([1, 2, 3]), norm_eps=one([1e-5, 1e-3]), mlp_bias=one([True, False]),
        hidden_act=one(["relu2", "relu2", "silu"]),
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": one([0.5, 1.0])})


def nemotron_h(one):
    groups, expert_groups = one([1, 2, 3]), one([1, 2])
    blocks = ["mamba"] + [one(["mamba", "attention", "mlp", "moe"]) for _ in range(one([0, 1, 2, 4, 5]))]
    return hf.NemotronHForCausalLM, hf.NemotronHConfig(
        **common(one), layers_block_type=blocks, layer_norm_epsilon=one([1e-5, 1e-3]), mamba_num_heads=groups * one([1, 2, 4]),
        mamba_head_dim=one([8, 16, 20]), n_groups=groups, ssm_state_size=one([8, 16, 24]), conv_kernel=one([2, 3, 4]),
        chunk_size=one([8, 16, 64]), use_conv_bias=one([True, False]), use_bias=one([True, False]), mlp_hidden_act="relu2",
        n_routed_experts=one([4, 6, 8]), num_experts_per_tok=one([1, 2]), moe_intermediate_size=one([24, 40]),
        moe_shared_expert_intermediate_size=one([24, 56]), n_shared_experts=one([1, 2]), n_group=expert_groups,
        topk_group=one(range(1, expert_groups + 1)), norm_topk_prob=one([True, False]), routed_scaling_factor=one([1.0, 2.5]),
        moe_latent_size=one([None, 16, 24]))


FAMILIES = [gpt2, llama, qwen3, qwen3_moe, nemotron, nemotron_h, nemotron_h]


def model_of(seed):
    """The model of a seed, in FP32."""
    draws = random.Random(seed)
    make, config = draws.choice(FAMILIES)(draws.choice)
    torch.manual_seed(seed)
    model = make(config).float().eval()
    with torch.no_grad():
        for name, p in (*model.named_parameters(), *model.named_buffers()):
            if "e_score" in name:  # zero, and so without effect, as transformers makes it
                p.copy_(torch.randn_like(p) * 0.1)
            elif p.dim() == 1 and p.requires_grad and "A_log" not in name and "dt_bias" not in name:
                p.add_(torch.randn_like(p) * 0.1)
    for module in model.modules():  # transformers clamps dt at time_step_min, which is meant for initialisation
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, float("inf"))
    length = draws.choice([2, 5, 37, 61])
    return model, [draws.randrange(config.vocab_size) for _ in range(length)]


def logits_of(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def braid(program, command, folder, ids, *words):
    done = subprocess.run([program, command, folder, "--ids", ",".join(map(str, ids)), "--dtype", "f32", *words],
                          capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{command}: exit code {done.returncode}: {done.stderr.strip()}")


def compare_logits(program, folder, ids, theirs, exact):
    allowed = max(ALLOWED, 3 * (theirs - exact).abs().max().item())
    for more in ((), ("--chunk", "7")):
        file = f"{folder}/logits{len(more)}.npy"
        braid(program, "run", folder, ids, "-n", "0", "--dump-logits", file, *more)
        error = (torch.from_numpy(numpy.load(file)) - exact).abs().max().item()
        if not error <= allowed:
            raise ValueError(f"logits {' '.join(more)} are off by {error:.1e}, allowed are {allowed:.1e}")


def gradients_of(model, ids):
    model.zero_grad()
    logits = logits_of(model, ids)
    torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).backward()
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def compare_gradients(program, folder, ids, theirs, exact):
    braid(program, "grad", folder, ids, "-o", f"{folder}/gradients.safetensors")
    got = load_file(f"{folder}/gradients.safetensors")
    largest, compared = max(g.abs().max().item() for g in exact.values()), 0
    for name, grad in exact.items():
        ours = got.get(name, got.get(name.replace("model.", "backbone.", 1)))
        scale = grad.abs().max().item()
        if ours is None or scale <= TINY * largest:
            continue  # experts of a file are one by one
        compared += 1
        allowed = max(ALLOWED, 3 * (theirs[name] - grad).abs().max().item() / scale)
        error = (ours.reshape(grad.shape) - grad).abs().max().item() / scale
        if not error <= allowed:
            raise ValueError(f"the gradient of {name} is off by {error:.1e} of its largest, allowed are {allowed:.1e}")
    if 3 * compared < len(exact):
        raise ValueError(f"only {compared} gradients of {len(exact)} have a counterpart")


def check(program, seed, gradients):
    """What is wrong with a seed's config, or None."""
    model, ids = model_of(seed)
    model.config._experts_implementation = "eager"  # the other one knows no FP64
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        logits, grads = gradients_of(model, ids)
        exact, exact_grads = gradients_of(model.double(), ids)
        try:
            compare_logits(program, folder, ids, logits, exact)
            if gradients:
                compare_gradients(program, folder, ids, grads, exact_grads)
        except ValueError as wrong:
            return f"seed {seed}, {model.config.model_type}: {wrong}\n{(Path(folder) / 'config.json').read_text()}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("braid")
    parser.add_argument("--seeds", default="0:100", help="first:last + 1")
    parser.add_argument("--no-gradients", action="store_true")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    wrong = [found for seed in range(first, last) if (found := check(options.braid, seed, not options.no_gradients))]
    for found in wrong:
        print(found)
    print(f"{len(wrong)} of {last - first} configs are computed otherwise or refused")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
