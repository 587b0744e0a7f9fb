#!/usr/bin/env python3
"""Blocks of GGUF types with their values, by gguf-py: tests/data/ggml_blocks.safetensors.

    tools/oracle/ggml_blocks.py OUT.safetensors [BLOCKS]

For every type that gguf-py decodes, T.raw U8 [blocks, bytes of one] and T.values F32 [blocks, values of one]. Bytes are
random; half-precision scales are random finite numbers, so that no value is infinite. Needs numpy, gguf and safetensors.
"""
import sys

import gguf
import numpy as np
from gguf import quants
from safetensors.numpy import save_file

# Byte offsets of a block's half-precision scales.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": [],
          "TQ1_0": [52], "TQ2_0": [64], "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
          "IQ3_XXS": [0], "IQ3_S": [0]}


def blocks_of(name, count, draw):
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    raw = draw.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in HALVES[name]:
        raw[:, offset:offset + 2] = draw.normal(0, 0.1, (count, 1)).astype(np.float16).view(np.uint8)
    if name == "MXFP4":
        raw[:, 0] = draw.integers(100, 150, count)
    if name == "IQ1_M":  # the scale is the highest four bits of each of four words
        half = draw.normal(0, 0.1, count).astype(np.float16).view(np.uint16)
        for i in range(4):
            raw[:, 49 + 2 * i] = raw[:, 49 + 2 * i] & 15 | ((half >> 4 * i & 15) << 4).astype(np.uint8)
    return raw


def main():
    out, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8
    tensors, draw = {}, np.random.default_rng(0)
    for name in HALVES:
        raw = blocks_of(name, count, draw)
        tensors[f"{name}.raw"] = raw
        tensors[f"{name}.values"] = quants.dequantize(raw, gguf.GGMLQuantizationType[name]).astype(np.float32)
    save_file(tensors, out)


main()
