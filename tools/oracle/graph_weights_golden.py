#!/usr/bin/env python3
"""Writes tests/data/graph/weighted.safetensors: two layers of PyTorch Geometric's GCNConv on a graph with edge weights.

    graph_weights_golden.py OUT.safetensors [--loops]

With --loops, weighted_loops.safetensors: every third node has a self-loop, of weights that differ from 1 and some of 0, and
every tenth edge is there three times with other weights.

needs: torch torch_geometric safetensors. Everything is FP32. The two directions of an edge weigh differently, some edges
weigh 0 or less, and node 7's edges weigh -1 together, so that its degree with the self-loop is 0.

rowptr, col, edge_weight, x, y, train: the graph, as src/graph/graph_data.h says. 0.lin.weight and so on: the first weights.
out [n, classes]: at these weights; losses [20]: before each step of Adam (lr 0.01).
"""
import argparse

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch_geometric.nn import GCNConv

NODES, EDGES, FEATURES, HIDDEN, CLASSES, STEPS = 61, 300, 6, 8, 3, 20
NEGATIVE = 7  # the node whose edges weigh -1 together

args = argparse.ArgumentParser()
args.add_argument("out")
args.add_argument("--loops", action="store_true")
args = args.parse_args()
torch.manual_seed(3)
torch.set_num_threads(1)
pairs = sorted({(int(i), int(j)) for i, j in torch.randint(0, NODES, (EDGES, 2)) if i != j and i % 13})
row, col = torch.tensor([p[0] for p in pairs]), torch.tensor([p[1] for p in pairs])
weight = torch.rand(len(pairs)) * 3
weight[::17] = 0
weight[5::23] = -0.05
own = torch.where(row == NEGATIVE)[0]
weight[own] = 0
weight[own[0]], weight[own[1]] = -1.5, 0.5
if args.loops:
    loops = torch.arange(0, NODES, 3)
    again = torch.arange(0, len(pairs), 10).repeat(2)
    row, col = torch.cat([row, loops, row[again]]), torch.cat([col, loops, col[again]])
    weight = torch.cat([weight, torch.arange(len(loops)) % 5 / 2, torch.rand(len(again)) + 0.1])
    order = torch.argsort(row * NODES + col, stable=True)
    row, col, weight = row[order], col[order], weight[order]
y = torch.randint(0, CLASSES, (NODES,))
x = torch.randn(NODES, FEATURES) + torch.randn(CLASSES, FEATURES)[y]
train = (torch.rand(NODES) < 0.6).long()
edge, mask = torch.stack([col, row]), train.bool()  # PyG: source, target
layers = torch.nn.ModuleList([GCNConv(FEATURES, HIDDEN), GCNConv(HIDDEN, CLASSES)])
first = {name: p.detach().clone() for name, p in layers.named_parameters()}


def forward():
    return layers[1](F.relu(layers[0](x, edge, weight)), edge, weight)


optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
losses, saved = [], {}
for _ in range(STEPS):
    optimizer.zero_grad()
    out = forward()
    loss = F.cross_entropy(out[mask], y[mask])
    loss.backward()
    if not losses:
        saved = {"out": out.detach().clone()}
    optimizer.step()
    losses.append(loss.item())
rowptr = torch.zeros(NODES + 1, dtype=torch.long)
rowptr[1:] = torch.bincount(row, minlength=NODES).cumsum(0)
save_file(first | saved | {"rowptr": rowptr, "col": col, "edge_weight": weight, "x": x, "y": y, "train": train,
                           "losses": torch.tensor(losses)}, args.out)
