"""Invalid files and flags: exit code 1, one line on standard error, nothing on standard output.

usage: bad_input_test.py BRAID
Works on copies of tests/data/hf. What a line must name (tensor, got, expected, key) is part of each case. At the end a few
hundred random mutations of config.json and of the weights' header: braid must neither crash nor hang on any of them.
"""
import json
import math
import os
import random
import re
import shutil
import struct
from pathlib import Path

from support.program import DATA, Case, braid, commands, main
from support.tensors import read_header, write_header
from support.training import files_of

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 1000\n"


class Folders(Case):
    def setUp(self):
        self.place = self.new_folder()

    def copy(self, name="nemotron-h-latent-mtp"):
        folder = self.place / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(DATA / "hf" / name, folder, ignore=shutil.ignore_patterns("golden*"))
        return folder

    def config(self, folder, **changes):
        path = folder / "config.json"
        values = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({k: v for k, v in values.items() if v != "REMOVED"}))
        return folder

    def refused(self, *words, says=(), text=""):
        with self.subTest(words=words):
            self.assertRefused(braid(*words, text=text), *says)

    def run_refused(self, folder, *says, options=()):
        self.refused("run", folder, "--ids", "5,6,7", "-n", 1, *options, says=says)


class Weights(Folders):
    def test_missing_files(self):
        for command in (("run", "--ids", "1", "-n", "1"), ("info",), ("tokenize",), ("template",)):
            self.refused(command[0], self.place / "nowhere", *command[1:], says=["nowhere"])
        for words in (("run", "--ids", "1"), ("info",), ("tokenize",), ("template",), ("quantize", self.place / "q"),
                      ("convert", self.place / "c"), ("plan", "memory")):
            for name in (self.place / "none.gguf", "none.gguf", "org/none.gguf"):
                at = 2 if words[0] == "plan" else 1
                self.refused(*words[:at], name, *words[at:], says=[f"[{name}] no such file; expected a GGUF file\n"])
        self.refused("template", "none.jinja", says=["[none.jinja] no such file; expected a .jinja file, a GGUF file"])
        self.refused("tokenize", "none.json", says=["[none.json] no such file; expected a tokenizer.json\n"])
        self.refused("info", "none.json", says=["[none.json] no such file; expected a config.json\n"])
        self.refused("run", "tinny", "--ids", "1", says=["try tiny, or braid list\n"])
        for words in (("run", "hybrid-8.5m", "--ids", "1"), ("convert", "hybrid-8.5m", self.place / "x.gguf"),
                      ("quantize", "hybrid-8.5m", self.place / "q"), ("grad", "hybrid-8.5m", "--ids", "1,2", "-o", "x.safetensors")):
            self.refused(*words, says=["is a shape without weights", "try braid new hybrid-8.5m FOLDER"])
        self.refused("run", self.place, "--ids", "1", says=["is missing; expected the folder of a model; try braid list\n"])
        folder = self.copy("nemotron-h-legacy")
        (folder / "model-00002-of-00003.safetensors").unlink()
        self.run_refused(folder, "model-00002-of-00003.safetensors")
        (folder / "model.safetensors.index.json").unlink()
        self.run_refused(folder)
        folder = self.copy()
        (folder / "config.json").unlink()
        self.run_refused(folder, "config.json")

    def test_truncated(self):
        for part in (0, 0.00001, 0.001, 0.5, 0.99999):
            folder = self.copy()
            with open(folder / "model.safetensors", "r+b") as file:
                file.truncate(int(part * os.path.getsize(file.name)))
            self.run_refused(folder, "model.safetensors")
        folder = self.copy("nemotron-h-legacy")
        with open(folder / "model-00003-of-00003.safetensors", "r+b") as file:
            file.truncate(os.path.getsize(file.name) - 2)
        self.run_refused(folder, "model-00003-of-00003.safetensors")

    def test_header_length(self):
        for length in (0, 1, 2 ** 31, 2 ** 62, 2 ** 64 - 1, 2 ** 64 - 8):
            folder = self.copy()
            with open(folder / "model.safetensors", "r+b") as file:
                file.write(struct.pack("<Q", length))
            self.run_refused(folder, "model.safetensors", "header")

    def damaged(self, change):
        folder = self.copy()
        header, body = read_header(folder / "model.safetensors")
        change(header)
        write_header(folder / "model.safetensors", header, body)
        return folder

    def test_offsets(self):
        name = "lm_head.weight"

        def offsets(value):
            return lambda header: header[name].update(data_offsets=value)
        for value in ([0, 73728], [-8, 73720], [2 ** 63 - 8, 2 ** 63], [73728, 0], [10 ** 30, 10 ** 30], [0], "x", [0.5, 1]):
            self.run_refused(self.damaged(offsets(value)), "model.safetensors")

    def test_a_shape_names_tensor_got_expected_and_key(self):
        def transposed(header):
            header["lm_head.weight"]["shape"].reverse()
        self.run_refused(self.damaged(transposed), "lm_head.weight", "got [96, 384]", "[384, 96]", "vocab_size, hidden_size")
        self.run_refused(self.config(self.copy(), hidden_size=97), "got [", "97", "hidden_size")
        self.run_refused(self.config(self.copy(), ssm_state_size=128), "ssm_state_size", "in_proj")
        self.run_refused(self.config(self.copy(), moe_latent_size=16), "moe_latent_size")

    def test_dtypes(self):
        for dtype, says in (("I16", ["model.safetensors"]), ("Q9", ["Q9"]), ("F32", ["lm_head.weight"])):
            self.run_refused(self.damaged(lambda header, d=dtype: header["lm_head.weight"].update(dtype=d)), *says)

        def whole_numbers(header):  # of the right size, but not a type that a product takes
            header["lm_head.weight"] |= {"dtype": "I64", "shape": [384, 24]}
        self.run_refused(self.damaged(whole_numbers), "lm_head.weight", "I64", "BF16")

    def test_missing_tensors_and_scales(self):
        def rename(old, new):
            def change(header):
                header[new] = header.pop(old)
            return change
        self.run_refused(self.damaged(rename("lm_head.weight", "head.weight")), "lm_head.weight", "missing")
        folder = self.copy("nemotron-h-modelopt-nvfp4")
        header, body = read_header(folder / "model.safetensors")
        scale = next(n for n in header if n.endswith("weight_scale_2"))
        header[scale.replace("_2", "_3")] = header.pop(scale)
        write_header(folder / "model.safetensors", header, body)
        self.run_refused(folder, "weight_scale_2", "missing")
        header[scale] = header.pop(scale.replace("_2", "_3")) | {"dtype": "BF16", "shape": [2]}
        write_header(folder / "model.safetensors", header, body)
        self.run_refused(folder, scale, "F32")

    def test_damaged_scales(self):
        for suffix, bytes_of, says in (("_scale_2", struct.pack("<f", math.nan), "nan"),
                                       ("_scale_2", struct.pack("<f", 0), "0.0"), ("_scale", b"\x7f", "NaN in row 0")):
            folder = self.copy("nemotron-h-modelopt-nvfp4")
            path = folder / "model.safetensors"
            header, body = read_header(path)
            name = next(n for n in header if n.endswith("weight" + suffix))
            at = header[name]["data_offsets"][0]
            write_header(path, header, body[:at] + bytes_of + body[at + len(bytes_of):])
            self.run_refused(folder, name, "damaged", says)

    def test_pointers_of_git_lfs(self):
        folder = self.copy()
        (folder / "model.safetensors").write_text(LFS)
        self.run_refused(folder, "LFS", "lfs pull")
        folder = self.copy()
        (folder / "config.json").write_text(LFS)
        self.run_refused(folder, "config.json")


