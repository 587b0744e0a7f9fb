#!/usr/bin/env python3
"""LoRA adapters between PEFT and Braid, in both directions.

    peft_adapter.py make MODEL OUT [--targets a,b] [--parameters c,d] [--rank 3] [--alpha 6]
        a random adapter as PEFT saves it, and golden.safetensors: ids and the logits of PEFT in FP64
    peft_adapter.py check MODEL ADAPTER --braid BRAID
        the logits of ADAPTER, which may be one that Braid trained, in PEFT and in `braid run --adapter`, and those in
        transformers of the folder that `braid merge` writes; fails if they differ

needs: torch transformers peft safetensors numpy. Without them it says so and exits with 77, a skipped test.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from peft.tuners import tuners_utils
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

# PEFT refuses out_proj in Mamba layers, since fused kernels would read its weight and bypass the adapter. The plain path,
# which runs here, does not; elsewhere such an adapter is merged first.
tuners_utils._check_lora_target_modules_mamba = lambda *_: None

TOKENS, BOUND = 21, 2e-4  # FP32 logits, relative to the largest


def load(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    for module in model.modules():  # transformers clamps dt at time_step_min; the trained models do not
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, float("inf"))
    return model


def ids_of(model):
    generator = torch.Generator().manual_seed(5)
    return torch.randint(3, model.config.vocab_size, (TOKENS,), generator=generator)


@torch.no_grad()
def logits(model, ids):
    return model(ids[None], use_cache=False).logits[0]


def make(args):
    words = lambda text: text.split(",") if text else None
    config = LoraConfig(r=args.rank, lora_alpha=args.alpha, target_modules="all-linear" if args.targets == "all-linear" else words(args.targets) or [],
                        target_parameters=words(args.parameters), init_lora_weights=False, task_type="CAUSAL_LM")
    torch.manual_seed(1)
    model = get_peft_model(load(args.model, torch.float64), config)
    generator = torch.Generator().manual_seed(2)
    for name, p in model.named_parameters():
        if "lora_" in name:  # values exact in BF16: small files, and no rounding
            drawn = 0.8 * p.shape[1] ** -0.5 * torch.randn(p.shape, generator=generator)
            p.data = drawn.to(torch.bfloat16).to(p.dtype)
    model.eval()
    ids = ids_of(model)
    golden = {"ids": ids, "logits": logits(model, ids).float()}
    model.to(torch.bfloat16).save_pretrained(args.out)
    (pathlib.Path(args.out) / "README.md").unlink(missing_ok=True)
    save_file(golden, f"{args.out}/golden.safetensors")


def braid_logits(braid, model, ids, *more):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "logits.npy"
        command = [braid, "run", model, "--ids", ",".join(map(str, ids.tolist())), "-n", "0", "--dtype", "f32",
                   "--dump-logits", file, *more]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return torch.from_numpy(numpy.load(file))


def widen(folder, out):
    """The same model in FP32: merged weights rounded to BF16 may change the choice of an expert."""
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("*.safetensors", "*.index.json"))
    tensors = {}
    for file in pathlib.Path(folder).glob("*.safetensors"):
        tensors |= {name: value.float() for name, value in load_file(file).items()}
    save_file(tensors, f"{out}/model.safetensors")


def check(args):
    base = load(args.model, torch.float64)
    ids = ids_of(base)
    plain = logits(base, ids)
    wanted = logits(PeftModel.from_pretrained(base, args.adapter).eval(), ids)
    moved = (wanted - plain).abs().max() / wanted.abs().max()
    found = {"braid --adapter": braid_logits(args.braid, args.model, ids, "--adapter", args.adapter)}
    with tempfile.TemporaryDirectory() as folder:
        wide, merged = f"{folder}/wide", f"{folder}/merged"
        widen(args.model, wide)
        subprocess.run([args.braid, "merge", wide, "--adapter", args.adapter, "-o", merged], check=True,
                       stdout=subprocess.DEVNULL)
        found["merged, in transformers"] = logits(load(merged, torch.float64), ids)
        found["merged, in braid"] = braid_logits(args.braid, merged, ids)
    print(f"the adapter changes logits by {moved:.1e} of the largest")
    worst = 0
    for name, got in found.items():
        difference = float((got - wanted).abs().max() / wanted.abs().max())
        worst = max(worst, difference / BOUND)
        print(f"{name:26} {difference:.1e}, at most {BOUND:.1e}")
    sys.exit(0 if worst < 1 and moved > 0 else 1)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
commands = parser.add_subparsers(required=True)
maker = commands.add_parser("make")
maker.add_argument("model")
maker.add_argument("out")
maker.add_argument("--targets", default="")
maker.add_argument("--parameters", default="")
maker.add_argument("--rank", type=int, default=3)
maker.add_argument("--alpha", type=float, default=6)
maker.set_defaults(do=make)
checker = commands.add_parser("check")
checker.add_argument("model")
checker.add_argument("adapter")
checker.add_argument("--braid", required=True)
checker.set_defaults(do=check)
args = parser.parse_args()
args.do(args)
