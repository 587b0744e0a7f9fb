"""Shared by the tests of `braid train --ranks`: a model with every kind of block, trained on one rank and on several, and
their logs compared."""
import json

from support.program import DATA
from support.training import TrainCase

MODEL = DATA / "hf" / "nemotron-h-latent-mtp"  # 16 experts, latent, with a shared one; a prediction block with experts


def recipe_of(steps=3, length=12, loss="", more=""):
    """Five rows, which few numbers of ranks divide; `loss` are further lines of [loss], `more` further tables."""
    return f"""init = "{MODEL}"
steps = {steps}
batch = 5
length = {length}
dtype = "f32"
[data]
kind = "markov"
[loss]
mtp_scale = 0.3
aux = 0.01
router_bias_rate = 0.001
{loss}
[log]
jsonl = "log.jsonl"
{more}
"""


class MeshCase(TrainCase):
    compared = ("loss", "grad_norm", "mtp_loss", "aux_loss", "load_balance")  # every step has at least these

    def losses(self, out, keys=None):
        """All losses, norms and balances of each line of a run's log."""
        lines = [json.loads(line) for line in (self.root / out / "log.jsonl").read_text().splitlines()]
        for line in lines:
            self.assertTrue("grad_norm" not in line or set(keys or self.compared) <= line.keys(), line)
        return [{key: x[key] for key in x if key.endswith(("loss", "norm", "balance", "dropped"))} for x in lines]

    def run_in(self, out, *words, keys=None):
        self.trained(f"out={self.root / out}", *words)
        return self.losses(out, keys)

    def assertClose(self, got, want, most=1e-5):
        self.assertEqual([x.keys() for x in got], [x.keys() for x in want])
        for a, b in zip(got, want):
            for key in b:
                self.assertLessEqual(abs(a[key] - b[key]), most * abs(b[key]), key)
