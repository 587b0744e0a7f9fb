#!/usr/bin/env python3
"""Checks the last section of docs/training.md, the table of all keys of a recipe, against `braid train --dry-run`.

usage: keys_doc_test.py BRAID DOC [--write]
"""
import json
import re
import struct
import sys
import tempfile
from pathlib import Path

from support.program import BRAID, braid

TITLE = "## Every key\n"
HEAD = TITLE + """
The keys of a table, `[data]` with `path`, are written with a dot here, as on the command line. Where no default is named,
a key is unset. `tests/keys_doc_test.py` generates this table and checks it.

| key | default | meaning |
|---|---|---|
"""
# A key that a recipe sets is printed with its value, so every key but `out` is unset in one of these two, and every key
# is printed by the first.
RECIPES = ({"config": "hybrid-8.5m", "dropout": "0.0", "batch": "1", "length": "16", "data.blend": '[{path = "markov"}]'},
           {"init": "tiny", "data.path": "ids.safetensors"})


def printed(folder, recipe):
    """{key: (value, meaning)} as --dry-run prints the recipe, before the plan of its memory."""
    (folder / "recipe.toml").write_text("")
    done = braid("train", "recipe.toml", "--dry-run", "out=out", *map("=".join, recipe.items()), cwd=folder)
    if done.returncode:
        sys.exit(done.stderr)
    keys, table = {}, ""
    for line in done.stdout.split("\nmemory of")[0].splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            table = match[1] + "."
        elif match := re.fullmatch(r"(\w+) = (.*?)(?: +# (.*))?", line):
            keys[table + match[1]] = (match[2], match[3] or "")
    return keys


def section():
    with tempfile.TemporaryDirectory() as name:
        head = json.dumps({"batches": {"dtype": "I64", "shape": [1, 1, 9], "data_offsets": [0, 72]}}).encode()
        (Path(name) / "ids.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(72))
        runs = [printed(Path(name), recipe) for recipe in RECIPES]
    rows = []
    for key, (_, meaning) in runs[0].items():
        unset = [run[key][0] for run, recipe in zip(runs, RECIPES) if key in run and key not in recipe and key != "out"]
        default = f"`{unset[0]}`" if unset else ""
        meaning = re.sub(r"[\w.:]*<\w+>|(\w+\.)?\w+_\w+", r"`\g<0>`", meaning)  # Markdown would read < and _
        rows.append(f"| `{key}` | {default} | {meaning} |\n".replace("|  |", "| |"))
    return HEAD + "".join(rows)


def main():
    doc = Path(sys.argv[1])
    text, made = doc.read_text(), section()
    begin = text.find(TITLE)
    page = text[:begin] + made if begin >= 0 else text.rstrip() + "\n\n" + made
    if "--write" in sys.argv:
        doc.write_text(page)
    elif text != page:
        wrong = [line for line in page.splitlines() if line not in text.splitlines()]
        sys.exit(f"{doc} differs from `braid train --dry-run`: {wrong}\n"
                 f"Regenerate it: tests/keys_doc_test.py {BRAID} {doc} --write")


main()
