"""GGUF files through the commands that take a model: the same results as for the folder next to the file, from which
llama.cpp's converter made it; damaged files give a one-line error.

usage: gguf_cli_test.py BRAID
"""
import json
import math
import random
import shutil
import struct

from support.program import DATA, Case, braid, main
from support.tensors import tensors
from support.training import RECIPE

NAMES = ("llama", "deci", "qwen3moe", "nemotron_h_moe")


def paths(name):
    return DATA / "gguf" / name / "model.gguf", DATA / "gguf" / name


def offset(data, tensor):
    """Where a file says that a tensor lies, in bytes behind the first."""
    at = data.index(tensor.encode()) + len(tensor)
    dimensions, = struct.unpack_from("<I", data, at)
    return struct.unpack_from("<Q", data, at + 4 + 8 * dimensions + 4)[0]


class Commands(Case):
    def same(self, name, command, *words, text=None):
        answers = [braid(command, path, *words, text=text) for path in paths(name)]
        for answer in answers:
            self.assertEqual(answer.returncode, 0, answer.stderr)
        return [answer.stdout for answer in answers]

    def test_text_in_and_out(self):
        greedy = ("-n", 8, "--temp", 0, "--dtype", "f32", "--json")
        for name in NAMES:
            for prompt in (("-p", "Hello 12 World"), ("--chat", "What's 2+2?"), ("--chat", "Hi", "--think", "off")):
                got, want = (json.loads(out) for out in self.same(name, "run", *prompt, *greedy))
                for key in ("prompt_ids", "ids", "text", "reasoning", "finish_reason"):
                    self.assertEqual(got[key], want[key], (name, prompt, key))
                self.assertTrue(got["ids"])

    def test_tokenize_and_template(self):
        messages = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True})
        for name in NAMES:
            for command, words, text in (("tokenize", ("-p", "don'T  éé 2026\n\n x"), None), ("template", (), messages)):
                got, want = self.same(name, command, *words, text=text)
                self.assertEqual(got, want, (name, command))
                self.assertTrue(got)

    # The files' own lists of tokens and merges become a tokenizer.json.
    def test_convert_to_a_folder(self):
        greedy = ("-n", 8, "--temp", 0, "--dtype", "f32", "--json")
        for name in NAMES:
            folder = self.new_folder() / "folder"
            made = braid("convert", paths(name)[0], folder)
            self.assertEqual((made.returncode, made.stderr), (0, ""))
            for prompt in (("-p", "Hello 12 World"), ("--chat", "What's 2+2?")):
                got, want = (json.loads(braid("run", path, *prompt, *greedy).stdout) for path in (folder, paths(name)[1]))
                for key in ("prompt_ids", "ids", "text", "finish_reason"):
                    self.assertEqual(got[key], want[key], (name, prompt, key))

    # Drafts of the prediction block, in the file as in the folder: the same guesses, of which the same are right.
    def test_answers_are_sampled_alike(self):
        folder = self.new_folder() / "folder"
        shutil.copytree(DATA / "tiny-chat", folder)
        (folder / "tokenizer.json").unlink()
        config = json.loads((folder / "config.json").read_text())
        wanted = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.1,
                  "bos_token_id": config["bos_token_id"], "eos_token_id": config["eos_token_id"]}
        (folder / "generation_config.json").write_text(json.dumps(wanted))
        file, again = folder.parent / "model.gguf", folder.parent / "again"
        for source, to in ((folder, file), (file, again)):
            made = braid("convert", source, to)
            self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(json.loads((again / "generation_config.json").read_text()) | wanted,
                         json.loads((again / "generation_config.json").read_text()))
        answers = [braid("run", path, "--ids", "5,6,7", "-n", 12, "--seed", 3, "--json") for path in (folder, file, again)]
        self.assertEqual(len({json.dumps([json.loads(a.stdout)[k] for k in ("ids", "finish_reason")]) for a in answers}), 1)

    def test_a_folder_says_only_what_the_file_does(self):
        folder = self.new_folder() / "folder"
        shutil.copytree(DATA / "tiny-chat", folder)
        for keys in ({}, {"top_p": 0.5}):
            (folder / "generation_config.json").write_text(json.dumps(keys))
            file, again = folder.parent / f"{len(keys)}.gguf", folder.parent / f"again{len(keys)}"
            for source, to in ((folder, file), (file, again)):
                made = braid("convert", source, to)
                self.assertEqual(made.returncode, 0, made.stderr)
            got = json.loads((again / "generation_config.json").read_text())
            self.assertEqual({k: v for k, v in got.items() if k not in ("_from_model_config", "bos_token_id", "eos_token_id")}, keys)

    def test_the_prediction_block(self):
        file, tasks = self.new_folder() / "tiny.gguf", self.new_folder() / "tasks.jsonl"
        made = braid("convert", "tiny", file)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertNotIn("left out", made.stdout)
        tasks.write_text("".join(json.dumps({"task": "a", "messages": [{"role": "user", "content": f"What is {a} + {b}?"}],
                                             "answers": [str(a + b)]}) + "\n" for a, b in ((17, 25), (31, 8))))
        got, want = (json.loads(braid("eval", path, "--tasks", tasks, "--mtp", "--json", "--dtype", "f32").stdout)["mtp"]
                     for path in (file, "tiny"))
        self.assertEqual(got, want)
        self.assertGreater(want["accepted"], 0)
        prompt = ("-p", "17 + 25 = 42\n" * 6, "-n", 40, "--temp", 0, "--ignore-eos", "--json")
        got, want = (json.loads(braid("run", path, *prompt, "--draft", draft).stdout)["ids"]
                     for path, draft in ((file, "mtp"), ("tiny", "off")))
        self.assertEqual(got, want)

    def test_convert_replaces_nothing(self):
        notes = self.new_folder() / "notes.gguf"
        notes.write_text("precious")
        self.assertRefused(braid("convert", paths("llama")[1], notes), "already exists")
        self.assertEqual(notes.read_text(), "precious")
        self.assertRefused(braid("convert", paths("llama")[1], notes.parent / "x"), "does not end in .gguf")
        self.assertRefused(braid("convert", paths("llama")[1], notes.parent / "x.gguf", "--type", "q4k"), "unknown type; got q4k", "try q4_k")
        self.assertRefused(braid("convert", paths("llama")[0], notes.parent / "x", "--head", "q8_0"), "--head")
        made = braid("convert", paths("llama")[1], notes.parent / "x.gguf", "--type", "Q8_0")
        self.assertEqual(made.returncode, 0, made.stderr)

    def test_eval_and_score(self):
        line = json.dumps({"prompt": "Hello", "completion": " World 12"}) + "\n"
        for name in NAMES:
            got, want = (json.loads(out)["logprobs"]
                         for out in self.same(name, "score", "--jsonl", "-", "--dtype", "f32", text=line))
            self.assertEqual(len(got), len(want))
            for a, b in zip(got, want):
                self.assertAlmostEqual(a, b, places=4)

    def test_info(self):
        for name in NAMES:
            got, want = (json.loads(out) for out in self.same(name, "info", "--json"))
            for model in (got, want):
                for block in model["blocks"]:
                    block.get("shape", {}).pop("chunk", None)  # the chunk size of the scan, which GGUF does not store
            for key in ("pattern", "hidden", "vocabulary", "blocks", "parameters", "tied_head"):
                self.assertEqual(got[key], want[key], (name, key))
            self.assertEqual(got["bits_per_weight"]["BF16"], 16)
            self.assertEqual(got["bits_per_weight"]["F32"], 32)
            stored = got["bytes"]["stored"]
            values = stored["BF16"] / 2 + stored["F32"] / 4
            self.assertAlmostEqual(got["bits_per_weight"]["all"], 8 * sum(stored.values()) / values)
            self.assertIn("BF16", braid("info", paths(name)[0]).stdout)


