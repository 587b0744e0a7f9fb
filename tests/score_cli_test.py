"""braid score from outside: what it prints, that paths, batches and pieces agree under --exact, and what it refuses.

usage: score_cli_test.py BRAID
"""
import json
import math
import shutil

from support.program import DATA, Case, braid, main

HYBRID, CHAT = DATA / "hf" / "nemotron-h-latent-mtp", DATA / "tiny-chat"


def score(model, lines, *flags):
    text = lines if isinstance(lines, str) else "".join(json.dumps(x) + "\n" for x in lines)
    answer = braid("score", model, "--jsonl", "-", *flags, text=text)
    said = answer.stderr if not answer.stderr.startswith("note: --activations int8") else ""  # on CPUs with tiles
    assert (answer.returncode, said) == (0, ""), (flags, answer.stderr)
    return [json.loads(line)["logprobs"] for line in answer.stdout.splitlines()]


class Score(Case):
    lines = [{"ids": [1 + i * 7 % 60 for i in range(n)]} for n in (90, 1, 2, 33, 67)]

    def test_one_number_per_token_after_the_first(self):
        found = score(HYBRID, self.lines, "--dtype", "f32")
        self.assertEqual([len(x) for x in found], [89, 0, 1, 32, 66])
        for value in sum(found, []):
            self.assertTrue(math.isfinite(value) and value < 0, value)

    def test_one_object(self):
        text = "".join(json.dumps(x) + "\n" for x in self.lines)
        for flags in ((), ("--batch", "2")):
            answer = braid("score", HYBRID, "--jsonl", "-", "--exact", "--json", *flags, text=text).stdout
            self.assertEqual(json.loads(answer), {"logprobs": score(HYBRID, self.lines, "--exact")})

    def test_exact_paths_batches_and_pieces_are_the_same_numbers(self):
        for dtype in ("f32", "bf16"):
            want = score(HYBRID, self.lines, "--dtype", dtype, "--exact", "--path", "train")
            for flags in (("train", 5), ("prefill", 3, "--chunk", 7), ("prefill", 1, "--chunk", 64), ("step", 2), ("step", 1, "-t", 1)):
                found = score(HYBRID, self.lines, "--dtype", dtype, "--exact", "--path", flags[0], "--batch", *flags[1:])
                self.assertEqual(found, want, (dtype, flags))

    def test_8_bit_activations_are_bit_identical_on_every_path(self):
        """On CPUs that do not round them (tiles, no AVX2) nothing changes."""
        folder = self.new_folder() / "four-bits"
        self.assertEqual(braid("quantize", "tiny", folder, "--format", "nvfp4").returncode, 0)
        exact = ("--exact", "--activations", "int8")
        want = score(folder, self.lines, *exact, "--path", "prefill")
        for flags in (("prefill", 3, "--chunk", 7), ("prefill", 1, "--chunk", 64), ("step", 2), ("step", 1, "-t", 1)):
            self.assertEqual(score(folder, self.lines, *exact, "--path", flags[0], "--batch", *flags[1:]), want, flags)
        plain = score(folder, self.lines, "--exact", "--path", "prefill")
        machine = json.loads(braid("info", "--machine", "--json").stdout)
        self.assertEqual(want != plain, machine["int8_unit"] in ("avx512_vnni", "avx_vnni", "avx2"))
        # For meaningless ids, at -15 each: one percent.
        apart = [abs(a - b) for a, b in zip(sum(want, []), sum(plain, []))]
        self.assertLess(sum(apart) / len(apart), 0.01 * -sum(sum(plain, [])) / len(apart))

    def test_a_completion_is_scored_after_its_prompt(self):
        line = {"prompt": "What is 2 + 3?", "completion": " It is 5."}

        def ids(text, *flags):
            return [int(i) for i in braid("tokenize", CHAT, "-p", text, *flags).stdout.split(",")]

        found, = score(CHAT, [line], "--exact")
        self.assertGreater(len(found), 1)
        whole, = score(CHAT, [{"ids": ids(line["prompt"]) + ids(line["completion"], "--no-special")}], "--exact")
        self.assertEqual(found, whole[-len(found):])
        self.assertEqual(score(CHAT, [line | {"completion": ""}]), [[]])

    def test_eval_predicts_the_same_tokens(self):
        lines = [{"prompt": "What is 2 + 3?", "completion": " It is 5."}, {"prompt": "a", "completion": ""}, {"ids": [1, 2, 3, 4, 5]}]
        text = "".join(json.dumps(x) + "\n" for x in lines)
        found = json.loads(braid("eval", CHAT, "--jsonl", "-", "--dtype", "f32", "--json", text=text).stdout)
        values = sum(score(CHAT, lines, "--dtype", "f32"), [])
        self.assertEqual((found["tokens"], found["windows"]), (len(values), 2))
        self.assertAlmostEqual(found["perplexity"] / math.exp(-sum(values) / len(values)), 1, places=5)
        for flags, says in ((["--text", "-"], "several inputs"), (["--stride", "3"], "--stride"), (["-c", "4"], "line 1] longer than the context")):
            answer = braid("eval", CHAT, "--jsonl", "-", *flags, text=text)
            self.assertEqual(answer.returncode, 1)
            self.assertIn(says, answer.stderr)
        self.assertIn("no token to predict", braid("eval", CHAT, "--jsonl", "-", text='{"ids": [1]}\n').stderr)

    def test_blank_lines_and_other_keys_are_passed_over(self):
        text = '\n{"ids": [1, 2, 3], "name": "first"}\r\n   \n{"ids": [1, 2]}'
        self.assertEqual([len(x) for x in score(HYBRID, text)], [2, 1])

    def test_a_file_as_well_as_standard_input(self):
        file = self.new_folder() / "lines.jsonl"
        file.write_text('{"ids": [5, 6, 7]}\n')
        answer = braid("score", HYBRID, "--jsonl", file, "--exact")
        self.assertEqual(json.loads(answer.stdout)["logprobs"], score(HYBRID, [{"ids": [5, 6, 7]}], "--exact")[0])

    def refused(self, text, *flags, says, model=HYBRID):
        for path in ("train", "step"):
            answer = braid("score", model, "--jsonl", "-", "--path", path, *flags, text=text)
            with self.subTest(text=text[:80], path=path):
                self.assertRefused(answer, *says)
                self.assertLess(len(answer.stderr), 600)

    def test_hostile_lines_are_one_line_and_nothing_is_printed(self):
        good = '{"ids": [1, 2, 3]}\n'
        forms = '{"ids": [1, 2, ...]} or {"prompt": "...", "completion": "..."}'
        for bad, says in (
                ("not JSON", ["standard input line 2"]),
                ('{"ids": [1, 2', ["standard input line 2"]),
                ('{"ids": [1, NaN]}', ["standard input line 2", "ids[1]"]),
                ('{"ids": [1, 2.5]}', ["ids[1]", "2.5"]),
                ('{"ids": [1, -1]}', ["ids[1]", "-1"]),
                ('{"ids": [1, 99999]}', ["standard input line 2", "no such token", "99999"]),
                ('{"ids": [1, 1e30]}', ["ids[1]"]),
                ('{"ids": [1, 99999999999999999999]}', ["ids[1]"]),
                ('{"ids": [1, "2"]}', ["ids[1]"]),
                ('{"ids": 5}', ["ids"]),
                ('{"ids": []}', ["ids", "is empty"]),
                ("[1, 2]", [forms]),
                ("5", [forms]),
                ("null", [forms]),
                ("{}", [forms]),
                ('{"prompt": "a"}', [forms]),
                ('{"ids": [1], "prompt": "a", "completion": "b"}', [forms]),
                ("[" * 100000, ["standard input line 2"]),
                ("\x00\xff", ["standard input line 2"])):
            self.refused(good + bad + "\n" + good, says=says)
        self.refused("", says=["has no lines", forms])
        self.refused("\n \n", says=["has no lines"])
        self.refused('{"prompt": 5, "completion": "b"}', says=["prompt"], model=CHAT)
        self.refused('{"prompt": "a", "completion": ["b"]}', says=["completion"], model=CHAT)
        self.refused('{"prompt": "", "completion": "b"}', says=["prompt", "has no tokens"], model=CHAT)

    def test_what_is_longer_than_context_or_model_is_refused(self):
        self.refused('{"ids": [1, 2, 3]}\n{"ids": [1, 2, 3, 4, 5, 6]}', "-c", 4, says=["line 2", "longer than the context", "6 tokens", "at most 5"])
        self.assertEqual(len(score(HYBRID, [{"ids": [1, 2, 3, 4, 5]}], "-c", "4")[0]), 4)
        limit = json.loads((CHAT / "config.json").read_text())["max_position_embeddings"]
        self.refused(json.dumps({"ids": [1] * (limit + 2)}), says=["longer than the model allows", f"at most {limit}"], model=CHAT)

    def test_flags(self):
        self.refused('{"ids": [1]}', "--batch", 0, says=["--batch", "1 to 1024"])
        for words, says in ((("score", HYBRID), "--jsonl"), (("score", HYBRID, "--jsonl", "/no/such"), "/no/such"),
                            (("score", HYBRID, "--jsonl", "-", "--path", "sideways"), "sideways"),
                            (("score", "/no/such", "--jsonl", "-"), "/no/such")):
            self.assertRefused(braid(*words, text='{"ids": [1]}'), says)


