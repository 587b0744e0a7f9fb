#!/usr/bin/env python3
"""Checks docs/ops.md against `braid bench --list`: ops, rows, numerics and devices, in order, then the thresholds. What
differs between machines (built or not, taken or not) is not on the page.

usage: ops_doc_test.py BRAID DOC [--write]
"""
import sys
from pathlib import Path

from support.program import BRAID, braid

COLUMNS = {"op": ["op", "row", "numerics", "device"], "threshold": ["threshold", "up to that", "beyond", "default"]}
HEAD = """# Ops and their rows

Every op with its variants, in the order in which they are tried: the first that accepts a problem runs it. Rows of one
numerics class agree bit for bit. `braid bench --list` prints this with what was built and what this machine takes;
`braid bench --list | grep linear` answers for one op. Generated: `tests/ops_doc_test.py BRAID docs/ops.md --write`.

"""


THRESHOLDS = """
## Thresholds

Numbers of rows up to which a product works in one way and beyond which in another, with the same bits
(`src/math/thresholds.h`). `braid bench --list` prints the values in force and where they come from, `braid bench --tune`
measures them ([benchmarks](benchmarks.md#tuning)).

"""


def table(listed):
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in listed.splitlines()]
    kept = [rows[0].index(name) for name in COLUMNS[rows[0][0]]]
    rows = [[row[i] for i in kept] for row in rows]
    widths = [max(len(row[i]) for row in rows if not row[i].startswith("-")) for i in range(len(kept))]
    rows[1] = ["-" * width for width in widths]
    return "".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |\n" for row in rows)


def page():
    ops, thresholds = braid("bench", "--list", BRAID_PROFILE="").stdout.split("\n\n")
    return HEAD + table(ops) + THRESHOLDS + table(thresholds)


def main():
    doc = Path(sys.argv[1])
    text = page()
    if "--write" in sys.argv:
        doc.parent.mkdir(exist_ok=True)
        doc.write_text(text)
    elif doc.read_text() != text:
        wrong = [line for line in text.splitlines() if line not in doc.read_text().splitlines()]
        sys.exit(f"{doc} differs from `braid bench --list`: {wrong}\n"
                 f"Regenerate it: tests/ops_doc_test.py {BRAID} {doc} --write")


main()
