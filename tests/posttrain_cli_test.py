"""Preferences, policies and distillation from outside: one-line refusals, resumption to the bit, and rollouts whose
log-probabilities the trainer computes again exactly.

usage: posttrain_cli_test.py BRAID
"""
import json
import math
import shutil
import struct

from support.program import ENVIRONMENT, braid, main
from support.tensors import write_header
from support.training import CHAT, HYBRID, TrainCase, state_of

PAIRS = [{"prompt_ids": [1, 2 + i], "chosen_ids": [5, 6 + i], "rejected_ids": [9] * (1 + i % 3)} for i in range(7)]
ROLLOUTS = [{"group": i // 2, "prompt_ids": [1, 2 + i // 2], "completion_ids": [5, 6 + i][:1 + i % 2], "reward": i % 3,
             "logprobs": [-3, -4][:1 + i % 2]} for i in range(8)]


class Posttrain(TrainCase):
    recipe = f'init = "{HYBRID}"\nsteps = 6\nbatch = 2\ndtype = "f32"\n[log]\njsonl = "log.jsonl"\n'

    def written(self, lines):
        path = self.root / "lines.jsonl"
        path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
        return f"data.path={path}"

    def preference(self, lines, *words):
        return "data.kind=preference", "preference.kind=dpo", self.written(lines), *words

    def policy(self, lines, *words):
        return "data.kind=rollouts", "policy.advantage=leave-one-out", self.written(lines), *words

    def logged(self):
        return [json.loads(line) for line in (self.out / "log.jsonl").read_text().splitlines()]

    def test_bad_answers(self):
        good = ROLLOUTS[:2]
        bad = {"a single answer": [*good, {**ROLLOUTS[2], "group": 7}],
               "reward is out of range; got nan": [{**good[0], "reward": math.nan}, good[1]],
               "logprobs[0] is out of range; got nan": [{**good[0], "logprobs": [math.nan]}, good[1]],
               "logprobs has another length": [{**good[0], "logprobs": []}, good[1]],
               "completion_ids[0] is out of range": [{**good[0], "completion_ids": [10**6]}, good[1]]}
        for says, lines in bad.items():
            self.refused(*self.policy(lines), says=says)
        self.refused(*self.preference([{"prompt": "a", "chosen": "b", "rejected": "c"}]), says="text needs a tokenizer")
        self.refused(*self.preference(PAIRS, "preference.kind=rpo"), says="chosen_reward")
        self.refused(*self.preference(PAIRS, "length=2"), says="do not fit; got 3 tokens")
        self.assertFalse(self.out.exists())

    def test_bad_recipes(self):
        pairs = self.preference(PAIRS)
        self.refused(*pairs, "preference.kind=dp0", says="try dpo")
        self.refused(*pairs, "preference.beta=0", says="preference.beta is out of range")
        self.refused(*pairs, "loss.z=1", says="[loss.z] cannot be combined with [preference]")
        self.refused(*pairs, "policy.advantage=mean", says="cannot be combined with policy.advantage")
        self.refused(*pairs, f"distill.teacher={HYBRID}", says="cannot be combined with [preference]")
        self.refused(*pairs, "loss.goldfish_k=3", says="cannot be combined with answers")
        self.refused(self.written(PAIRS), "data.kind=preference", says="expected [preference] kind")
        self.refused("data.kind=markov", "length=8", f"distill.teacher={CHAT}", says="has another vocabulary; got ")
        self.refused("data.kind=markov", "length=8", f"distill.teacher={CHAT}", "--dry-run", says="has another vocabulary; got ")
        self.refused("data.kind=markov", "length=8", "distill.teacher=/none", says="[/none]")
        self.refused("data.kind=markov", "length=8", f"distill.teacher={HYBRID}", "distill.cache=c", says="needs distill.top_k")
        self.refused("data.kind=markov", "length=8", f"distill.teacher={HYBRID}", "distill.weight=0", "--dry-run", says="[distill] trains nothing")
        self.refused("data.kind=markov", "length=8", f"distill.teacher={HYBRID}", "distill.top_k=4", f"distill.cache={self.root / 'c'}",
                     says="got no end; expected 1 to 400000; try no cache: generated rows never come again")
        rollouts = self.policy(ROLLOUTS)
        self.refused(*rollouts, "policy.dual_clip=0.5", says="is not above 1")
        self.refused(*rollouts, "policy.ratio=sequence", "policy.importance_cap=2", says="cannot be combined")
        self.assertFalse(self.out.exists())

    def test_ranks_whose_rows_have_no_target(self):
        """A held-out set of three rows on two ranks, and rows that goldfish leaves nothing of: each rank has the same
        sums, so that they end and log what one rank does."""
        ids = self.root / "ids.safetensors"
        write_header(ids, {"batches": {"dtype": "I64", "shape": [3, 2, 3], "data_offsets": [0, 144]}},
                     struct.pack("<18q", *(i * 7 % 50 for i in range(18))))
        held = ("data.validation=0.4", "eval.every=1", "eval.batches=9", "steps=3")
        distill = ("data.kind=ids", f"data.path={ids}", f"distill.teacher={HYBRID}", "distill.ce=0.5", "loss.goldfish_k=2",
                   "optimizer.lr=1e-3", "steps=6")
        for words_of in (lambda: distill, lambda: self.preference(PAIRS, *held), lambda: self.policy(ROLLOUTS[:6], *held)):
            words = words_of()
            for ranks in ("1", "2"):
                shutil.rmtree(self.out, ignore_errors=True)
                self.trained(*words, *(("--ranks", ranks) if ranks == "2" else ()))
                lines = [{key: x for key, x in line.items() if "loss" in key or key == "skipped"} for line in self.logged()]
                if ranks == "1":
                    want = lines
            self.assertEqual([x.keys() for x in lines], [x.keys() for x in want])
            for a, b in zip(lines, want):
                for key in b:
                    self.assertAlmostEqual(a[key] or 0, b[key] or 0, delta=1e-5)

    def test_a_teacher_of_other_tokens(self):
        teacher = self.root / "teacher"
        shutil.copytree(CHAT, teacher)
        text = (teacher / "tokenizer.json").read_text()
        vocabulary = json.loads(text)
        words = vocabulary["model"]["vocab"]
        a, b = list(words)[40:42]
        words[a], words[b] = words[b], words[a]
        (teacher / "tokenizer.json").write_text(json.dumps(vocabulary))
        self.refused(f"init={CHAT}", "data.kind=markov", "length=8", f"distill.teacher={teacher}", says="differs; got ")

    def test_resumption_keeps_the_reference_and_every_bit(self):
        for name, lines, task in (("pairs", PAIRS, self.preference), ("rollouts", ROLLOUTS, self.policy)):
            words = task(lines, "preference.nll=0.1" if lines is PAIRS else "policy.kl=0.1")
            self.out = self.root / name / "whole"
            self.trained(*words)
            whole = state_of(self.out, 6)
            self.out = self.root / name / "cut"
            self.trained(*words, "steps=3")
            self.trained(*words, "--resume", "auto", "accumulate=2")
            self.assertEqual(state_of(self.out, 6), whole)
            self.written([{**line, "prompt_ids": [1, 3]} for line in lines])
            self.refused(*words, "--resume", "auto", "steps=8", says="content of the data is")

    def test_text_and_chats_are_answers(self):
        chat = [{"role": "user", "content": "What is 2 + 3?"}]
        lines = [{"prompt": "2 + 3 =", "chosen": " 5", "rejected": " 6"}, {"messages": chat, "chosen": "5.", "rejected": "It is 6."}]
        path = self.written(lines)
        shown = "".join(braid("data", "show", self.root / "lines.jsonl", "-m", CHAT, "--kind", "preference", "--row", row).stdout
                        for row in (0, 1))
        for answer in ("2 + 3 =[ 5<|im_end|>]", "<think>[</think>It is 6.<|im_end|>]"):
            self.assertIn(answer, shown)
        self.trained("data.kind=preference", "preference.kind=dpo", path, f"init={CHAT}", "steps=2")
        self.assertEqual(self.logged()[0]["loss"], math.log(2))
        plan = json.loads(self.trained("data.kind=preference", "preference.kind=dpo", path, f"init={CHAT}", "--dry-run", "--json").stdout)
        self.assertEqual(plan["rows"], 2)

    def test_under_exact_the_trainer_computes_what_the_sampler_recorded(self):
        """Scored token by token through the caches; without `exact` the trainer is a little off, but on tiles (AMX), whose two
        products add up alike at this width."""
        ENVIRONMENT["BRAID_CPU"] = "avx2"
        self.addCleanup(ENVIRONMENT.pop, "BRAID_CPU")
        lines = [{"ids": [1, 2 + i // 2, *range(5, 9 + i)]} for i in range(4)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        for dtype in ("f32", "bf16"):
            scored = braid("score", HYBRID, "--jsonl", "-", "--exact", "--path", "step", "--dtype", dtype, text=text)
            self.assertEqual(scored.returncode, 0, scored.stderr)
            found = [json.loads(line)["logprobs"] for line in scored.stdout.splitlines()]
            words = self.policy([{"group": i // 2, "prompt_ids": line["ids"][:2], "completion_ids": line["ids"][2:],
                                  "reward": i % 2, "logprobs": found[i][1:]} for i, line in enumerate(lines)],
                                "batch=4", "steps=1", f"dtype={dtype}", "policy.kl=0.1")
            off = {}
            for exact in ("true", "false"):
                self.out = self.root / f"{dtype}-{exact}"
                self.trained(*words, f"exact={exact}")
                off[exact] = self.logged()[0]
            self.assertEqual((off["true"]["mismatch"], off["true"]["ratio"], off["true"]["kl"]), (0, 1, 0), dtype)
            self.assertGreater(off["false"]["mismatch"], 0)

    def rollouts_of(self, step):
        ahead = self.out / "checkpoints" / f"step-{step:08}" / "training" / "rollout.json"
        return state_of(self.out, step), ahead.read_text(), (self.out / "rollouts.jsonl").read_text()

    def test_answers_of_the_run_itself(self):
        """A command that hangs or crashes, and words that do not fit, are one line; a resumed run has the same answers."""
        self.recipe = 'init = "tiny"\nsteps = 3\nlength = 96\nexact = true\n[policy]\nadvantage = "leave-one-out"\n' \
                      '[rollout]\nprompts = 2\nanswers = 3\ntokens = 8\n'
        self.setUp()
        environments = "rollout.environments=" + json.dumps(["addition", "sorting"])
        self.refused(environments, "rollout.answers=1", says="a group of one answer")
        self.refused(environments, "--ranks", "2", "parallel.tp=2", says="cannot be used with [distill], [preference] or [policy]")
        self.refused(environments.replace("addition", "additoin"), says="no such environment; got additoin")
        for line, seconds, says in (("sleep 60", 0.2, "no reply within 0.2 s"), ("exit 1", 60, "the command ended"),
                                    ("echo nan", 60, "not a JSON object")):
            broken = self.train("rollout.environments=" + json.dumps([f"command:{line}"]), f"rollout.timeout={seconds}")
            self.assertEqual((broken.returncode, broken.stderr.count("\n")), (2, 1), broken.stderr)
            self.assertIn(says, broken.stderr)
            shutil.rmtree(self.out, ignore_errors=True)
        plan = json.loads(self.trained(environments, "--dry-run", "--json").stdout)
        self.assertEqual((plan["rows"], plan["length"]), (6, 96))
        words = environments, "rollout.curriculum=pass-rate", "rollout.ahead=1"
        self.trained(*words)
        whole = self.rollouts_of(3)
        shutil.rmtree(self.out)
        self.trained(*words, "steps=2")
        self.trained(*words, "--resume", "auto", "accumulate=2")
        self.assertEqual(self.rollouts_of(3), whole)
        shown = braid("data", "show", self.out / "rollouts.jsonl", "-m", "tiny", "--kind", "rollouts", "--row", 0)
        self.assertEqual(shown.returncode, 0, shown.stderr)


if __name__ == "__main__":
    main()
