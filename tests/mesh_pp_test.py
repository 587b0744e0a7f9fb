"""braid train parallel.pp: stages of a pipeline compute what one rank does, in every order of passes and with other axes,
and save what any mesh resumes.

usage: mesh_pp_test.py BRAID
"""
import shutil

from support.mesh import MeshCase, recipe_of
from support.program import DATA, main
from support.training import state_of

PLAIN = ("loss.mtp_scale=0", "loss.aux=0", "loss.router_bias_rate=0", "loss.z=0")


class Stages(MeshCase):
    recipe = recipe_of(loss="z = 0.001", more="[eval]\nevery = 2")

    def test_stages_compute_what_one_rank_does(self):
        one = self.run_in("one")
        self.assertIn("held_out_loss", one[2])
        for number, (ranks, words) in enumerate((
                (2, ("parallel.pp=2",)),
                (3, ("parallel.pp=3", "accumulate=2", "memory.recompute=full")),
                (2, ("parallel.pp=2", "parallel.virtual_stages=2", "accumulate=4", "memory.recompute=selective")),
                (4, ("parallel.pp=2", "parallel.zero=1", "accumulate=2")))):
            self.assertClose(self.run_in(f"pp-{number}", "--ranks", ranks, *words), one)

    def test_stages_of_parts_of_blocks(self):
        one = self.run_in("one", "loss.z=0")
        got = self.run_in("both", "loss.z=0", "--ranks", 4, "parallel.pp=2", "parallel.tp=2", "accumulate=3")
        self.assertClose(got, one)

    def test_stages_of_divided_experts(self):
        one = self.run_in("one", "loss.z=0")
        for number, (ranks, words) in enumerate((
                (4, ("parallel.ep=2", "accumulate=2", "memory.recompute=full")),
                (4, ("parallel.ep=2", "parallel.tp=2", "parallel.virtual_stages=2", "accumulate=2")),
                (8, ("parallel.ep=2", "parallel.etp=2", "parallel.tp=2", "parallel.zero=1")))):
            got = self.run_in(f"ep-{number}", "loss.z=0", "--ranks", ranks, "parallel.pp=2", *words)
            self.assertClose(got, one)

    def test_other_families_types_and_optimisers(self):
        keys = ("loss", "grad_norm")
        for number, (name, stages, words) in enumerate((
                ("gpt2", 2, ("dropout=0.1", "data.validation=0.2")),  # tied, with positions and drawn numbers
                ("nemotron-nas", 2, ()),                              # layers that do nothing
                ("nemotron-h-legacy", 2, ("optimizer.kind=muon", "dtype=bf16")),
                ("nemotron-h-legacy", 2, ("exact=true", "loss.mean=sample")))):
            words = (*PLAIN, *words, f"init={DATA / 'hf' / name}", "batch=3")
            one = self.run_in(f"one-{number}", *words, keys=keys)
            got = self.run_in(f"pp-{number}", *words, "--ranks", stages, f"parallel.pp={stages}", "accumulate=2", keys=keys)
            self.assertClose(got, one)

    def test_stages_are_resumed_by_any_mesh(self):
        words = ("loss.z=0", "ema.decay=0.9")
        whole = self.run_in("whole", "steps=4", *words)
        self.run_in("part", "steps=2", "--ranks", 4, "parallel.pp=2", "parallel.tp=2", "parallel.zero=1", *words)
        for ranks, axes in ((1, ()), (2, ("parallel.tp=2",)), (3, ("parallel.pp=3",)), (2, ("parallel.zero=1",)),
                            (4, ("parallel.pp=2", "parallel.ep=2"))):
            out = f"on-{ranks}-{len(axes)}-{axes}"
            shutil.copytree(self.root / "part", self.root / out)
            some = () if ranks == 1 else ("--ranks", ranks)
            self.assertClose(self.run_in(out, "--resume", "auto", *some, *axes, "steps=4", *words), whole)

    def test_the_same_stages_have_the_same_bits(self):
        words = ("--ranks", 2, "parallel.pp=2", "accumulate=2", "ema.decay=0.9")
        self.run_in("whole", *words)
        self.run_in("parts", "steps=1", *words)
        self.run_in("parts", "--resume", "auto", *words)
        self.assertEqual(state_of(self.root / "parts", 3), state_of(self.root / "whole", 3))
        self.assertTrue((self.root / "parts" / "ema" / "model.safetensors").exists())

    def test_a_failed_run_is_reported_once(self):
        done = self.train("optimizer.lr=1e9", "optimizer.clip=0", "optimizer.weight_decay=1e9", "steps=30", "--ranks", 2,
                          "parallel.pp=2")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("is not finite", done.stderr)

    def test_pipelines_that_cannot_be(self):
        self.refused("parallel.pp=2", says="try --ranks 2")
        self.refused("parallel.pp=2", "--ranks", 3, says="try --ranks 4")
        self.refused("parallel.pp=2", "parallel.tp=2", "loss.z=0", "--ranks", 2,
                     says="pp 2 x tp 2; expected a divisor of 2; try --ranks 4")
        self.refused("parallel.pp=64", "--ranks", 64, says="more runs of layers than layers")
        self.refused("parallel.virtual_stages=2", "--ranks", 2, says="there is one stage")
        for word in ("cp_attention=ring", "cp_mamba=states", "dispatcher=node"):
            self.refused(f"parallel.{word}", "--ranks", 2, says="ranks do not ")
        self.refused("parallel.pp=2", "parallel.virtual_stages=2", "accumulate=3", "--ranks", 2, says="try accumulate=4")
        self.refused("parallel.pp=2", "--ranks", 4, "accumulate=3", says="at least 2 ranks x 3 parts")
        for words in (("parallel.exact=true",), ("log.hash_every=1",), ("distill.teacher=x", *PLAIN),
                      ("lora.rank=2", 'lora.targets=["q_proj"]')):
            self.refused("parallel.pp=2", "--ranks", 2, *words, says="[parallel.pp] cannot be used with")


if __name__ == "__main__":
    main()
