#!/usr/bin/env python3
"""A peer of bench/versus.py in graph networks: layers of DGL (graph_peer.py has the arguments).

LAYOUT: `nodes`, where `gcn` scales the features of nodes before and after a sum over neighbours, the library's default;
`edges`, where it multiplies each message by the weight of its edge. Other layers have one way.
"""
import os

os.environ["DGLBACKEND"] = "pytorch"

import dgl
import torch
from dgl.nn import GATConv, GINConv, GraphConv, SAGEConv

import graph_peer

# To PyTorch Geometric's names. `fc_self.bias` is the one bias of a layer; whose product it follows changes nothing.
NAMES = {
    "gcn": {"weight": "lin.weight", "bias": "bias"},
    "sage": {"fc_neigh.weight": "lin_l.weight", "fc_self.bias": "lin_l.bias", "fc_self.weight": "lin_r.weight"},
    "gin": {"apply_func.0.weight": "nn.0.weight", "apply_func.0.bias": "nn.0.bias", "apply_func.2.weight": "nn.2.weight",
            "apply_func.2.bias": "nn.2.bias"},
    "gat": {"fc.weight": "lin.weight", "attn_l": "att_src", "attn_r": "att_dst", "bias": "bias"},
}


class Layer(torch.nn.Module):
    """A layer of DGL that is called as one of PyTorch Geometric is: with features, then the graph."""

    def __init__(self, kind, layout, inputs, outputs, heads):
        super().__init__()
        self.kind = kind
        self.conv = {
            "gcn": lambda: GraphConv(inputs, outputs, norm="none" if layout == "edges" else "both"),
            "sage": lambda: SAGEConv(inputs, outputs, "mean"),
            "gin": lambda: GINConv(graph_peer.mlp(inputs, outputs), "sum"),
            "gat": lambda: GATConv(inputs, outputs, heads),
        }[kind]()

    def forward(self, x, graph):
        if self.kind == "gcn":
            return self.conv(graph, x, edge_weight=graph.edata.get("weight"))
        y = self.conv(graph, x)
        return y.flatten(1) if self.kind == "gat" else y


def make(p):
    layers = torch.nn.ModuleList(Layer(p.kind, p.layout, *size) for size in p.sizes)
    graph = dgl.graph((p.col.int(), p.row.int()), num_nodes=p.nodes, idtype=torch.int32)
    if p.kind in ("gcn", "gat"):
        graph = dgl.add_self_loop(graph)
    graph.create_formats_()  # once, as Braid has the transpose ready
    if p.kind == "gcn" and p.layout == "edges":
        graph.edata["weight"] = dgl.nn.EdgeWeightNorm(norm="both")(graph, torch.ones(graph.num_edges()))

    def stored_as(name):
        layer, own = name.split(".conv.")
        return f"{layer}.{NAMES[p.kind][own]}", own == "weight"

    return layers, graph, stored_as


if __name__ == "__main__":
    graph_peer.serve(make, {"dgl": dgl.__version__})