class Configs(Folders):
    def test_architecture_lists_the_known(self):
        self.run_refused(self.config(self.copy(), architectures=["WarpForCausalLM"], model_type="warp"),
                         "unknown architecture", "WarpForCausalLM", "NemotronHForCausalLM", "GPT2LMHeadModel")

    def test_pattern(self):
        folder = self.copy("nemotron-h-legacy")
        self.run_refused(self.config(folder, hybrid_override_pattern="MEM*EX"), "unknown pattern letter", "MEM*EX")
        self.run_refused(self.config(folder, hybrid_override_pattern=""), "hybrid_override_pattern")
        self.run_refused(self.config(folder, hybrid_override_pattern="M" * 5000), "1024")
        self.run_refused(self.config(self.copy(), layers_block_type=["linear_attention", "warp"]), "warp", "layers_block_type[1]")

    def test_values_no_model_can_have(self):
        for key, value in (("hidden_size", 0), ("hidden_size", "many"), ("hidden_size", 1.5), ("hidden_size", -96),
                           ("num_attention_heads", 0), ("num_key_value_heads", 3), ("mamba_num_heads", -8), ("n_groups", 3),
                           ("ssm_state_size", 2 ** 40), ("conv_kernel", 0), ("chunk_size", 0), ("num_experts_per_tok", 99),
                           ("n_group", 5), ("topk_group", 7), ("layer_norm_epsilon", float("nan")), ("vocab_size", None),
                           ("routed_scaling_factor", float("inf")), ("eos_token_id", "x"), ("tie_word_embeddings", "no")):
            self.run_refused(self.config(self.copy(), **{key: value}), key)

    def test_documents(self):
        for text in ("", "{", "[]", "null", "{" * 100000, '{"a": ' * 1000, "\xff\xfe", '{"hidden_size": 1e999}', "x" * 10):
            folder = self.copy()
            (folder / "config.json").write_text(text, encoding="latin-1")
            self.run_refused(folder, f"[{folder / 'config.json'}] ")
        folder = self.copy()
        (folder / "generation_config.json").write_text("{")
        self.run_refused(folder, "generation_config.json")
        folder = self.copy("nemotron-h-legacy")
        (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../etc/passwd"}}')
        self.run_refused(folder)


class OfAnotherKind(Folders):
    """Files and folders of graphs, and adapters, where a language model is asked for: one line that says what they are."""

    def words_of(self, model):
        text = self.place / "text.txt"
        text.write_text("the cat sat on the mat\n" * 40)
        lines = self.place / "lines.jsonl"
        lines.write_text('{"ids": [1, 2]}\n')
        return [("run", model, "--ids", "1,2", "-n", 1), ("chat", model), ("bench", model, "-n", 1), ("eval", model, "--text", text),
                ("score", model, "--jsonl", lines), ("grad", model, "--ids", "1,2", "-o", "g.safetensors"), ("serve", model, "--port", 0),
                ("convert", model, self.place / "x.gguf"), ("quantize", model, self.place / "q"), ("merge", "--mean", model, model, "-o", self.place / "m"),
                ("prune", model, self.place / "p", "--data", text, "--target", "params=0.8"), ("plan", "memory", model),
                ("run", "tiny", "--draft-model", model, "-p", "a", "-n", 1), ("eval", "tiny", "--text", text, "--kl", model),
                ("fuse", model, self.place / "f"), ("new", model, self.place / "n")]

    def test_a_graph(self):
        self.run_ok("data", "graph", "blocks", "-o", self.place / "g.safetensors", "--nodes", 50)
        for words in self.words_of("g.safetensors"):
            with self.subTest(words=words):
                self.assertRefused(braid(*words, text="", cwd=self.place), "[g.safetensors] is a graph, not a model",
                                   "try braid info g.safetensors, or braid train with objective")
        self.assertRefused(braid("data", "show", "g.safetensors", cwd=self.place), "[g.safetensors] has no token ids", "try braid info g.safetensors")

    def test_a_graph_network(self):
        (self.place / "r.toml").write_text('objective = "graph"\nout = "net"\nsteps = 1\n[graph]\npath = "g.safetensors"\nmodel = "sage"\n')
        self.run_ok("data", "graph", "blocks", "-o", "g.safetensors", "--nodes", 50, cwd=self.place)
        self.run_ok("train", "r.toml", cwd=self.place)
        for words in self.words_of("net"):
            if words[0] == "eval" and "--kl" not in words:
                continue  # which takes one, and says that it reads no text
            with self.subTest(words=words):
                self.assertRefused(braid(*words, text="", cwd=self.place), "is a graph network, not a language model; got sage",
                                   "try braid eval with its folder")

    def test_an_adapter(self):
        adapter = self.place / "lora"
        shutil.copytree(DATA / "adapter", adapter)
        base = json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]
        for model in ("lora", "lora/adapter_model.safetensors"):
            for words in self.words_of(model):
                with self.subTest(words=words):
                    self.assertRefused(braid(*words, text="", cwd=self.place), f"[{model}] is a LoRA adapter, not a model; expected its base model",
                                       f"try {base} with --adapter lora, or braid merge {base} --adapter lora -o FOLDER\n")
        (adapter / "adapter_config.json").unlink()  # the weights alone do not say which model
        self.run_refused(adapter, "is a LoRA adapter, not a model", "try MODEL with --adapter")
        shutil.copy(DATA / "hf" / "nemotron-h-latent-mtp" / "config.json", adapter)
        self.run_refused(adapter, "has no weights")  # a model whose weights are missing


