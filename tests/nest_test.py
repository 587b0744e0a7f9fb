"""braid nest and braid slice: a folder that says the same as its source, models cut out of it that load, their tables and JSON,
and what they refuse; and a recipe with [nest] budgets, whose models train together.

usage: nest_test.py BRAID
"""
import array
import json
import shutil

from support.program import DATA, Case, braid, main
from support.tensors import tensors

MODEL, TEXT = DATA / "tiny-chat", DATA / "calibration" / "text.txt"
QUICK = ("--length", "96", "--quick", "2", "--candidates", "2", "--min-width", "0.25", "-t", "1")
IDS = ("--ids", "5,6,7,8,9,10,11,12", "-n", "4", "--ignore-eos", "--temp", "0", "--dtype", "f32", "--json", "-t", "1")
RECIPE = """
batch = 4
length = 32
steps = 6
dtype = "f32"
[data]
kind = "markov"
states = 64
[optimizer]
lr = 1e-3
clip = 0
[checkpoint]
every = 3
keep = 9
"""


def nest(out, *words, model=MODEL, data=TEXT):
    return braid("nest", model, out, "--data", data, *QUICK, *words)


def floats(tensor):
    data = tensor.data
    if tensor.dtype == "BF16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    return array.array("f", data)


class Nest(Case):
    @classmethod
    def setUpClass(cls):
        cls.place = cls.shared_folder()
        cls.nested = cls.place / "nested"
        made = nest(cls.nested, "--budgets", "0.75,half=0.5", "--json")
        assert made.returncode == 0, made.stderr
        cls.report = json.loads(made.stdout)
        cls.file = json.loads((cls.nested / "nested.json").read_text())

    def answer(self, model):
        done = braid("run", model, *IDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_the_folder_says_what_its_source_says(self):
        self.assertAlmostEqual(self.report["loss"], self.report["nested_loss"], places=4)
        self.assertEqual(self.answer(self.nested)["ids"], self.answer(MODEL)["ids"])

    def test_budgets_nest(self):
        budgets = self.report["budgets"]
        self.assertEqual([b["name"] for b in budgets], ["1", "0.75", "half"])
        whole = budgets[0]
        for larger, smaller in zip(budgets, budgets[1:]):
            self.assertLessEqual(smaller["params"], smaller["share"] * whole["params"])
            self.assertTrue(set(smaller["layers"]) <= set(larger["layers"]))
            for axis, size in smaller["sizes"].items():
                self.assertLessEqual(size, larger["sizes"][axis])
        self.assertEqual([b["sizes"] for b in self.file["budgets"]], [b["sizes"] for b in budgets])

    def test_slices_load(self):
        for budget, name in (("0.75", "0.75"), ("0.5", "half"), ("half", "half")):
            out = self.place / f"slice-{budget}"
            done = braid("slice", self.nested, out, "--budget", budget, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            made = json.loads(done.stdout)
            known = next(b for b in self.report["budgets"] if b["name"] == name)
            self.assertEqual((made["budget"], made["params"], made["sizes"]), (name, known["params"], known["sizes"]))
            self.assertFalse((out / "nested.json").exists())
            self.assertTrue((out / "tokenizer.json").exists())
            self.assertEqual(len(self.answer(out)["ids"]), 4)
        self.assertEqual((self.place / "slice-0.5" / "model.safetensors").read_bytes(),
                         (self.place / "slice-half" / "model.safetensors").read_bytes())
        table = braid("slice", self.nested, self.place / "words", "--budget", "half").stdout
        self.assertIn("budget half", table)

    def test_table(self):
        done = nest(self.place / "table", "--budgets", "0.8", "--axes", "expert_ffn,shared_ffn,layers", "--measure", "active")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("budget", "active", "sizes", "all", "reordered"):
            self.assertIn(word, done.stdout)

    def test_refusals(self):
        out = self.place / "out"
        for words, says in ((("--budgets", "1"), "no smaller"),
                            (("--budgets", "0.5,0.5"), "twice"),
                            (("--budgets", "1.5"), "not a share"),
                            (("--budgets", "0.01"), "no combination of cuts"),
                            (("--budgets", "0.75,0.7499"), "further apart"),
                            (("--budgets", "0.75", "--axes", "depth"), "no such axis")):
            self.assertRefused(nest(out, *words), says)
            self.assertFalse(out.exists())
        self.assertRefused(braid("nest", MODEL, out), "--data")
        self.assertRefused(nest(out, model=DATA / "hf" / "nemotron-h-modelopt-nvfp4"), "quantised")
        self.assertRefused(nest(out, model=DATA / "huginn"), "recurrent depth")
        self.assertRefused(braid("slice", self.nested, out), "--budget")
        self.assertRefused(braid("slice", self.nested, out, "--budget", "0.6"), "1, 0.75, half")
        self.assertRefused(braid("slice", MODEL, out, "--budget", "0.5"), "not a nested model")
        self.assertRefused(braid("slice", self.nested, self.nested, "--budget", "0.5"), "nested")
        broken = self.place / "broken"
        shutil.copytree(self.nested, broken)
        for pointer, value in (("hidden", 7), ("experts", 0), ("layers", 10**9)):
            file = json.loads(json.dumps(self.file))
            file["budgets"][1]["sizes"][pointer] = value
            (broken / "nested.json").write_text(json.dumps(file))
            self.assertRefused(braid("slice", broken, out, "--budget", "0.75"), "sizes")
        (broken / "nested.json").write_text("{")
        self.assertRefused(braid("slice", broken, out, "--budget", "0.75"), "nested.json")
        self.assertFalse(out.exists())


class Together(Case):
    """[nest] in a recipe."""

    @classmethod
    def setUpClass(cls):
        cls.place = cls.shared_folder()
        (cls.place / "recipe.toml").write_text(RECIPE)
        cls.nested, cls.narrow = cls.place / "nested", cls.place / "narrow"
        # Norms of the narrow one read all channels: nothing is scaled.
        for out, words in ((cls.nested, ()), (cls.narrow, ("--axes", "expert_ffn,shared_ffn,experts,latent,heads,layers"))):
            made = nest(out, "--budgets", "0.8,0.6", *words)
            assert made.returncode == 0, made.stderr

    def train(self, init, out, *words):
        return braid("train", self.place / "recipe.toml", f"init={init}", f"out={self.place / out}", "-t", "1", *words)

    def trained(self, init, out, *words):
        done = self.train(init, out, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.place / out / "checkpoints" / "step-00000006"

    def sliced(self, model, budget):
        out = self.new_folder() / "slice"
        done = braid("slice", model, out, "--budget", budget)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def test_one_budget_trains_as_its_slice(self):
        """Bit for bit, with predicted tokens and with a teacher; and what the slice lacks is left alone."""
        for name, words in (("tokens", ()), ("teacher", (f"distill.teacher={self.narrow}",))):
            whole = self.trained(self.narrow, f"whole-{name}", "nest.budgets=[0.6]", "optimizer.weight_decay=0", *words)
            small = self.trained(self.sliced(self.narrow, "0.6"), f"small-{name}", "optimizer.weight_decay=0", *words)
            self.assertEqual(tensors(self.sliced(whole, "0.6")), tensors(small))
            start, end = tensors(self.narrow), tensors(whole)
            changed = sum(a != b for name in end for a, b in zip(floats(start[name]), floats(end[name])))
            count = sum(len(floats(t)) for t in tensors(small).values())
            self.assertTrue(count / 2 < changed <= count, (changed, count))

    def test_all_train_one_set_of_weights(self):
        """Each step says whose it is and held-out lines have all; resumed and in parts with the same bits."""
        words = ("nest.budgets=[1, 0.8, 0.6]", "nest.sampling=[1, 1, 2]", f"distill.teacher={MODEL}", "eval.every=3",
                 "eval.batches=2", f"log.jsonl={self.place}/all/log.jsonl")
        whole = self.trained(self.nested, "all", *words)
        self.trained(self.nested, "cut", *words[:-1], "steps=3")
        self.trained(self.nested, "cut", *words[:-1], "--resume", "auto", "accumulate=2")
        for name in ("model.safetensors", "nested.json", "training/state.safetensors"):
            self.assertEqual((whole / name).read_bytes(), (self.place / "cut" / "checkpoints" / "step-00000006" / name).read_bytes())
        self.assertEqual((whole / "nested.json").read_bytes(), (self.nested / "nested.json").read_bytes())
        log = [json.loads(line) for line in (self.place / "all" / "log.jsonl").read_text().splitlines()]
        steps, held_out = [e for e in log if "loss" in e], [e for e in log if "held_out_loss" in e]
        self.assertTrue(steps and held_out)
        self.assertLessEqual({e["budget"] for e in steps}, {1, 0.8, 0.6})
        for e in held_out:
            losses = [e[f"held_out_loss_{share}"] for share in ("1", "0.8", "0.6")]
            self.assertAlmostEqual(e["held_out_loss"], sum(losses) / 3, places=5)

    def test_routers_choose_sizes(self):
        """They are printed, in the checkpoint's nested.json, and what a slice of it has."""
        words = ("nest.budgets=[1, 0.6]", "nest.router=true", "nest.router_lr=300", "eval.every=6", "eval.batches=2",
                 f"log.jsonl={self.place}/routed/log.jsonl")
        done = self.train(self.nested, "routed", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        end = self.place / "routed" / "checkpoints" / "step-00000006"
        sizes = {b["name"]: b["sizes"] for b in json.loads((end / "nested.json").read_text())["budgets"]}
        line = [s for s in done.stdout.splitlines() if s.startswith("budget 0.6:")][0]
        said = dict(zip(line.split()[2::2], line.split()[3::2]))
        self.assertIn("hidden", said)
        for axis, of in said.items():
            self.assertEqual(of, f"{sizes['0.6'][axis]}/{sizes['1'][axis]}")
        log = [json.loads(line) for line in (self.place / "routed" / "log.jsonl").read_text().splitlines()]
        held_out = [e for e in log if "held_out_loss" in e][-1]
        sliced, whole = (sum(len(floats(t)) for t in tensors(self.sliced(end, b)).values()) for b in ("0.6", "1"))
        self.assertAlmostEqual(sliced / whole, held_out["held_out_cost_0.6"], places=6)

    def test_routers_are_not_begun_anew_in_silence(self):
        words = ("nest.budgets=[1, 0.6]", "nest.router=true", "checkpoint.every=3")
        self.assertEqual(self.train(self.nested, "lost", *words).returncode, 0)
        file = self.place / "lost" / "checkpoints" / "step-00000006" / "training" / "nest_router.safetensors"
        file.unlink()
        self.assertRefused(self.train(self.nested, "lost", *words, "steps=9", "--resume", "auto"), "nest_router.safetensors")

    def test_refusals(self):
        for words, says in ((("nest.budgets=[0.5]",), "no such budget"),
                            (("nest.budgets=[1]", "nest.router=true"), "no smaller model"),
                            (("nest.budgets=[1, 1]",), "twice"),
                            (("nest.budgets=[1]", "nest.sampling=[1, 2]"), "a number for each"),
                            (("nest.sampling=[1]",), "there are no budgets"),
                            (("nest.budgets=[2]",), "nest.budgets"),
                            (("nest.budgets=[1]", "loss.router_bias_rate=0.1"), "router_bias_rate"),
                            (("nest.budgets=[1]", "lora.rank=2", 'lora.targets=["q_proj"]'), "[lora]"),
                            (("nest.budgets=[1]", "--ranks", "2", "parallel.zero=2"), "parallel.zero=1")):
            self.assertRefused(self.train(self.nested, "out", *words), says)
        self.assertRefused(self.train(MODEL, "out", "nest.budgets=[1]"), "not a nested model")


if __name__ == "__main__":
    main()
