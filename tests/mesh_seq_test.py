"""braid train with the tokens of a sequence divided among ranks (parallel.sp, parallel.cp): what one rank computes, with every policy
of recomputation, and checkpoints that know nothing of it.

usage: mesh_seq_test.py BRAID
"""
import shutil

from support.mesh import MeshCase, recipe_of
from support.program import DATA, main
from support.training import state_of


class Tokens(MeshCase):
    recipe = recipe_of(length=13, loss="router_z = 0.01")  # rows of several documents, of lengths that nothing divides
    compared = (*MeshCase.compared, "router_z_loss")

    def test_ranks_of_a_model_share_tokens(self):
        one = self.run_in("one")
        for i, (ranks, words) in enumerate(((2, ()), (4, ("parallel.zero=1", "accumulate=2")),
                                            (2, ("memory.recompute=full",)), (2, ("memory.recompute=selective",)))):
            self.assertClose(self.run_in(f"sp-{i}", "--ranks", ranks, "parallel.tp=2", "parallel.sp=true", *words), one)

    def test_blocks_that_stay_whole_read_all_tokens(self):
        words = ("loss.mtp_scale=0", "loss.aux=0", "loss.router_z=0", "loss.router_bias_rate=0", "batch=2")
        keys = ("loss", "grad_norm")
        for name, tp in (("nemotron-h-legacy", 2), ("nemotron-nas", 3)):
            init = f"init={DATA / 'hf' / name}"
            one = self.run_in(name, init, *words, keys=keys)
            sp = ("--ranks", tp, f"parallel.tp={tp}", "parallel.sp=true")
            self.assertClose(self.run_in(f"{name}-sp", init, *words, *sp, keys=keys), one)
            self.assertClose(self.run_in(f"{name}-cp", init, *words, "--ranks", 2, "parallel.cp=2", keys=keys), one)

    def test_learned_positions_are_of_the_sequence(self):
        words = (f"init={DATA / 'hf' / 'gpt2'}", "loss.mtp_scale=0", "loss.aux=0", "loss.router_z=0",
                 "loss.router_bias_rate=0")
        one = self.run_in("one", *words, keys=("loss", "grad_norm"))
        cp = self.run_in("cp", *words, "--ranks", 2, "parallel.cp=2", keys=("loss", "grad_norm"))
        self.assertClose(cp, one)

    def test_ranks_divide_the_tokens_of_sequences(self):
        one = self.run_in("one")
        ring, states = "parallel.cp_attention=ring", "parallel.cp_mamba=states"
        for i, (ranks, words) in enumerate(((2, ("parallel.cp=2",)), (2, ("parallel.cp=2", ring)), (2, ("parallel.cp=2", states)),
                                            (3, ("parallel.cp=3", "parallel.zero=1")),
                                            (4, ("parallel.cp=2", ring, states, "accumulate=2", "memory.recompute=full")),
                                            (4, ("parallel.cp=2", "parallel.tp=2", "parallel.sp=true")),
                                            (2, ("parallel.cp=2", "memory.recompute=selective")))):
            self.assertClose(self.run_in(f"cp-{i}", "--ranks", ranks, *words), one)

    def test_tokens_are_shared_along_all_other_axes(self):
        one = self.run_in("one")
        cp, sp = "parallel.cp=2", ("parallel.tp=2", "parallel.sp=true")
        for i, (ranks, words) in enumerate(((8, (cp, "parallel.tp=2", "parallel.ep=4")),
                                            (4, (cp, "parallel.ep=2", "parallel.etp=2", "parallel.dispatcher=node")),
                                            (4, (*sp, "parallel.pp=2", "accumulate=3", "memory.recompute=full")),
                                            (4, (cp, "parallel.pp=2", "parallel.virtual_stages=2", "accumulate=2",
                                                 "parallel.cp_attention=ring", "parallel.cp_mamba=states")),
                                            (8, (cp, *sp, "parallel.pp=2", "parallel.ep=4", "memory.recompute=selective")))):
            self.assertClose(self.run_in(f"all-{i}", "--ranks", ranks, *words), one)

    def test_means_over_samples(self):
        words = ("loss.mean=sample", "loss.z=0.001")
        one = self.run_in("one", *words)
        self.assertClose(self.run_in("cp", "--ranks", 2, "parallel.cp=2", *words), one)

    def test_dropout_is_of_the_token(self):
        words = ("dropout=0.2", "loss.mtp_scale=0")
        keys = ("loss", "grad_norm")
        one = self.run_in("one", *words, keys=keys)
        for i, mesh in enumerate((("parallel.tp=2", "parallel.sp=true"), ("parallel.cp=2",))):
            self.assertClose(self.run_in(f"some-{i}", "--ranks", 2, *mesh, *words, keys=keys), one)

    def test_checkpoints_are_resumed_without(self):
        whole = self.run_in("whole", "steps=4")
        self.run_in("part", "steps=2", "--ranks", 2, "parallel.tp=2", "parallel.sp=true")
        for out, words in (("one", ()), ("data", ("--ranks", 2)), ("context", ("--ranks", 2, "parallel.cp=2")),
                           ("stages", ("--ranks", 4, "parallel.cp=2", "parallel.pp=2"))):
            shutil.copytree(self.root / "part", self.root / out)
            self.assertClose(self.run_in(out, "--resume", "auto", "steps=4", *words), whole)

    def test_the_same_ranks_have_the_same_bits(self):
        for name, words in (("sp", ("parallel.tp=2", "parallel.sp=true")),
                            ("cp", ("parallel.cp=2", "parallel.cp_attention=ring"))):
            for out in ("a", "b"):
                self.run_in(name + out, "--ranks", 2, *words)
            self.assertEqual(state_of(self.root / f"{name}a", 3), state_of(self.root / f"{name}b", 3))

    def test_what_cannot_be_shared(self):
        self.refused("--ranks", 2, "parallel.sp=true", says="try parallel.tp=2")
        self.refused("--ranks", 3, "parallel.cp=2", says="try --ranks 4")
        self.refused("--ranks", 2, "parallel.cp=2", "parallel.exact=true", says="cannot be used with parallel.exact")
        self.refused("--ranks", 3, "parallel.cp=3", "parallel.cp_mamba=heads", says="try parallel.cp_mamba=states")
        self.refused("--ranks", 3, "parallel.cp=3", "parallel.cp_attention=alltoall", says="try parallel.cp_attention=ring")
        self.refused("--ranks", 2, "parallel.cp=2", "length=1", "batch=1", says="too few tokens")


if __name__ == "__main__":
    main()