class Limits(Folders):
    def test_a_context_longer_than_the_model_allows(self):
        self.run_refused(self.copy(), "4096", options=("-c", 5000))

    def test_a_prompt_longer_than_the_context(self):
        ids = ",".join(["5"] * 65)
        self.refused("run", self.copy(), "--ids", ids, "-n", 1, "-c", 64, says=["got 65 tokens; expected at most 64; try a larger -c"])
        # Counted before anything is computed, and -c is suggested only if it could help.
        self.refused("run", "tiny", "-f", "-", "-n", 1, text="a " * 6000,
                     says=["got 6001 tokens; expected at most 4096, all that the model allows; try a shorter prompt\n"])

    def test_memory_says_how_much_is_needed(self):
        folder = self.config(self.copy(), max_position_embeddings=2 ** 40)
        self.run_refused(folder, "memory", "GiB free", "expected", options=("-c", 2 ** 30))

    def test_token_ids(self):
        for ids, says in (("384", ["384", "383"]), ("-1", ["-1"]), ("5,6,99999999999", ["99999999999"])):
            self.refused("run", self.copy(), f"--ids={ids}", "-n", 1, says=says)

    def test_flags(self):
        folder = self.copy()
        for options, says in ((("--dtype", "f8"), ["f8", "f32"]), (("--chunk", 0), ["--chunk"]), (("--chunk", "x"), ["--chunk"]),
                              (("--threads", -1), ["--threads"]), (("--temp", "nan"), ["[--temp] out of range; got nan"]), (("--temp", -1), ["[--temp] out of range; got -1; expected 0 to 100"]),
                              (("--temp", "inf"), ["[--temp]", "got inf"]), (("--temp", "1e30"), ["[--temp]"]), (("--top-k", 2 ** 40), ["[--top-k]"]),
                              (("--repeat-penalty", "inf"), ["[--repeat-penalty]"]), (("--repeat-penalty", "1e9"), ["[--repeat-penalty]"]),
                              (("--top-p", 0), ["--top-p"]), (("--top-p", 2), ["[--top-p] out of range; got 2; expected above 0 to 1"]), (("-n", -5), ["[--predict]", "got -5"]), (("--min-p", 2), ["--min-p"]), (("-c", -5), ["--ctx-size"]),
                              (("--repeat-penalty", 0), ["--repeat-penalty"]), (("--frobnicate",), ["--frobnicate"]),
                              (("--think", "maybe"), ["maybe"]), (("--replay-routes", "nowhere"), ["nowhere"]),
                              (("--dump-logits", "/nowhere/x.npy"), ["/nowhere/x.npy"])):
            self.run_refused(folder, *says, options=options)
        self.refused("bench", folder, "-p", 16, "-n", 0, "-c", 8, says=["[--ctx-size] is too small", "got 8; expected at least 16"])
        self.refused("score", folder, "--path", "train", "--activations", "int8", "--jsonl", "-", text='{"ids": [1, 2]}',
                     says=["[--activations] --path train rounds none; got int8; expected bf16"])
        self.refused("score", folder, "--path", "train", "--kv-cache-dtype", "int8", "--jsonl", "-", text='{"ids": [1, 2]}',
                     says=["[--kv-cache-dtype] --path train has no cache; got int8; expected auto"])
        self.refused("run", folder, "--ids-file", "nowhere.npy", says=["nowhere.npy"])
        self.refused("run", self.copy("nemotron-nas"), "--ids", "1,2", "-n", 0, "--dump-mtp", "x.npy", says=["multi-token"])

    def test_flags_of_recurrent_depth(self):
        model, states = DATA / "huginn", self.place / "states.npy"
        head = repr({"descr": "<f4", "fortran_order": False, "shape": (2, 24)}).ljust(117) + "\n"
        states.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + bytes(4 * 2 * 24))
        for options, says in ((("--num-steps", 1025), ["[--num-steps] out of range; got 1025; expected 0 to 1024"]),
                              (("--cache-steps", -1), ["[--cache-steps]"]), (("--exit", "maybe"), ["maybe", "entropy"]),
                              (("--exit-threshold", 1), ["[--exit-threshold]", "--exit kl"]),
                              (("--exit", "kl", "--exit-threshold", "nan"), ["[--exit-threshold]", "got nan"]),
                              (("--self-speculate", 6), ["[--self-speculate]", "6 of 6; expected 1 to 5"]),
                              (("--self-speculate", 2, "--draft", "off"), ["[--self-speculate] drafts are switched off"]),
                              (("--self-speculate", 2, "--exit", "kl"), ["[--self-speculate] drafts would change the text"]),
                              (("--warm-start", "--draft", "ngram"), ["[--draft] drafts would change the text"]),
                              (("--input-states", "nowhere.npy"), ["nowhere.npy"]),
                              (("--input-states", states), ["got [2, 24]; expected [3, 24]"])):
            self.run_refused(model, *says, options=options)
        for options in (("--num-steps", 2), ("--input-states", "zero"), ("--exit", "kl"), ("--cache-steps", 1), ("--warm-start",),
                        ("--self-speculate", 1)):
            self.run_refused(self.copy("gpt2"), f"[{options[0]}] this model has no recurrent depth", options=options)


