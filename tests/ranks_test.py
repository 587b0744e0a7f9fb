"""braid run, eval and bench on several ranks: the text, the log-probabilities and the scores of one, and the bytes that
formulas say.

usage: ranks_test.py BRAID
"""
import json
import math
import os
import re
import signal
import subprocess
import time
import unittest
from pathlib import Path

from support.program import DATA, ENVIRONMENT, ONE_LINE, Case, braid, main, mpirun, start

PROMPT = [7, 100, 33, 60, 9, 12, 130, 41, 5, 77, 110, 18]
TINY = Path(__file__).resolve().parent.parent / "models" / "tiny"
FIXTURES = Path(os.environ["BRAID_FIXTURES"]) / "hf" if "BRAID_FIXTURES" in os.environ else None
MOST = 1e-4  # between log-probabilities


def words_of(tp=1, pp=1, ep=1):
    """The options of a division, and its ranks."""
    return ["--tp", tp, "--pp", pp, "--ep", ep], pp * max(tp, ep)


def json_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def answer(model, *words, run=braid):
    """The greedy answer to a prompt of ids: its ids, and the log-probabilities of each with three others."""
    out = json_of(run("run", model, "--ids", ",".join(map(str, PROMPT)), "-n", 12, "--temp", 0, "--ignore-eos", "--dtype",
                      "f32", "--json", "--logprobs", 3, *words))
    tokens = [entry["top_logprobs"] + [entry] for entry in out["logprobs"]["content"]]
    return out["ids"], [[x["logprob"] for x in token] for token in tokens]


