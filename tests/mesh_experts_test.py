"""braid train --ranks with experts divided among ranks: they compute what one rank does, all dispatchers with the same
bits, and save what any other ranks can resume.

usage: mesh_experts_test.py BRAID
"""
import json
import math
import re
import shutil

from support.mesh import MODEL, MeshCase, recipe_of
from support.program import DATA, main
from support.tensors import read_header, stack_experts
from support.training import state_of

QWEN = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 32, "intermediate_size": 64,
        "moe_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
        "max_position_embeddings": 128, "decoder_sparse_step": 1, "mlp_only_layers": []}


class Experts(MeshCase):
    recipe = recipe_of(loss="router_z = 0.001", more="[eval]\nevery = 3")
    compared = (*MeshCase.compared, "router_z_loss")

    def test_ranks_compute_what_one_does(self):
        one = self.run_in("one")
        for ranks, words in ((2, "ep=2"), (4, "ep=4 zero=1"), (4, "etp=2 ep=2"), (2, "etp=2"), (4, "tp=2 ep=4"),
                             (4, "tp=2 ep=2 zero=1"), (4, "ep=2"), (4, "tp=4 etp=2")):
            got = self.run_in(words.replace(" ", "-") + f"-{ranks}", "--ranks", ranks,
                              *("parallel." + word for word in words.split()))
            self.assertClose(got, one)

    def test_plans_and_parts(self):
        one = self.run_in("one", "batch=8")
        for words in (("memory.recompute=full",), ("memory.recompute=selective", "accumulate=2"), ("accumulate=2",)):
            got = self.run_in("-".join(words), "batch=8", "--ranks", 4, "parallel.ep=2", *words)
            self.assertClose(got, one)
        got = self.run_in("tp", "batch=8", "--ranks", 4, "parallel.ep=4", "parallel.tp=2", "memory.recompute=full")
        self.assertClose(got, one)

    def test_the_plan_of_a_divided_model_is_that_of_a_rank(self):
        head, _ = read_header(MODEL / "model.safetensors")
        count = {name: math.prod(tensor["shape"]) for name, tensor in head.items() if name != "__metadata__"}
        whole = sum(count.values())
        experts = sum(n for name, n in count.items() if re.search(r"\.experts\.\d+\.", name))
        def plan(*words):
            words = ("--dry-run", "--json", "batch=8", "eval.every=0", *words)
            return json.loads(self.trained(*words).stdout)["memory"]
        one, ep, tp, cp = (plan("--ranks", 4, *words) for words in ((), ("parallel.ep=4",), ("parallel.tp=2",), ("parallel.cp=4",)))
        self.assertEqual(one["master weights, FP32"], 4 * whole)
        self.assertEqual(ep["master weights, FP32"], 4 * (whole - experts + experts // 4))
        self.assertEqual(cp["master weights, FP32"], 4 * whole)
        self.assertLess(tp["master weights, FP32"], 0.6 * 4 * whole)
        self.assertLess(tp["moments, FP32"], 0.6 * 8 * whole)
        stages = plan("--ranks", 2, "parallel.pp=2", "accumulate=2")["master weights, FP32"]
        self.assertTrue(4 * whole / 2 < stages < 4 * whole, stages)

    def test_dispatchers_have_the_same_bits(self):
        for mesh in (("parallel.ep=4",), ("parallel.ep=2", "parallel.etp=2", "parallel.tp=2", "dtype=bf16")):
            states = []
            for dispatcher in ("alltoall", "allgather", "node", "alltoall"):
                out = f"{len(mesh)}-{dispatcher}-{len(states)}"
                self.run_in(out, "--ranks", 4, f"parallel.dispatcher={dispatcher}", *mesh)
                states.append(state_of(self.root / out, 3))
            for state in states[1:]:
                self.assertEqual(state, states[0])

    def test_any_ranks_resume(self):
        words = ("steps=4", "ema.decay=0.9")
        whole = self.run_in("whole", *words)
        saved = {"a": ("--ranks", 4, "parallel.tp=2", "parallel.ep=4", "parallel.zero=1"),
                 "b": ("--ranks", 4, "parallel.ep=2", "parallel.etp=2")}
        for name, mesh in saved.items():
            self.run_in(name, "steps=2", "ema.decay=0.9", "eval.every=0", *mesh)
            for i, other in enumerate(((), ("--ranks", 2, "parallel.ep=2", "parallel.zero=1"), ("--ranks", 3), saved["b"])):
                shutil.copytree(self.root / name, self.root / f"{name}-{i}")
                got = self.run_in(f"{name}-{i}", "--resume", "auto", *other, *words, "eval.every=0")
                self.assertClose(got, [x for x in whole if x.keys() == whole[0].keys()])

    def test_stacked_experts(self):
        stack_experts(MODEL, self.root / "stacked")
        one = self.run_in("one")
        for ranks, words in ((1, ()), (4, ("parallel.ep=2", "parallel.etp=2")), (2, ("parallel.ep=2", "parallel.zero=1"))):
            mesh = ("--ranks", ranks, *words) if ranks > 1 else ()
            self.assertClose(self.run_in(f"s{ranks}", f"init={self.root / 'stacked'}", *mesh), one)
        a, b = (read_header(self.root / f"s{ranks}" / "checkpoints" / "step-00000003" / "model.safetensors")[0] for ranks in (1, 4))
        self.assertEqual(a, b)

    def test_gated_experts_without_a_shared_one(self):
        (self.root / "config.json").write_text(json.dumps(QWEN))
        text = self.recipe.replace(self.recipe.splitlines()[0], f'config = "{self.root / "config.json"}"')
        (self.root / "r.toml").write_text(text.replace("mtp_scale = 0.3", "mtp_scale = 0").replace("_bias_rate = 0.001",
                                                                                                "_bias_rate = 0"))
        keys = tuple(key for key in self.compared if key != "mtp_loss")
        one = self.run_in("one", "batch=4", keys=keys)
        for ranks, words in ((3, ("parallel.ep=3",)), (4, ("parallel.tp=2", "parallel.ep=2")), (2, ("parallel.etp=2",))):
            self.assertClose(self.run_in(f"on-{ranks}", "batch=4", "--ranks", ranks, *words, keys=keys), one)
        muon = ("batch=4", "optimizer.kind=muon")
        one = self.run_in("muon", *muon, keys=keys)
        got = self.run_in("muon-2", *muon, "--ranks", 2, "parallel.ep=2", "parallel.zero=1", keys=keys)
        self.assertClose(got, one)

    def test_meshes_that_cannot_be(self):
        def no(ranks, *words, says):
            self.refused("--ranks", ranks, *("parallel." + word for word in words), says=says)
        no(3, "ep=3", says="does not divide the experts; got 3; expected a divisor of 16; try parallel.ep=4")
        no(4, "etp=4", says="does not divide the experts' width; got 4; expected a divisor of 58; try parallel.etp=2")
        no(3, "ep=2", says="does not divide the number of ranks; got 2; expected a divisor of 3; try --ranks 4")
        no(2, "ep=2", "etp=2", says="ep 2 x etp 2; expected a divisor of 2")
        no(2, "ep=2", "exact=true", says="cannot be used with parallel.exact")
        no(2, "ep=2", "dispatcher=x", says="parallel.dispatcher")
        self.refused("--ranks", 2, "parallel.ep=2", f"init={DATA / 'hf' / 'gpt2'}", "loss.mtp_scale=0", "loss.aux=0",
                     "loss.router_bias_rate=0", "loss.router_z=0", "batch=2", says="the model has no experts")


if __name__ == "__main__":
    main()