class Outputs(Folders):
    def outputs(self, model, place):
        """Every option that names a file to write, as words to which the name is added."""
        run = ("run", model, "--ids", "5,6,7", "-n", 0)
        tasks, text = place / "tasks.jsonl", place / "text"
        tasks.write_text(json.dumps({"task": "t", "messages": [{"role": "user", "content": "a"}], "answers": ["b"]}))
        text.write_text("the cat sat on the mat\n")
        dumps = {f"run --dump-{what}": (*run, f"--dump-{what}") for what in ("logits", "mtp", "hidden", "state", "routes")}
        return dumps | {"eval --answers": ("eval", "tiny", "--tasks", tasks, "-n", 1, "--answers"),
                        "grad --output": ("grad", model, "--ids", "1,2,3", "-o"),
                        "data graph --out": ("data", "graph", "blocks", "-o"),
                        "law fit --out": ("law", "fit", place / "runs.csv", "-o"),
                        "data bpe --out": ("data", "bpe", text, "--vocab", 260, "-o"),
                        "data tokenize --out": ("data", "tokenize", text, "--tokenizer", "tiny", "-o"),
                        "data synth --out": ("data", "synth", "--train", 0, "--valid", 0, "--tasks", 0, "--out"),
                        "merge --output": ("merge", model, "--adapter", place / "adapter", "-o")}

    def test_the_table_has_every_option(self):
        named = set()
        man = braid("--man").stdout.replace("\\-", "-")
        for name in commands():
            page = re.search(rf"^\.SS braid {name}\b.*?(?=^\.S)", man, re.M | re.S)[0]
            options = re.findall(r"(--(?:dump-[a-z]+|out|output|answers))\b [^md]", page)
            named |= {f"{name} {option}" for option in options}
        # Tables and plots, which may replace older ones: comm_cli_test, graph_cli_test, law_cli_test.
        named -= {"comm bench --out", "comm tune --out", "repro nvrar --out", "repro pccl --out", "repro plexus --out",
                  "law sweep --out"}
        self.assertEqual(named, set(self.outputs("tiny", self.place)))

    def test_what_is_there_stays(self):
        for name in ("nemotron-h-latent-mtp", "nemotron-h-legacy"):  # one file, and shards with their index
            folder = self.copy(name)
            (self.place / "corpus.bin").write_text("1")
            outputs = self.outputs(folder, self.place)
            before = files_of(self.place)
            own = next(folder.glob("*.safetensors"))
            for option, words in outputs.items():
                for path in (own, folder / "config.json", self.place / "tasks.jsonl", self.place / "text"):
                    if option == "data tokenize --out":
                        path = self.place / "corpus"
                    self.refused(*words, path, says=[str(path), "already exists", "try another name, or removing it"])
                self.assertEqual(files_of(self.place), before, option)

    def test_a_file_of_tensors_replaces_no_model(self):
        folder = self.copy("nemotron-h-legacy")
        outputs = self.outputs(folder, self.place)
        before = files_of(self.place)
        for path, says in ((folder, "is a folder"), (self.place / "dump", ".safetensors"),
                           (folder / "model.safetensors", "weights of the model"),
                           (self.place / "none" / "x.safetensors", "no such folder")):
            for option in ("run --dump-state", "run --dump-routes", "grad --output"):
                self.refused(*outputs[option], path, says=[str(path), says])
            self.assertEqual(files_of(self.place), before)

    def test_a_folder_is_made_in_one_that_is_there(self):
        missing, gguf = self.place / "none", self.place / "t.gguf"
        self.assertEqual(braid("convert", "tiny", gguf).returncode, 0)
        for words in (("quantize", "tiny", missing / "x"), ("new", "hybrid-8.5m", missing / "x/"), ("convert", gguf, missing / "x"),
                      ("merge", "tiny", "--adapter", DATA / "adapter", "-o", missing / "x")):
            self.refused(*words, says=["there is no such folder", f"got {missing}; try mkdir -p {missing}\n"])
        self.refused("convert", "tiny", missing / "x.gguf", says=["there is no such folder"])
        (self.place / "text").write_text("the cat\n")
        tokenize = ("data", "tokenize", self.place / "text", "--tokenizer", "tiny", "-o")
        self.refused(*tokenize, missing / "x", says=["there is no such folder", f"try mkdir -p {missing}\n"])
        self.refused(*tokenize, f"{self.place}/..", says=["is a folder"])
        self.refused(*tokenize, f"{self.place}/", says=["is a folder", f"try {self.place}/name\n"])
        self.assertFalse(missing.exists())

    def test_a_dump_replaces_nothing_but_a_dump(self):
        folder, dump = self.copy("nemotron-h-legacy"), self.place / "dump.safetensors"
        words = self.outputs(folder, self.place)["run --dump-state"]
        dump.touch()
        done = braid(*words, dump)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(any(name.startswith("ssm.") for name in read_header(dump)[0]))
        self.assertEqual(braid(*words, dump).returncode, 0)
        shutil.copy(dump, folder / "dump.safetensors")
        self.refused(*words, folder / "dump.safetensors", says=["already exists"])
        twice = self.place / "x.npy"
        self.refused("run", folder, "--ids", "5,6", "--dump-logits", twice, "--dump-hidden", twice, says=["named for two dumps"])