class Refusals(Case):
    def test_a_file_is_not_a_folder(self):
        file, root = paths("llama")[0], self.new_folder()
        (root / "r.toml").write_text(RECIPE)
        for words in (("train", root / "r.toml", f"init={file}", f"out={root}/out"),
                      ("quantize", file, root / "x"),
                      ("prune", file, root / "x", "--data", DATA / "tiny-chat" / "config.json", "--target", "params=0.75"),
                      ("search", file, root / "x", "--data", DATA / "tiny-chat" / "config.json", "--limit", "gib=75%"),
                      ("nest", file, root / "x", "--data", DATA / "tiny-chat" / "config.json"),
                      ("slice", file, root / "x", "--budget", "0.5"), ("fuse", file, root / "x"),
                      ("merge", file, "--adapter", DATA / "adapter", "-o", root / "x")):
            self.assertRefused(braid(*words), "GGUF file")

    def test_convert_says_what_it_wrote(self):
        root = self.new_folder()
        for format, words, notes in (("nvfp4", (), True), ("nvfp4", ("--type", "nvfp4"), False), ("nvfp4", ("--type", "q8_0"), False),
                                     ("int4", (), True), ("int4", ("--type", "q4_0"), False), ("fp8", (), False)):
            folder = root / format
            if not folder.exists():
                braid("quantize", "tiny", folder, "--format", format)
            made = braid("convert", folder, root / f"{format}{words[-1:]}.gguf", *words)
            self.assertEqual((made.returncode, "quantised matrices are written in BF16" in made.stdout), (0, notes), made.stdout)
        back = braid("convert", paths("llama")[0], root / "back")
        self.assertRegex(back.stdout, r"\A\S+/back: [\d.]+ [kKM]?\s*values in bf16\n\Z")

    def test_blocks_of_a_folder_keep_their_values(self):
        """Scales chosen by error differ from those that the encoder of the same type would choose."""
        root = self.new_folder()
        for format, words, type in (("int4", ("--scales", "mse"), "q4_0"), ("int8", (), "q8_0"), ("mxfp4", (), "mxfp4")):
            self.assertEqual(braid("quantize", "tiny", root / format, "--format", format, *words).returncode, 0)
            for to in (type, "f32"):
                self.assertEqual(braid("convert", root / format, root / "x.gguf", "--type", to).returncode, 0)
                self.assertEqual(braid("convert", root / "x.gguf", root / f"from {to}", "--type", "f32").returncode, 0)
                (root / "x.gguf").unlink()
            blocks, plain = tensors(root / f"from {type}"), tensors(root / "from f32")
            for name in ("layers.0.mixer.in_proj.weight", "layers.1.mixer.experts.3.up_proj.weight"):
                self.assertEqual(blocks["backbone." + name].data, plain["backbone." + name].data, (type, name))
            shutil.rmtree(root / "from f32")

    def test_a_tensor_of_no_part_of_the_model(self):
        changed = self.new_folder() / "x.gguf"
        data = paths("llama")[0].read_bytes()
        changed.write_bytes(data.replace(b"blk.1.attn_output.bias", b"blk.1.attn_outpux.bias"))
        for words in (("run", changed, "-p", "Hi", "-n", 1), ("info", changed), ("convert", changed, changed.parent / "y")):
            self.assertRefused(braid(*words), "bias has no place in a llama model")

    def test_numbers_that_a_parameter_cannot_have(self):
        """Found before anything is computed with them, in matrices where the whole file is read."""
        root = self.new_folder()
        original = paths("nemotron_h_moe")[0].read_bytes()
        norm = tensors(paths("nemotron_h_moe")[1])["backbone.layers.0.norm.weight"]
        widened = b"".join(b"\0\0" + norm.data[i:i + 2] for i in range(0, len(norm.data), 2))  # BF16 as F32
        begin = original.index(widened) - offset(original, "blk.0.attn_norm.weight")
        for name, value in (("blk.0.ssm_a", struct.pack("<f", 0.5)), ("blk.0.attn_norm.weight", struct.pack("<f", math.nan)),
                            ("blk.0.ssm_in.weight", b"\x80\x7f")):  # infinity in BF16
            at = begin + offset(original, name)
            (root / "x.gguf").write_bytes(original[:at] + value + original[at + len(value):])
            self.assertRefused(braid("convert", root / "x.gguf", root / "y"), "is damaged", name)
            self.assertFalse((root / "y").exists())
            if name != "blk.0.ssm_in.weight":
                self.assertRefused(braid("run", root / "x.gguf", "-p", "Hi", "-n", 1), "is damaged", name)

    def test_damage_between_codes_is_named_when_logits_show_it(self):
        """Loading does not read what is found: the scales of blocks, and plain values."""
        root = self.new_folder()
        folder = DATA / "tiny-chat"  # the rows of which are whole blocks
        norm = tensors(folder)["backbone.layers.0.norm.weight"]
        widened = b"".join(b"\0\0" + norm.data[i:i + 2] for i in range(0, len(norm.data), 2))  # BF16 as F32
        (root / "text.txt").write_text("Hello 12 World " * 20)
        for form, value in (("q8_0", b"\0\x7e"), ("q4_0", b"\0\x7e"), ("bf16", b"\xc0\x7f")):  # NaN in F16, and in BF16
            self.assertEqual(braid("convert", folder, root / "good.gguf", "--type", form).returncode, 0)
            data = (root / "good.gguf").read_bytes()
            at = data.index(widened) - offset(data, "blk.0.attn_norm.weight") + offset(data, "blk.0.ssm_in.weight")
            (root / "x.gguf").write_bytes(data[:at] + value + data[at + 2:])
            self.assertEqual(braid("run", root / "good.gguf", "-p", "Hi", "-n", 1).returncode, 0)
            for words in (("run", root / "x.gguf", "-p", "Hi", "-n", 1), ("eval", root / "x.gguf", "--text", root / "text.txt"),
                          ("eval", root / "good.gguf", "--text", root / "text.txt", "--kl", root / "x.gguf")):
                self.assertRefused(braid(*words), "layers.0.mixer.in_proj.weight] a weight is damaged", f"in row 0, {form.upper() if form != 'bf16' else form}")
            (root / "good.gguf").unlink()

    def test_more_experts_than_bytes(self):
        data = bytearray(paths("qwen3moe")[0].read_bytes())
        for key, value in (("block_count", 1000), ("expert_count", 16384)):
            at = data.index(f"qwen3moe.{key}".encode()) + len(f"qwen3moe.{key}") + 4
            data[at:at + 4] = struct.pack("<I", value)
        file = self.new_folder() / "x.gguf"
        file.write_bytes(data)
        self.assertRefused(braid("info", file), "too small for its experts", " experts")

    def test_tokens_that_are_not_utf8(self):
        """The weights are converted, and a note names the tokenizer."""
        root = self.new_folder()
        data = paths("llama")[0].read_bytes()
        (root / "x.gguf").write_bytes(data.replace(b"\3\0\0\0\0\0\0\0<s>", b"\3\0\0\0\0\0\0\0<\xff>"))
        made = braid("convert", root / "x.gguf", root / "y")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("note: the folder has no tokenizer", made.stderr)
        self.assertEqual(json.loads((root / "y" / "tokenizer_config.json").read_text())["eos_token"], "</s>")
        self.assertFalse((root / "y" / "tokenizer.json").exists())

    def test_a_part_that_is_missing(self):
        root = self.new_folder()
        data = paths("llama")[0].read_bytes()
        at = data.index(b"general.architecture") - 8
        value = len(b"split.count").to_bytes(8, "little") + b"split.count" + (2).to_bytes(4, "little") + b"\2\0"
        filler = b"general.fills_the_alignment"[:26]  # so that 64 bytes are added and tensors stay aligned
        value += len(filler).to_bytes(8, "little") + filler + (0).to_bytes(4, "little") + b"\0"
        count = int.from_bytes(data[16:24], "little")
        whole = data[:16] + (count + 2).to_bytes(8, "little") + data[24:at] + value + data[at:]
        (root / "m-00001-of-00002.gguf").write_bytes(whole)
        self.assertRefused(braid("info", root / "m-00001-of-00002.gguf"), "part 2 of 2 is missing", "m-00002-of-00002.gguf")

    def test_damaged(self):
        root = self.new_folder()
        for name in ("llama", "deci"):
            original = paths(name)[0].read_bytes()
            header = original.index(b"token_embd.weight")
            for seed in range(40):
                draw = random.Random(f"{name} {seed}")
                data = bytearray(original)
                for _ in range(draw.choice((1, 1, 2, 20))):
                    data[draw.randrange(header)] = draw.choice((0, 1, 127, 255, draw.randrange(256)))
                if seed % 8 == 0:
                    del data[draw.randrange(len(data)):]
                (root / "x.gguf").write_bytes(data)
                answer = braid("run", root / "x.gguf", "-p", "Hello 12", "-n", 1, "--temp", 0)
                self.assertIn(answer.returncode, (0, 1), (name, seed, answer.stderr))
                if answer.returncode:
                    self.assertOneLine(answer)
        shutil.rmtree(root)


main()
