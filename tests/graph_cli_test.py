#!/usr/bin/env python3
"""Graphs from the command line: `data graph` writes what `train` reads, a run resumes, and mistakes get one line."""
import csv
import json
import re
import struct
import tomllib

from support.program import Case, braid, main, mpirun

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


def memory_free():
    with open("/proc/meminfo") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


class GraphCase(Case):
    def setUp(self):
        self.folder = self.new_folder()
        (self.folder / "recipe.toml").write_text(RECIPE)

    def run_ok(self, *words, **more):
        return super().run_ok(*words, cwd=self.folder, **more)

    def refused(self, text, *words):
        self.assertOneLine(braid(*words, cwd=self.folder), text)

    def losses(self, out):
        rows = [json.loads(line) for line in (self.folder / out / "log.jsonl").read_text().splitlines()]
        return [row["loss"] for row in rows if "loss" in row]


class Graphs(GraphCase):
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

    def test_orders_change_the_file_and_not_what_is_learnt(self):
        losses = []
        for order in ("", "degree", "rcm", "labels"):
            more = ("--order", order) if order else ()
            name = f"graph{order}.safetensors"
            made = json.loads(self.run_ok("data", "graph", "blocks", "-o", name, "--nodes", "300", *more, "--json"))
            if order:
                self.assertEqual(made["order"]["name"], order)
                self.assertGreaterEqual(made["order"]["seconds"], 0)
            if order in ("rcm", "labels"):
                self.assertLess(made["order"]["mean_span"], made["order"]["mean_span_before"])
            self.run_ok("train", "recipe.toml", f"graph.path={name}", f"out=out{order}", "steps=3")
            losses.append(self.losses(f"out{order}"))
        self.assertEqual(len({(self.folder / f"graph{o}.safetensors").read_bytes() for o in ("", "degree", "rcm", "labels")}), 4)
        for other in losses[1:]:
            for a, b in zip(losses[0], other):
                self.assertAlmostEqual(a, b, delta=1e-4)

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
        npy(self.folder / "nan.npy", "f4", "(6, 1)", [0, 1, 2, float("nan"), 4, 5])
        self.refused("[features] feature 0 of node 3 is not finite; got nan", "data", "graph", "ring.txt", "-o", "m.safetensors", "--features", "nan.npy")
        npy(self.folder / "far.npy", "i8", "(6,)", [0, 1, 2, 0, 1, 10 ** 9])
        self.refused("[a class] out of range; got 1000000000; expected -1 to 1048575", "data", "graph", "ring.txt", "-o", "m.safetensors", "--labels", "far.npy")
        self.refused("another number of nodes; got 5", "data", "graph", "ring.txt", "-o", "m.safetensors", "--features", "x.npy")

    def test_generated_graphs_by_name(self):
        for words, nodes, edges in ((("stencil", "--nodes", "20"), 27, 316), (("band", "--nodes", "9", "--degree", "4"), 9, 30),
                                    (("star", "--nodes", "10"), 10, 10), (("road", "--nodes", "1"), 1, 0)):
            made = json.loads(self.run_ok("data", "graph", *words, "-o", "g.safetensors", "--force", "--json"))
            self.assertEqual((made["nodes"], made["edges"]), (nodes, edges), words)
        made = json.loads(self.run_ok("data", "graph", "powerlaw", "--nodes", "4000", "--degree", "8", "--spread", "2", "-o", "p.safetensors", "--json"))
        self.assertTrue(1.6 < made["degree_spread"] < 2.2 and made["degree_99"] < made["degree_max"], made)
        for spread, note in (("6", r"^note: degrees of 50 nodes are \d\.\d on average and spread by \d\.\d, not 8 and 6: more --nodes allow more\n$"),
                             ("0.5", "^$")):
            crowd = braid("data", "graph", "powerlaw", "--nodes", "50", "--degree", "8", "--spread", spread, "-o", "c.safetensors", "--force",
                          cwd=self.folder)
            self.assertRegex(crowd.stderr, note)
        self.refused("[--spread] does not go with this source", "data", "graph", "star", "--spread", "1", "-o", "b.safetensors")
        self.refused("[--degree] a band has as many neighbours on either side; got 3", "data", "graph", "band", "--degree", "3", "-o", "b.safetensors")

    def test_a_graph_network_is_no_language_model(self):
        self.blocks("graph.safetensors")
        self.run_ok("train", "recipe.toml")
        self.refused("is a graph network, not a language model; got gat; try braid eval with its folder", "run", "out", "-p", "hi")

    def test_weights_of_edges(self):
        (self.folder / "w.mtx").write_text("%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 2\n2 1 0.5\n3 1 -2\n")
        words = ("data", "graph", "w.mtx", "-o", "w.safetensors", "--json")
        made = json.loads(self.run_ok(*words))
        self.assertEqual((made["edges"], made["weight_min"], made["weight_max"]), (4, -2, 2))
        self.refused("[w.safetensors] already exists; try another name, or --force", *words)
        self.assertNotIn("weight_min", json.loads(self.run_ok(*words, "--force", "--unweighted")))
        (self.folder / "ring.txt").write_text("".join(f"{i} {(i + 1) % 6} {0.5 + i}\n" for i in range(6)))
        npy(self.folder / "x.npy", "f4", (6, 2), [0.5 * i for i in range(12)])
        npy(self.folder / "y.npy", "i8", (6,), [0, 1, 0, 1, 0, 1])
        self.assertIn("weights from 0.5 to 5.5", self.run_ok("data", "graph", "ring.txt", "-o", "graph.safetensors", "--features", "x.npy",
                                                             "--labels", "y.npy", "--train", "1"))
        self.assertIn("weights from 0.5 to 5.5", self.run_ok("train", "recipe.toml", "graph.model=gcn"))
        self.assertIn("the weights of the edges do nothing in gat, only in gcn", self.run_ok("train", "recipe.toml", "out=gat"))
        self.refused("[--unweighted] does not go with this source", "data", "graph", "grid", "--unweighted", "-o", "b.safetensors")

    def test_nodes_without_edges_are_those_of_features_and_labels(self):
        (self.folder / "pair.txt").write_text("0 1\n1 0\n")
        npy(self.folder / "x.npy", "f4", (5, 2), [0.5 * i for i in range(10)])
        npy(self.folder / "y.npy", "i8", (5,), [0, 1, 0, 1, 1])
        words = ("data", "graph", "pair.txt", "-o", "graph.safetensors", "--json")
        self.assertEqual(json.loads(self.run_ok(*words, "--features", "x.npy", "--labels", "y.npy", "--train", "1"))["nodes"], 5)
        self.assertIn("5 nodes, 2 edges", self.run_ok("train", "recipe.toml"))
        self.assertEqual(json.loads(self.run_ok(*words[:3], "-o", "y.safetensors", "--json", "--labels", "y.npy"))["nodes"], 5)
        npy(self.folder / "y.npy", "i8", (4,), [0, 1, 0, 1])
        self.refused("[y.npy] has another number of nodes; got 4; expected 5", *words[:3], "-o", "m.safetensors", "--features", "x.npy",
                     "--labels", "y.npy")
        npy(self.folder / "x.npy", "f4", (5, 0), [])
        self.refused("is not one row per node; got [5, 0]", *words[:3], "-o", "m.safetensors", "--features", "x.npy")

    def predictions(self, out, *words):
        done = json.loads(self.run_ok("eval", out, "--predictions", "p.csv", *words, "--json"))
        with open(self.folder / "p.csv", newline="") as file:
            return done, list(csv.DictReader(file))

    def test_predictions_of_nodes(self):
        self.blocks("graph.safetensors")
        self.run_ok("train", "recipe.toml", "eval.every=6")
        done, rows = self.predictions("out")
        self.assertEqual((done["task"], done["nodes"], done["classes"], len(rows)), ("node", 200, 4, 200))
        self.assertAlmostEqual(done["held_out"]["loss"] / self.held_out("out")["held_out_loss"], 1, 5)
        right = {"0": [], "1": []}
        for row in rows:
            p = [float(row[f"p_{c}"]) for c in range(4)]
            self.assertAlmostEqual(sum(p), 1, 4)
            self.assertAlmostEqual(p[int(row["predicted"])], max(p), 5)
            right[row["trained"]].append(row["label"] == row["predicted"])
        for side, name in (("0", "held_out"), ("1", "trained")):
            self.assertEqual(len(right[side]), done[name]["count"])
            self.assertAlmostEqual(sum(right[side]) / len(right[side]), done[name]["accuracy"], 9)
        # The same of a checkpoint, and of another graph where there is no recipe.
        self.assertEqual(self.predictions("out/checkpoints/step-00000006")[1], rows)
        for name in ("config.json", "model.safetensors"):
            (self.folder / "alone").mkdir(exist_ok=True)
            (self.folder / "alone" / name).write_bytes((self.folder / "out" / name).read_bytes())
        self.refused("no recipe beside the network names its graph; got alone; try --graph", "eval", "alone")
        self.assertEqual(self.predictions("alone", "--graph", "graph.safetensors")[1], rows)
        for option, value in (("--text", "recipe.toml"), ("--dtype", "bf16"), ("--tp", 2)):
            self.refused(f"[{option}] does not go with a graph network", "eval", "out", option, value)
        self.refused("[--predictions] needs a graph network", "eval", "tiny", "--text", "recipe.toml", "--predictions", "q.csv")
        self.run_ok("data", "graph", "blocks", "-o", "narrow.safetensors", "--width", "9", "--nodes", "50")
        self.refused("[narrow.safetensors] has features of another width than the network was trained on; got 9; expected 16, as out/config.json says",
                     "eval", "out", "--graph", "narrow.safetensors")
        # Nodes of which no class is known.
        (self.folder / "ring.txt").write_text("".join(f"{i} {(i + 1) % 6}\n" for i in range(6)))
        npy(self.folder / "x.npy", "f4", (6, 16), [0.01 * i for i in range(96)])
        self.run_ok("data", "graph", "ring.txt", "-o", "ring.safetensors", "--features", "x.npy")
        done, unknown = self.predictions("out", "--graph", "ring.safetensors")
        self.assertEqual((done["nodes"], done.get("held_out"), [row["label"] for row in unknown]), (6, None, [""] * 6))
        self.assertRegex(self.run_ok("eval", "out"), r"accuracy 0\.\d+, loss \d\.\d+ on \d+ nodes held out")

    def test_predictions_of_pairs_and_graphs(self):
        self.blocks("graph.safetensors")
        self.run_ok("train", "recipe.toml", 'graph.task="edge"', "graph.model=gcn", "eval.every=6")
        done, rows = self.predictions("out")
        self.assertEqual(done["of"], "held_out")
        self.assertAlmostEqual(done["auc"], self.held_out("out")["held_out_auc"], 6)
        self.assertEqual((len(rows), sum(row["joined"] == "1" for row in rows)), (done["pairs"], done["pairs"] // 2))
        self.run_ok("data", "graph", "motifs", "-o", "motifs.safetensors", "--graphs", "60")
        self.run_ok("train", "recipe.toml", 'graph.task="graph"', "graph.model=gin", "graph.path=motifs.safetensors", "out=motifs",
                    "batch=10", "eval.every=6")
        done, rows = self.predictions("motifs")
        self.assertEqual((done["task"], len(rows)), ("graph", 60))
        self.assertAlmostEqual(done["held_out"]["loss"] / self.held_out("motifs")["held_out_loss"], 1, 5)

    def test_info_of_a_graph_and_of_a_network(self):
        self.blocks("graph.safetensors")
        self.run_ok("train", "recipe.toml")
        network = json.loads(self.run_ok("info", "out", "--json"))
        self.assertEqual((network["kind"], network["model"], network["classes"], network["heads"]), ("graph network", "gat", 4, 2))
        weights = 16 * 32 + 32 * 3 + 32 * 4 + 4 * 3  # a map of 16 features to two heads of 16, and one of these to 4 classes
        self.assertEqual(network["parameters"], weights)
        self.assertIn("gat of graphs, task node", self.run_ok("info", "out"))
        graph = json.loads(self.run_ok("info", "graph.safetensors", "--json"))
        self.assertEqual((graph["kind"], graph["nodes"], graph["features"], graph["classes"], graph["weighted"]), ("graph", 200, 16, 4, False))
        self.assertRegex(self.run_ok("info", "graph.safetensors"), r"classes +4, 200 known, \d+ to train on")

    def test_what_is_left_out_is_counted(self):
        (self.folder / "m.mtx").write_text("%%matrixmarket Matrix Coordinate real symmetric\n3 3 4\n1 1 1\n2 1 1\n3 3 1\n3 2 1\n")
        done = braid("data", "graph", "m.mtx", "-o", "m.safetensors", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr),
                         (0, "2 self-loops and repeated edges are no edges of their own: weights of repeated edges are added up, and gcn "
                             "takes those of self-loops in place of 1\n"))
        (self.folder / "m.txt").write_text("0 1\n1 1\n0 1\n")
        done = braid("data", "graph", "m.txt", "-o", "text.safetensors", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, "2 self-loops and repeated edges are left out\n"))
        (self.folder / "m.mtx").write_text("%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 2 3 4\n")
        self.refused("pattern|real|integer", "data", "graph", "m.mtx", "-o", "n.safetensors")

    def held_out(self, out):
        rows = [json.loads(line) for line in (self.folder / out / "log.jsonl").read_text().splitlines()]
        return next(row for row in reversed(rows) if "held_out_loss" in row)

    def test_classes_of_graphs(self):
        made = json.loads(self.run_ok("data", "graph", "motifs", "-o", "graph.safetensors", "--graphs", "60", "--json"))
        words = ("train", "recipe.toml", 'graph.task="graph"', "graph.model=gin", 'graph.readout="add"', "batch=10", "eval.every=6")
        plan = json.loads(self.run_ok(*words, "--dry-run", "--json"))
        self.assertEqual((plan["graphs"], plan["nodes"], plan["classes"]), (60, made["nodes"], 2))
        self.assertIn("60 graphs, together", self.run_ok(*words))
        self.assertTrue(0 <= self.held_out("out")["held_out_accuracy"] <= 1)
        self.refused('is one graph: it has no tensor batch; try graph.task = "node", or "edge"', "train", "recipe.toml", 'graph.task="graph"',
                     "out=other", f"graph.path={self.blocks('nodes.safetensors')}")
        self.refused('has a class for each of its graphs, none for nodes; try graph.task = "graph"', "train", "recipe.toml", "out=other")
        self.assertNotIn("memory_needed", plan)
        self.assertEqual(plan["memory"], {"weights, gradients and moments": 16 * plan["parameters"]})
        config = self.folder / "out" / "config.json"
        config.write_text(config.read_text().replace('"gin"', '"gim"'))
        self.refused("config.json] names an unknown kind of graph network; got gim; expected gcn, sage, gin, gat, edgeconv, monet", "eval", "out")
        self.refused("parallel.grid", *words, "out=other", "--ranks", "2", 'parallel.grid="2,1,1"')

    def test_edges_of_one_and_of_two_types_of_nodes(self):
        self.blocks("graph.safetensors")
        words = ("train", "recipe.toml", 'graph.task="edge"', "graph.model=gcn", "eval.every=6")
        plan = json.loads(self.run_ok(*words, "--dry-run", "--json"))
        self.assertEqual(2 * (plan["pairs_trained"] + plan["pairs_held_out"]), plan["edges"])
        self.assertIn("no message takes", self.run_ok(*words))
        self.assertTrue(0 <= self.held_out("out")["held_out_auc"] <= 1)
        self.assertIn("held_out_hits_at_20", self.held_out("out"))
        self.run_ok("data", "graph", "bipartite", "-o", "graph.safetensors", "--nodes", "90", "--items", "40", "--degree", "4", "--force")
        self.assertIn("from 90 nodes of another type", self.run_ok(*words, "out=two", "graph.model=sage"))
        self.refused("two types of nodes; got gcn", *words, "out=other")
        self.refused('has nodes of two types, with edges to predict; try graph.task = "edge"', "train", "recipe.toml", "out=other")

    def blocks(self, name):
        self.run_ok("data", "graph", "blocks", "-o", name, "--nodes", "200")
        return self.folder / name

    def test_rewrites_explain_what_they_save(self):
        self.blocks("graph.safetensors")
        text = self.run_ok("train", "recipe.toml", "--dry-run")
        self.assertRegex(text, r"a step: [\d.]+ million operations")
        self.assertRegex(text, r"fuse \(messages of edges stay in registers\): without it [\d.]+ times the operations, [\d.]+ the bytes")
        plan = json.loads(self.run_ok("train", "recipe.toml", "--dry-run", "--json"))
        memory = plan["memory"]
        self.assertEqual(memory["weights, gradients and moments"], 16 * plan["parameters"])
        self.assertGreater(memory["passes of a step"], 4 * plan["nodes"] * plan["features"])
        self.assertAlmostEqual(memory["passes of a step"] / 1e6, float(re.search(r"([\d.]+) MB of memory", text)[1]), delta=0.051)
        self.assertEqual(plan["memory_needed"], sum(memory.values()))
        self.assertGreater(plan["memory_available"], plan["memory_needed"])
        off = 'graph.rewrites_off=["fuse","postpone"]'
        self.assertIn("fuse is off", self.run_ok("train", "recipe.toml", off, "--dry-run"))
        self.run_ok("train", "recipe.toml")
        self.run_ok("train", "recipe.toml", off, "out=plain")
        for a, b in zip(self.losses("out"), self.losses("plain")):
            self.assertAlmostEqual(a / b, 1, 4)
        self.refused("is not a rewrite; got fusion", "train", "recipe.toml", 'graph.rewrites_off=["fusion"]', "--dry-run")

    def test_a_dry_run_prints_the_keys_that_graphs_read(self):
        self.blocks("graph.safetensors")
        lines = self.run_ok("train", "recipe.toml", "--dry-run").splitlines()
        recipe = "\n".join(line for line in lines if re.fullmatch(r"(\[\w+\]|\w+ = .*)?", line))
        told = tomllib.loads(recipe)
        self.assertEqual({key for key, value in told.items() if isinstance(value, dict)},
                         {"checkpoint", "ema", "eval", "graph", "log", "optimizer", "parallel", "schedule", "spike"})
        self.assertEqual(set(told) - {key for key, value in told.items() if isinstance(value, dict)},
                         {"objective", "dtype", "steps", "batch", "seed", "out"})
        self.assertEqual((set(told["parallel"]), set(told["eval"])), ({"grid", "collectives"}, {"every"}))
        self.assertIn("heads", told["graph"])
        # Whatever is left out is refused, so the recipe is whole.
        for word, value in (("data.shuffle", "false"), ("accumulate", "2"), ("parallel.tp", "2"), ("memory.offload", "all"), ("exact", "true")):
            self.assertNotEqual(braid("train", "recipe.toml", "--dry-run", f"{word}={value}", cwd=self.folder).returncode, 0, word)
        (self.folder / "again.toml").write_text(recipe)
        self.assertEqual(self.run_ok("train", "again.toml", "--dry-run").splitlines(), lines)

    def test_the_study_of_rewrites(self):
        done = json.loads(self.run_ok("repro", "gnn-fusion", "--quick", "--rounds", "1", "--csv", "f.csv", "--svg", "f.svg", "--json"))
        rows = {(r["model"], r["off"]): r for r in done["rows"]}
        self.assertEqual(len(rows), 6 * 8)
        for (model, off), row in rows.items():
            self.assertAlmostEqual(row["loss"] / rows[model, "none"]["loss"], 1, 4)
            if "fuse" in off or off == "all":
                self.assertGreater(row["bytes"], rows[model, "none"]["bytes"])
        self.assertGreater(rows["gat", "postpone"]["memory_bytes"], 1.1 * rows["gat", "none"]["memory_bytes"])
        self.assertGreater(rows["edgeconv", "postpone"]["flops"], 2 * rows["edgeconv", "none"]["flops"])
        self.assertEqual(len((self.folder / "f.csv").read_text().splitlines()), 49)
        self.assertIn("memory of a step", (self.folder / "f.svg").read_text())
        self.assertIn("edgeconv", self.run_ok("repro", "gnn-fusion", "--quick", "--rounds", "1"))
        self.refused("[--scale] out of range; got 0", "repro", "gnn-fusion", "--scale", "0")

    def test_mistakes_get_one_line(self):
        self.refused("does not exist", "train", "recipe.toml")
        self.run_ok("data", "graph", "grid", "-o", "graph.safetensors", "--nodes", "9")
        self.refused("is a graph without features: it has no tensor x; expected x [nodes, width] F32; try braid data graph EDGES --features F.npy,",
                     "train", "recipe.toml")
        self.refused("[--homophily] out of range; got 2", "data", "graph", "blocks", "-o", "b.safetensors", "--homophily", "2")
        self.refused("--nodes x --degree", "data", "graph", "uniform", "-o", "b.safetensors", "--nodes", "99999999", "--degree", "65536")
        self.refused("no output is named", "data", "graph", "grid")
        for words in (("grid", "--degree", "3"), ("motifs", "--nodes", "9"), ("rmat", "--train", "0.2"), ("citations", "--width", "4"),
                      ("blocks", "--items", "4"), ("blocks", "--features", "x.npy"), ("ring.txt", "--homophily", "0.2")):
            self.refused(f"[{words[1]}] does not go with this source; got {words[0]}", "data", "graph", *words, "-o", "b.safetensors")
        self.refused("[--order] no such order; got near; expected degree, rcm, labels", "data", "graph", "grid", "--order", "near", "-o", "b.safetensors")
        self.refused("an even number", "data", "graph", "rmat", "--degree", "3", "-o", "b.safetensors")
        self.refused("--labels F.npy", "data", "graph", "ring.txt", "--train", "0.2", "-o", "b.safetensors")
        self.refused("fewer --nodes or --items", "data", "graph", "blocks", "--nodes", "200000000", "--width", "65536", "--degree", "1",
                     "-o", "b.safetensors")
        if memory_free() < 30 << 30:
            for model in ("rmat", "uniform"):
                self.refused("[memory] the graph does not fit", "data", "graph", model, "--nodes", "100000000", "-o", "b.safetensors")
        self.refused("gcn", "train", "recipe.toml", "graph.model=gcnn")
        self.run_ok("data", "graph", "blocks", "-o", "blocks.safetensors", "--nodes", "100")
        idle = braid("train", "recipe.toml", "graph.path=blocks.safetensors", "graph.model=sage", "--dry-run", cwd=self.folder).stderr
        self.assertIn("graph.heads does nothing in sage, only in gat", idle)
        for word, value in (("dropout", "0.5"), ("length", "8"), ("loss.z", "0.1"), ("distill.temperature", "2"), ("memory.recompute", "full"),
                            ("tokenizer", "tiny"), ("eval.batches", "3"), ("graph.readout", "max"), ("graph.held_out", "0.2")):
            self.refused(f"[{word}] does not go with", "train", "recipe.toml", f"{word}={value}")


