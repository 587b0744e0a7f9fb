"""The balance of experts in training: every way gives on any mesh what it gives on one rank, parts of a batch change
nothing where they should not, and a resumed run has the same bits.

usage: mesh_balance_test.py BRAID
"""
import itertools
import json
import random
import struct

from support.mesh import MODEL, MeshCase
from support.program import main
from support.training import state_of

KEYS = ("aux_loss", "seq_aux_loss", "global_aux_loss", "load_balance", "dropped")


def write_documents(prefix):
    """Documents of 2 to 9 tokens, several to a row, as Megatron's pair of files."""
    rng = random.Random(1)
    lists = [[rng.randrange(50) for _ in range(rng.randint(2, 9))] for _ in range(200)]
    begins = [2 * n for n in itertools.accumulate([0] + [len(ids) for ids in lists[:-1]])]
    n = len(lists)
    prefix.with_suffix(".bin").write_bytes(b"".join(struct.pack(f"<{len(ids)}H", *ids) for ids in lists))
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1) + struct.pack(f"<{n}i", *map(len, lists))
        + struct.pack(f"<{n}q", *begins) + struct.pack(f"<{n + 1}q", *range(n + 1)))


class Balance(MeshCase):
    recipe = f"""init = "{MODEL}"
steps = 3
batch = 5
length = 24
dtype = "f32"
[data]
kind = "indexed"
path = "corpus"
[loss]
mtp_scale = 0.3
aux = 0.01
seq_aux = 0.02
global_aux = 0.03
quantile = 0.5
capacity = 0.75
[log]
jsonl = "log.jsonl"
"""
    compared = ("loss", "grad_norm", "mtp_loss", *KEYS)

    def setUp(self):
        super().setUp()
        write_documents(self.root / "corpus")

    def test_ranks_compute_what_one_does(self):
        one = self.run_in("one")
        for line in one:
            values = {line[key] for key in KEYS}
            self.assertEqual(len(values), len(KEYS))  # documents, rows and batches differ
            self.assertGreater(line["dropped"], 0.05)
        for number, (ranks, *words) in enumerate((
                (2,), (4, "ep=4", "zero=1"), (4, "ep=2", "etp=2", 'dispatcher="node"'), (2, "ep=2", 'dispatcher="allgather"'),
                (4, "tp=2"), (4, "tp=2", "sp=true", "ep=4"), (2, "cp=2"), (4, "cp=2", "ep=2", 'cp_mamba="states"'),
                (2, "pp=2"), (4, "tp=2", "pp=2"), (2, "zero=3"), (4, 'grid="2,2,1,1"'))):
            got = self.run_in(f"mesh-{number}", "--ranks", ranks, *("parallel." + word for word in words))
            self.assertClose(got, one)

    def test_biases_stay_whole_where_weights_are_divided(self):
        config = json.loads((MODEL / "config.json").read_text())
        small = {"n_routed_experts": 128, "moe_latent_size": 16, "moe_intermediate_size": 2, "num_nextn_predict_layers": 0,
                 "moe_shared_expert_intermediate_size": 6}
        (self.root / "many.json").write_text(json.dumps({**config, **small}))
        words = ("init=", f"config={self.root / 'many.json'}", "batch=6", "loss.mtp_scale=0", "loss.capacity=0", "steps=6")
        keys = ("loss", "load_balance")
        one = self.run_in("one", *words, keys=keys)
        for zero in (2, 3):
            got = self.run_in(f"zero-{zero}", "--ranks", 2, f"parallel.zero={zero}", *words, keys=keys)
            self.assertClose(got, one)

    def test_position_and_memory(self):
        words = ('loss.capacity_drop="position"', "batch=8")
        one = self.run_in("one", *words)
        for number, (ranks, *more) in enumerate((
                (1, "memory.recompute=full"), (4, "parallel.cp=2", "memory.recompute=selective"),
                (2, "parallel.ep=2", "memory.recompute=full"))):
            mesh = ("--ranks", ranks) if ranks > 1 else ()
            self.assertClose(self.run_in(f"other-{number}", *mesh, *words, *more), one)

    def test_parts_of_a_batch(self):
        whole = self.run_in("whole", "batch=8", "loss.global_aux=0", keys=("loss",))
        for parts in (2, 4):
            got = self.run_in(f"parts-{parts}", "batch=8", "loss.global_aux=0", f"accumulate={parts}", keys=("loss",))
            self.assertEqual(got, whole)
        mesh = self.run_in("mesh", "batch=8", "loss.global_aux=0", "accumulate=2", "--ranks", 2, "parallel.ep=2", keys=("loss",))
        self.assertClose(mesh, whole)
        # A batch is known part by part: the first part is trained by its own counts.
        one, two = (self.run_in(f"known-{parts}", "batch=8", "loss.global_aux=3", f"accumulate={parts}") for parts in (1, 2))
        self.assertEqual(one[0]["global_aux_loss"], two[0]["global_aux_loss"])
        self.assertNotEqual(one[0]["grad_norm"], two[0]["grad_norm"])

    def test_a_resumed_run_has_the_same_bits(self):
        for number, words in enumerate(((), ("loss.quantile=0", "loss.router_bias_rate=0.01"))):
            self.run_in(f"whole-{number}", "steps=4", *words)
            self.run_in(f"part-{number}", "steps=2", *words)
            self.run_in(f"part-{number}", "steps=4", "--resume", "auto", *words)
            self.assertEqual(state_of(self.root / f"part-{number}", 4), state_of(self.root / f"whole-{number}", 4))

    def test_nodes_are_limited(self):
        config = json.loads((MODEL / "config.json").read_text())
        for groups, kept in ((1, 1), (4, 2), (8, 3), (4, 3)):
            folder = self.root / f"{groups}-{kept}.json"
            folder.write_text(json.dumps({**config, "n_group": groups, "topk_group": kept}))
        base = ("init=", "loss.quantile=0", "batch=8")
        nodes = (*base, "--ranks", 4, "parallel.ep=4", 'parallel.dispatcher="node"', "parallel.node_ranks=1", "parallel.node_limit=2")
        for name, limit in (("4-2", 2), ("8-3", 3)):
            model = f"config={self.root / name}.json"
            got = self.run_in(f"on-{name}", model, *nodes, f"parallel.node_limit={limit}")
            self.assertClose(got, self.run_in(f"one-{name}", model, *base))
        for name, got in (("1-1", "1 of 1 groups of experts on 4 nodes"), ("4-3", "3 of 4 groups of experts on 4 nodes")):
            self.refused(f"config={self.root / name}.json", *nodes, says=got)
        self.refused(*base, f"config={self.root / '4-2'}.json", "parallel.node_limit=2", says="ranks do not share the experts")
        self.refused(*nodes, f"config={self.root / '4-2'}.json", "parallel.node_ranks=3", says="a divisor of ep x etp = 4")

    def test_what_cannot_be(self):
        self.refused("loss.router_bias_rate=0.1", says="loss.quantile] and loss.router_bias_rate both move the selection biases")
        self.refused("precision.recipe=fp8", says="loss.capacity] cannot be used with precision.recipe")
        self.refused("exact=true", says="loss.capacity] cannot be used with exact")
        self.refused("loss.capacity_drop=last", says="loss.capacity_drop")
        self.refused("loss.quantile=2", says="loss.quantile")
        config = json.loads((MODEL / "config.json").read_text())
        (self.root / "groups.json").write_text(json.dumps({**config, "n_group": 4, "topk_group": 2}))
        self.refused("init=", f"config={self.root / 'groups.json'}", says="cannot balance experts that are chosen by groups")
        self.refused("--ranks", 2, "parallel.exact=true", says="loss.global_aux counts on all at a time")


if __name__ == "__main__":
    main()
