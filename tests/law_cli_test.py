"""braid law: a law from a table to a fit file to a plan, the sweep that makes a table, and what is refused.

usage: law_cli_test.py BRAID
"""
import csv
import json
import math
import signal
import subprocess
from pathlib import Path

from support.program import Case, braid, main, start

ROOT = Path(__file__).resolve().parents[1]


class Law(Case):
    def setUp(self):
        self.folder = self.new_folder()
        self.table = self.folder / "runs.csv"
        rows = [(2**n * 1e7, 3**d * 1e9) for n in range(6) for d in range(5)]
        self.write((n, d, 1.8 + 480 / n**0.35 + 2000 / d**0.37) for n, d in rows)

    def write(self, rows):
        self.table.write_text("params,tokens,loss\n" + "".join(f"{n},{d},{loss}\n" for n, d, loss in rows))

    def test_fit_and_plan(self):
        fit = self.folder / "fit.json"
        found = json.loads(braid("law", "fit", self.table, "--out", fit, "--resamples", "10", "--json").stdout)
        self.assertAlmostEqual(found["law"]["alpha"]["value"], 0.35, 4)
        self.assertAlmostEqual(found["law"]["E"]["value"], 1.8, 4)
        self.assertNotIn("draws", found)
        self.assertRegex(braid("law", "fit", self.table, "--resamples", "10").stdout, r"; \d+% of the best eighth of starts came near")
        plan = json.loads(braid("law", "plan", fit, "--hours", "2", "--rate", "1e14", "--json").stdout)
        self.assertAlmostEqual(plan["hours"], 2)
        self.assertAlmostEqual(6 * plan["params"] * plan["tokens"] / 7.2e17, 1, 6)
        self.assertLess(plan["loss_interval"][0] - 1e-6, plan["loss"])
        by_flops = json.loads(braid("law", "plan", fit, "--flops", "7.2e17", "--json").stdout)
        self.assertEqual(by_flops["params"], plan["params"])
        self.assertIn("by the formula", braid("law", "plan", fit, "--flops", "1e18").stdout)
        self.assertIn("far beyond", braid("law", "plan", fit, "--flops", "1e25").stderr)

    def test_options_of_shapes_alone_are_refused_without(self):
        fit = self.folder / "fit.json"
        self.run_ok("law", "fit", self.table, "--out", fit, "--resamples", "10")
        for words in (("--length", "512"), ("--measure", "active")):
            self.assertRefused(braid("law", "plan", fit, "--flops", "1e18", *words), f"[{words[0]}] does nothing with no --like; try leaving it out")
        self.run_ok("law", "plan", fit, "--flops", "1e18", BRAID_LENGTH="512")  # which other commands read

    def test_shapes_of_experts_and_of_small_budgets(self):
        fit = self.folder / "fit.json"
        self.run_ok("law", "fit", self.table, "--out", fit, "--resamples", "5")
        plan = ("law", "plan", fit, "--like", "nemotron-3-nano-30b-a3b")
        self.assertRefused(braid(*plan, "--flops", "1e22"), "[--measure] most experts of these shapes rest", "expected about 6, as in its runs; try --measure active")
        text = self.run_ok(*plan, "--flops", "1e22", "--measure", "active")
        told = json.loads(self.run_ok(*plan, "--flops", "1e22", "--measure", "active", "--json"))
        least = min(told["shapes"], key=lambda s: s["loss"])
        each = least["flops_per_token"] / least["active"]
        self.assertLess(least["loss"], told["loss"])
        self.assertLess(each, 6)
        self.assertIn(f"below the optimum above, since a token of it costs {each:.3g} FLOPs a parameter, and 6 in the fit's runs\n", text)
        self.assertRefused(braid(*plan, "--flops", "1e6"), "[--like] the budget is too small for this config: its narrowest shape reads no token; got 1e+06 FLOPs; expected more than ")
        small = ("law", "plan", fit, "--like", "hybrid-8.5m", "--flops", "1e12")
        self.assertIn("the narrowest that this config can be", self.run_ok(*small))

    def test_shapes(self):
        """Of each depth the width whose loss, for the tokens that the budget leaves, is the least; by width and depth
        where the runs have them."""
        fit, config = self.folder / "fit.json", self.folder / "config.json"
        config.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
                                      "intermediate_size": 704, "num_hidden_layers": 8, "num_attention_heads": 4,
                                      "num_key_value_heads": 2, "vocab_size": 512, "rms_norm_eps": 1e-5,
                                      "max_position_embeddings": 2048, "tie_word_embeddings": False}))
        plan = ["law", "plan", fit, "--flops", "1e18", "--like", config, "--length", "512"]

        def loss_by(n, d, width, depth):
            return 1.8 + 480 / n**0.35 + 2000 / d**0.37 + 20 * (width / 64)**-1 + 0.3 * (depth / 4)**-1

        for shaped in (False, True):
            rows = [(w, l, 12 * w * w * l + 1000 * w, 3**d * 1e8) for w in (64, 256, 1024) for l in (2, 8, 32) for d in range(5)]
            with open(self.table, "w") as file:
                file.write("run,width,depth,params,tokens,loss\n" if shaped else "run,w,l,params,tokens,loss\n")
                for w, l, n, d in rows:
                    loss = loss_by(n, d, w, l) if shaped else 1.8 + 480 / n**0.35 + 2000 / d**0.37
                    file.write(f"w{w}-{l},{w},{l},{n},{d},{loss}\n")
            done = braid("law", "fit", self.table, "--out", fit, "--resamples", "5")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("error on rows with width and depth" in done.stdout, shaped)
            fit.with_suffix(".bak").unlink(missing_ok=True)
            shapes = json.loads(braid(*plan, "--json").stdout)["shapes"]
            self.assertGreater(len(shapes), 8)
            for s in shapes:
                self.assertAlmostEqual(s["tokens"] * s["flops_per_token"] / 1e18, 1, 9)
                self.assertEqual(s["heads"] * 64, s["width"])
                per_layer = 3 * s["width"] ** 2 + 3 * s["width"] * (s["width"] * 11 // 4) + 2 * s["width"]
                self.assertEqual(s["params"], s["depth"] * per_layer + 2 * 512 * s["width"] + s["width"])
                self.assertLessEqual(s["loss_interval"][0] - 1e-3, s["loss"])
            losses = [s["loss"] for s in shapes]
            if not shaped:  # as many parameters at every depth
                self.assertLess(max(losses) - min(losses), 0.02 * min(losses))
                best = json.loads(braid(*plan, "--json").stdout)["params"]
                near = [s for s in shapes if s["depth"] == 8][0]
                self.assertLess(abs(math.log(near["params"] / best)), 0.5)
            text = braid(*plan).stdout
            self.assertEqual(text.count("*\n") + text.count("* ") - 1, 1, text)
            fit.unlink()
        self.assertRefused(braid("law", "plan", self.table, "--flops", "1e18", "--length", "0"), "--length")

    def test_refusals(self):
        self.write((2**n * 1e7, 1e9, 3 + 1 / (n + 1)) for n in range(6))
        self.assertRefused(braid("law", "fit", self.table), "tokens do not vary")
        self.write([(1e7, 1e9, "x")])
        self.assertRefused(braid("law", "fit", self.table), "runs.csv:2] loss is not a positive number")
        for words, says in [(["--flops", "1e18"], "not valid JSON"), ([], "no single budget"), (["--hours", "3"], "--rate"),
                            (["--flops", "-1"], "--flops")]:
            self.assertRefused(braid("law", "plan", self.table, *words), says)


RECIPE = """
dtype = "f32"
steps = 16
batch = 2
length = 32
[config]
architectures = ["NemotronHForCausalLM"]
model_type = "nemotron_h"
dtype = "bfloat16"
hybrid_override_pattern = "M-*"
hidden_size = 16
vocab_size = 16
num_hidden_layers = 3
num_attention_heads = 2
num_key_value_heads = 2
head_dim = 8
mamba_num_heads = 2
mamba_head_dim = 8
ssm_state_size = 8
n_groups = 1
conv_kernel = 4
chunk_size = 16
intermediate_size = 32
mlp_hidden_act = "relu2"
max_position_embeddings = 32
tie_word_embeddings = false
layer_norm_epsilon = 1e-5
[data]
kind = "markov"
states = 16
[optimizer]
lr = 1e-2
[schedule]
warmup = 2
[eval]
batches = 2
"""


class Sweep(Case):
    def setUp(self):
        self.folder = self.new_folder()
        self.recipe = self.folder / "recipe.toml"
        self.recipe.write_text(RECIPE)

    def sweep(self, *words, name="sweep"):
        return braid("law", "sweep", self.recipe, "--dir", self.folder / name, "-t", 1, *words)

    def rows(self, name="sweep"):
        with open(self.folder / name / "runs.csv", newline="") as file:
            return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]

    def test_a_row_is_a_run_of_its_own(self):
        """Each row is what braid train gives from scratch with the schedule wsd: shapes, costs and the loss's every bit."""
        done = self.sweep("--grid", "8x2 16x3", "--points", 2, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(r["run"], r["steps"]) for r in lines],
                         [("w8-d2", 8), ("w8-d2", 16), ("w16-d3", 8), ("w16-d3", 16)])
        sizes = {"w8-d2": ["config.hidden_size=8", "config.num_attention_heads=1", "config.num_key_value_heads=1",
                           "config.mamba_num_heads=1", "config.intermediate_size=16", "config.num_hidden_layers=2",
                           "config.hybrid_override_pattern=M-", "optimizer.lr=2e-2"], "w16-d3": []}
        for row in lines:
            words = [self.recipe, *sizes[row["run"]], f"steps={row['steps']}", "schedule.kind=wsd",
                     f"schedule.decay={row['steps'] - int(row['steps'] * 0.8)}"]
            plan = json.loads(braid("train", *words, "--dry-run", "--json", f"out={self.folder}/none").stdout)
            self.assertEqual(row["params"], plan["parameters"])
            self.assertEqual(row["tokens"], 64 * row["steps"])
            self.assertAlmostEqual(row["flops"] / (plan["flops_per_token_by_formula"] * row["tokens"]), 1, 9)
            out = self.folder / f"{row['run']}-{row['steps']}"
            log = braid("train", *words, f"out={out}", f"eval.every={row['steps']}", "-t", 1, "--json").stdout
            held_out = [json.loads(line) for line in log.splitlines() if "held_out" in line][-1]
            self.assertEqual(row["loss"], held_out["held_out_loss"])
        self.assertEqual([float(r["loss"]) for r in self.rows()], [round(r["loss"], 6) for r in lines])

    def test_stopped_and_extended(self):
        """A sweep that a signal stopped has the rows of one that was not; a larger grid and longer runs add rows."""
        words = ["--grid", "8,16x2", "--points", 3, "steps=160", "optimizer.lr=1e-3"]
        self.assertEqual(self.sweep(*words, name="whole").returncode, 0)
        process = start("law", "sweep", self.recipe, "--dir", self.folder / "sweep", "-t", 1, *words, "--json",
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()  # a row stands
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        if process.returncode != 0:  # else it was faster than the signal
            self.assertEqual((process.returncode, said), (130, "stopped; the same command goes on\n"))
        first = self.folder / "sweep/w8-d2/steps-00000040/row.json"
        made = first.stat().st_mtime_ns
        again = self.sweep(*words)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("6 rows in", again.stdout)
        self.assertEqual(first.stat().st_mtime_ns, made)
        self.assertEqual(self.rows(), self.rows("whole"))
        left = json.loads(self.sweep("--grid", "8x2,4", "--points", 4, "steps=320", "optimizer.lr=1e-3", "--dry-run",
                                     "--json").stdout)
        # The trunk stands up to 128; the decays of 40, 80 and 160 steps stand.
        self.assertEqual([r["steps_left"] for r in left["runs"]], [320 - 128, 256 + 8 + 16 + 32 + 64])
        self.assertGreater(left["seconds_left"], 0)
        self.assertEqual(self.sweep("--grid", "8x2", "--points", 4, "steps=320", "optimizer.lr=1e-3").returncode, 0)
        self.assertEqual(len(self.rows()), 7)
        self.assertRefused(self.sweep("--grid", "8x2", "--points", 2, "seed=1"), "holds a sweep of another recipe: seed is 0 there")
        self.assertRefused(self.sweep("--grid", "8x2", "--points", 2, "--decay", "0.3", "optimizer.lr=1e-3"), "--decay is 0.2 there")

    def test_words_that_a_sweep_sets_are_named(self):
        done = self.sweep("--grid", "8x2", "--points", 1, "--dry-run", "eval.every=3", "schedule.decay=4", "checkpoint.every=5")
        self.assertEqual(done.returncode, 0, done.stderr)
        notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
        self.assertEqual(notes, [
            "note: schedule.decay = 4 does nothing in a sweep, which sets it for its trunks and branches: --decay",
            "note: eval.every = 3 does nothing in a sweep, which sets it for its trunks and branches"])

    def test_a_run_that_fails_is_left_out(self):
        done = self.sweep("--grid", "8x2", "--points", 1, "optimizer.lr=1e9", "optimizer.clip=0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("warning: w8-d2 is left out: [", done.stderr)
        self.assertEqual(self.rows(), [])

    def test_refusals(self):
        for words, says in [([], "--grid] is missing"), (["--grid", "8"], "not a grid"), (["--grid", "8x"], "not a grid"),
                            (["--grid", "8x2000"], "not a grid"), (["--grid", "12x2"], "a multiple of 8"),
                            (["--grid", "8x2", "--points", "4"], "within the warm-up"),
                            (["--grid", "8x2", "schedule.kind=cosine"], "schedule.kind"),
                            (["--grid", "8x2", "--decay", "1"], "--decay"), (["--grid", "8x2", "batch=0"], "batch"),
                            (["--grid", "8x2", "init=tiny"], "both init and config")]:
            self.assertRefused(self.sweep(*words), says)


if __name__ == "__main__":
    main()
