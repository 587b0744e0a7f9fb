"""braid quantize --head-format, --embedding-format: the tensors that files hold, the bits that are printed, and that every
way to use such a model (passes, losses, adapters) computes with the values that the codes stand for, which a
GGUF file in F32 and a folder made from it hold as numbers.

usage: quantize_cli_test.py BRAID
"""
import csv
import json

from support.program import DATA, Case, braid, main
from support.tensors import read_header, stack_experts, tensors, write_header

TINY = DATA / "tiny-chat"
HEAD, TABLE = "lm_head.weight", "backbone.embeddings.weight"
# format of the layers, of the head and of the embedding
CHOICES = (("nvfp4", "fp8", "nvfp4"), ("int4", "int8", "int4"), ("int8", "int3", "mxfp4"), ("nvfp4", "nvfp4", "fp8"))
BITS = {"nvfp4": 4.5, "fp8": 8, "int4": 4.5, "int8": 8.5, "int3": 3.5, "mxfp4": 4.25}


def config_of(folder):
    return json.loads((folder / "config.json").read_text())["quantization_config"]


class Tables(Case):
    def setUp(self):
        self.place = self.new_folder()

    def run_ok(self, *words):
        done = braid(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def quantised(self, name, *words, model=TINY):
        return json.loads(self.run_ok("quantize", model, self.place / name, "--json", *words))

    def losses(self, folder, out, *targets):
        recipe = self.place / "r.toml"
        recipe.write_text(f'init = "{folder}"\nsteps = 3\nbatch = 2\nlength = 16\ndtype = "f32"\nout = "{out}"\n[optimizer]\nlr = 0.01\n'
                          f'[lora]\nrank = 2\ntargets = {json.dumps(targets)}\n[data]\nkind = "markov"\n')
        self.run_ok("train", recipe, "--threads", "1")
        with open(out / "loss.csv", encoding="utf-8") as file:
            return [float(row["loss"]) for row in csv.DictReader(file)]

    def test_every_use_computes_with_what_the_codes_stand_for(self):
        before = tensors(TINY)
        for layers, head, table in CHOICES:
            name = "-".join((layers, head, table))
            report = self.quantised(name, "--format", layers, "--head-format", head, "--embedding-format", table)
            groups = {g["role"]: g for g in report["groups"]}
            for role, form, tensor in (("head", head, HEAD), ("embedding", table, TABLE)):
                rows, cols = before[tensor].shape
                self.assertEqual((groups[role]["format"], groups[role]["values"]), (form, rows * cols), name)
                self.assertAlmostEqual(groups[role]["bits"], BITS[form], 1, name)
            found = tensors(self.place / name)
            stored = sum(len(t.data) for t in found.values())
            self.assertEqual(report["bytes"], stored)
            values = sum(len(t.data) // {"BF16": 2, "F32": 4}[t.dtype] for t in before.values())
            self.assertAlmostEqual(report["bits_per_value"], 8 * stored / values, 6)
            self.run_ok("convert", self.place / name, self.place / f"{name}.gguf", "--type", "f32")
            wide = self.place / f"{name}-wide"
            self.run_ok("convert", self.place / f"{name}.gguf", wide, "--type", "f32")
            self.assertNotEqual(tensors(wide)[HEAD].data, before[HEAD].data)
            scores = [json.loads(self.run_ok("eval", folder, "--text", DATA / "calibration" / "text.txt", "--dtype", "f32", "--json"))
                      for folder in (self.place / name, wide)]
            self.assertAlmostEqual(scores[0]["perplexity"] / scores[1]["perplexity"], 1, 5, name)
            coded, plain = (self.losses(folder, self.place / f"{folder.name}-adapter", "lm_head", "in_proj")
                            for folder in (self.place / name, wide))
            self.assertEqual(len(coded), 3)
            self.assertNotEqual(coded[0], coded[2])
            for a, b in zip(coded, plain):
                self.assertAlmostEqual(a, b, 4, name)

    def test_a_second_rounding_is_noted(self):
        first = self.quantised("once", "--format", "nvfp4")
        self.assertFalse([note for note in first["notes"] if "second time" in note])
        rounded = sum(group["tensors"] for group in first["groups"])
        second = self.quantised("twice", "--format", "nvfp4", model=self.place / "once")
        said = [note for note in second["notes"] if "second time" in note]
        self.assertEqual(len(said), 1)
        self.assertIn(f"rounded for the second time, matrices that were nvfp4 already: {rounded}; the errors are of this rounding alone", said[0])
        self.assertIn(f"note: {said[0]}\n", self.run_ok("quantize", self.place / "once", self.place / "table", "--format", "nvfp4"))

    def test_keep_and_what_metadata_say(self):
        self.quantised("kept", "--recipe", "lightning-nvfp4", "--head-format", "keep")
        self.assertEqual(tensors(self.place / "kept")[HEAD], tensors(TINY)[HEAD])
        self.assertIn("lm_head", config_of(self.place / "kept")["ignore"])
        report = self.quantised("table", "--format", "nvfp4", "--embedding-format", "nvfp4")
        config = config_of(self.place / "table")
        self.assertTrue(config["nvfp4_embed"])
        self.assertEqual(config["config_groups"]["group_0"]["targets"], ["Linear", "Embedding"])
        self.assertTrue(any("nvfp4_embed" in note for note in report["notes"]))
        self.quantised("mixed", "--format", "nvfp4", "--head-format", "fp8")
        mixed = config_of(self.place / "mixed")
        self.assertEqual(mixed["quant_algo"], "MIXED_PRECISION")
        self.assertEqual(mixed["quantized_layers"]["lm_head"], {"quant_algo": "FP8"})
        self.assertEqual([g["targets"] for g in mixed["config_groups"].values() if g["weights"]["num_bits"] == 8], [["lm_head"]])
        self.assertNotIn("lm_head", mixed["ignore"])

    def test_a_budget_of_bits_leaves_them_alone(self):
        words = ("--format", "int4", "--head-format", "int8", "--embedding-format", "int4", "--data", DATA / "calibration" / "text.txt",
                 "--samples", "2", "--length", "32", "--bits", "8.5")
        report = self.quantised("bits", *words)
        self.assertLessEqual(report["bits_per_value"], 8.5)
        self.assertGreater(report["bits_per_value"], 7.5)
        self.assertFalse([group for group in report["choice"] if group["layer"] < 0])
        formats = {g["role"]: g["format"] for g in report["groups"]}
        self.assertEqual((formats["head"], formats["embedding"]), ("int8", "int4"))

    def test_a_tied_head_is_the_embedding(self):
        self.run_ok("new", self.tied(), self.place / "tied")
        self.assertNotIn(HEAD, tensors(self.place / "tied"))
        out = self.place / "out"
        self.assertRefused(braid("quantize", self.place / "tied", out, "--format", "int4", "--head-format", "int4"),
                           "[--head-format] the head is the embedding table", "--embedding-format")
        self.assertFalse(out.exists())
        report = self.quantised("both", "--format", "int4", "--embedding-format", "int8", model=self.place / "tied")
        self.assertTrue(any("head is the embedding" in note for note in report["notes"]), report["notes"])
        self.run_ok("convert", self.place / "both", self.place / "both.gguf", "--type", "f32")
        self.run_ok("convert", self.place / "both.gguf", self.place / "wide", "--type", "f32")
        coded, plain = (self.losses(self.place / name, self.place / f"{name}-adapter", "q_proj") for name in ("both", "wide"))
        for a, b in zip(coded, plain):
            self.assertAlmostEqual(a, b, 4)

    def tied(self):
        path = self.place / "config.json"
        path.write_text(json.dumps({"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2,
                                    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
                                    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}))
        return path

    def test_stacks_of_experts_are_calibrated_like_experts_one_by_one(self):
        stacked = self.place / "stacked"
        stack_experts(TINY, stacked)
        text = ("--data", DATA / "calibration" / "text.txt")
        for words in (("--format", "nvfp4", *text), ("--format", "nvfp4", "--method", "gptq", "--samples", "4", "--length", "32", *text),
                      ("--format", "nvfp4", "--bits", "11", "--samples", "2", "--length", "32", *text)):
            name = words[2].strip("-")
            reports = [self.quantised(f"{name}-{model.name}", *words, model=model) for model in (TINY, stacked)]
            self.assertTrue(tensors(self.place / f"{name}-{TINY.name}") == tensors(self.place / f"{name}-stacked"), name)
            for key in ("groups", "misfits", "bytes", "bits_per_value"):
                self.assertEqual(reports[0][key], reports[1][key], name)
            self.assertTrue([g for g in reports[1]["groups"] if g["role"] == "expert_down"], name)

    def test_a_code_that_is_not_finite_is_named(self):
        self.quantised("fp8", "--format", "fp8")
        path = self.place / "fp8" / "model.safetensors"
        header, body = read_header(path)
        name = "backbone.layers.0.mixer.in_proj.weight"
        at, cols = header[name]["data_offsets"][0], header[name]["shape"][1]
        write_header(path, header, body[:at + 3 * cols] + b"\xff" + body[at + 3 * cols + 1:])
        ids = self.place / "ids.jsonl"
        ids.write_text('{"ids": [5, 6, 7, 8]}\n')
        for words in (("run", self.place / "fp8", "--ids", "5,6,7", "-n", "1"), ("score", self.place / "fp8", "--jsonl", ids)):
            self.assertRefused(braid(*words), f"[{name}] a weight is damaged; got a value that is not finite in row 3, fp8")

    def test_refusals(self):
        for words, says in ((("--format", "nvfp4", "--head-format", "int8"), "[--head-format] is of another layout than nvfp4"),
                            (("--format", "int4", "--embedding-format", "fp8"), "expected mxfp4, int8, int4 or int3"),
                            (("--head-format", "int5"), "[--head-format]")):
            self.assertRefused(braid("quantize", TINY, self.place / "out", *words), says)
            self.assertFalse((self.place / "out").exists())


if __name__ == "__main__":
    main()
