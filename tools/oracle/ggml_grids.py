#!/usr/bin/env python3
"""The tables of the IQ1, IQ2 and IQ3 kinds: src/codec/ggml_grids.cc, from gguf-py.

    tools/oracle/ggml_grids.py | clang-format > src/codec/ggml_grids.cc

An entry holds 8 values of 2 bits, or 4 of 3 bits, the first in the lowest bits; ggml_iq_blocks.cc says what they mean.
"""
import numpy as np
from gguf import quants

TABLES = [("kIq1", quants.IQ1_S, 2), ("kIq2Xxs", quants.IQ2_XXS, 2), ("kIq2Xs", quants.IQ2_XS, 2),
          ("kIq2S", quants.IQ2_S, 2), ("kIq3Xxs", quants.IQ3_XXS, 3), ("kIq3S", quants.IQ3_S, 3)]


def entries(kind, bits):
    kind.init_grid()
    levels = list(kind.grid_map)
    for row in kind.grid.reshape(kind.grid_shape):
        yield sum(levels.index(int(v)) << bits * i for i, v in enumerate(np.asarray(row)))


print("// Written by tools/oracle/ggml_grids.py.")
print('#include "codec/ggml_grids.h"\n\nnamespace braid {\n')
for name, kind, bits in TABLES:
    numbers = list(entries(kind, bits))
    print(f"const uint16_t {name}[{len(numbers)}] = {{")
    line = "   "
    for n in numbers:
        if len(line) + len(f" {n},") > 120:
            print(line)
            line = "   "
        line += f" {n},"
    print(line.rstrip(",") + "};\n")
print("}  // namespace braid")
