"""braid repro minitron, puzzle, elastic, nvfp4-pretraining, goldfish, recompute, gemstones, alcop and eda: arms of small
models over seeds with their intervals; six models on corpora that have canaries as often as they say, and with
--recall what they recall of them; memory and operations of each policy of recomputation; a law that predicts the size it has
not seen, beside the entropy of its source; regrets that are those of stored times; recipes of synthesis ordered on what is held out.

usage: repro_test.py BRAID [--recall]
"""
import csv
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

from support.program import Case, braid, main

ROOT = Path(__file__).resolve().parents[1]
RECALL = "--recall" in sys.argv and not sys.argv.remove("--recall")
ARMS = ["every target", "k = 8", "k = 4", "k = 3", "k = 4 by place", "no canaries"]


class Huginn(Case):
    def test_every_question_is_counted_once(self):
        folder = self.new_folder() / "study"
        words = "--steps", 2, "--rows", 4, "-t", 1
        done = braid("repro", "huginn", "--dir", folder, "--json", *words, timeout=600)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        study = json.loads(done.stdout)
        self.assertEqual([row["steps"] for row in study["depths"]], [0, 0, 1, 2, 4, 8, 16, 32, 64])
        for row in study["depths"]:
            self.assertEqual(sum(row["asked"]), 4 * 16)
            self.assertAlmostEqual(row["accuracy"], sum(row["right"]) / 64)
        steps = {row["exit"]: row["steps"] for row in study["exits"]}
        self.assertEqual(steps["off"], 32)
        for rule in ("kl", "latent", "entropy", "argmax"):
            self.assertTrue(1 <= steps[rule] < 32, steps)
        self.assertEqual(study["exits"][0]["accuracy"], study["depths"][-2]["accuracy"])  # both of 32 steps
        self.assertEqual(study["drafts"]["same"], study["drafts"]["texts"])
        table = list(csv.DictReader((folder / "huginn.csv").read_text().splitlines()))
        self.assertEqual([int(r["right"]) for r in table if r["steps"] == "64"], study["depths"][-1]["right"], table[0])
        self.assertIn("8 hops", (folder / "huginn.svg").read_text())
        self.assertOneLine(braid("repro", "huginn", "--dir", folder), "already exists")
        self.assertOneLine(braid("repro", "huginn", "--dir", folder / "x", "--rows", 0), "--rows")


