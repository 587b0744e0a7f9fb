"""braid train with parallel.zero = 2 and 3: ranks that divide gradients, and weights, compute what one rank does, with all
other axes, and save what any layout resumes.

usage: zero_test.py BRAID
"""
import json
import shutil

from support.mesh import MODEL, MeshCase, recipe_of
from support.program import main
from support.training import state_of


def zero(stage):
    return f"parallel.zero={stage}"


class Zero(MeshCase):
    recipe = recipe_of(steps=3)

    def test_ranks_compute_what_one_does(self):
        one = self.run_in("one")
        for stage in (2, 3):
            for ranks, words in ((2, ()), (3, ()), (2, ("accumulate=2",)), (2, ("memory.recompute=full",))):
                got = self.run_in(f"{stage}-{ranks}-{'-'.join(words)}", "--ranks", ranks, zero(stage), *words)
                self.assertClose(got, one)
        muon = self.run_in("muon", "optimizer.kind=muon")
        self.assertClose(self.run_in("muon-3", "--ranks", 3, zero(3), "optimizer.kind=muon"), muon)

    def test_other_axes(self):
        one = self.run_in("one")
        axes = ((4, ("tp=2",)), (4, ("tp=2", "sp=true")), (2, ("cp=2",)), (4, ("ep=2",)), (4, ("tp=2", "cp=2")), (4, ("etp=2", "ep=2")))
        for stage in (2, 3):
            for ranks, words in axes:
                got = self.run_in(f"{stage}-{'-'.join(words)}", "--ranks", ranks, zero(stage), *("parallel." + w for w in words))
                self.assertClose(got, one)
            got = self.run_in(f"{stage}-pp", "--ranks", 4, zero(stage), "parallel.pp=2", "accumulate=2")
            self.assertClose(got, one)

    def test_bf16_rounds_what_it_gathers(self):
        one = self.run_in("one", "dtype=bf16")
        self.assertClose(self.run_in("two", "--ranks", 2, zero(3), "dtype=bf16"), one, most=1e-3)

    def test_any_layout_resumes(self):
        ema = ("ema.decay=0.9", "eval.every=2", "data.validation=0.2", "checkpoint.every=1", "checkpoint.merge=3")
        whole = self.run_in("whole", "steps=6", *ema, "accumulate=1")
        self.run_in("part", "steps=3", "--ranks", 2, zero(3), *ema)
        for ranks, words in ((1, ()), (2, (zero(0),)), (2, (zero(1),)), (3, (zero(2),)), (3, (zero(3),)), (4, (zero(3), "parallel.tp=2"))):
            out = f"on-{ranks}-{'-'.join(words)}"
            shutil.copytree(self.root / "part", self.root / out)
            some = () if ranks == 1 else ("--ranks", ranks)
            self.assertClose(self.run_in(out, "--resume", "auto", *some, *words, "steps=6", *ema), whole)
            for folder in ("ema", "merged"):
                self.assertTrue((self.root / out / folder / "model.safetensors").exists())

    def test_the_same_ranks_resume_bit_for_bit(self):
        for stage in (2, 3):
            words = ("--ranks", 2, zero(stage), "dtype=bf16", "ema.decay=0.9", "accumulate=2")
            self.run_in(f"whole-{stage}", "steps=4", *words)
            self.run_in(f"parts-{stage}", "steps=2", *words)
            self.run_in(f"parts-{stage}", "steps=4", "--resume", "auto", *words)
            self.assertEqual(state_of(self.root / f"parts-{stage}", 4), state_of(self.root / f"whole-{stage}", 4))

    def test_skipped_steps_change_nothing(self):
        words = ("steps=6", "spike.window=2", "spike.z=1e-6", "spike.patience=0")
        one = self.run_in("one", *words)
        self.assertIn(True, [x["skipped"] for x in self.lines("one")])
        self.assertClose(self.run_in("two", "--ranks", 2, zero(3), *words), one)

    def lines(self, out):
        return [json.loads(line) for line in (self.root / out / "log.jsonl").read_text().splitlines()]

    def test_the_plan_is_that_of_a_rank(self):
        words = ("config=gpt2-124m", "init=", "loss.mtp_scale=0", "loss.aux=0", "loss.router_bias_rate=0", "length=16", "batch=8")
        memory = {}
        for stage in range(4):
            some = ("--ranks", 8, zero(stage))
            memory[stage] = json.loads(self.trained("--dry-run", "--json", *words, *some).stdout)["memory"]
        n = 124_439_808
        layer = 12 * 768**2 + 13 * 768
        part, in_pass = n / 8, n / 8 + (n - 11 * layer) * 7 / 8
        for stage, weights, gradients, moments in ((0, n, n, n), (1, n, n, part), (2, n, in_pass + layer / 8, part), (3, in_pass, in_pass + layer / 8, part)):
            self.assertEqual(memory[stage]["master weights, FP32"], int(4 * weights))
            self.assertEqual(memory[stage]["gradients, FP32"], int(4 * gradients))
            self.assertEqual(memory[stage]["moments, FP32"], int(8 * moments))

    def test_what_reads_all_weights_is_refused(self):
        two = ("--ranks", 2)
        self.refused(*two, zero(4), says="zero")
        self.refused(*two, zero(3), "log.hash_every=1", says="= 3 cannot be used with log.hash_every; try parallel.zero=2")
        self.refused(*two, zero(3), f"distill.teacher={MODEL}", says="cannot be used with [distill]")
        self.refused(*two, zero(2), "parallel.exact=true", says="sums all gradients on every rank")
        self.refused(zero(2), says="there is one rank")


if __name__ == "__main__":
    main()