class Grids(GraphCase):
    """The same on a grid of ranks, and plans of it."""
    words = ("train", "recipe.toml", "graph.model=gcn", "graph.layers=3")

    def setUp(self):
        super().setUp()
        self.run_ok("data", "graph", "blocks", "-o", "graph.safetensors", "--nodes", "300")

    def near(self, got, want):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertAlmostEqual(a / b, 1, 5)

    def test_ranks_train_as_one_does(self):
        self.run_ok(*self.words, "out=one")
        text = self.run_ok(*self.words, "--ranks", "4", 'parallel.grid="2,1,2"', "out=four", "steps=3")
        self.assertIn("4 ranks", text)
        self.assertRegex(text, r"over the mean, permuted, by layer: 1\.\d+, 1\.\d+, 1\.\d+")
        self.run_ok(*self.words, "--ranks", "6", 'parallel.grid="3,2,1"', "out=four", "--resume", "auto")
        self.near(self.losses("four"), self.losses("one"))

    def test_the_plan_says_how_even_blocks_are(self):
        plan = json.loads(self.run_ok(*self.words, 'parallel.grid="2,2,2"', "--ranks", "8", "--dry-run", "--json"))
        for key in ("imbalance", "imbalance_of_file"):
            self.assertEqual(len(plan[key]), 3)
            self.assertTrue(all(1 <= x < 1.5 for x in plan[key]), plan)
        self.refused("than there are classes; got 8", *self.words, "--ranks", "8", 'parallel.grid="1,8,1"', "--dry-run")

    def test_mpirun_starts_them_too(self):
        self.run_ok(*self.words, "out=one")
        recipe = (self.folder / "recipe.toml").read_text().replace('"graph.safetensors"', f'"{self.folder}/graph.safetensors"')
        (self.folder / "recipe.toml").write_text(recipe.replace('out = "out"', f'out = "{self.folder}/mpi"'))
        done = mpirun(2, "train", self.folder / "recipe.toml", *self.words[2:], 'parallel.grid="1,1,2"')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.near(self.losses("mpi"), self.losses("one"))

    def test_grids_that_cannot_be(self):
        self.refused("of a graph are those of a grid; try parallel.grid=", *self.words, "--ranks", "4")
        self.refused("got 2 x 2 x 2 = 8; expected 4", *self.words, "--ranks", "4", 'parallel.grid="2,2,2"')
        self.refused("does not divide gin; expected gcn or sage", "train", "recipe.toml", "--ranks", "2", "graph.model=gin",
                     'parallel.grid="2,1,1"')
        self.refused("than there are classes; got 8; expected at most 4", *self.words, "--ranks", "8", 'parallel.grid="1,8,1"')

    def test_plans(self):
        words = ("plan", "graph", "graph.safetensors", "--ranks", "8", "--hidden", "16", "--json")
        plan = json.loads(self.run_ok(*words, "--replay"))
        self.assertEqual((plan["nodes"], plan["features"], plan["classes"]), (300, 16, 4))
        steps = [p["modelled_step_seconds"] for p in plan["plans"]]
        self.assertEqual(steps, sorted(steps))
        self.assertEqual(len(steps), plan["grids"])
        for p in plan["plans"]:
            self.assertAlmostEqual(sum(p["seconds"].values()) / p["modelled_step_seconds"], 1, 9)
            self.assertAlmostEqual(sum(p["axis_seconds"].values()) / p["seconds"]["communication"], 1, 9)
            self.assertAlmostEqual(sum(p["memory"].values()) / p["memory_bytes"], 1, 9)
            self.assertGreater(p["virtual_step_seconds"], 0)
        text = self.run_ok("plan", "graph", "reddit", "--ranks", "8", "--top", "3")
        self.assertIn("modelled, not measured", text)
        self.refused("no grid fits", "plan", "graph", "ogbn-papers100m", "--ranks", "4")
        self.refused("[plan graph] no graph; expected GRAPH, or --nodes, --edges, --features and --classes; try braid plan graph ogbn-products", "plan", "graph")
        self.refused("does not say how many edges there are; try --edges N", "plan", "graph", "--nodes", "9")
        for name in ("nowhere.safetensors", "redit"):
            self.refused(f"[plan graph] no such file or published graph; got {name}; expected a file, or reddit, ", "plan", "graph", name)
        self.refused("[.] ", "plan", "graph", ".")
        self.refused("[--nodes] so many nodes have fewer pairs than edges; got 100 nodes and 114615892 edges; expected at most 9900 edges; try --edges, too",
                     "plan", "graph", "reddit", "--nodes", "100")
        self.refused("[--edges] so many nodes have fewer pairs than edges; got 3 nodes and 7 edges; expected at most 6 edges\n",
                     "plan", "graph", "--nodes", "3", "--edges", "7", "--features", "2", "--classes", "2")
        self.run_ok("plan", "graph", "--nodes", "3", "--edges", "6", "--features", "2", "--classes", "2", "--ranks", "1")
        for kind, what in (("bipartite", "has nodes of two types"), ("motifs", "has a class for each of its graphs")):
            self.run_ok("data", "graph", kind, "-o", f"{kind}.safetensors", "--graphs" if kind == "motifs" else "--items", "20")
            self.refused(f"[{kind}.safetensors] {what}, which no grid of ranks divides; expected one graph, with classes of its nodes\n",
                         "plan", "graph", f"{kind}.safetensors", "--classes", "4")
        self.refused("make no grid", "plan", "graph", "--nodes", "3", "--edges", "2", "--features", "2", "--classes", "2", "--hidden", "2", "--ranks", "64")

    def test_scaling(self):
        self.run_ok("repro", "plexus", "--ranks", "8", "-o", "scaling")
        rows = [line.split(",") for line in (self.folder / "scaling.csv").read_text().splitlines()]
        self.assertEqual(rows[0][:2], ["graph", "ranks"])
        self.assertIn(["reddit", "8"], [r[:2] for r in rows])
        self.assertIn("virtual time", (self.folder / "scaling.svg").read_text())
        rows = json.loads(self.run_ok("repro", "plexus", "--ranks", "8", "--json"))["rows"]
        self.assertTrue(all(r["virtual_step_seconds"] <= 1.2 * r.get("one_axis_virtual_step_seconds", 9e9) for r in rows))
        self.refused("nowhere", "repro", "plexus", "--ranks", "8", "-o", "nowhere/scaling")
        self.refused("[--ranks] out of range; got 9999", "repro", "plexus", "--ranks", "9999")


if __name__ == "__main__":
    main()
