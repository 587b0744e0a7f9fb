#!/usr/bin/env python3
"""The peer of bench/versus.py in training: transformers' model on torch, whole steps with AdamW and clipping.

usage: versus_torch.py FOLDER BATCHES DTYPE ATTENTION EXPERTS LR

Loads FOLDER in FP32 (DTYPE bf16: under autocast), prints a line of JSON about itself, then reads a number of steps per
line and answers with their seconds and losses. BATCHES is a safetensors file, `batches` [N, B, T + 1]; step i takes
batch i.
"""
import fnmatch
import json
import os
import resource
import sys
import time

import torch
import transformers
from safetensors.torch import load_file

# Parameters without weight decay in Braid's recipe.
NO_DECAY = ("*norm*", "*ln_*", "*bias", "*A_log", "*.D", "*embed*", "*wte*", "*wpe*")


def model_of(folder, attention, experts):
    transformers.logging.set_verbosity_error()
    more = {} if experts == "none" else {"experts_implementation": experts}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention, **more)
    dropping = [name for name, m in model.named_modules() if isinstance(m, torch.nn.Dropout) and m.p > 0]
    if dropping:
        sys.exit(f"versus_torch: the config asks for dropout in {', '.join(dropping[:3])}, which Braid does not compute")
    return model.train()


def optimizer_of(model, rate):
    kept = [p for n, p in model.named_parameters() if any(fnmatch.fnmatch(n, pattern) for pattern in NO_DECAY)]
    names = {id(p) for p in kept}
    decayed = [p for p in model.parameters() if id(p) not in names]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": kept, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-8, fused=True)


def step(model, optimizer, batch, bf16):
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    folder, path, dtype, attention, experts, rate = sys.argv[1:]
    torch.set_num_threads(int(os.environ.get("BRAID_THREADS", len(os.sched_getaffinity(0)))))
    batches = load_file(path)["batches"]
    model = model_of(folder, attention, experts)
    optimizer = optimizer_of(model, float(rate))
    say = lambda what: print(json.dumps(what), flush=True)
    about = [line.strip(" -") for line in torch.__config__.show().splitlines()]
    say({"torch": torch.__version__, "transformers": transformers.__version__, "threads": torch.get_num_threads(),
         "blas": [line for line in about if line.startswith(("Intel", "OpenMP"))],
         "capability": torch.backends.cpu.get_cpu_capability()})
    done = 0
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(int(line)):
            start = time.perf_counter()
            losses.append(step(model, optimizer, batches[done % len(batches)], dtype == "bf16"))
            seconds.append(time.perf_counter() - start)
            done += 1
        say({"seconds": seconds, "losses": losses, "memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss})


if __name__ == "__main__":
    main()
