"""braid repro goldfish and recompute: six models on corpora that have canaries as often as they say, and with --recall what
they recall of them; memory and operations of each policy of recomputation.

usage: repro_test.py BRAID [--recall]
"""
import csv
import json
import sys

from support.program import Case, braid, main

RECALL = "--recall" in sys.argv and not sys.argv.remove("--recall")
ARMS = ["every target", "k = 8", "k = 4", "k = 3", "k = 4 by place", "no canaries"]


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


if __name__ == "__main__":
    main()
