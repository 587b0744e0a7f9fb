"""braid info, list, new and eval through the program: folders of random weights that run, a cache made by hand, bad
input in one line.

usage: shapes_test.py BRAID
"""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time

from support.program import BRAID, ENVIRONMENT, Case, braid, main

COMMON = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
          "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 512, "eos_token_id": 2}
SMALL = {
    "llama": {**COMMON, "model_type": "llama", "rms_norm_eps": 1e-5},
    "qwen3": {**COMMON, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
              "moe_intermediate_size": 48, "norm_topk_prob": True},
    "nemotron": {**COMMON, "model_type": "nemotron", "norm_eps": 1e-5},
    "gpt2": {"model_type": "gpt2", "vocab_size": 256, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 128},
    "dense": {**COMMON, "model_type": "nemotron_h", "hybrid_override_pattern": "M-*M", "mamba_num_heads": 4,
              "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "time_step_limit": [0.0, math.inf]},
}


def byte_tokenizer():
    """One token per byte, spelled in GPT-2's alphabet."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    letters = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"added_tokens": [], "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "vocab": {letters[b]: b for b in range(256)}, "merges": []}}


class Shapes(Case):
    def setUp(self):
        self.place = self.new_folder()

    def path(self, *names):
        return str(self.place.joinpath(*names))

    def write(self, name, value):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))
        return self.path(name)

    def braid(self, *words, **variables):
        return braid(*words, **{"HF_HUB_CACHE": self.path("hub"), **variables})

    def good(self, *words, **variables):
        done = self.braid(*words, **variables)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout

    def bad(self, *words, says, **variables):
        self.assertRefused(self.braid(*words, **variables), says)

    def test_new_folders_run_in_every_format(self):
        for name, config in SMALL.items():
            source = self.write(f"{name}.json", config)
            for form in ("bf16", "fp8", "nvfp4"):
                out = self.path(f"{name}-{form}")
                if name == "gpt2" and form != "bf16":
                    self.bad("new", source, out, "--format", form, says="nothing in this family")
                    continue
                self.good("new", source, out, "--format", form)
                answer = json.loads(self.good("run", out, "--ids", "1,2,3", "-n", "3", "--ignore-eos", "--json"))
                self.assertEqual(len(answer["ids"]), 3)
                stored = json.loads(self.good("info", out, "--json"))["bytes"]
                self.assertEqual(sum(stored["stored"].values()), stored[form])
                self.assertEqual(form == "nvfp4", "NVFP4" in stored["stored"])

    def test_published_shape_with_its_first_layers_and_older_spelling(self):
        out = self.path("slice")
        self.good("new", "hybrid-8.5m", out, "--layers", "4", "--legacy-config", "--seed", "3")
        with open(os.path.join(out, "config.json")) as file:
            config = json.load(file)
        self.assertEqual(config["hybrid_override_pattern"], "MEM*")
        self.assertEqual((config["num_hidden_layers"], config["mamba_n_groups"]), (4, 2))
        self.assertNotIn("layers_block_type", config)
        self.assertEqual(json.loads(self.good("info", out, "--json"))["pattern"], "MEM*")
        with open(os.path.join(out, "generation_config.json")) as file:
            self.assertEqual(json.load(file)["eos_token_id"], 2)

    def test_repro_composes_its_rates_from_what_it_timed(self):
        shapes = [self.write(f"{name}.json", SMALL[name]) for name in ("dense", "qwen3")]
        words = ("repro", "nemotron3-nano", "--shape", shapes[0], "--beside", shapes[1], "--dir", self.path(), "--format", "bf16",
                 "-p", "128", "-n", "96", "-r", "1")
        done = self.braid(*words, "--batch", "1,3", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([(os.path.basename(r["shape"]), r["batch"]) for r in rows],
                         [("dense.json", 1), ("dense.json", 3), ("qwen3.json", 1), ("qwen3.json", 3)])
        for r in rows:
            whole = r["batch"] * 128 / r["prompt_tokens_per_second"] + 96 * r["step_seconds"]
            self.assertAlmostEqual(r["tokens_per_second"] * whole / (r["batch"] * 96), 1)
            self.assertGreater(r["step_bytes_weights"], 0)
        for one, three in (rows[:2], rows[2:]):
            self.assertAlmostEqual(three["step_bytes_states"] / one["step_bytes_states"], 3)
        # 2 layers, keys and values, 2 heads of 16 values in BF16.
        self.assertAlmostEqual(rows[2]["step_bytes_states"], (128 + 48 + 2 + 1) * 2 * 2 * 2 * 16 * 2)
        # A batch that exceeds the memory (3 TiB of keys and values) is reported with what it needs; an existing folder is
        # not rewritten. Depths whose copies end past the answer fit, too.
        wide = {**SMALL["qwen3"], "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 256,
                "max_position_embeddings": 1 << 20}
        without = {**SMALL["dense"], "hybrid_override_pattern": "M-MM", "max_position_embeddings": 1 << 20}
        done = self.braid(*words, "--shape", self.write("without.json", without), "--beside", self.write("wide.json", wide),
                          "--batch", "1,128", "-p", "131072", "-n", "128", "--kv-cache-dtype", "f32")
        self.assertRegex(done.stdout, r"128 \| +[0-9.]+ \(.*\| +needs [0-9.]+ TiB \| +- \|", done.stderr)
        short = ("-p", "400", "-n", "64", "--batch", "1")
        done = self.braid(*words, *short)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for flags, says in ((("--batch", "0"), "--batch"), (("--beside", shapes[0]), "both shapes have one name"),
                            (("--activations", "int8", "--dtype", "f32"), "--activations"), (("--beside", "none-such"), "none-such")):
            self.bad(*words, *flags, says=says)

    # Counted again from the published shape: six layers of attention, two heads of 128 values, and 23 Mamba layers.
    def test_a_context_of_a_million_tokens(self):
        tokens = 1 << 20
        answer = self.braid("info", "nemotron-3-nano-30b-a3b", "-c", str(tokens), "--json")
        takes = json.loads(answer.stdout)["context_takes"]
        heads = 6 * 2 * 2 * tokens
        self.assertEqual(takes["kv_bytes"], {"bf16": 2 * 128 * heads, "fp8": 128 * heads, "int8": (128 + 4) * heads})
        self.assertEqual(takes["state_bytes"], 23 * 4 * (64 * 64 * 128 + 3 * (64 * 64 + 2 * 8 * 128)))
        self.assertLess(takes["kv_bytes"]["int8"] + takes["state_bytes"] + takes["weight_bytes"], 24e9)
        text = self.braid("info", "nemotron-3-nano-30b-a3b", "-c", str(tokens)).stdout
        self.assertRegex(text, r"\n +at 1048576 tokens: 6.00 GiB in BF16, [\d.]+ GiB with states and weights; .* INT8, .* in NVFP4\n")
        self.bad("info", "tiny", "-c", "-1", says="--ctx-size")

    # What a pool reserves for a depth, and the least time of a prompt that fills it; a slot and pages of 64 tokens.
    def test_explain_adds_up(self):
        model = self.write("depth.json", SMALL["dense"])
        folder = self.path("depth")
        self.assertEqual(self.braid("new", model, folder).returncode, 0)
        explained = [self.braid("bench", folder, "--explain", "-d", str(depth), "--kv-cache-dtype", "int8").stdout
                     for depth in (100, 4096)]
        for text, pages in zip(explained, (2, 64)):
            kept = re.search(r"^memory = weights \S+ \S+ \+ states \S+ \S+ \+ keys and values (.*) \(I8\) = ", text, re.M)
            self.assertIsNotNone(kept, text)
            number, unit = kept[1].split()
            got = float(number) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
            self.assertAlmostEqual(got / (pages * 64 * 2 * 2 * (16 + 4)), 1, places=2)  # one layer, two heads of 16
            self.assertRegex(text, r"\nfloor of a prompt of \d+ tokens in passes of 512 = .* tokens/s\n")

    def stopped(self, number, *words, part):
        """The exit code of braid WORDS, ended by a signal while it writes a file that fits `part`."""
        def listens():  # a caller in the background ignores the first, nohup the second
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

        for _ in range(20):
            work = subprocess.Popen([BRAID, *words], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    preexec_fn=listens)
            while work.poll() is None and not list(self.place.glob(part)):
                time.sleep(0.001)
            work.send_signal(number)
            out, errors = work.communicate(timeout=120)
            if work.returncode != 0:
                self.assertEqual((out, errors), ("", ""), words)
                return work.returncode
            self.clear()  # it was quicker
        return self.fail(f"{words} always ends before the signal")

    def clear(self):
        shutil.rmtree(self.path("x"), ignore_errors=True)
        self.place.joinpath("x.gguf").unlink(missing_ok=True)

    def test_a_stopped_conversion_leaves_nothing(self):
        source = self.write("l.json", {**SMALL["llama"], "hidden_size": 512, "head_dim": 128, "intermediate_size": 2048,
                                       "num_hidden_layers": 6})
        model, gguf, out = self.path("m"), self.path("m.gguf"), self.path("x")
        self.good("new", source, model)
        self.write("m/tokenizer.json", byte_tokenizer())
        self.good("convert", model, gguf)
        before = sorted(os.listdir(self.place))
        for *words, part in (("convert", model, out + ".gguf", "--type", "q4_k", ".x.gguf.*.part"),
                             ("convert", gguf, out, "--type", "f32", ".x.*.part/.*.part"),
                             ("quantize", model, out, "--scales", "mse", ".x.*.part/.*.part"),
                             ("new", source, out, "--format", "nvfp4", ".x.*.part/.*.part")):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self.assertEqual(self.stopped(number, *words, part=part), 128 + number, words)
                self.assertEqual(sorted(os.listdir(self.place)), before, words)
            # A kill leaves a hidden partial file or folder and nothing under the name; the next run removes it.
            self.assertEqual(self.stopped(signal.SIGKILL, *words, part=part), -signal.SIGKILL, words)
            self.assertTrue(list(self.place.glob(part)), words)
            self.assertFalse(os.path.exists(words[2]), words)
            self.assertEqual(self.braid(*words).returncode, 0, words)
            self.assertEqual(list(self.place.rglob(".*.part")), [], words)
            self.clear()

    def test_new_refuses(self):
        self.bad("new", "no-such-shape", self.path("x"), says="no-such-shape")
        self.write("full/of", "something")
        self.bad("new", "hybrid-8.5m", self.path("full"), says="not an empty folder")
        self.bad("new", "hybrid-8.5m", self.path("x"), "--layers", "11", says="1 to 10")
        self.bad("new", "nemotron-3-ultra-550b-a55b", "/proc/x", says="not enough room")
        self.bad("new", self.write("c.json", {"architectures": ["Nobody"]}), self.path("x"), says="unknown architecture")

    def test_info_of_a_published_shape(self):
        answer = json.loads(self.good("info", "nemotron-3-nano-4b", "--json"))
        self.assertEqual(answer["parameters"]["total"], 3973556832)
        self.assertEqual(answer["parameters"]["tensors"], 263)
        self.assertEqual(answer["kv_bytes_per_token"], 16384)
        self.assertEqual({b["letter"]: b["count"] for b in answer["blocks"]}, {"M": 21, "-": 17, "*": 4})
        self.assertIn("3,973,556,832", self.good("info", "nemotron-3-nano-4b"))
        self.assertIn("no weights", self.good("info", self.write("config.json", SMALL["dense"])))
        self.bad("info", self.write("broken/config.json", "{"), says="config.json")
        self.bad("info", says="nothing to describe")

    def test_list_says_what_is_there_and_why_not(self):
        def snapshot(name):
            self.write(f"hub/models--{name}/refs/main", "c0ffee")
            return self.path(f"hub/models--{name}/snapshots/c0ffee")
        for name in ("a--good", "b--strange", "c--missing", "d--pointer"):
            os.makedirs(snapshot(name))
        self.good("new", self.write("l.json", SMALL["llama"]), snapshot("a--good"), "--format", "nvfp4")
        self.write("hub/models--b--strange/snapshots/c0ffee/config.json", {"architectures": ["Nobody"]})
        self.write("hub/models--c--missing/snapshots/c0ffee/config.json", SMALL["llama"])
        self.write("hub/models--d--pointer/snapshots/c0ffee/config.json", SMALL["llama"])
        self.write("hub/models--d--pointer/snapshots/c0ffee/model.safetensors",
                   "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12\n")
        models = {m["name"]: m for m in json.loads(self.good("list", "--json"))}
        good = models["a/good"]
        self.assertTrue(good["supported"] and good["fits"])
        self.assertEqual(good["family"], "llama")
        self.assertIn(good["format"], ("NVFP4", "BF16"))
        self.assertGreater(good["bytes_needed"], good["bytes"])
        for name, why in (("b/strange", "unknown architecture"), ("c/missing", "missing"), ("d/pointer", "LFS")):
            self.assertFalse(models[name]["supported"])
            self.assertIn(why, models[name]["problem"])
        table = self.good("list")
        self.assertIn("a/good", table)
        self.assertIn("git lfs pull", table)

    def test_eval_of_a_text_with_one_token_per_byte(self):
        model = self.path("m")
        self.good("new", self.write("l.json", SMALL["dense"]), model)
        self.write("m/tokenizer.json", byte_tokenizer())
        text = self.write("t.txt", "All that is gold does not glitter; übermütig. " * 8)
        size = os.path.getsize(text)
        whole = json.loads(self.good("eval", model, "--text", text, "-c", "64", "--stride", "32", "--json"))
        self.assertEqual((whole["tokens"], whole["bytes"]), (size - 1, size - 1))
        self.assertAlmostEqual(whole["bits_per_byte"], math.log2(whole["perplexity"]), places=9)
        self.assertAlmostEqual(math.log(whole["perplexity"]), whole["loss"], places=9)
        self.assertTrue(100 < whole["perplexity"] < 600, whole)  # random weights: nearly uniform over 256 tokens
        half = json.loads(self.good("eval", model, "--text", text, "-c", "64", "--json"))
        self.assertEqual(half["tokens"], size // 64 * 31)
        self.assertIn("perplexity", self.good("eval", model, "--text", text, "-c", "64"))
        with open(text, encoding="utf-8") as file:
            piped = braid("eval", model, "--text", "-", "-c", "64", "--json", text=file.read())
        self.assertEqual((json.loads(piped.stdout), piped.stderr), (half, ""))
        self.bad("eval", model, "--text", "-", says="has no text")
        self.bad("eval", model, "--text", self.path("none"), says="cannot be read")
        self.bad("eval", model, "--text", text, "-c", "64", "--stride", "64", says="[--stride] out of range; got 64; expected 0 to 63")
        self.bad("eval", model, "--text", self.write("s.txt", "a"), says="too few tokens")
        self.bad("eval", model, "--text", text, "-c", "1024", says="max_position_embeddings")


if __name__ == "__main__":
    main()