class Balance(Case):
    def test_every_corner_has_a_rate_on_every_graph(self):
        folder = self.new_folder()
        words = "repro", "spmm-2x2", "--quick", "--rounds", 1, "--shares", 4, "--csv", folder / "b.csv", "--svg", folder / "b.svg"
        done = braid(*words, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = json.loads(done.stdout)["gflops"]
        self.assertEqual(len(rows), 6)
        for row in rows:
            self.assertTrue(all(row[corner] > 0 for corner in ("rb_sr", "rb_pr", "eb_sr", "eb_pr", "sell")), row)
        table = list(csv.DictReader((folder / "b.csv").read_text().splitlines()))
        for row in table:
            self.assertEqual(max(float(v) for k, v in row.items() if k.endswith("_of_best")), 1, row)
        self.assertIn("eb_pr", (folder / "b.svg").read_text())
        self.assertOneLine(braid("repro", "spmm-2x2", "--shares", 0), "[--shares] out of range; got 0; expected 1 to 1024")


class Tiles(Case):
    def test_every_graph_says_how_full_its_tiles_are_and_whether_they_pay(self):
        folder = self.new_folder()
        words = "repro", "spmm", "--dtype", "bf16", "--quick", "--rounds", 1, "--widths", "8,32,64"
        done = braid(*words, "--csv", folder / "t.csv", "--svg", folder / "t.svg", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        cells = json.loads(done.stdout)["cells"]
        self.assertEqual([(c["width"], c["values"]) for c in cells], 3 * [(32, False), (32, True), (64, False), (64, True)])
        for cell in cells:  # TC-GNN's numbers of 16 x 8 tiles: edges per element, and per column
            self.assertAlmostEqual(cell["tile_reuse"], 16 * cell["tile_density"])
            self.assertGreater(cell["gflops"], 0)
            self.assertIn(cell["way"], ("sr", "sr_ahead", "sr_past", "sr_ahead_past"))
            self.assertEqual("tiles_gflops" in cell, "tiles_gflops" in cells[0])  # a CPU has tiles or not
        table = list(csv.DictReader((folder / "t.csv").read_text().splitlines()))
        self.assertEqual([r["graph"] for r in table[::4]], ["rmat10", "band10", "blocks10_ordered"])
        self.assertIn("64 channels, ones", (folder / "t.svg").read_text())
        self.assertOneLine(braid(*words[:-1], "8,16"), "[--widths] none divides by 32, as tiles of BF16 features need")
        self.assertOneLine(braid(*words, "--tune"), "[--tune] needs --dtype f32; got bf16")


class Ways(Case):
    def test_every_column_of_the_table_is_explained_below_it(self):
        text = self.run_ok("repro", "spmm", "--quick", "--rounds", 1, "--widths", "1,16")
        table, legend = text.rsplit("\n\n", 1)
        header = next(line for line in table.splitlines() if line.startswith("| graph"))
        columns = [cell.strip() for cell in header.strip("| ").split("|")]
        self.assertEqual(len(columns), 12)
        for column in columns[2:-1]:
            words = [column] if column == "eb_pr" else column.split("_")
            for word in words:
                self.assertRegex(legend, rf"\b{word}[:,]", column)
        self.assertIn("Bounds: ", legend)
        self.assertLessEqual(max(map(len, legend.splitlines()[2:])), 120)


class Tables(Case):
    """Matrices of 100 x 100 for which algorithm 2 is fastest from 16 channels on, and 0 below; 6 is 2."""
    WIDTHS = [1, 2, 4, 8, 16, 32, 64, 128]

    def folder_of(self, **more):
        folder = self.new_folder()
        rows = [f"{1000 + i},10000,3.5,{n},{(2, 6)[i % 2] if n >= 16 else 0}" for i in range(8) for n in self.WIDTHS]
        speeds = [",".join("40" if k == (2 if n >= 16 else 0) else "10" for k in range(8)) + ",40" for n in self.WIDTHS]
        texts = {"train": ["nnz,mat_size,std_row,N,tag", *rows], "test": ["nnz,mat_size,std_row,N,tag", *rows[:8]],
                 "data": ["0,1,2,3,4,5,6,7,maxval", *speeds]} | more
        for name, lines in texts.items():
            (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        return folder

    def test_a_tree_is_grown_from_labels_and_judged_by_speeds(self):
        done = braid("repro", "spmm", "--tune", "--tables", self.folder_of(), "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        got = json.loads(done.stdout)
        self.assertEqual((got["trained_on"], got["tested_on"], got["nodes"]), (64, 8, 3))
        self.assertAlmostEqual(got["tree"]["of_best"], 1)
        self.assertAlmostEqual(got["always EB+SR"]["of_best"], 0.5)  # a quarter of the best at half of the points
        self.assertAlmostEqual(got["always RB+PR"]["at_worst"], 0.25)

    def test_tables_of_another_form_are_refused(self):
        for more, said in (({"train": ["a,b"]}, "has other columns"), ({"test": ["nnz,mat_size,std_row,N,tag", "1,2,x,4,0"]}, "line 2"),
                           ({"data": ["0,1,2,3,4,5,6,7,maxval", "1,1,1,1,1,1,1,1,1"]}, "has 1 rows"),
                           ({"train": ["nnz,mat_size,std_row,N,tag", "1,4,1,1,8"]}, "no such tag")):
            self.assertOneLine(braid("repro", "spmm", "--tune", "--tables", self.folder_of(**more)), said)
        self.assertOneLine(braid("repro", "spmm", "--tables", self.folder_of()), "--tables")
        for words in (("--widths", "4,16"), ("--rounds", 3), ("--quick",), ("--csv", "x.csv")):
            self.assertOneLine(braid("repro", "spmm", "--tune", "--tables", self.folder_of(), *words), f"[{words[0]}] does nothing with --tables")


class Arms(Case):
    """Studies whose arms are compared over seeds: every one as --quick, two seeds."""
    RANKINGS = ["inside groups", "over all groups", "at random"]

    def study(self, name):
        folder = self.new_folder() / "study"
        done = braid("repro", name, "--dir", folder, "--quick", "-t", 1, "--json", timeout=900)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        study = json.loads(done.stdout)
        self.assertEqual((study["study"], study["seeds"]), (name, 2))
        self.assertEqual(len(study["entropy"]), 2)
        rows = {(row["arm"], row["share"]): row for row in study["rows"]}
        self.assertEqual(len(rows), len(study["rows"]))
        table = list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines()))
        self.assertEqual(len(table), 2 * len(rows))
        for line in table:
            row, seed = rows[line["arm"], float(line["share"])], int(line["seed"])
            self.assertEqual((int(line["params"]), int(line["tokens"])), (row["params"], row["tokens"]))
            self.assertAlmostEqual(float(line["loss"]), row["loss"]["by_seed"][seed], 5)
            self.assertAlmostEqual(float(line["entropy"]), study["entropy"][seed], 5)
            self.assertGreater(float(line["loss"]), float(line["entropy"]))
            if line["loss_before"]:
                self.assertAlmostEqual(float(line["loss_before"]), row["before"]["by_seed"][seed], 5)
        for (arm, share), row in rows.items():
            self.check_spread(row["loss"])
            reference = rows.get((study["reference"], share))
            self.assertEqual(row["difference"] is None, reference in (None, row))
            if row["difference"]:
                self.check_spread(row["difference"])
                for ours, theirs, told in zip(row["loss"]["by_seed"], reference["loss"]["by_seed"], row["difference"]["by_seed"]):
                    percent = study["difference_unit"] == "percent"
                    self.assertAlmostEqual(told, 100 * (ours / theirs - 1) if percent else ours - theirs, 9)
        self.assertIn("<svg", (folder / f"{name}.svg").read_text())
        return rows, folder

    def check_spread(self, told):
        values = told["by_seed"]
        self.assertEqual(len(values), 2)
        self.assertAlmostEqual(told["mean"], statistics.mean(values), 9)
        self.assertAlmostEqual(told["half_width_95"], 12.706 * statistics.stdev(values) / math.sqrt(2), 9)

    def test_minitron(self):
        rows, folder = self.study("minitron")
        for share in (0.75, 0.5):
            sizes = {rows[arm, share]["params"] for arm in (*self.RANKINGS, "from nothing", "from nothing, all tokens")}
            self.assertEqual(len(sizes), 1)
            self.assertEqual({rows[arm, share]["tokens"] for arm in (*self.RANKINGS, "from nothing")}, {2 * 1024})
            self.assertEqual(rows["from nothing, all tokens", share]["tokens"], rows["parent", 1]["tokens"])
            self.assertEqual(len({tuple(rows[arm, share]["before"]["by_seed"]) for arm in self.RANKINGS}), 3)
            config = json.loads((folder / f"seed-1/over-all-groups-{share}-cut/config.json").read_text())
            self.assertEqual((config["mamba_num_heads"], config["intermediate_size"]), (16 * share, 192 * share))
        self.assertOneLine(braid("repro", "minitron", "--dir", folder), "already exists")
        self.assertOneLine(braid("repro", "minitron", "--dir", folder / "x", "--quick", "--seeds", 3), "does nothing with --quick")
        self.assertOneLine(braid("repro", "minitron", "--dir", folder / "x", "--seeds", 11), "--seeds")

    def test_puzzle(self):
        rows, folder = self.study("puzzle")
        whole = (folder / "seed-0/parent/model.safetensors").stat().st_size
        for share in (0.75, 0.5):
            for arm in ("prune", "search", "search, local distillation"):
                local = rows[arm, share]["tokens"] - 2 * 1024  # 512 for each variant that is trained
                self.assertTrue(local >= 512 and local % 512 == 0 if "local" in arm else local == 0, (arm, local))
                cut = folder / f"seed-0/{arm.replace(',', '').replace(' ', '-')}-{share}-cut/model.safetensors"
                self.assertLess(cut.stat().st_size, share * whole + 4096)  # headers are not counted

    def test_elastic(self):
        rows, _ = self.study("elastic")
        self.assertEqual({share for arm, share in rows if arm == "nested"}, {1, 0.75, 0.5})
        read = sum(row["tokens"] for (arm, _), row in rows.items() if arm == "apart")
        self.assertEqual({row["tokens"] for (arm, _), row in rows.items() if arm == "nested"}, {read})
        parent = rows["parent", 1]
        self.assertEqual(rows["nested", 1]["params"], parent["params"])
        for ours, theirs in zip(rows["nested", 1]["before"]["by_seed"], parent["loss"]["by_seed"]):
            self.assertAlmostEqual(ours, theirs, 3)  # reordered alone
        for (arm, share), row in rows.items():
            self.assertLessEqual(row["params"], share * parent["params"])

    def test_nvfp4(self):
        rows, _ = self.study("nvfp4-pretraining")
        self.assertEqual({row["tokens"] for row in rows.values()}, {8 * 1024})
        losses = {arm: tuple(row["loss"]["by_seed"]) for (arm, _), row in rows.items()}
        self.assertEqual(len(set(losses.values())), 7, losses)  # every word of a recipe changes numbers


class Goldfish(Case):
    def study(self, folder, *words):
        done = braid("repro", "goldfish", "--dir", folder, "--json", *words, timeout=1800)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([row["arm"] for row in rows], ARMS)
        return {row["arm"]: row for row in rows}

    def test_every_arm_has_as_many_targets(self):
        folder = self.new_folder() / "study"
        rows = self.study(folder, "--canaries", 3, "--repeats", 7, "--background", 90, "--length", 16)
        table = list(csv.DictReader((folder / "goldfish.csv").read_text().splitlines()))
        self.assertEqual([r["arm"] for r in table], ARMS)
        for row in table:
            self.assertAlmostEqual(float(row["held_out_loss"]), rows[row["arm"]]["held_out_loss"], 3)
            self.assertTrue(0 <= float(row["exact_match"]) <= float(row["rouge_l"]) <= 1)
        self.assertIn("left out", (folder / "goldfish.svg").read_text())
        documents = {}
        for name in ("k0", "k8", "k4", "k3", "k4-place", "k0-none"):
            text = (folder / f"{name}.bin").read_bytes()
            texts = [text[i:i + 32] for i in range(0, len(text), 32)]  # 16 ids of two bytes
            documents[name] = len(texts)
            repeated = {t for t in texts if texts.count(t) > 1}
            self.assertEqual({texts.count(t) for t in repeated}, set() if name == "k0-none" else {7}, name)
            self.assertEqual(len(repeated), 0 if name == "k0-none" else 3, name)
        self.assertEqual(documents, {"k0": 111, "k8": 126, "k4": 148, "k3": 166, "k4-place": 148, "k0-none": 111})
        self.assertOneLine(braid("repro", "goldfish", "--dir", folder), "already exists")
        self.assertOneLine(braid("repro", "goldfish", "--length", 4), "--length")

    def test_copies_that_lose_the_same_targets_are_not_recalled(self):
        if not RECALL:
            self.skipTest("minutes: only with --recall, in the slow suite")
        rows = self.study(self.new_folder() / "study", "--canaries", 20, "--repeats", 50, "--background", 1000)
        recall = {arm: row["exact_match"] for arm, row in rows.items()}
        self.assertGreaterEqual(recall["every target"], 0.5)
        self.assertGreaterEqual(recall["k = 4 by place"], 0.5)
        for arm in ("k = 4", "k = 3"):
            self.assertLessEqual(recall[arm], 0.5 * recall["every target"])
        self.assertEqual(recall["no canaries"], 0)
        self.assertLess(max(row["unseen_rouge_l"] for row in rows.values()), 0.3)


class Recompute(Case):
    def test_each_policy_trades_memory_for_operations(self):
        folder = self.new_folder() / "recompute"
        done = braid("repro", "recompute", "--dir", folder, "--length", 96, "--rounds", 1, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        result = json.loads(done.stdout)
        none, selective, full = result["measured"]
        self.assertEqual(none["flops_again"], 0)
        self.assertLess(none["flops_again"], selective["flops_again"])
        self.assertLess(selective["flops_again"], full["flops_again"])
        self.assertGreater(none["arena_bytes"], selective["arena_bytes"])
        self.assertGreater(selective["arena_bytes"], full["arena_bytes"])
        # s b h (10 + 24/t + 5 a s / (h t)) bytes a layer with t ranks, and 34 s b h / t with both (2205.05198, table 2).
        h, a, s, t = 12288, 96, 2048, 8
        row = next(row for row in result["published_shapes"] if row["shape"] == "175B")
        self.assertAlmostEqual(row["layer_bytes"], s * h * (10 + 24 / t + 5 * a * s / (h * t)), delta=1)
        self.assertAlmostEqual(row["with_both"], 34 * s * h / t, delta=1)
        self.assertOneLine(braid("repro", "recompute", "--dir", folder), "already exists")


def predict(law, params, tokens):
    return law["E"] + math.exp(law["log_A"] - law["alpha"] * math.log(params)) + math.exp(law["log_B"] - law["beta"] * math.log(tokens))


class Gemstones(Case):
    STORED = ROOT / "bench/results/gemstones.csv"

    def law_without_the_largest(self, table):
        rows = list(csv.DictReader(table.read_text().splitlines()))
        largest = max(float(r["params"]) for r in rows)
        others = self.new_folder() / "others.csv"
        with others.open("w") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(r for r in rows if float(r["params"]) < largest)
        law = json.loads(braid("law", "fit", others, "--json").stdout)["law"]
        return [r for r in rows if float(r["params"]) == largest], {k: v["value"] for k, v in law.items()}

    def check(self, study, table):
        """The law is what `braid law fit` says of the other rows, and predicts by its formula."""
        rows, law = self.law_without_the_largest(table)
        self.assertAlmostEqual(study["E"], law["E"], 9)
        self.assertEqual(len(study["predicted"]), len(rows))
        for row, told in zip(rows, study["predicted"]):
            loss = predict(law, float(row["params"]), float(row["tokens"]))
            self.assertEqual(told["measured"], float(row["loss"]))
            self.assertAlmostEqual(told["predicted"], loss, 6)
            self.assertAlmostEqual(told["error"], loss / float(row["loss"]) - 1, 6)

    def test_a_small_study(self):
        folder = self.new_folder()
        words = ["--dir", folder / "sweep", "--grid", "8,16,24,32x1", "--steps", 160, "--points", 3, "-t", 1]
        files = ["--csv", folder / "g.csv", "--svg", folder / "g.svg"]
        done = braid("repro", "gemstones", *words, *files, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        study = json.loads(done.stdout)
        self.check(study, folder / "g.csv")
        self.assertAlmostEqual(study["entropy"], 2.823923, 5)  # of steps of 1 : 1/2 : ... : 1/32, those to one state added
        self.assertIn("predicted", (folder / "g.svg").read_text())
        again = braid("repro", "gemstones", "--runs", folder / "g.csv", "--json")  # of the table alone
        self.assertEqual(json.loads(again.stdout), study)
        self.assertIn("the entropy of the source is 2.8239", braid("repro", "gemstones", "--runs", folder / "g.csv").stdout)

    def test_the_stored_study(self):
        """What docs/training.md says of bench/results/gemstones.csv."""
        study = json.loads(braid("repro", "gemstones", "--runs", self.STORED, "--json").stdout)
        self.check(study, self.STORED)
        stored = json.loads(self.STORED.with_suffix(".json").read_text())
        self.assertAlmostEqual(study["E"], stored["E"], 6)
        self.assertLess(abs(study["E"] / study["entropy"] - 1), 0.1)
        self.assertGreater(study["times_larger"], 3)
        self.assertLess(max(abs(row["error"]) for row in study["predicted"]), 0.013)

    def test_refusals(self):
        for words, says in [(["--steps", 1], "--steps"), (["--grid", "9x2"], "a multiple of 8"), (["--runs", "/none.csv"], "/none.csv")]:
            self.assertOneLine(braid("repro", "gemstones", "--dir", self.new_folder() / "d", *words), says)


class Alcop(Case):
    STORED = ROOT / "bench/results/alcop-h200.csv"

    def test_regret_and_break_even_are_those_of_the_times(self):
        folder = self.new_folder()
        done = braid("repro", "alcop", "--times", self.STORED, "--json", "--csv", folder / "a.csv", "--svg", folder / "a.svg")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        study = json.loads(done.stdout)
        self.assertEqual(study, json.loads(self.STORED.with_suffix(".json").read_text()))
        self.assertEqual((folder / "a.csv").read_text(), self.STORED.read_text())  # the stored model is this program's
        products = {}
        for row in csv.DictReader(self.STORED.read_text().splitlines()):
            key = tuple(row[k] for k in ("rows", "cols", "tokens", "height", "density"))
            products.setdefault(key, []).append({k: v if k == "gpu" else float(v) for k, v in row.items()})
        self.assertEqual(len(products), 100)
        for entry in study["regret"]:
            mine = [rows for key, rows in products.items() if int(key[3]) == entry["height"]]
            for name, order in (("list", lambda row: 0), ("model", lambda row: row["modelled_us"])):
                for k in (1, 3, len(mine[0])):
                    mean = sum(min(r["us"] for r in sorted(rows, key=order)[:k]) / min(r["us"] for r in rows) - 1 for rows in mine)
                    self.assertAlmostEqual(entry[name][k - 1], mean / len(mine), 2 if name == "model" else 9)
            # By chance: the k-th best is the best of j draws with a probability that a count of subsets gives.
            for j in (1, 4):
                n, mean = len(mine[0]), 0
                for rows in mine:
                    times = sorted(r["us"] for r in rows)
                    mean += sum(t / times[0] * math.comb(n - 1 - i, j - 1) / math.comb(n, j) for i, t in enumerate(times)) - 1
                self.assertAlmostEqual(entry["random"][j - 1], mean / len(mine), 1)
            for k in range(1, 8):
                self.assertLess(entry["model"][k - 1], entry["random"][k - 1])
        for product in study["products"]:
            self.assertAlmostEqual(product["times_as_fast"], product["cublaslt_us"] / product["product_us"], 9)
            self.assertLess(product["difference"], 0.01)  # both round sums to BF16
        self.assertIn("of the roof", braid("repro", "alcop", "--times", self.STORED).stdout)

    def test_refusals(self):
        table = self.STORED.read_text().splitlines()
        wrong = self.new_folder() / "wrong.csv"
        for lines, says in [([], "no times"), (["rows"], "another header"), ([table[0], "1,2"], "wrong.csv:2"),
                            ([table[0], table[1].replace("4096", "nan", 1)], "field 1"), ([*table[:2], table[1]], "twice"),
                            (table[:-1], "different shapes"), ([table[0], table[1].replace(",32,64,4,", ",32,64,9,")], "lacks")]:
            wrong.write_text("".join(line + "\n" for line in lines))
            self.assertOneLine(braid("repro", "alcop", "--times", wrong), says)
        self.assertOneLine(braid("repro", "alcop", "--times", ROOT / "bench/results/alcop-cpu.csv"),
                           "alcop-cpu.csv:1] holds times of --device cpu, which --times does not read", "braid repro alcop --device cuda")
        self.assertOneLine(braid("repro", "alcop", "--heights", 48), "--heights")
        for words in (["--heights", 16], ["--densities", 50], ["--rounds", 3], ["--quick"]):
            self.assertOneLine(braid("repro", "alcop", "--times", self.STORED, *words), f"[{words[0]}] does nothing with --times")
        if not json.loads(braid("info", "--machine", "--json").stdout)["gpus"]:
            self.assertOneLine(braid("repro", "alcop"), "no GPU")


class AlcopOnACpu(Case):
    def test_regret_is_that_of_the_times(self):
        folder = self.new_folder()
        done = braid("repro", "alcop", "--device", "cpu", "--quick", "--rounds", 1, "--json", "--csv", folder / "a.csv", "--svg", folder / "a.svg")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.check(json.loads(done.stdout), folder / "a.csv", 2)
        self.assertIn("slower than the best", (folder / "a.svg").read_text())

    def check(self, study, table, least):
        products = {}
        for row in csv.DictReader(table.read_text().splitlines()):
            products.setdefault((row["class"], row["way"], row["tokens"], row["w_rows"], row["w_cols"]), []).append(row)
        self.assertEqual(len(products), len(study["products"]))
        for entry in study["regret"]:
            mine = [rows for key, rows in products.items() if key[0] == entry["class"]]
            self.assertGreaterEqual(len(mine), least)
            for name, order in (("grid", lambda row: 0), ("model", lambda row: float(row["modelled_us"]))):
                for k in (1, 5, 32):
                    tried = [min(float(r["us"]) for r in sorted(rows, key=order)[:k]) / min(float(r["us"]) for r in rows) - 1 for rows in mine]
                    self.assertAlmostEqual(entry[name][k - 1], statistics.mean(tried), 2)
            lost = statistics.mean(float(rows[0]["default_us"]) / min(float(r["us"]) for r in rows) - 1 for rows in mine)
            self.assertAlmostEqual(entry["default"], lost, 3)
            self.assertEqual(entry["random"][-1] < 0.5, True)
        for product, rows in zip(study["products"], products.values()):
            self.assertEqual(product["points"], len(rows))
            self.assertIn(product["best"].split("_")[0], {"x".join((r["rows"], r["cols"], r["depth"])) for r in rows})

    def test_the_stored_study_is_consistent(self):
        stored = ROOT / "bench/results/alcop-cpu.json"
        self.check(json.loads(stored.read_text()), stored.with_suffix(".csv"), 10)

    def test_refusals(self):
        for words in (["--heights", 16], ["--densities", 50], ["--times", "a.csv"]):
            self.assertOneLine(braid("repro", "alcop", "--device", "cpu", *words), f"[{words[0]}] does nothing with --device cpu")
        self.assertOneLine(braid("repro", "alcop", "--device", "gpu"), "cpu or cuda")


class Eda(Case):
    DATA = ROOT / "bench/data/eda"
    STORED = ROOT / "bench/results/eda.csv"
    TIMES = ("predict_seconds", "batch_once_seconds", "batch_each_seconds")

    def study(self, *words):
        done = braid("repro", "eda", "--data", self.DATA, "--json", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        study = json.loads(done.stdout)
        for name in self.TIMES:
            self.assertGreater(study["times"].pop(name), 0)
        return study

    def test_a_small_study(self):
        folder = self.new_folder()
        study = self.study("--quick", "-t", 2, "--csv", folder / "e.csv", "--svg", folder / "e.svg")
        tables = sorted(self.DATA.glob("*.csv"))
        labels = {t.stem: list(csv.DictReader(t.read_text().splitlines())) for t in tables}
        self.assertEqual((study["designs"], study["recipes"]), (40, 200))
        self.assertEqual(study["results"], sum(map(len, labels.values())))
        self.assertEqual(study["distinct"], sum(len({row["same"] for row in rows}) for rows in labels.values()))
        rows = list(csv.DictReader((folder / "e.csv").read_text().splitlines()))
        sizes = {}
        for row in rows:
            sizes.setdefault((row["design"], row["held_out"]), int(row["samples"]))
            self.assertTrue(-1 <= float(row["spearman"] or 0) <= 1)
            for k in (1, 2, 3, 5, 10):
                self.assertGreaterEqual(float(row[f"chance_{k}"]), 0)
        held = {d for d, part in sizes if part != "unseen recipes"}
        self.assertFalse(held & {d for d, part in sizes if part == "unseen recipes"})
        families = {d.rpartition("-")[0] for d in held}
        seen = {d.rpartition("-")[0] for d, part in sizes if part == "unseen recipes"}
        self.assertFalse(families & seen)  # sizes of one circuit are on one side
        for (design, part), count in sizes.items():
            self.assertLessEqual(count, len({row["same"] for row in labels[design]}), design)
        tool = sum(float(row["ms"]) for d in held for row in labels[d]) / 1000
        self.assertGreaterEqual(study["times"]["tool_seconds"] + 1e-6, tool)  # a design of few results is not scored
        self.assertIn("unseen designs", (folder / "e.svg").read_text())
        self.assertEqual(self.study("--quick", "-t", 1), study)  # threads change no bit
        self.assertIn("abc took", braid("repro", "eda", "--data", self.DATA, "--quick").stdout)

    def test_the_stored_study(self):
        """What docs/graphs.md says of bench/results/eda.csv."""
        orders = {}
        for row in csv.DictReader(self.STORED.read_text().splitlines()):
            if row["spearman"]:
                orders.setdefault((row["held_out"], row["target"]), []).append(row)
        stored = json.loads(self.STORED.with_suffix(".json").read_text())
        for told in stored["rows"]:
            rows = orders[told["held_out"], told["target"]]
            self.assertEqual(told["orders"], len(rows))
            mean = sum(float(r["spearman"]) for r in rows) / len(rows)
            self.assertAlmostEqual(told["spearman"], mean, 4)
            for place, k in enumerate((1, 2, 3, 5, 10, 20)):
                self.assertAlmostEqual(told["regret"][place], sum(float(r[f"regret_{k}"]) for r in rows) / len(rows), 5)
                if told["held_out"] == "unseen recipes":
                    self.assertLess(told["regret"][place], told["chance_regret"][place])
            if told["held_out"] == "unseen recipes":
                self.assertGreater(told["spearman"], 0.49 if told["target"] == "area" else 0.6)
                self.assertGreater(told["spearman"], told["step_counts"] + 0.05)

    def test_the_page_has_the_numbers_of_the_study(self):
        rows = list(csv.DictReader(self.STORED.read_text().splitlines()))
        page = [line.split(" | ") for line in (ROOT / "docs/graphs.md").read_text().splitlines() if re.match(r"\| (unseen|both unseen) ", line)]
        self.assertEqual(len(page), 12)
        for held_out, target, orders, all_folds, first_folds, *_ in page:
            of = [(int(r["fold"]), float(r["spearman"])) for r in rows if (r["held_out"], r["target"]) == (held_out[2:], target) and r["spearman"]]
            first = [s for fold, s in of if fold < 3]
            self.assertEqual((orders, all_folds, first_folds), (str(len(of)), f"{sum(s for _, s in of) / len(of):.3f}", f"{sum(first) / len(first):.3f}"))

    def test_labels_are_of_the_recipes_beside_them(self):
        folder = self.new_folder()
        label = [sys.executable, ROOT / "tools/eda/label.py", folder, "--designs", "0", "--recipes"]
        subprocess.run([*label, "5"], check=True)
        first = (folder / "recipes.txt").read_text()
        subprocess.run([*label, "5"], check=True)
        done = subprocess.run([*label, "6"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("has other recipes than --recipes 6 --steps 6", done.stderr)
        self.assertEqual((folder / "recipes.txt").read_text(), first)

    def test_refusals(self):
        folder = self.new_folder()
        for words, says in [(["--data", folder / "none"], "recipes.txt"), (["--folds", 5], "--folds"), (["--epochs", 0], "--epochs")]:
            self.assertOneLine(braid("repro", "eda", *words), says)
        for option in ("--epochs", "--hidden", "--width", "--inner", "--folds"):
            self.assertOneLine(braid("repro", "eda", "--quick", option, 1), f"[{option}] does nothing with --quick")
        for option in ("--densities", "--steps"):
            self.assertOneLine(braid("repro", "shfl-bw", "--quick", option, 5), f"[{option}] does nothing with --quick")
        (folder / "recipes.txt").write_text("b rw\n")
        self.assertOneLine(braid("repro", "eda", "--data", folder), "has no designs")
        (folder / "a-1.csv").write_text("recipe,ands,levels,area,delay,same,ms\n0,1,1,2,1,0,5\n")
        (folder / "a-1.aig").write_text("aag 3 2 0 1 1\n2\n4\n6\n6 7 5\n")
        self.assertOneLine(braid("repro", "eda", "--data", folder), "in a circle")
        (folder / "a-1.aig").write_text("aag 3 2 0 1 1\n2\n4\n6\n6 2 5\n")
        self.assertOneLine(braid("repro", "eda", "--data", folder), "none or all")


if __name__ == "__main__":
    main()
