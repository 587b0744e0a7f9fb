#!/usr/bin/env python3
"""Blocks of GGUF types as ggml itself encodes them: tests/data/ggml_encoded.safetensors.

    tools/oracle/ggml_encoded.py LIBGGML_BASE.so OUT.safetensors [BLOCKS]

For every type that Braid writes, T.source F32 [blocks, values of one] and T.encoded U8 [blocks, bytes of one], by
ggml_quantize_chunk without an importance matrix. Sources are normal at scales of weights, plus hard cases for scale
searches: zeros, one value, one sign, an outlier, ties, numbers near the limits of half precision. Needs numpy and safetensors.
"""
import ctypes
import sys

import numpy as np
from safetensors.numpy import save_file

TYPES = {"F16": (1, 32), "BF16": (30, 32), "Q8_0": (8, 32), "Q4_0": (2, 32), "Q4_1": (3, 32), "Q5_0": (6, 32),
         "Q5_1": (7, 32), "Q4_K": (12, 256), "Q5_K": (13, 256), "Q6_K": (14, 256), "IQ4_NL": (20, 32),
         "MXFP4": (39, 32), "NVFP4": (40, 64)}


def sources(count, size, draw):
    x = draw.normal(0, 1, (count, size)) * 10.0 ** draw.uniform(-4, 1, (count, 1))
    special = [np.zeros(size), np.full(size, 0.25), np.abs(x[2]), -np.abs(x[3]), x[4], x[5] * 1e-6, x[6],
               np.round(x[7] / np.abs(x[7]).max() * 8) / 8, x[8] + 3]
    special[4] = np.where(np.arange(size) == 5, 50.0, special[4])
    special[6] = np.where(np.arange(size) < size // 2, 0, special[6])
    x[:len(special)] = special
    return x.astype(np.float32)


def main():
    ggml, out = ctypes.CDLL(sys.argv[1]), sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 16
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [
        ctypes.c_void_p]
    ggml.ggml_row_size.restype = ctypes.c_size_t
    ggml.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
    tensors, draw = {}, np.random.default_rng(1)
    for name, (number, size) in TYPES.items():
        source = np.ascontiguousarray(sources(count, size, draw))
        encoded = np.zeros((count, ggml.ggml_row_size(number, size)), np.uint8)
        wrote = ggml.ggml_quantize_chunk(number, source.ctypes.data, encoded.ctypes.data, 0, count, size, None)
        assert wrote == encoded.size, name
        tensors[f"{name}.source"], tensors[f"{name}.encoded"] = source, encoded
    save_file(tensors, out)


main()