class Divergence(Case):
    """What eval --kl compares is what the two models differ in."""

    def kl(self, *words):
        answer = braid("eval", *words, "--json")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)["kl"]

    def test_an_adapter_is_of_the_model_alone(self):
        root = self.new_folder()
        model = shutil.copytree(HYBRID, root / "model")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(CHAT / name, model)
        lines = root / "lines.jsonl"
        lines.write_text(json.dumps({"ids": [1 + i * 7 % 60 for i in range(40)]}) + "\n")
        self.assertEqual(self.kl(model, "--jsonl", lines, "--kl", model, "--dtype", "f32"), 0)
        self.assertGreater(self.kl(model, "--jsonl", lines, "--kl", model, "--dtype", "f32", "--adapter", DATA / "adapter"), 1e-6)

    def test_states_are_rounded_after_each_token_unless_asked_otherwise(self):
        words = ("tiny", "--text", DATA / "calibration" / "text.txt", "-c", "64", "--kl", "tiny", "--mamba-ssm-cache-dtype", "int8")
        rounded = self.kl(*words)
        self.assertGreater(rounded, 1e-6)
        self.assertEqual(rounded, self.kl(*words, "--chunk", "1"))
        self.assertEqual(self.kl(*words, "--chunk", "64"), 0)  # a window in one pass reads no stored state


if __name__ == "__main__":
    main()
