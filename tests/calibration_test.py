"""braid quantize --data: input scales are what transformers measures, in ModelOpt's layout, and only there; methods with
data come closer to the model than rounding to the nearest; budgets of bits are met.

usage: calibration_test.py BRAID
"""
import json
import re
import shutil
import struct

from support.program import DATA, Case, braid, main
from support.tensors import tensors

MODEL, TEXT = DATA / "tiny-chat", DATA / "calibration" / "text.txt"


def inputs(found):
    scales = {}
    for name, (dtype, shape, data) in found.items():
        if name.endswith(".input_scale"):
            assert (dtype, shape) == ("F32", []), name
            scales[name.removesuffix(".input_scale")] = struct.unpack("<f", data)[0]
    return scales


class Calibration(Case):
    def quantised(self, name, *flags):
        folder = self.place / name
        done = braid("quantize", MODEL, folder, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.said = done.stderr
        return tensors(folder), done.stdout

    def setUp(self):
        self.place = self.new_folder()

    def test_scales_are_those_of_transformers(self):
        with open(DATA / "calibration" / "amax.json", encoding="utf-8") as file:
            golden = json.load(file)  # tools/oracle/input_scales.py --json
        for form, largest in (("nvfp4", 6 * 448), ("fp8", 448)):
            found, text = self.quantised(form, "--format", form, "--data", TEXT)
            scales = inputs(found)
            matrices = {name.removesuffix(".weight_scale") for name in found if name.endswith(".weight_scale")}
            self.assertEqual(matrices, set(scales))
            self.assertNotIn("without an input_scale", text)
            unseen = set()
            for name, scale in scales.items():
                want = golden.get(name)
                if want is None:  # an expert that no token chose gets the largest of its layer
                    unseen.add(name)
                    alike = re.compile(re.sub(r"\\\.\d+(\\\.\w+)$", r"\\.[0-9]+\1", re.escape(name)) + r"\Z")
                    want = max(value for other, value in golden.items() if alike.match(other))
                self.assertAlmostEqual(scale * largest / want, 1, 4, name)
            self.assertGreater(len(scales) - len(unseen), 40)
            self.assertGreater(len({round(scales[name], 9) for name in scales if ".experts." in name}), 20)
            with open(self.place / form / "config.json", encoding="utf-8") as file:
                self.assertEqual(json.load(file)["quantization_config"]["quant_algo"], form.upper())
            # The same weights as without a text, which makes NVFP4 weight-only.
            plain, _ = self.quantised(form + "-plain", "--format", form)
            self.assertEqual("try --data" in self.said, form == "fp8")
            self.assertEqual({k: v for k, v in found.items() if not k.endswith(".input_scale")}, plain)
            if form == "nvfp4":
                with open(self.place / "nvfp4-plain" / "config.json", encoding="utf-8") as file:
                    self.assertEqual(json.load(file)["quantization_config"]["quant_algo"], "W4A16_NVFP4")
            # Quantised again, it loses the scales without a text, and gets new ones with one.
            again = braid("quantize", self.place / form, self.place / (form + "-again"), "--format", form)
            self.assertEqual((again.returncode, inputs(tensors(self.place / (form + "-again")))), (0, {}), again.stderr)
            again = braid("quantize", self.place / form, self.place / (form + "-twice"), "--format", form, "--data", TEXT)
            self.assertEqual(set(inputs(tensors(self.place / (form + "-twice")))), set(scales), again.stderr)
            # A folder with scales runs like one without.
            ids = ("--ids", "5,6,7,8", "-n", "3", "--ignore-eos", "--temp", "0")
            answers = [braid("run", self.place / name, *ids).stdout for name in (form, form + "-plain")]
            self.assertEqual(answers[0], answers[1])
            self.assertTrue(answers[0])

    def test_what_does_not_fit_is_in_the_table(self):
        done = braid("quantize", DATA / "hf" / "nemotron-h-latent-mtp", self.place / "out", "--format", "nvfp4")
        self.assertRegex(done.stdout, r"expert_down +as it was +48 .* has rows of 58 values, .*; fp8 holds them")
        self.assertRegex(done.stdout, r"expert_up +as it was +48 .* is in one module with expert_down")
        self.assertEqual(done.stderr.strip(), "")

    def divergence(self, folder):
        done = braid("eval", folder, "-c", "256", "--text", TEXT, "--kl", MODEL, "--dtype", "f32", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["kl"]

    def test_methods_with_data_come_closer_and_say_so(self):
        rows = {}
        for method in ("rtn", "gptq", "auto"):
            words = () if method == "rtn" else ("--data", TEXT, "--method", method, "--length", "64", "--samples", "8")
            _, text = self.quantised(method, "--format", "int3", *words, "--json")
            rows[method] = json.loads(text)
        self.assertEqual({row["bits_per_value"] for row in rows.values()}, {rows["rtn"]["bits_per_value"]})
        for method in ("gptq", "auto"):
            self.assertEqual((rows[method]["method"], rows[method]["samples"]), (method, 8))
            for row in rows[method]["outputs"]:
                self.assertLessEqual(row["chosen_error"], row["nearest_error"] * 1.0001, row)
            self.assertGreater(sum(row["feedback"] for row in rows[method]["outputs"]), 10)
        self.assertLess(self.divergence(self.place / "gptq"), 0.8 * self.divergence(self.place / "rtn"))
        answers = braid("run", self.place / "auto", "--ids", "5,6,7,8", "-n", "3", "--ignore-eos", "--temp", "0")
        self.assertEqual(answers.returncode, 0, answers.stderr)

    def test_a_budget_of_bits_is_met_by_the_true_bits(self):
        words = ("--data", TEXT, "--length", "48", "--samples", "2", "--json")
        whole = json.loads(self.quantised("whole", "--format", "int8", "--json")[1])
        most = whole["bits_per_value"]
        kl = []
        for budget in (most - 2, most - 1):
            out = json.loads(self.quantised(f"bits-{budget}", "--format", "int4", "--bits", f"{budget:.6f}", *words)[1])
            self.assertLessEqual(out["bits_per_value"], budget + 1e-5)
            self.assertGreater(out["bits_per_value"], budget - 0.5)
            self.assertGreaterEqual(len({row["format"] for row in out["choice"]}), 2)
            self.assertLessEqual(out["choice_kl_bound"], out["choice_kl"] * (1 + 1e-9))
            self.assertAlmostEqual(sum(row["kl"] for row in out["choice"]), out["choice_kl"], 9)
            kl.append(out["choice_kl"])
        self.assertLess(kl[1], kl[0])

    def test_the_prediction_block_counts(self):
        """--mtp: its matrices are rounded, drafts still come from them, and a budget of bits may be one they are needed for."""
        data = ("--data", TEXT, "--samples", "2", "--length", "32")
        bits = lambda *words: json.loads(braid("quantize", "tiny", self.place / "-".join(map(str, words)).replace("/", "_"), "--json", *words).stdout)
        kept, all_of = bits("--format", "mxfp4"), bits("--format", "mxfp4", "--mtp")
        self.assertLess(all_of["bits_per_value"], kept["bits_per_value"] - 0.5)
        for name, quantised in (("--format-mxfp4", False), ("--format-mxfp4---mtp", True)):
            found = tensors(self.place / name)
            self.assertEqual(any(n.startswith("mtp.") and n.endswith("_packed") for n in found), quantised)
            values = sum(4 * len(d.data) // 2 if n.endswith("_packed") else 0 for n, d in found.items())
            self.assertGreater(values, 0)
        answer = json.loads(braid("run", self.place / "--format-mxfp4---mtp", "-p", "17 + 25 = 42\n" * 6, "-n", 24, "--temp", 0,
                                  "--ignore-eos", "--draft", "mtp", "--json").stdout)
        self.assertGreater(answer["timings"]["draft_n"], 0)
        least = self.refused_bits(*data, "--bits", "6.5")
        self.assertGreater(least, 6.5)
        chosen = bits("--format", "int4", *data, "--bits", "6.5", "--mtp")
        self.assertLessEqual(chosen["bits_per_value"], 6.5)
        self.assertGreater(chosen["bits_per_value"], 5.5)

    def refused_bits(self, *words):
        answer = braid("quantize", "tiny", self.place / "none", "--format", "int4", *words)
        self.assertRefused(answer, "no choice of formats has so few bits", "--mtp")
        return float(re.search(r"expected at least ([\d.]+)", answer.stderr)[1])

    def test_refusals_of_methods(self):
        out = self.place / "out"
        data = ("--data", TEXT)
        for words, says in ((("--method", "gptq"), "needs calibration data"), (("--bits", "5"), "needs calibration data"),
                            ((*data, "--bits", "17"), "not a budget"), ((*data, "--bits", "nan"), "--bits"),
                            ((*data, "--format", "int4", "--bits", "2"), "at least"),
                            ((*data, "--samples", "4"), "[--samples] is of calibration, and --method rtn has none"),
                            ((*data, "--method", "gptq", "--samples", "0"), "--samples"),
                            ((*data, "--method", "gptq", "--length", "100000"), "positions"),
                            ((*data, "--method", "auto", "--samples", "3"), "at least 4")):
            self.assertRefused(braid("quantize", MODEL, out, *words), says)
            self.assertFalse(out.exists())

    def test_a_default_length_fits_the_model(self):
        model = self.place / "model"
        shutil.copytree(MODEL, model)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 48}))
        words = ("quantize", model, self.place / "out", "--data", TEXT, "--method", "gptq", "--samples", 2)
        self.assertRefused(braid(*words, "--length", 49), "--length", "expected at most 48")
        self.assertEqual(braid(*words).returncode, 0)

    def test_refusals(self):
        out = self.place / "out"
        for words, says in ((("--format", "int4", "--data", TEXT), "int4 has no scales of inputs"),
                            (("--format", "fp8", "--scales", "mse"), "fp8 has no scales of blocks"),
                            (("--data", self.place / "none.txt"), "none.txt"), (("--data", self.place), "directory")):
            self.assertRefused(braid("quantize", MODEL, out, *words), says)
            self.assertFalse(out.exists())
        empty = self.place / "empty.txt"
        empty.write_text(" \n")
        self.assertRefused(braid("quantize", MODEL, out, "--data", empty), "has no text")
        out.mkdir()
        (out / "x").write_text("x")
        self.assertRefused(braid("quantize", MODEL, out, "--data", TEXT), "out")


if __name__ == "__main__":
    main()