class Answers(Case):
    def assertSame(self, got, want, most=MOST):
        self.assertEqual(got[0], want[0])
        for a, b in zip(got[1], want[1]):
            for x, y in zip(a, b):
                self.assertLessEqual(abs(x - y), most)

    def try_all(self, model, divisions, *words):
        want = answer(model, *words)
        for division in divisions:
            with self.subTest(model=Path(model).name, **division):
                self.assertSame(answer(model, *words_of(**division)[0], *words), want)

    def test_the_small_model(self):
        self.try_all(TINY, [{"tp": 2}, {"tp": 4}, {"pp": 3}, {"ep": 2}, {"ep": 4, "tp": 2}, {"tp": 2, "pp": 2},
                            {"ep": 2, "pp": 2}])

    def test_other_options_are_refused(self):
        port = 22000 + os.getpid() % 20000
        words = ("run", TINY, "--ids", "1,2", "-n", 1, "--tp", 2, "--hosts", f"127.0.0.1:{port},127.0.0.2:{port}")
        ranks = [start(*words, "--rank", rank, "--dtype", dtype, stderr=subprocess.PIPE) for rank, dtype in enumerate(("f32", "bf16"))]
        for rank in ranks:
            _, stderr = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 1)
            self.assertIn("different options; got --dtype = bf16 on rank 1; expected --dtype = f32, as on rank 0", stderr)

    def refused_by_both(self, command, here, there, says):
        """Two ranks with other words: both say the same in one line."""
        port = 23000 + os.getpid() % 20000
        words = (*command, "--tp", 2, "--hosts", f"127.0.0.1:{port},127.0.0.2:{port}")
        ranks = [start(*words, "--rank", rank, *more, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank, more in enumerate((here, there))]
        for rank in ranks:
            stdout, stderr = rank.communicate(timeout=60)
            self.assertEqual((rank.returncode, stdout), (1, ""), stderr)
            self.assertRegex(stderr, ONE_LINE)
            self.assertIn("were started with different options; got " + says, stderr)

    def test_every_option_is_compared(self):
        folder = self.new_folder()
        table = folder / "times.csv"
        table.write_text("op,nodes,per_node,bytes,algorithm,us\nall_reduce,2,1,1024,ring,1\n")
        for name, text in (("a", "One text. "), ("b", "Another. ")):
            (folder / name).mkdir()
            (folder / name / "text").write_text(text * 20)
            row = {"task": "copy", "messages": [{"role": "user", "content": text}], "answers": [text]}
            (folder / name / "tasks").write_text(json.dumps(row) + "\n")
        run, text, tasks = ("run", TINY), ("eval", TINY, "-c", 64), ("eval", TINY)
        for command, here, there, says in (
                (run, ("--ids", "1,2", "-n", 2, "--seed", 1), ("--ids", "1,2", "-n", 2, "--seed", 2), "--seed = 2 on rank 1; expected --seed = 1"),
                (run, ("--ids", "1,2", "-n", 2), ("--ids", "1,2", "-n", 3), "--predict = 3 on rank 1; expected --predict = 2"),
                (run, ("--ids", "1,2", "-n", 2), ("--ids", "1,3", "-n", 2), "--ids = 1,3 on rank 1; expected --ids = 1,2"),
                (run, ("-p", "a", "-n", 2), ("-p", "a", "-n", 2, "--temp", 1), "--temp = 1 on rank 1; expected --temp = not given"),
                (run, ("-p", "a", "--stop", "x"), ("-p", "a", "--stop", "y"), "--stop = y on rank 1; expected --stop = x"),
                (run, ("--ids", "1,2", "--times", table), ("--ids", "1,2"), "--times = not given on rank 1; expected --times = given"),
                (run, ("--ids", "1,2"), ("--ids", "1,2", "--times", table), "--times = given on rank 1"),
                (text, ("--text", folder / "a" / "text"), ("--text", folder / "b" / "text"), "--text = a file of 180 bytes, "),
                (text, ("--text", folder / "a" / "text", "--stride", 8), ("--text", folder / "a" / "text"), "--stride = not given on rank 1"),
                (tasks, ("--tasks", folder / "a" / "tasks", "-n", 2), ("--tasks", folder / "a" / "tasks", "-n", 3), "--predict = 3 on rank 1"),
                (tasks, ("--tasks", folder / "a" / "tasks"), ("--tasks", folder / "b" / "tasks"), "--tasks = a file of "),
                (("bench", TINY, "-p", 0, "-r", 1), ("-n", 2), ("-n", 3), "--n-gen = 3 on rank 1; expected --n-gen = 2")):
            with self.subTest(says=says):
                self.refused_by_both(command, here, there, says)

    def test_prompts_and_folders_may_differ(self):
        """The first rank's prompt is everybody's, and a file of the same bytes is the same file."""
        folder, port = self.new_folder(), 24000 + os.getpid() % 20000
        for name in "ab":
            (folder / name).mkdir()
            (folder / name / "text").write_text("One text. " * 40)
        hosts = ("--tp", 2, "--hosts", f"127.0.0.1:{port},127.0.0.2:{port}")
        for command, here, there in ((("run", TINY, "-n", 4, "--temp", 0, "--dtype", "f32"), ("-p", "The"), ("-p", "A", "-t", 1)),
                                     (("eval", TINY, "-c", 64), ("--text", folder / "a" / "text"), ("--text", folder / "b" / "text", "--json"))):
            other = start(*command, *there, *hosts, "--rank", 1, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            done = braid(*command, *here, *hosts, "--rank", 0)
            self.assertEqual((other.communicate(timeout=60), other.returncode), (("", ""), 0))
            self.assertEqual(done.returncode, 0, done.stderr)
            last = [out.splitlines()[-1] for out in (done.stdout, braid(*command, *here).stdout)]  # of eval: what was scored
            self.assertEqual(*last)

    def by_hand(self, ranks, *words):
        """The answer of ranks that each are started with the list of addresses."""
        port = 21000 + os.getpid() % 20000
        hosts = ",".join(f"127.0.0.{rank + 1}:{port}" for rank in range(ranks))
        others = [start("run", TINY, "--ids", ",".join(map(str, PROMPT)), "-n", 12, "--temp", 0, "--ignore-eos", "--dtype", "f32",
                        "--json", "--logprobs", 3, "--hosts", hosts, "--rank", rank, *words, stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE) for rank in range(1, ranks)]
        got = answer(TINY, "--hosts", hosts, "--rank", 0, *words)
        for other in others:
            stdout, stderr = other.communicate(timeout=60)
            self.assertEqual((other.returncode, stdout, stderr), (0, "", ""))
        return got

    def test_ranks_that_are_started_by_hand(self):
        """Sums round a ring, by NVRAR's cells, and as without a choice; ranks are on nodes of one."""
        want = answer(TINY)
        self.assertSame(self.by_hand(2, "--tp", 2), want)
        table = self.new_folder() / "times.csv"
        for name in ("ring", "nvrar"):
            table.write_text(f"op,nodes,per_node,bytes,algorithm,us\nall_reduce,3,1,1024,{name},1\n")
            self.assertSame(self.by_hand(3, "--pp", 3, "--times", table), want)
            self.assertSame(self.by_hand(2, "--tp", 2, "--times", table), want)
        for words, says in ((("--hosts", "127.0.0.1:9"), "one rank needs no list"), (("--rank", 1), "applies only with --hosts; got 1"),
                            (("--hosts", "127.0.0.1:9,127.0.0.1:x", "--tp", 2), "is not an address of a rank"),
                            (("--hosts", "127.0.0.1:9,127.0.0.2:9", "--rank", 2, "--tp", 2), "[--rank] out of range"),
                            (("--hosts", "127.0.0.1:9,127.0.0.2:9", "--ranks", 3), "is not what --hosts lists"),
                            (("--times", table), "one rank sends nothing"),
                            (("--ep", 17), "expected for every rank an expert")):
            done = braid("run", TINY, "-p", "x", "-n", 1, *words)
            self.assertEqual(done.returncode, 1, words)
            self.assertRegex(done.stderr, ONE_LINE)
            self.assertIn(says, done.stderr)

    def test_families(self):
        hybrid = [{"tp": 2}, {"tp": 4}, {"pp": 2}, {"ep": 4}, {"ep": 2, "tp": 4}, {"tp": 2, "pp": 2}]
        self.try_all(DATA / "hf" / "nemotron-h-latent-mtp", hybrid)
        self.try_all(DATA / "hf" / "nemotron-h-legacy", [{"tp": 2}, {"tp": 2, "pp": 2}, {"ep": 4}])
        self.try_all(DATA / "hf" / "nemotron-nas", [{"tp": 2}, {"pp": 3}])
        self.try_all(DATA / "hf" / "gpt2", [{"tp": 2}, {"pp": 2}])  # biases on the outputs of blocks

    @unittest.skipUnless(FIXTURES, "BRAID_FIXTURES is not set")
    def test_fixtures(self):
        dense, experts = [{"tp": 2}, {"tp": 4}, {"pp": 3}, {"tp": 2, "pp": 2}], [{"ep": 2}, {"ep": 4, "tp": 4}]
        for name in ("llama", "llama-tied", "nemotron", "qwen3", "nemotron-h-dense"):
            self.try_all(FIXTURES / name, dense)
        for name in ("nemotron-h-moe", "nemotron-h-latent-mtp", "qwen3-moe", "nemotron-h-puzzle", "nemotron-h-groups"):
            self.try_all(FIXTURES / name, dense + experts)

    def test_weights_in_codes(self):
        # Unrounded activations: another order of sums would be rounded to other bytes.
        quantised = [DATA / "hf" / "nemotron-h-modelopt-nvfp4"]
        if FIXTURES:
            quantised += [FIXTURES / "nemotron-h-nvfp4", FIXTURES / "nemotron-h-fp8"]
        for model in quantised:
            self.try_all(model, [{"tp": 2}, {"ep": 2}, {"tp": 2, "pp": 2}])

    def test_gguf(self):
        files = sorted((FIXTURES.parent / "gguf").glob("*.gguf")) if FIXTURES else sorted((DATA / "gguf").glob("*.gguf"))
        self.assertTrue(files)
        for file in files:
            self.try_all(file, [{"pp": 2}])
            if "IQ4_NL" not in file.name:  # whose attention_out is one block of 256 wide in places
                self.try_all(file, [{"tp": 2}, {"tp": 2, "pp": 2}, {"ep": 4}])
                continue
            answer = braid("run", file, "--ids", "1,2", "--tp", 2)
            self.assertRefused(answer, "o_proj.weight] is stored in blocks of 256 columns", "try --pp")

    def test_drafts_change_no_token(self):
        for draft in ("off", "ngram", "mtp"):
            got = answer(TINY, "--tp", 4, "--draft", draft, "-n", 40)
            if draft == "off":
                want = got
            self.assertSame(got, want, 0)
        self.assertSame(answer(TINY, "--tp", 4, "--draft-model", TINY, "-n", 40), want, 0)

    def test_exact_answers_do_not_depend_on_pieces(self):
        for division in ({"tp": 4}, {"ep": 4}, {"tp": 2, "pp": 2}):
            words = ("--exact", *words_of(**division)[0])
            self.assertSame(answer(TINY, *words, "--chunk", 3), answer(TINY, *words), 0)

    def test_prompts_are_read_in_pieces(self):
        words = ("--chunk", 5, "--temp", 0)
        want = answer(TINY, "--chunk", 5)
        for division in ({"tp": 2}, {"pp": 2}, {"ep": 4}):
            self.assertSame(answer(TINY, *words_of(**division)[0], *words), want)

    def test_draws_have_the_seed_of_one(self):
        words = ("run", TINY, "-p", "The", "-n", 24, "--temp", 1, "--seed", 5, "--dtype", "f32", "--json")
        want = json_of(braid(*words))
        self.assertEqual(json_of(braid(*words, "--tp", 2))["ids"], want["ids"])

    def test_standard_input_is_read_by_one(self):
        words = ("run", TINY, "-n", 12, "--temp", 0, "--dtype", "f32")
        want = braid(*words, text="Once there was")
        got = braid(*words, "--tp", 2, text="Once there was")
        self.assertEqual((got.returncode, got.stdout), (0, want.stdout), got.stderr)

    def test_mpirun(self):
        want = answer(TINY)
        for division in ({"tp": 2}, {"tp": 2, "pp": 2}):
            words, ranks = words_of(**division)
            self.assertSame(answer(TINY, *words, run=lambda *w, ranks=ranks: mpirun(ranks, *w)), want)
        done = mpirun(2, "run", TINY, "-p", "a", "--tp", 3)
        self.assertEqual(done.returncode, 1)
        self.assertIn("got 2; expected 3; try mpirun -np 3", done.stderr)


class Scores(Case):
    def test_tasks(self):
        rows = [{"task": "copy", "messages": [{"role": "user", "content": f"Say {word}."}], "answers": [word]}
                for word in ("yes", "no", "seven", "blue", "north")]
        folder = self.new_folder()
        (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = ("eval", TINY, "--tasks", folder / "tasks.jsonl", "-n", 24, "--dtype", "f32", "--slots", 3)
        texts = []
        for i, division in enumerate(({}, {"tp": 2}, {"pp": 2}, {"ep": 4})):
            done = braid(*words, "--answers", folder / f"{i}.jsonl", "--json", *words_of(**division)[0])
            score = json_of(done)
            texts.append(((folder / f"{i}.jsonl").read_text(), score))
        for other in texts[1:]:
            self.assertEqual(other, texts[0])

    def test_perplexity(self):
        folder = self.new_folder()
        (folder / "text").write_text("It was a bright cold day, and the clocks were striking. " * 12)
        words = ("eval", TINY, "--text", folder / "text", "-c", 64, "--dtype", "f32", "--json")
        want = json_of(braid(*words))
        for division in ({"tp": 2}, {"tp": 4}, {"pp": 2}, {"tp": 2, "pp": 2}):
            got = json_of(braid(*words, *words_of(**division)[0]))
            self.assertEqual(got["tokens"], want["tokens"])
            self.assertLessEqual(abs(got["loss"] - want["loss"]), 1e-5)


class Bytes(Case):
    """What ranks send for a generated token, from the config alone."""

    def sent(self, model, **division):
        words, _ = words_of(**division)
        row = json_of(braid("bench", model, "-p", 0, "-n", 4, "-r", 1, "-o", "json", *words))[0]
        self.assertNotIn("floor_ns", row)
        self.assertGreater(row["avg_ts"], 0)
        return row["sent_bytes_per_token"]

    def wanted(self, model, tp=1, pp=1, ep=1):
        config = json.loads((Path(model) / "config.json").read_text())
        hidden, vocabulary = config["hidden_size"], config["vocab_size"]
        kinds = config.get("layers_block_type") or ["full_attention", "mlp"] * config["num_hidden_layers"]
        width = max(tp, ep)

        def summed(values, ranks):  # recursive doubling over a power of two
            return ranks * int(math.log2(ranks)) * values * 4

        total = pp * width - 1  # a byte from the first rank to all
        total += (width // tp) * summed(hidden, tp)  # looked up
        for kind in kinds:
            total += summed(hidden, width) if kind == "moe" else (width // tp) * summed(hidden, tp)
            groups = config.get("n_groups", 0)
            if kind == "linear_attention" and groups % tp:  # squares of groups of which ranks have heads
                total += (width // tp) * summed(groups, tp)
        total += (width // tp) * (tp - 1) * vocabulary * 4  # logits, to every other rank
        return total + (pp - 1) * width * (hidden + vocabulary) * 4  # between stages, and to all of them

    def test_bytes_are_those_of_the_formula(self):
        models = [TINY] + ([FIXTURES / "llama"] if FIXTURES else [])
        for model in models:
            for division in ({"tp": 2}, {"tp": 4}, {"pp": 2}, {"tp": 2, "pp": 2}, {"ep": 4}, {"ep": 4, "tp": 2}):
                if "ep" in division and model != TINY:
                    continue
                with self.subTest(model=model.name, **division):
                    # Stages look the token up once, and have the logits once.
                    got, want = self.sent(model, **division), self.wanted(model, **division)
                    self.assertEqual(got, want)

    def test_the_table(self):
        done = braid("bench", TINY, "-p", 8, "-n", 2, "-r", 1, "--tp", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("sent/token", done.stdout)
        self.assertIn("2 ranks (tp 2, pp 1, ep 1), ", done.stdout)


class Ends(Case):
    def refused(self, *words, says):
        self.assertRefused(braid("run", TINY, "-p", "a", "-n", 2, *words), *says)

    def test_cuts_that_cannot_be(self):
        self.refused("--tp", 3, says=("[--tp]", "got 3 for 6 heads of attention that share 2 keys and values", "try --tp"))
        self.refused("--tp", 16, says=("[--tp]", "8 heads of Mamba", "try --tp 6"))
        self.refused("--ep", 17, says=("[--ep]", "16 experts", "try --ep 16"))
        self.refused("--ep", 3, "--tp", 2, says=("[--ep]", "a divisor or a multiple of 2"))
        self.refused("--pp", 11, says=("[--pp]", "at most 10", "try --pp 10"))
        self.refused("--ranks", 4, says=("[--ranks]", "try --tp 4"))
        self.refused("--ranks", 3, "--tp", 2, says=("[--ranks]", "got 3; expected 2"))
        self.refused("--tp", 0, says=("[--tp]", "1 to 256"))
        self.refused("--tp", 2, "--adapter", "x", says=("[--adapter]", "braid merge"))
        self.refused("--tp", 2, "--dump-state", "x", says=("[--dump-state]", "one rank"))
        self.refused("--pp", 2, "--draft", "mtp", says=("[--draft]", "--pp"))
        answer = braid("run", DATA / "hf" / "nemotron-nas", "--ids", "1", "--ep", 2)
        self.assertRefused(answer, "[--ep]", "has no experts")
        answer = braid("run", DATA / "huginn", "--ids", "1", "--tp", 2)
        self.assertRefused(answer, "[--tp]", "recurrent depth")

    def test_a_killed_rank_ends_the_run_by_name(self):
        run = start("run", TINY, "--ids", "1,2,3", "-n", 4000, "--ignore-eos", "-c", 4096, "--chunk", 3, "--tp", 2, stdout=-1, stderr=-1)
        self.addCleanup(run.kill)
        self.assertTrue(run.stdout.read(1))
        with open(f"/proc/{run.pid}/task/{run.pid}/children", encoding="ascii") as children:
            os.kill(int(children.read().split()[0]), signal.SIGKILL)
        _, stderr = run.communicate(timeout=30)
        self.assertEqual(run.returncode, 1)
        self.assertRegex(stderr, r"braid: \[[^\n]+\] [^\n]+\n\Z")
        self.assertIn("rank 1 was killed by signal 9", stderr)

    def test_ctrl_c_ends_all(self):
        run = start("run", TINY, "--ids", "1,2,3", "-n", 4000, "--ignore-eos", "-c", 4096, "--chunk", 3, "--tp", 2, stdout=-1, stderr=-1)
        self.addCleanup(run.kill)
        self.assertTrue(run.stdout.read(1))
        with open(f"/proc/{run.pid}/task/{run.pid}/children", encoding="ascii") as children:
            child = int(children.read().split()[0])
        os.kill(child, signal.SIGINT)  # which alone decides nothing
        time.sleep(0.2)
        self.assertIsNone(run.poll())
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=30)
        self.assertEqual(run.returncode, 130)
        self.assertFalse(os.path.exists(f"/proc/{child}/exe"))


if __name__ == "__main__":
    main()