class Words(Folders):
    TOKENIZER = {"version": "1.0", "added_tokens": [], "normalizer": None, "decoder": {"type": "ByteLevel"},
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}

    def tokenizer(self, **model):
        folder = self.place / "words"
        folder.mkdir(exist_ok=True)
        values = json.loads(json.dumps(self.TOKENIZER))
        values["model"] = {k: v for k, v in (values["model"] | model).items() if v is not None}
        (folder / "tokenizer.json").write_text(json.dumps(values))
        return folder

    def test_tokenizers(self):
        self.assertEqual(braid("tokenize", self.tokenizer(), text="ab").returncode, 0)
        self.refused("tokenize", self.tokenizer(merges=None), text="ab", says=["tokenizer.json", "merges"])
        self.refused("tokenize", self.tokenizer(type="Warp"), text="ab", says=["Warp"])
        self.refused("tokenize", self.tokenizer(vocab=None), text="ab", says=["vocab"])
        self.refused("tokenize", self.tokenizer(vocab={"a": -1}), text="ab", says=["-1"])
        self.refused("tokenize", self.tokenizer(merges=[["a", "zz"]]), text="ab", says=["zz"])
        for words in (("-p", "hello"), ("--chat", "hello")):
            self.refused("run", self.copy(), *words, says=["has no tokenizer; expected tokenizer.json in it; try --ids 1,2,3\n"])
        text = DATA / "hf" / "nemotron-h-legacy" / "config.json"
        for words in ((self.copy(),), ("tiny", "--kl", self.copy())):
            self.refused("eval", *words, "--text", text, says=["has no tokenizer; expected tokenizer.json in it\n"])
        self.refused("chat", self.copy(), text="hello", says=["has no tokenizer"])
        for name in ("config.json", "model.safetensors"):
            path = self.copy() / name
            self.refused("tokenize", path, text="ab", says=[f"{name}] is not a tokenizer", "expected a tokenizer.json\n"])
            self.refused("template", path, says=[f"{name}] is not a chat template; expected a .jinja file"])
        folder = self.tokenizer()
        (folder / "tokenizer.json").write_text(LFS)
        self.refused("tokenize", folder, text="ab", says=["tokenizer.json", "LFS", "lfs pull"])
        (folder / "tokenizer.json").unlink()
        self.refused("tokenize", folder, text="ab", says=["tokenizer.json] is missing; try hf download"])

    def template(self, text):
        path = self.place / "t.jinja"
        path.write_text(text)
        return path

    def test_templates(self):
        for text, says in (("{% for i in range(10**9) %}{% for j in range(10**9) %}x{% endfor %}{% endfor %}", []),
                           ("{{ raise_exception('no such role') }}", ["no such role"]),
                           ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", []), ("{{ nothing.at.all }}", []),
                           ("{% if %}", []), ("{{ 'x' * 10**12 }}", []), ("{{ " + "(" * 5000, [])):
            answer = braid("template", self.template(text), text='{"messages": []}\n')
            self.assertEqual((answer.returncode, answer.stdout), (1, ""), text[:60])
            self.assertRegex(answer.stderr, r"\Abraid: [^\n]+\n\Z")
            for part in says:
                self.assertIn(part, answer.stderr)
        folder = self.copy()
        shutil.copy(self.tokenizer() / "tokenizer.json", folder)
        self.refused("run", folder, "--chat", "hello", "-n", 1, says=["template"])

    def test_json_beyond_the_limits(self):
        """What reads lines or objects of JSON refuses depth, length and too many keys before it computes anything."""
        lines, tasks, tiny = self.place / "lines.jsonl", self.place / "tasks.jsonl", "tiny"
        keys = "{" + ",".join(f'"{i}": 0' for i in range(5001)) + "}"
        for text, says in (('{"messages": ' + "[" * 100_000, "is nested deeper than 64 levels"),
                           ('{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}", "is nested deeper than 64 levels"),
                           (keys, "has an object of more than 5000 keys"), ('{"messages": [}', "is not valid JSON at column 15; got }")):
            lines.write_text('{"text": "a"}\n' + text + "\n")
            tasks.write_text("\n" + text + "\n")
            self.refused("template", tiny, text=text, says=["[standard input] " + says])
            self.assertOneLine(braid("template", tiny, "--jsonl", text='{"messages": []}\n' + text), "[standard input line 2] " + says)
            self.refused("data", "show", lines, "--kind", "jsonl", "-m", tiny, says=["lines.jsonl line 2] " + says])
            self.refused("eval", tiny, "--tasks", tasks, "-n", 1, says=["tasks.jsonl line 2] " + says])
        long = '{"messages": "' + "a" * (33 << 20) + '"}'
        self.refused("template", tiny, text=long, says=["is too large for JSON; got 34603024 bytes; expected at most 33554432"])
        tasks.write_text(long)
        self.refused("eval", tiny, "--tasks", tasks, "-n", 1, says=["is too large for JSON; got 34603024 bytes; expected at most 1048576"])

    def test_a_template_without_messages(self):
        tiny = Path(__file__).resolve().parents[1] / "models" / "tiny"
        chat = self.template("{% for m in messages %}{{ m.content }}{% endfor %}")
        for model in (tiny, tiny / "chat_template.jinja", chat):
            self.refused("template", model, text='{"mesages": [{"role": "user", "content": "hi"}]}',
                         says=["[standard input] has no messages; got mesages", '"messages"', "try messages\n"])
            wrong = braid("template", model, "--jsonl", text='{"messages": []}\n{"message": []}\n')
            self.assertOneLine(wrong, "[standard input line 2] has no messages; got message;")
            self.assertEqual(wrong.stdout.count("\n"), 1)
        self.refused("template", tiny, text='{"prompt": "hi"}', says=["no messages; expected"])
        # A file may render something else.
        for text in ("{}", '{"tools": []}'):
            self.assertEqual(braid("template", chat, text=text).returncode, 0)
        other = braid("template", self.template("{{ message }}"), text='{"message": "hi"}')
        self.assertEqual((other.returncode, other.stdout, other.stderr), (0, "hi", ""))


class Mutations(Folders):
    VALUES = [0, -1, 1, 2, 3, 7, 2 ** 31, 2 ** 63, -2 ** 63, 1e308, 0.5, float("nan"), float("inf"), None, True, "", "x", "relu2",
              [], [1], {}, [None], ["mamba"], [0.0, 1.0], {"a": 1}, "M" * 2000, {"__float__": "NaN"}]

    def attempt(self, folder, seed):
        answer = braid("run", folder, "--ids", "5,6,7", "-n", 1, "--temp", 0)
        self.assertIn(answer.returncode, (0, 1, 2), (seed, answer.stderr))
        if answer.returncode:
            self.assertRegex(answer.stderr, r"\Abraid: [^\n]+\n\Z", seed)
            self.assertEqual(answer.stdout, "", seed)

    def test_configs(self):
        for name in ("nemotron-h-latent-mtp", "nemotron-h-legacy", "nemotron-nas", "nemotron-h-modelopt-nvfp4", "gpt2"):
            folder = self.copy(name)
            original = json.loads((folder / "config.json").read_text())
            for seed in range(60):
                draw = random.Random(f"{name} {seed}")
                config = json.loads(json.dumps(original))
                for _ in range(draw.choice((1, 1, 1, 2, 4))):
                    owner, key = config, draw.choice(list(config))
                    while isinstance(owner[key], (dict, list)) and owner[key] and draw.random() < 0.8:
                        owner = owner[key]
                        key = draw.choice(list(owner)) if isinstance(owner, dict) else draw.randrange(len(owner))
                    if draw.random() < 0.15 and isinstance(owner, dict):
                        del owner[key]
                        if not config:
                            break
                    else:
                        owner[key] = draw.choice(self.VALUES)
                (folder / "config.json").write_text(json.dumps(config))
                self.attempt(folder, f"{name} {seed}")

    def test_headers(self):
        folder = self.copy()
        path = folder / "model.safetensors"
        original = path.read_bytes()
        size = struct.unpack("<Q", original[:8])[0]
        for seed in range(60):
            draw = random.Random(seed)
            data = bytearray(original)
            for _ in range(draw.choice((1, 3, 100))):
                data[draw.randrange(8 + size)] = draw.randrange(256)
            path.write_bytes(data)
            self.attempt(folder, seed)


if __name__ == "__main__":
    main()
