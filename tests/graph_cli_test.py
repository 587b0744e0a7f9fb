#!/usr/bin/env python3
"""Graphs from the command line: `data graph` writes what `train` reads, a run resumes, and mistakes get one line."""
import json
import struct
import tempfile
import unittest
from pathlib import Path

from support.program import braid, main

RECIPE = """objective = "graph"
out = "out"
steps = 6
dtype = "f32"
[graph]
path = "graph.safetensors"
model = "gat"
heads = 2
[checkpoint]
every = 3
[log]
jsonl = "log.jsonl"
"""


def npy(path, kind, shape, values):
    head = f"{{'descr': '<{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack(f"<{len(values)}{'q' if kind == 'i8' else 'f'}", *values))


class Graphs(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="braid-test-")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        (self.folder / "recipe.toml").write_text(RECIPE)

    def run_ok(self, *words):
        done = braid(*words, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, text, *words):
        done = braid(*words, cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def losses(self, out):
        return [json.loads(line)["loss"] for line in (self.folder / out / "log.jsonl").read_text().splitlines()]

    def test_generated_trained_and_resumed(self):
        made = json.loads(self.run_ok("data", "graph", "blocks", "-o", "graph.safetensors", "--nodes", "300", "--json"))
        self.assertEqual(made["nodes"], 300)
        plan = json.loads(self.run_ok("train", "recipe.toml", "--dry-run", "--json"))
        self.assertEqual((plan["nodes"], plan["edges"], plan["classes"]), (300, made["edges"], 4))
        self.assertIn("300 nodes", self.run_ok("train", "recipe.toml", "steps=3"))
        self.assertIn("step 6/6", self.run_ok("train", "recipe.toml", "--resume", "auto", "-t", "3"))
        self.run_ok("train", "recipe.toml", "out=whole")
        self.assertEqual(self.losses("whole"), self.losses("out"))
        self.assertEqual((self.folder / "out/model.safetensors").read_bytes(),
                         (self.folder / "whole/model.safetensors").read_bytes())
        self.refused("accumulate", "train", "recipe.toml", "out=other", "accumulate=2")

    def test_files_of_edges_with_features_and_labels(self):
        (self.folder / "ring.txt").write_text("# a ring\n" + "".join(f"{i} {(i + 1) % 6}\n" for i in range(6)))
        npy(self.folder / "x.npy", "f4", (6, 2), [0.5 * i for i in range(12)])
        npy(self.folder / "y.npy", "i8", (6,), [0, 1, 0, 1, 0, -1])
        self.run_ok("data", "graph", "ring.txt", "-o", "graph.safetensors", "--features", "x.npy", "--labels", "y.npy",
                    "--train", "1")
        self.assertIn("6 nodes, 12 edges", self.run_ok("train", "recipe.toml"))
        (self.folder / "ring.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 1\n4 1\n")
        self.refused("line 3: row is not a number from 1 to 3", "data", "graph", "ring.mtx", "-o", "m.safetensors")
        npy(self.folder / "x.npy", "f4", (5, 2), [0] * 10)
        self.refused("another number of nodes; got 5", "data", "graph", "ring.txt", "-o", "m.safetensors", "--features", "x.npy")

    def test_mistakes_get_one_line(self):
        self.refused("does not exist", "train", "recipe.toml")
        self.run_ok("data", "graph", "grid", "-o", "graph.safetensors", "--nodes", "9")
        self.refused("has no tensor x", "train", "recipe.toml")
        self.refused("[--homophily] out of range; got 2", "data", "graph", "blocks", "-o", "b.safetensors", "--homophily", "2")
        self.refused("--nodes x --degree", "data", "graph", "uniform", "-o", "b.safetensors", "--nodes", "99999999", "--degree", "65536")
        self.refused("no output is named", "data", "graph", "grid")
        self.refused("gcn", "train", "recipe.toml", "graph.model=gcnn")


if __name__ == "__main__":
    main()
