#!/usr/bin/env python3
"""The peer of bench/versus.py in graph networks: layers of PyTorch Geometric, whole steps with Adam over a whole graph.

usage: versus_pyg.py GRAPH INIT KIND LAYERS HIDDEN HEADS LAYOUT LR

GRAPH is a file as `braid data graph` writes it. Draws weights and writes them to INIT, prints a line of JSON about
itself, then reads a number of steps per line and answers with their seconds and losses. LAYOUT: `edges`, a list of
edges, over which messages are gathered and scattered; `csr`, a sparse matrix that torch multiplies by, which not every
layer takes.
"""
import json
import os
import resource
import sys
import time

import torch
import torch_geometric
from safetensors.torch import load_file, save_file
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv


def mlp(inputs, outputs):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 2 * outputs), torch.nn.ReLU(), torch.nn.Linear(2 * outputs, outputs))


def layers_of(kind, count, features, hidden, heads, classes):
    heads = heads if kind == "gat" else 1
    inputs = [features] + [hidden * heads] * (count - 1)
    outputs = [hidden] * (count - 1) + [classes]
    make = {"gcn": GCNConv, "sage": SAGEConv, "gin": lambda i, o: GINConv(mlp(i, o), eps=0.0), "gat": GATConv}[kind]
    last = [False] * (count - 1) + [True]
    return torch.nn.ModuleList(make(i, o, heads=1 if l else heads) if kind == "gat" else make(i, o)
                               for i, o, l in zip(inputs, outputs, last))


def main():
    path, init, kind, count, hidden, heads, layout, rate = sys.argv[1:]
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ.get("BRAID_THREADS", len(os.sched_getaffinity(0)))))
    data = load_file(path)
    if "y" not in data or "train" not in data:
        sys.exit(f"versus_pyg: {path} has no classes to train on")
    rowptr, col, x, y, mask = (data[name] for name in ("rowptr", "col", "x", "y", "train"))
    nodes, classes = len(x), int(y.max()) + 1
    row = torch.repeat_interleave(torch.arange(nodes), rowptr.diff())
    layers = layers_of(kind, int(count), x.shape[1], int(hidden), int(heads), classes)
    save_file({name: p.detach().clone().contiguous() for name, p in layers.named_parameters()}, init)
    edges = torch.stack([col.long(), row])
    if layout == "csr":
        edges = torch.sparse_csr_tensor(rowptr, col.long(), torch.ones(len(col)), size=(nodes, nodes))
    # What depends on the graph alone is done once, as Braid does it.
    for layer in layers:
        layer.cached = kind == "gcn"
        layer.add_self_loops = kind == "gcn"
    if kind == "gat":
        edges = torch_geometric.utils.add_self_loops(edges, num_nodes=nodes)[0]
    activation = torch.nn.functional.elu if kind == "gat" else torch.nn.functional.relu
    optimizer = torch.optim.Adam(layers.parameters(), lr=float(rate), fused=True)
    trained = mask.bool()

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

    say({"torch": torch.__version__, "torch_geometric": torch_geometric.__version__, "threads": torch.get_num_threads(),
         "capability": torch.backends.cpu.get_cpu_capability()})
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(int(line)):
            start = time.perf_counter()
            losses.append(step())
            seconds.append(time.perf_counter() - start)
        say({"seconds": seconds, "losses": losses, "memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss})


if __name__ == "__main__":
    main()
