#!/usr/bin/env python3
"""A peer of bench/versus.py in graph networks: layers of PyTorch Geometric (graph_peer.py has the arguments).

LAYOUT: `edges`, a list of edges, over which messages are gathered and scattered; `csr`, a sparse matrix that torch
multiplies by, which not every layer takes.
"""
import torch
import torch_geometric
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

import graph_peer


def layer(kind, inputs, outputs, heads):
    if kind == "gat":
        return GATConv(inputs, outputs, heads=heads)
    return {"gcn": GCNConv, "sage": SAGEConv, "gin": lambda i, o: GINConv(graph_peer.mlp(i, o), eps=0.0)}[kind](inputs, outputs)


def make(p):
    layers = torch.nn.ModuleList(layer(p.kind, *size) for size in p.sizes)
    edges = torch.stack([p.col.long(), p.row])
    if p.layout == "csr":
        edges = torch.sparse_csr_tensor(p.rowptr, p.col.long(), torch.ones(len(p.col)), size=(p.nodes, p.nodes))
    # What depends on the graph alone is done once, as Braid does it.
    for each in layers:
        each.cached = p.kind == "gcn"
        each.add_self_loops = p.kind == "gcn"
    if p.kind == "gat":
        edges = torch_geometric.utils.add_self_loops(edges, num_nodes=p.nodes)[0]
    return layers, edges, lambda name: (name, False)


if __name__ == "__main__":
    graph_peer.serve(make, {"torch_geometric": torch_geometric.__version__})
