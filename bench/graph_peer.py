"""What the peers of `bench/versus.py graph` share (versus_pyg.py, versus_dgl.py): the file of a graph, whole steps with
Adam over it, and the lines that versus.py reads.

usage of a peer: SCRIPT GRAPH INIT KIND LAYERS HIDDEN HEADS LAYOUT LR

GRAPH is a file as `braid data graph` writes it. A peer draws weights and writes them to INIT under PyTorch Geometric's
names, which are Braid's, prints a line of JSON about itself, then reads a number of steps per line and answers with
their seconds and losses.
"""
import dataclasses
import json
import os
import resource
import sys
import time

import torch
from safetensors.torch import load_file, save_file


@dataclasses.dataclass
class Problem:
    """A graph with classes to train on, and the network asked for."""
    kind: str
    layout: str
    rowptr: torch.Tensor  # the edges into node i are rowptr[i] to rowptr[i + 1]
    col: torch.Tensor     # their sources
    x: torch.Tensor
    sizes: list           # (inputs, outputs, heads) of each layer

    @property
    def nodes(self):
        return len(self.x)

    @property
    def row(self):
        return torch.repeat_interleave(torch.arange(self.nodes), self.rowptr.diff())


def mlp(inputs, outputs):
    """Of `gin`."""
    return torch.nn.Sequential(torch.nn.Linear(inputs, 2 * outputs), torch.nn.ReLU(), torch.nn.Linear(2 * outputs, outputs))


def sizes_of(kind, count, features, hidden, heads, classes):
    heads = heads if kind == "gat" else 1
    inputs = [features] + [hidden * heads] * (count - 1)
    outputs = [hidden] * (count - 1) + [classes]
    return [(i, o, 1 if last == count - 1 else heads) for last, (i, o) in enumerate(zip(inputs, outputs))]


def adam(parameters, rate):
    parameters = list(parameters)
    try:
        return torch.optim.Adam(parameters, lr=rate, fused=True)
    except RuntimeError:  # before PyTorch 2.4 on a CPU
        return torch.optim.Adam(parameters, lr=rate)


def serve(make, about):
    """`make(problem)` returns the layers, what they are given beside features, and a function from the name of a
    parameter to its name in INIT and whether it is transposed there; `about` says which library this is."""
    path, init, kind, count, hidden, heads, layout, rate = sys.argv[1:]
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ.get("BRAID_THREADS", len(os.sched_getaffinity(0)))))
    data = load_file(path)
    if "y" not in data or "train" not in data:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {path} has no classes to train on")
    x, y, trained = data["x"], data["y"], data["train"].bool()
    sizes = sizes_of(kind, int(count), x.shape[1], int(hidden), int(heads), int(y.max()) + 1)
    layers, edges, stored_as = make(Problem(kind, layout, data["rowptr"], data["col"], x, sizes))
    stored = {}
    for name, p in layers.named_parameters():
        name, transposed = stored_as(name)
        stored[name] = (p.detach().T if transposed else p.detach()).clone(memory_format=torch.contiguous_format)
    save_file(stored, init)
    activation = torch.nn.functional.elu if kind == "gat" else torch.nn.functional.relu
    optimizer = adam(layers.parameters(), float(rate))

    def step():
        h = x
        for i, layer in enumerate(layers):
            h = layer(activation(h) if i > 0 else h, edges)
        loss = torch.nn.functional.cross_entropy(h[trained], y[trained])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    def say(what):
        print(json.dumps(what), flush=True)

    say({"torch": torch.__version__, **about, "threads": torch.get_num_threads(),
         "capability": torch.backends.cpu.get_cpu_capability()})
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(int(line)):
            start = time.perf_counter()
            losses.append(step())
            seconds.append(time.perf_counter() - start)
        say({"seconds": seconds, "losses": losses, "memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss})
