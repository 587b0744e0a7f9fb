#!/usr/bin/env python3
"""braid data: a vocabulary is trained, a corpus tokenised with it, and its rows shown, through the binary alone.

usage: data_test.py BRAID
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

from support.program import BRAID, DATA, ENVIRONMENT, SANITIZED, Case, braid, main, terminal
from support.tensors import read_header, tensors, write_header

SPECIAL = "<|im_start|>,<|im_end|>"
TEMPLATE = ("{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def output(*words):
    done = braid(*words)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class Data(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.shared_folder()
        cls.text = "the cat sat on the mat; the cat sat on 12 mats.\n" * 20
        (cls.folder / "a.txt").write_text(cls.text)
        (cls.folder / "chat_template.jinja").write_text(TEMPLATE)
        (cls.folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
        output("data", "bpe", cls.folder / "a.txt", "--vocab", 270, "--special", SPECIAL, "-o", cls.folder / "tokenizer.json")

    def ids(self, text):
        return json.loads("[" + output("tokenize", self.folder, "-p", text) + "]")

    def show(self, *arguments):
        return json.loads(output("data", "show", *arguments, "--json"))

    def refused(self, *arguments, says):
        self.assertRefused(braid(*arguments), says)

    def test_a_vocabulary_is_read_back(self):
        document = json.loads((self.folder / "tokenizer.json").read_text())
        self.assertEqual(len(document["model"]["vocab"]), 270)
        self.assertEqual(self.ids("<|im_start|>"), [0])
        self.assertLess(len(self.ids(self.text)), len(self.text) / 2)

    def test_a_tokenizer_has_a_name_as_a_model_has(self):
        tiny = Path(__file__).parent.parent / "models" / "tiny"
        self.assertEqual(output("tokenize", "tiny", "-p", "the cat"), output("tokenize", tiny, "-p", "the cat"))
        text = self.folder / "a.txt"
        self.assertEqual(self.show(text, "-m", "tiny"), self.show(text, "-m", tiny))
        for name in ("tiny", tiny):
            output("data", "tokenize", text, "-o", self.folder / f"by-{Path(name).is_dir()}", "--tokenizer", name)
        self.assertEqual((self.folder / "by-False.bin").read_bytes(), (self.folder / "by-True.bin").read_bytes())
        self.refused("tokenize", "org/name", "-p", "x", says="not in the Hugging Face cache")

    def test_a_row_beyond_the_epoch_is_refused(self):
        self.show(self.folder / "a.txt", "-m", self.folder, "--row", 0)
        self.refused("data", "show", self.folder / "a.txt", "-m", self.folder, "--row", 99, says="[--row] out of range; got 99; expected 0 to 0")

    def test_a_corpus_is_tokenised_and_shown(self):
        output("data", "tokenize", self.folder / "a.txt", "-o", self.folder / "corpus", "--tokenizer", self.folder)
        ids = self.ids(self.text) + [1]
        self.assertEqual((self.folder / "corpus.bin").read_bytes(), struct.pack(f"<{len(ids)}H", *ids))
        row = self.show(self.folder / "corpus", "--length", 10_000)
        self.assertEqual(row["ids"], ids)
        self.assertEqual(row["targets"], ids[1:] + [-1])
        self.assertEqual(row["sequences"], [{"start": 0, "length": len(ids)}])

    def test_the_answer_is_trained_with_the_end_of_its_turn(self):
        line = {"messages": [{"role": "user", "content": "cat?"}, {"role": "assistant", "content": "mat"}]}
        (self.folder / "chat.jsonl").write_text(json.dumps(line) + "\n")
        shown = output("data", "show", self.folder / "chat.jsonl", "-m", self.folder)
        self.assertIn("<|im_start|>user\ncat?<|im_end|>\n<|im_start|>assistant\n[mat<|im_end|>]\n", shown)
        self.refused("data", "tokenize", self.folder / "chat.jsonl", "-o", self.folder / "no", "--tokenizer", self.folder,
                     says="has conversations")
        self.assertFalse((self.folder / "no.bin").exists())

    def test_results_as_json(self):
        done = lambda *words: json.loads(output(*words, "--json"))
        tokenizer, text = self.folder / "again.json", self.folder / "a.txt"
        bpe = done("data", "bpe", text, "--vocab", 270, "--special", SPECIAL, "-o", tokenizer)
        self.assertEqual((bpe["file"], bpe["tokens"]), (str(tokenizer), 270))
        corpus = done("data", "tokenize", text, "-o", self.folder / "counted", "--tokenizer", self.folder)
        self.assertEqual((corpus["tokens"], corpus["documents"]), (len(self.ids(self.text)) + 1, 1))
        tasks = Path(__file__).parent.parent / "bench" / "data" / "tiny-qa.jsonl"
        synth = done("data", "synth", "--out", self.folder / "synth", "--train", 7, "--valid", 2, "--tasks", 1, tasks)
        self.assertEqual(synth, {"folder": str(self.folder / "synth"), "train": 7, "valid": 2, "tasks": 1})
        self.assertEqual(len((self.folder / "synth" / "train.jsonl").read_text().splitlines()), 7)
        self.refused("data", "synth", "--out", self.folder / "no", text, says="line 1] is not valid JSON")
        self.assertFalse((self.folder / "no").exists())
        grad = done("grad", DATA / "tiny-chat", "--ids", "5,6,7", "-o", self.folder / "g.safetensors")
        self.assertGreater(grad["loss"], 0)
        new = done("new", "hybrid-8.5m", self.folder / "new", "--layers", 2)
        self.assertEqual((new["layers"], new["format"]), (2, "bf16"))

    def test_gradients_of_recurrent_depth_are_slopes_of_the_loss(self):
        folder, out = self.folder / "deep", self.folder / "deep.safetensors"
        shutil.copytree(DATA / "huginn", folder)
        header, body = read_header(folder / "model.safetensors")

        def loss():
            return json.loads(output("grad", folder, "--ids", "5,6,7,8,9", "-o", out, "--json"))["loss"]

        loss()
        gradients = tensors(out)
        for name in ("transformer.core_block.0.attn.Wqkv.weight", "transformer.adapter.weight", "transformer.coda.0.mlp.proj.weight"):
            begin, end = header[name]["data_offsets"]
            weights, slopes = (struct.unpack(f"<{(end - begin) // 4}f", part) for part in (body[begin:end], gradients[name].data))
            size, sides = sum(g * g for g in slopes) ** 0.5, []
            for step in (2e-3, -2e-3):  # along the gradient, whose slope is its own length
                moved = struct.pack(f"<{len(weights)}f", *(w + step * g / size for w, g in zip(weights, slopes)))
                write_header(folder / "model.safetensors", header, body[:begin] + moved + body[end:])
                sides.append(loss())
            self.assertAlmostEqual((sides[0] - sides[1]) / 4e-3 / size, 1, 2, name)
            write_header(folder / "model.safetensors", header, body)

    def test_stopped_it_leaves_no_folder(self):
        process = subprocess.Popen([BRAID, "data", "synth", "--out", self.folder / "stopped", "--train", "10000000", "--valid", "1", "--tasks", "1"],
                                   stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)
        self.assertEqual([path.name for path in self.folder.iterdir() if "stopped" in path.name], [])

    def test_stopped_tokenize_leaves_no_file(self):
        text = self.folder / "long.txt"
        text.write_text(self.text * (1 + (1 << 25) // len(self.text)))
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([BRAID, "data", "tokenize", text, "-o", self.folder / "halted", "--tokenizer", self.folder],
                                       stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
            while process.poll() is None and not list(self.folder.glob(".halted.bin.*.part")):
                time.sleep(0.001)
            process.send_signal(number)
            self.assertEqual((process.communicate(timeout=60)[1], process.returncode), (b"", 128 + number))
            self.assertEqual([path.name for path in self.folder.iterdir() if "halted" in path.name], [])

    def on_a_terminal(self, *words):
        """What a command that works for half a second or more writes to a terminal: before the last bar is gone, and after."""
        master, slave = terminal()
        process = subprocess.Popen([BRAID, *map(str, words)], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=ENVIRONMENT)
        os.close(slave)
        time.sleep(0.1)  # bars begin after two seconds, which it sleeps through
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.2)
        process.send_signal(signal.SIGCONT)
        seen = b""
        try:
            while piece := os.read(master, 65536):
                seen += piece
        except OSError:  # all of its other end is closed
            pass
        os.close(master)
        self.assertEqual(process.wait(), 0, seen)
        bar, _, result = seen.decode().rpartition("\r\x1b[K")
        return bar, result

    def test_a_bar_is_gone_before_the_result(self):
        if SANITIZED:
            self.skipTest("so much work takes a minute with a sanitizer")
        bar, result = self.on_a_terminal("data", "synth", "--out", self.folder / "bar", "--train", "20000", "--valid", "1", "--tasks", "1")
        self.assertIn("conversations  [", bar)
        self.assertEqual(result, f"{self.folder / 'bar'}: 20000 conversations to learn from, 1 to watch, 1 tasks of each kind\r\n")
        text = self.folder / "long.txt"
        text.write_text("What is 17 + 25? It is 42, and 3 more are 45.\n" * 4000)
        bar, result = self.on_a_terminal("eval", "tiny", "--text", text)
        self.assertIn("[", bar)
        self.assertTrue(result.startswith("perplexity "), result)

    def test_a_generated_source_knows_its_floor(self):
        shown = output("data", "show", "--kind", "modular", "--vocab", 128, "--length", 10)
        self.assertIn("no model goes below 2.049607 nats a target", shown)

    def test_a_recipe_shows_what_it_trains_on(self):
        model = DATA / "tiny-chat"
        (self.folder / "r.toml").write_text(f'init = "{model}"\nout = "{self.folder}/out"\nbatch = 2\nlength = 12\n'
                                            '[data]\nkind = "markov"\nstates = 9\n')
        row = self.show(self.folder / "r.toml")
        self.assertEqual(len(row["ids"]), 12)
        self.assertLess(max(row["ids"]), 9)
        self.assertNotEqual(self.show(self.folder / "r.toml", "seed=3")["ids"], row["ids"])
        self.refused("data", "show", self.folder / "r.toml", "data.knd=text", says="data.kind")
        self.refused("data", "show", self.folder / "r.toml", "--length", 3, says="[--length] does nothing with a recipe")
        self.refused("data", "show", self.folder / "a.txt", "seed=3", says="one argument too many")

    def test_mistakes(self):
        (self.folder / "empty").mkdir(exist_ok=True)
        self.refused("data", "show", self.folder / "empty", "-m", self.folder, says="holds no documents")
        self.refused("data", "show", self.folder / "a.txt", says="needs a tokenizer")
        self.refused("data", "show", "--kind", "markof", says="unknown choice")
        self.refused("data", "shw", says="unknown subcommand")
        self.refused("data", "bpe", self.folder / "a.txt", "--vocab", 10, says="[--vocab] out of range; got 10")
        self.refused("data", "tokenize", self.folder / "a.txt", "-o", self.folder / "no", "--tokenizer", self.folder, "--end",
                     "<none>", says="no such token")


if __name__ == "__main__":
    main()
