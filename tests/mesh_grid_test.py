"""braid train --ranks on a grid x,y,z,d: every grid computes what one rank does, and saves what any other ranks can resume.
With --all, all grids of eight ranks.

usage: mesh_grid_test.py BRAID [--all]
"""
import json
import shutil
import sys
import unittest

from support.mesh import MODEL, MeshCase, recipe_of
from support.program import DATA, main
from support.training import state_of

ALL = "--all" in sys.argv
if ALL:
    sys.argv.remove("--all")

# Eight of everything that ranks divide; experts read the residual stream itself, not a latent one.
EIGHTS = {"hidden_size": 64, "head_dim": 8, "num_key_value_heads": 8, "mamba_head_dim": 8, "n_groups": 8,
          "ssm_state_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
          "moe_shared_expert_intermediate_size": 40, "moe_latent_size": None, "intermediate_size": 72, "vocab_size": 100,
          "num_nextn_predict_layers": 0, "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]}


def grids_of(ranks):
    sizes = [n for n in range(1, ranks + 1) if ranks % n == 0]
    return [(x, y, z, d) for x in sizes for y in sizes for z in sizes for d in sizes if x * y * z * d == ranks]


class GridCase(MeshCase):
    def on_grid(self, grid, *words, keys=None):
        """A run on a grid such as "2,1,1,2"."""
        ranks = eval(grid.replace(",", "*"))
        out = "-".join(map(str, (grid, *words))).replace("/", "-")
        return self.run_in(out, "--ranks", ranks, f'parallel.grid="{grid}"', *words, keys=keys)


class Grids(GridCase):
    recipe = recipe_of(loss="router_z = 0.001", more="[eval]\nevery = 2")

    def test_grids_compute_what_one_rank_does(self):
        one = self.run_in("one")
        for grid in ("1,2,1,1", "2,2,1,1", "1,2,2,1", "1,1,2,2", "2,2,2,1", "1,4,1,2"):
            self.assertClose(self.on_grid(grid), one)

    def test_plans_and_parts(self):
        one = self.run_in("one")
        for words in (("memory.recompute=full",), ("memory.recompute=selective", "accumulate=2"), ("dtype=bf16",)):
            if words == ("dtype=bf16",):
                self.assertClose(self.on_grid("2,2,1,1", *words), self.run_in("bf16", *words), most=0.05)
            else:
                self.assertClose(self.on_grid("2,2,1,1", *words), one)

    def test_a_grid_is_resumed_whole(self):
        whole = self.run_in("whole", "steps=6", "ema.decay=0.9")
        self.on_grid("2,2,2,1", "ema.decay=0.9")
        folder = self.root / "2,2,2,1-ema.decay=0.9"
        for i, words in enumerate(((), ("--ranks", 2, "parallel.tp=2"), ("--ranks", 4, 'parallel.grid="1,4,1,1"'))):
            shutil.copytree(folder, self.root / f"on-{i}")
            got = self.run_in(f"on-{i}", "--resume", "auto", *words, "steps=6", "ema.decay=0.9")
            self.assertClose(got, whole)

    def test_the_same_grid_resumes_bit_for_bit(self):
        words = ("--ranks", 4, 'parallel.grid="1,2,2,1"')
        self.run_in("whole", "steps=4", *words)
        self.run_in("parts", "steps=2", *words)
        self.run_in("parts", "steps=4", "--resume", "auto", *words)
        self.assertEqual(state_of(self.root / "parts", 4), state_of(self.root / "whole", 4))

    def test_the_plan_of_a_grid_is_that_of_what_it_stands_for(self):
        for grid, words in (('"1,1,2,2"', ("parallel.zero=1", "--ranks", 2)), ('"2,1,1,2"', ("parallel.tp=2",)), ('"4,1,1,1"', ("parallel.tp=4",))):
            plans = [json.loads(self.trained("--dry-run", "--json", "batch=8", "--ranks", 4, *w).stdout)["memory"]
                     for w in ((f"parallel.grid={grid}",), words)]
            key = "moments, FP32" if "zero" in words[0] else None
            self.assertEqual(*([p[key] if key else p for p in plans]))

    def test_grids_that_cannot_be(self):
        self.refused("--ranks", 4, 'parallel.grid="2,2,1,1"', "parallel.zero=1", says="cannot be used with tp, sp, cp")
        self.refused("--ranks", 4, 'parallel.grid="2,2,2,1"', says="does not make the number of ranks")
        self.refused("--ranks", 5, 'parallel.grid="1,5,1,1"', says="[parallel.grid] y does not divide the width between blocks")
        self.assertFalse(self.out.exists())  # refused before any rank began
        self.refused("--ranks", 2, 'parallel.grid="1,2,1,1"', "dropout=0.1", says="y cannot be used with dropout")
        self.refused("--ranks", 8, 'parallel.grid="1,1,4,2"', says="too few sequences")
        for name, what in (("gpt2", "LayerNorm"), ("nemotron-nas", "linear maps")):
            words = (f"init={DATA / 'hf' / name}", "loss.mtp_scale=0", "loss.aux=0", "loss.router_bias_rate=0")
            self.refused("--ranks", 2, 'parallel.grid="1,2,1,1"', *words, says=f"y cannot be used with {what}")


class Eights(GridCase):
    """A model that eight ranks can divide in every way."""
    keys = ("loss", "grad_norm", "load_balance")

    def setUp(self):
        super().setUp()
        config = json.loads((MODEL / "config.json").read_text())
        config.update(EIGHTS)
        self.recipe = recipe_of(steps=2).replace(f'init = "{MODEL}"', 'config = "config.json"')
        self.recipe = self.recipe.replace("mtp_scale = 0.3", "").replace("batch = 5", "batch = 9")
        self.write(config)

    def write(self, config):
        self.config = {key: value for key, value in config.items() if value is not None}
        (self.root / "config.json").write_text(json.dumps(self.config))
        (self.root / "r.toml").write_text(self.recipe)

    def compare(self, grids):
        one = self.run_in("one", keys=self.keys)
        for grid in grids:
            self.assertClose(self.on_grid(grid, keys=self.keys), one)

    def test_grids_compute_what_one_rank_does(self):
        self.compare(("2,4,1,1", "4,1,2,1"))

    def test_one_rank_adds_a_bias(self):
        self.write({**self.config, "attention_bias": True, "use_bias": True})
        self.compare(("1,2,1,1", "1,4,2,1"))

    @unittest.skipUnless(ALL, "only with --all")
    def test_all_grids_of_eight_ranks(self):
        grids = grids_of(8)
        self.assertEqual(len(grids), 20)
        self.compare([",".join(map(str, grid)) for grid in grids])


if __name__ == "__main__":
    main()
