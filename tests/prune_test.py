"""braid prune: a folder within its target that loads again, its table and JSON, and what it refuses; with --pattern
the same folder with zeros in some places, and what fine-tuning leaves of them.

usage: prune_test.py BRAID
"""
import json
import math
import re
import shutil
import struct

from support.program import DATA, Case, braid, main
from support.tensors import tensors, write_header

MODEL, TEXT = DATA / "tiny-chat", DATA / "calibration" / "text.txt"
QUICK = ("--length", "96", "-t", "1")
FEW = ("--quick", "2", "--candidates", "2")  # of the search for a smaller model


def prune(out, *words, model=MODEL, data=TEXT):
    return braid("prune", model, out, "--data", data, *QUICK, *(() if "--pattern" in words else FEW), *words)


def values(folder):
    """Of all tensors of the folder."""
    return sum(math.prod(tensor.shape) for tensor in tensors(folder).values())


def zeros(tensor):
    """Where a matrix in BF16 is zero, row by row."""
    rows, cols = tensor.shape
    assert tensor.dtype == "BF16", tensor.dtype
    values = struct.unpack(f"<{rows * cols}H", tensor.data)
    return [[values[r * cols + c] & 0x7fff == 0 for c in range(cols)] for r in range(rows)]


class Prune(Case):
    def setUp(self):
        self.place = self.new_folder()

    def test_folder_meets_the_target_and_loads(self):
        out = self.place / "small"
        done = prune(out, "--target", "params=0.8", "--axes", "hidden,experts,mamba_heads,layers", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        before, after = told["before"], told["after"]
        self.assertEqual(values(MODEL), before["params"])
        self.assertEqual(values(out), after["params"])
        self.assertLessEqual(after["params"], 0.8 * before["params"])
        self.assertLessEqual(after["state_bytes"], before["state_bytes"])
        self.assertGreater(after["tokens_s"], 0)
        self.assertNotEqual(after["loss"], before["loss"])
        # The best of those tried, which are cut along these axes alone, and were cut alone first.
        self.assertEqual(min(c["loss"] for c in told["tried"]), told["tried"][0]["loss"])
        self.assertEqual(told["tried"][0]["sizes"], after["sizes"])
        self.assertEqual({c["axis"] for c in told["single"]}, {"hidden", "experts", "mamba_heads", "layers"})
        for axis, size in before["sizes"].items():
            if axis not in ("hidden", "experts", "mamba_heads", "layers"):
                self.assertEqual(after["sizes"][axis], size, axis)
        with open(out / "config.json", encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual(config["hidden_size"], after["sizes"]["hidden"])
        self.assertEqual(config["n_routed_experts"], after["sizes"]["experts"])
        self.assertEqual(config["mamba_num_heads"], after["sizes"]["mamba_heads"])
        self.assertEqual(len(config["layers_block_type"]), after["sizes"]["layers"])
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
            self.assertEqual((out / name).read_bytes(), (MODEL / name).read_bytes(), name)
        answer = braid("run", out, "-p", "Hello", "-n", "4", "--temp", "0")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        info = json.loads(braid("info", out, "--json").stdout)
        self.assertEqual(info["parameters"]["total"] if "parameters" in info else after["params"], after["params"])

    def test_scores_and_seeds(self):
        # Of a trained model: what it was trained to say.
        made = braid("data", "synth", "--out", self.place / "synth", "--train", "24", "--valid", "1", "--tasks", "1")
        self.assertEqual(made.returncode, 0, made.stderr)
        lines = self.place / "synth" / "train.jsonl"
        cut = ("--target", "params=0.85", "--axes", "expert_ffn", "--min-width", "0.25", "--json")
        losses = {}
        for score in ("minitron", "reap", "taylor", "random"):
            done = prune(self.place / score, *cut, "--score", score, model="tiny", data=lines)
            self.assertEqual(done.returncode, 0, done.stderr)
            losses[score] = json.loads(done.stdout)["after"]["loss"]
        for score in ("minitron", "reap", "taylor"):
            self.assertLess(losses[score], losses["random"], losses)
        blind = prune(self.place / "ungrouped", *cut, "--score", "ungrouped", model="tiny", data=lines)
        self.assertEqual(json.loads(blind.stdout)["after"]["loss"], losses["minitron"])  # no Mamba head is cut
        self.assertOneLine(braid("nest", "tiny", self.place / "n", "--data", lines, "--score", "ungrouped"), "--score")
        again = prune(self.place / "again", *cut, model="tiny", data=lines)
        self.assertEqual(json.loads(again.stdout)["after"]["loss"], losses["minitron"])
        for name in ("model.safetensors", "config.json"):
            self.assertEqual((self.place / "again" / name).read_bytes(), (self.place / "minitron" / name).read_bytes())

    def test_bytes_of_mixed_types(self):
        # Expert matrices in F32, which are cut, and all others in BF16.
        mixed = self.place / "mixed"
        shutil.copytree(MODEL, mixed)
        header, body = {}, b""
        for name, tensor in sorted(tensors(MODEL).items(), key=lambda entry: ".experts." not in entry[0]):
            data, dtype = tensor.data, tensor.dtype
            if ".experts." in name and dtype == "BF16":
                data, dtype = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)), "F32"
            header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": [len(body), len(body) + len(data)]}
            body += data
        write_header(mixed / "model.safetensors", header, body)
        whole = sum(len(tensor.data) for tensor in tensors(mixed).values())
        for axes in ("hidden,mamba_heads", "expert_ffn,experts,layers"):
            out = self.place / axes
            done = prune(out, "--target", "gib=85%", "--axes", axes, "--json", model=mixed)
            self.assertEqual(done.returncode, 0, done.stderr)
            told = json.loads(done.stdout)
            stored = sum(len(tensor.data) for tensor in tensors(out).values())
            self.assertLessEqual(stored, 0.85 * whole)
            self.assertEqual(told["tried"][0]["bytes"], stored)  # by arithmetic, before it was written

    def test_table(self):
        done = prune(self.place / "small", "--target", "gib=90%", "--axes", "expert_ffn")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("tried", "expert_ffn", "before", "after", "tokens/s", "KV/token", "of the parameters"):
            self.assertIn(word, done.stdout)

    def test_data_of_all_kinds(self):
        lines = self.place / "lines.jsonl"
        lines.write_text("".join(json.dumps({"text": line}) + "\n" for line in TEXT.read_text().splitlines() if line))
        corpus = self.place / "corpus"
        self.assertEqual(braid("data", "tokenize", TEXT, "-o", corpus, "--tokenizer", MODEL).returncode, 0)
        for data in (lines, corpus):
            done = prune(self.place / ("of-" + data.name), "--target", "params=0.95", "--axes", "shared_ffn", data=data)
            self.assertEqual(done.returncode, 0, done.stderr)

    def check_pattern(self, pattern, density, rows):
        """`rows` are the zeros of a matrix."""
        kept = sum(not zero for row in rows for zero in row) / (len(rows) * len(rows[0]))
        self.assertAlmostEqual(kept, density, delta=0.02)
        if pattern == "2:4":
            for row in rows:
                for c in range(0, len(row), 4):
                    self.assertGreaterEqual(sum(row[c:c + 4]), 2)
        if pattern in ("vector-wise", "block"):
            for first in range(0, len(rows), 16):
                self.assertTrue(all(row == rows[first] for row in rows[first:first + 16]))
        if pattern == "shfl-bw":
            # Rows of a group have the same zeros; of 16 rows each, and one smaller group where 16 does not divide.
            alike = {}
            for row in rows:
                alike[tuple(row)] = alike.get(tuple(row), 0) + 1
            self.assertLessEqual(sum(n % 16 != 0 for n in alike.values()), 2)

    def test_patterns(self):
        kept = {}
        for pattern, density in (("unstructured", 0.25), ("2:4", 0.5), ("shfl-bw", 0.25), ("vector-wise", 0.25),
                                 ("block", 0.25)):
            out = self.place / pattern.replace(":", "-")
            words = {"2:4": (), "unstructured": ("--density", density)}.get(pattern, ("--density", density, "--block", "16"))
            done = prune(out, "--pattern", pattern, *words, "--score", "magnitude", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            told = json.loads(done.stdout)
            self.assertEqual(told["misfits"], [])
            self.assertAlmostEqual(told["pruned"]["density"], density, delta=0.01)
            self.assertNotEqual(told["loss"]["after"], told["loss"]["before"])
            kept[pattern] = told["pruned"]["retained"]
            before, after = tensors(MODEL), tensors(out)
            self.assertEqual(before.keys(), after.keys())
            pruned = 0
            for name, (dtype, shape, data) in before.items():
                self.assertEqual(after[name][:2], (dtype, shape))
                if data == after[name].data:
                    continue
                pruned += shape[0] * shape[1]
                # Every value is what it was, or zero.
                for i in range(0, len(data), 2):
                    if data[i:i + 2] != after[name].data[i:i + 2]:
                        self.assertEqual(after[name].data[i:i + 2], b"\0\0")
                self.check_pattern(pattern, density, zeros(after[name]))
                for word in ("embeddings", "lm_head", "gate.weight", "conv1d"):
                    self.assertNotIn(word, name)
            self.assertEqual(pruned, told["pruned"]["values"])
            config = json.loads((out / "config.json").read_text())
            sparsity = config.pop("sparsity")
            self.assertEqual(sparsity["pattern"], pattern)
            self.assertAlmostEqual(sparsity["density"], told["pruned"]["density"])
            self.assertEqual(config, json.loads((MODEL / "config.json").read_text()))
        self.assertGreater(kept["unstructured"], kept["shfl-bw"])
        self.assertGreaterEqual(kept["shfl-bw"], kept["vector-wise"])
        self.assertGreater(kept["vector-wise"], kept["block"])

    def test_activations_lower_the_loss_and_training_keeps_the_zeros(self):
        made = braid("data", "synth", "--out", self.place / "synth", "--train", "24", "--valid", "1", "--tasks", "1")
        self.assertEqual(made.returncode, 0, made.stderr)
        lines = self.place / "synth" / "train.jsonl"
        losses = {}
        for score in ("magnitude", "activations"):
            done = prune(self.place / score, "--pattern", "unstructured", "--density", "0.5", "--samples", "16", "--score",
                         score, model="tiny", data=lines)
            self.assertEqual(done.returncode, 0, done.stderr)
            for word in ("role", "importance kept", "mamba_in", "expert_down", "all", "are zeros"):
                self.assertIn(word, done.stdout)
            losses[score] = float(done.stdout.split("->")[1].split()[0])
        self.assertLess(losses["activations"], losses["magnitude"])
        folder, recipe = self.place / "activations", self.place / "tune.toml"
        recipe.write_text('init = "activations"\nsteps = 2\nbatch = 1\nlength = 96\n[data]\nkind = "jsonl"\n'
                          'path = "synth/train.jsonl"\n[optimizer]\nlr = 1e-3\n')
        for kind, keeps in (("muon", "true"), ("adamw", "true"), ("adamw", "false")):
            run = self.place / f"{kind}-{keeps}"
            done = braid("train", recipe, f"out={run}", f"optimizer.kind={kind}", f"optimizer.keep_zeros={keeps}",
                         "-t", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            name = "backbone.layers.1.mixer.shared_experts.up_proj.weight"
            before, after = tensors(folder)[name], tensors(run)[name]
            self.assertNotEqual(before.data, after.data)
            self.assertEqual(zeros(before) == zeros(after), keeps == "true")

    def test_products_skip_zeros_in_groups(self):
        out = self.place / "sparse"
        done = prune(out, "--pattern", "shfl-bw", "--density", "0.25", "--block", "16", "--score", "magnitude")
        self.assertEqual(done.returncode, 0, done.stderr)
        answers, read, chosen = {}, {}, {}
        for zeros in ("skip", "multiply"):
            answer = braid("run", out, "-p", "Hello", "-n", "12", "--temp", "0", "--zeros", zeros, BRAID_VERBOSE="dispatch")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            answers[zeros], chosen[zeros] = answer.stdout, answer.stderr
            explained = braid("bench", out, "--explain", "--zeros", zeros)
            self.assertEqual(explained.returncode, 0, explained.stderr)
            read[zeros] = int(re.search(r"^total +(\d+) ", explained.stdout, re.M)[1])
        self.assertRegex(chosen["skip"], r"(?m)^zeros: \d+ of \d+ matrices skip theirs; 2[5-9]\.\d% of values stay")
        self.assertIn("dispatch linear_fwd: groups_bf16 (bf16_chain)", chosen["skip"])
        self.assertNotIn("zeros:", chosen["multiply"])
        self.assertNotIn("linear_fwd: groups", chosen["multiply"])
        self.assertLess(read["skip"], 0.9 * read["multiply"])
        # A model without zeros has nothing to skip; that of training multiplies by all.
        self.assertNotIn("zeros:", braid("run", MODEL, "-p", "Hello", "-n", "2", "--zeros", "skip", BRAID_VERBOSE="dispatch").stderr)
        exact = braid("run", out, "-p", "Hello", "-n", "2", "--exact", BRAID_VERBOSE="dispatch")
        self.assertNotIn("linear_fwd: groups", exact.stderr)
        for words, says in ((("--exact",), "[--zeros] --exact multiplies by all values"),
                            (("--adapter", "nowhere"), "[--zeros] with an adapter"), (("--tp", "2"), "[--zeros] ranks")):
            self.assertRefused(braid("run", out, "-p", "Hello", "--zeros", "skip", *words), says)

    def test_refusals_of_patterns(self):
        out = self.place / "out"
        for words, says in ((("--pattern", "shfl-bw", "--target", "params=0.5"), "cannot be used together"),
                            (("--pattern", "shfl-bw"), "--density"),
                            (("--pattern", "shfl-bw", "--density", "0"), "--density"),
                            (("--pattern", "shfl-bw", "--density", "1.5"), "--density"),
                            (("--pattern", "2:4", "--density", "0.25"), "does not go with 2:4"),
                            (("--pattern", "2:4", "--block", "16"), "[--block] does nothing with --pattern 2:4"),
                            (("--pattern", "unstructured", "--density", "0.5", "--block", "16"), "does nothing with --pattern unstructured"),
                            (("--pattern", "3:4", "--density", "0.25"), "--pattern"),
                            (("--pattern", "block", "--density", "0.5", "--block", "0"), "--block"),
                            (("--pattern", "block", "--density", "0.5", "--score", "taylor"), "--score"),
                            (("--target", "params=0.8", "--score", "magnitude"), "--score"),
                            (("--target", "params=0.8", "--density", "0.5"), "--density"),
                            (("--pattern", "2:4", "--quick", "4"), "--quick"),
                            (("--pattern", "2:4", "--min-depth", "0.9"), "--min-depth"),
                            (("--target", "params=0.8", "--block", "8"), "--block"),
                            (("--pattern", "2:4", "--axes", "layers"), "--axes")):
            self.assertRefused(prune(out, *words), says)
            self.assertFalse(out.exists())
        self.assertRefused(prune(out, "--pattern", "2:4", model=DATA / "hf" / "nemotron-h-modelopt-nvfp4"), "quantised")

    def test_refusals(self):
        out = self.place / "out"
        target = ("--target", "params=0.8")
        short = self.place / "short.txt"
        short.write_text("too short")
        for words, says in (((), "--target"),
                            (("--target", "size=3"), "no such target"),
                            (("--target", "params=1"), "meets it as it is"),
                            (("--target", "params=0.01"), "as the nearest"),
                            ((*target, "--axes", "depth"), "no such axis"),
                            ((*target, "--axes", "ffn"), "cannot be cut along ffn"),
                            ((*target, "--min-width", "0"), "--min-width"),
                            ((*target, "--samples", "0"), "--samples"),
                            ((*target, "--axes", "shared_ffn"), "no combination of cuts")):
            self.assertRefused(prune(out, *words), says)
            self.assertFalse(out.exists())
        self.assertRefused(prune(out, *target, data=short), "too little data")
        self.assertRefused(prune(out, *target, data=self.place / "none.txt"), "none.txt")
        self.assertRefused(braid("prune", MODEL, out, *target), "--data")
        self.assertRefused(prune(out, *target, model=DATA / "hf" / "nemotron-h-modelopt-nvfp4"), "quantised")
        self.assertRefused(prune(out, *target, model=DATA / "huginn"), "recurrent depth")
        self.assertRefused(prune(self.place / "a" / "b", *target), "a")
        out.mkdir()
        (out / "x").write_text("x")
        self.assertRefused(prune(out, *target), "out")


if __name__ == "__main__":
    main()
