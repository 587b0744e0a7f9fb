"""braid train parallel.pp: stages of a pipeline compute what one rank does, in every order of passes, with other axes, and
save what any mesh resumes.

usage: mesh_pp_test.py BRAID
"""
import json
import shutil

from support.program import DATA, main
from support.training import TrainCase, state_of

RECIPE = f"""init = "{DATA / "hf" / "nemotron-h-latent-mtp"}"
steps = 3
batch = 5
length = 12
dtype = "f32"
[data]
kind = "markov"
[loss]
mtp_scale = 0.3
z = 0.001
aux = 0.01
router_bias_rate = 0.001
[log]
jsonl = "log.jsonl"
"""
PLAIN = ("loss.mtp_scale=0", "loss.aux=0", "loss.router_bias_rate=0")


class Stages(TrainCase):
    recipe = RECIPE

    def logged(self, out):
        return [json.loads(line) for line in (self.root / out / "log.jsonl").read_text().splitlines()]

    def run_in(self, out, *words):
        self.trained(f"out={self.root / out}", *words)
        return self.logged(out)

    def assertClose(self, got, want, most=1e-5):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertEqual(a.keys(), b.keys())
            for key in a.keys() - {"tokens_per_second", "mfu", "memory_bytes", "seconds"}:
                if isinstance(b[key], float):
                    self.assertLessEqual(abs(a[key] - b[key]), most * abs(b[key]), key)
                else:
                    self.assertEqual(a[key], b[key], key)

    def test_stages_compute_what_one_rank_does(self):
        one = self.run_in("one")
        for number, (ranks, words) in enumerate((
                (2, ("parallel.pp=2",)),
                (2, ("parallel.pp=2", "accumulate=5")),
                (3, ("parallel.pp=3", "accumulate=2", "memory.recompute=full")),
                (2, ("parallel.pp=2", "parallel.virtual_stages=2", "accumulate=4", "memory.recompute=selective")),
                (4, ("parallel.pp=2", "parallel.zero=1", "accumulate=2")))):
            self.assertClose(self.run_in(f"pp-{number}", "--ranks", ranks, *words), one)


if __name__ == "__main__":
    main()
