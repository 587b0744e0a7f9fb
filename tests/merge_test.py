"""braid merge: means, task arithmetic and SLERP of whole models, against the formulas in Python's doubles.

usage: merge_test.py BRAID
"""
import array
import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess

from support.program import BRAID, DATA, ENVIRONMENT, Case, braid, main
from support.tensors import tensors, write_header
from support.training import RECIPE, files_of

HYBRID, SHARDS = DATA / "hf" / "nemotron-h-latent-mtp", DATA / "hf" / "nemotron-h-legacy"
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 301, "hidden_size": 24,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 37,
          "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TOKENIZER = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
             "added_tokens": [{"id": 3, "content": "<s>", "special": True}]}
TYPES = ("BF16", "F32", "F16")
WIDTH = {"BF16": 2, "F16": 2, "F32": 4}


def number_of(bits, dtype):
    if dtype == "F16":
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    return struct.unpack("<f", struct.pack("<I", bits << 16 if dtype == "BF16" else bits))[0]


def bits_of(tensor):
    return array.array({2: "H", 4: "I"}[WIDTH[tensor.dtype]], tensor.data)


def numbers(tensor):
    return [number_of(bits, tensor.dtype) for bits in bits_of(tensor)]


def encoded(values, dtype):
    """Rounded somehow: for inputs."""
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    data = struct.pack(f"<{len(values)}f", *values)
    return data if dtype == "F32" else b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))


def write_tensors(folder, by_name, config=None, tokenizer=None):
    """A model of {name: (dtype, shape, bytes)}."""
    folder.mkdir(exist_ok=True)
    header, body = {}, b""
    aligned = sorted(by_name.items(), key=lambda entry: -WIDTH.get(entry[1][0], 1))
    for name, (dtype, shape, data) in aligned:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    write_header(folder / "model.safetensors", header, body)
    (folder / "config.json").write_text(json.dumps(config or CONFIG))
    if tokenizer:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def shapes():
    """Names and shapes of CONFIG's tensors."""
    hidden, kv, width = 24, 12, 37
    of = {EMBEDDING: [301, hidden], HEAD: [301, hidden], "model.norm.weight": [hidden]}
    for layer in range(2):
        block = {"self_attn.q_proj": [hidden, hidden], "self_attn.k_proj": [kv, hidden], "self_attn.v_proj": [kv, hidden],
                 "self_attn.o_proj": [hidden, hidden], "mlp.gate_proj": [width, hidden], "mlp.up_proj": [width, hidden],
                 "mlp.down_proj": [hidden, width], "input_layernorm": [hidden], "post_attention_layernorm": [hidden]}
        of |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in block.items()}
    return of


class MergeCase(Case):
    def setUp(self):
        self.root = self.new_folder()

    def model(self, name, seed, shift=0, change=None, **more):
        """Random numbers, in types that take turns from `shift` on; `change` gets the tensors before they are written."""
        draw, made = random.Random(seed), {}
        for i, (tensor, shape) in enumerate(shapes().items()):
            values = [draw.gauss(0, 1) * 2.0 ** draw.randint(-6, 2) for _ in range(math.prod(shape))]
            made[tensor] = (TYPES[(i + shift) % 3], shape, encoded(values, TYPES[(i + shift) % 3]))
        if change:
            change(made)
        return write_tensors(self.root / name, made, **more)

    def merge(self, *words):
        out = self.root / f"out{len(list(self.root.glob('out*')))}"
        done = braid("merge", *words, "-o", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def refused(self, *words, says):
        before = files_of(self.root)
        self.assertRefused(braid("merge", *words, "-o", self.root / "no"), *says)
        self.assertEqual(files_of(self.root), before)  # nor a folder of its own that was begun
        self.assertFalse([path for path in self.root.iterdir() if path.name.startswith(".")])

    def assertNearest(self, tensor, values, name):
        """Each number of the tensor is the one of its type that is nearest to the value."""
        sign = 1 << (8 * WIDTH[tensor.dtype] - 1)
        stored = bits_of(tensor)
        self.assertEqual(len(stored), len(values), name)
        for bits, value in zip(stored, values):
            off, slack = abs(number_of(bits, tensor.dtype) - value), 1e-14 * (1 + abs(value))
            size = bits & (sign - 1)
            for other in (size + 1, max(size - 1, 0)):
                near = math.copysign(number_of(other, tensor.dtype), -1 if bits & sign else 1)
                self.assertLessEqual(off, abs(near - value) + slack, (name, bits, value))

    def assertMerged(self, out, models, formula):
        """formula(lists of a tensor's numbers, by model) is what `out` has, in the names, shapes and types of the first."""
        got, first = tensors(out), tensors(models[0])
        self.assertEqual({name: t[:2] for name, t in got.items()}, {name: t[:2] for name, t in first.items()})
        of = [tensors(model) for model in models]
        for name, tensor in got.items():
            self.assertNearest(tensor, formula([numbers(t[name]) for t in of]), name)


class Means(MergeCase):
    def test_it_is_the_mean(self):
        models = [self.model(name, seed, seed) for seed, name in enumerate("abc")]
        out = self.merge(*models, "--mean")
        self.assertMerged(out, models, lambda xs: [sum(x) / 3 for x in zip(*xs)])
        weights = (0.5, 0.3, 0.2)
        out = self.merge(*models, "--mean", "--weights", "0.5,0.3,0.2")
        self.assertMerged(out, models, lambda xs: [math.fsum(map(math.prod, zip(weights, x))) for x in zip(*xs)])

    def test_nested_models_are_of_one_nest(self):
        models = [self.model(name, seed) for seed, name in enumerate("ab")]
        for model in models:
            (model / "nested.json").write_text('{"budgets": []}')
        self.assertEqual((self.merge(*models, "--mean") / "nested.json").read_text(), '{"budgets": []}')
        for change in (lambda file: file.write_text('{"budgets": [ ]}'), lambda file: file.unlink()):
            change(models[1] / "nested.json")
            self.assertRefused(braid("merge", *models, "--mean", "-o", self.root / "other"), "/b] has another nested.json than ")

    def test_shares_count_not_their_sum(self):
        models = [self.model(name, seed) for seed, name in enumerate("abc")]
        one, other, uneven = (tensors(self.merge(*models, "--mean", "--weights", w)) for w in ("1,2,1", "0.25,0.5,0.25", "1,2,2"))
        self.assertEqual(one, other)
        self.assertNotEqual(one, uneven)

    def test_by_hand(self):
        def all_of(value):
            def change(made):
                for name, (dtype, shape, _) in made.items():
                    made[name] = (dtype, shape, encoded([value] * math.prod(shape), dtype))
            return change
        models = [self.model(name, 0, change=all_of(value)) for name, value in (("a", 1), ("b", 2), ("c", 6))]
        for out, value in ((self.merge(*models, "--mean"), 3), (self.merge(*models, "--mean", "--weights", "1,0,3"), 4.75),
                           (self.merge(models[0], "--task", f"{models[1]}:2,{models[2]}:-0.5"), 0.5)):
            self.assertEqual({x for t in tensors(out).values() for x in numbers(t)}, {value})

    def test_of_equal_models_it_is_the_model(self):
        a = self.model("a", 1, change=negative_zeros)
        self.assertEqual(tensors(self.merge(a, a, a, "--mean")), tensors(a))

    def test_checkpoints_of_a_run(self):
        (self.root / "r.toml").write_text(RECIPE)
        run = self.root / "run"
        self.run_ok("train", self.root / "r.toml", f"out={run}", "steps=3", "checkpoint.every=1", "checkpoint.merge=3")
        merged = tensors(run / "merged")  # a sum in FP32
        got = tensors(self.merge(*sorted((run / "checkpoints").glob("step-*")), "--mean"))
        self.assertEqual(set(got), set(merged))
        for name, tensor in got.items():
            for x, y in zip(numbers(tensor), numbers(merged[name])):
                self.assertLessEqual(abs(x - y), 5e-7 * abs(y) + 1e-9, name)

    def test_long_tensors(self):
        config = CONFIG | {"vocab_size": 70001, "hidden_size": 64, "num_hidden_layers": 1}
        (self.root / "c.json").write_text(json.dumps(config))
        models = [self.root / name for name in "ab"]
        for seed, model in enumerate(models):
            self.run_ok("new", self.root / "c.json", model, "--seed", seed)
        a, b = (bits_of(tensors(model)[EMBEDDING]) for model in models)
        got = bits_of(tensors(self.merge(models[0], "--task", f"{models[1]}:0.75"))[EMBEDDING])
        self.assertGreater(len(got), 1 << 22)
        for at in {*range(0, len(got), 997), *range((1 << 22) - 5, (1 << 22) + 5), len(got) - 1}:
            x, y = (number_of(bits, "BF16") for bits in (a[at], b[at]))
            self.assertAlmostEqual(number_of(got[at], "BF16"), x + 0.75 * (y - x), delta=abs(x + 0.75 * (y - x)) / 255)


def negative_zeros(made):
    """The first numbers of every tensor."""
    for name, (dtype, shape, data) in made.items():
        made[name] = (dtype, shape, encoded([-0.0] * 3, dtype) + data[3 * WIDTH[dtype]:])


class Tasks(MergeCase):
    def test_it_adds_differences(self):
        models = [self.model(name, seed, seed) for seed, name in enumerate(("base", "a", "b"))]
        out = self.merge(models[0], "--task", f"{models[1]}:0.5,{models[2]}:-0.3")
        self.assertMerged(out, models, lambda xs: [x + 0.5 * (a - x) - 0.3 * (b - x) for x, a, b in zip(*xs)])

    def test_one_gives_the_model_and_zero_the_base(self):
        base, a = self.model("base", 0, change=negative_zeros), self.model("a", 1)
        self.assertMerged(self.merge(base, "--task", f"{a}:1.0"), [base, a], lambda xs: xs[1])
        self.assertEqual(tensors(self.merge(base, "--task", f"{a}:0")), tensors(base))
        self.assertEqual(tensors(self.merge(base, "--task", f"{base}:3,{base}:-1")), tensors(base))

    def test_results_are_rounded_once(self):
        # 1 + 2^-8 + 2^-28: in F32 that is the middle between two BF16 numbers, and would go to the even one.
        def change(dtype, value):
            def of(made):
                made["model.norm.weight"] = (dtype, [24], encoded([value] * 24, dtype))
            return of
        base, a = self.model("base", 0, change=change("BF16", 1)), self.model("a", 0, change=change("F32", 1 + 2.0**-8))
        got = numbers(tensors(self.merge(base, "--task", f"{a}:{1 + 2.0**-20!r}"))["model.norm.weight"])
        self.assertEqual(got, [1 + 2.0**-7] * 24)


class Arcs(MergeCase):
    @staticmethod
    def arc(t):
        def of(xs):
            a, b = xs
            norms = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(x * x for x in b))
            cosine = math.fsum(x * y for x, y in zip(a, b)) / norms if norms else 1
            if abs(cosine) > 0.9995:
                return [(1 - t) * x + t * y for x, y in zip(a, b)]
            angle = math.acos(cosine)
            return [(math.sin((1 - t) * angle) * x + math.sin(t * angle) * y) / math.sin(angle) for x, y in zip(a, b)]
        return of

    def test_it_is_the_arc(self):
        a, b = self.model("a", 0), self.model("b", 1, 1)
        for t in (0.4, 0.9):
            self.assertMerged(self.merge(a, b, "--slerp", t), [a, b], self.arc(t))

    def test_the_ends_are_the_models(self):
        a, b = self.model("a", 0, change=negative_zeros), self.model("b", 1)
        self.assertEqual(tensors(self.merge(a, b, "--slerp", 0)), tensors(a))
        self.assertEqual(tensors(self.merge(a, b, "--slerp", 1)), tensors(b))
        self.assertEqual(tensors(self.merge(b, a, "--slerp", 1)), tensors(a))

    def test_without_an_angle_it_is_linear(self):
        linear = lambda xs: [0.7 * x + 0.3 * y for x, y in zip(*xs)]
        for apart, formula in ((0.02, linear), (0.06, self.arc(0.3))):  # cosines of 0.9999 and 0.9989
            def change(made, apart=apart):
                for i, (name, (dtype, shape, data)) in enumerate(made.items()):
                    values = [number_of(bits, dtype) for bits in array.array({2: "H", 4: "I"}[WIDTH[dtype]], data)]
                    factor = (2, -1, 0, 1)[i % 4]
                    made[name] = (dtype, shape, encoded([x * factor * (1 + apart * (j % 3)) for j, x in enumerate(values)], dtype))
            a, b = self.model("a", 0), self.model("b", 0, change=change)
            self.assertMerged(self.merge(a, b, "--slerp", 0.3), [a, b], formula)

    def test_threads_do_not_count(self):
        a, b = self.model("a", 0), self.model("b", 1)
        many = self.merge(a, b, "--slerp", 0.3)
        cpu = min(os.sched_getaffinity(0))
        one = braid("merge", a, b, "--slerp", 0.3, "-o", self.root / "one", preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        self.assertEqual(one.returncode, 0, one.stderr)
        self.assertEqual(tensors(self.root / "one"), tensors(many))


class Folders(MergeCase):
    def test_the_rest_is_that_of_the_first(self):
        a, b = self.model("a", 0, tokenizer=TOKENIZER), self.model("b", 1, config=CONFIG | {"eos_token_id": 5})
        for folder, word in ((a, "first"), (b, "second")):
            (folder / "chat_template.jinja").write_text(word)
            (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": len(word)}))
        out = self.merge(a, b, "--mean")
        for name in ("config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"):
            self.assertEqual((out / name).read_bytes(), (a / name).read_bytes(), name)
        self.assertEqual(sorted(path.name for path in out.iterdir()), sorted(path.name for path in a.iterdir()))
        self.assertEqual(len(json.loads(self.run_ok("run", out, "--ids", "5,6", "-n", 1, "--ignore-eos", "--json"))["ids"]), 1)

    def test_result_as_json(self):
        a, b = self.model("a", 0), self.model("b", 1)
        got = json.loads(self.run_ok("merge", a, "--task", f"{b}:0.5", "-o", self.root / "x", "--json"))
        self.assertEqual(got, {"folder": str(self.root / "x"), "method": "task", "tensors": len(shapes()),
                               "values": sum(math.prod(shape) for shape in shapes().values()), "notes": [],
                               "models": [{"model": str(a), "weight": 1.0}, {"model": str(b), "weight": 0.5}]})
        got = json.loads(self.run_ok("merge", a, b, "--mean", "--weights", "3,1", "-o", self.root / "y", "--json"))
        self.assertEqual([model["weight"] for model in got["models"]], [0.75, 0.25])

    def test_shards(self):
        one = self.root / "one"
        self.merge(SHARDS, "--task", f"{SHARDS}:1").rename(one)  # the same weights in one file
        self.assertEqual([path.name for path in one.glob("*.safetensors*")], ["model.safetensors"])
        stored = {name: t for shard in SHARDS.glob("model-*.safetensors") for name, t in tensors(shard).items()}
        self.assertEqual(tensors(one), stored)
        for pair in ((SHARDS, one), (one, SHARDS)):
            self.assertEqual(tensors(self.merge(*pair, "--mean")), stored)

    def test_a_prediction_block_that_one_lacks(self):
        def scaled(name, factor, mtp):
            folder = self.root / name
            shutil.copytree(HYBRID, folder)
            made = {key: (t.dtype, t.shape, encoded([factor * x for x in numbers(t)], t.dtype))
                    for key, t in tensors(HYBRID).items() if mtp or not key.startswith("mtp.")}
            write_tensors(folder, made, config=json.loads((HYBRID / "config.json").read_text()))
            return folder
        a, b, c = scaled("a", 1, True), scaled("b", 2, False), scaled("c", 4, True)
        block = {name for name in tensors(a) if name.startswith("mtp.")}
        self.assertTrue(block)
        self.assertMerged(self.merge(a, c, "--mean"), [a, c], lambda xs: [(x + y) / 2 for x, y in zip(*xs)])
        done = braid("merge", a, b, "--mean", "-o", self.root / "x")
        self.assertEqual((done.returncode, done.stderr), (0, f"note: {b} has no prediction block: that of {a} is copied\n"))
        got, of = tensors(self.root / "x"), tensors(a)
        self.assertEqual(set(got), set(of))
        for name, tensor in got.items():
            self.assertNearest(tensor, [x * (1 if name in block else 1.5) for x in numbers(of[name])], name)
        done = braid("merge", b, a, "--mean", "-o", self.root / "y")
        self.assertEqual((done.returncode, done.stderr), (0, f"note: the prediction block of {a}, which {b} lacks, is left out\n"))
        self.assertEqual(set(tensors(self.root / "y")), set(of) - block)

    def test_a_tied_head_that_is_stored_once_more(self):
        def twice(made):
            made[HEAD] = made[EMBEDDING]
        config = CONFIG | {"tie_word_embeddings": True}
        a, b = self.model("a", 0, change=twice, config=config), self.model("b", 1, change=twice, config=config)
        c = self.model("c", 2, change=lambda made: made.pop(HEAD), config=config)
        both = tensors(self.merge(a, b, "--mean"))
        self.assertEqual(both[HEAD].data, both[EMBEDDING].data)
        for pair in ((a, c), (c, a)):
            self.assertEqual(set(tensors(self.merge(*pair, "--mean"))), set(shapes()) - {HEAD})

    def test_whole_numbers_are_copied(self):
        def mask(value):
            def change(made):
                made["model.mask"] = ("U8", [5], bytes([value] * 5))
            return change
        a, b, c = (self.model(name, 0, change=mask(value)) for name, value in (("a", 7), ("b", 7), ("c", 8)))
        self.assertEqual(tensors(self.merge(a, b, "--mean"))["model.mask"].data, bytes([7] * 5))
        self.refused(a, c, "--mean", says=[f"[{c}] tensor model.mask, of whole numbers, is not that of {a}"])

    def stopped(self, *words):
        """A merge gets Ctrl-C when it has begun to write."""
        parent = self.root / "made"
        parent.mkdir(exist_ok=True)
        for _ in range(20):  # until the signal comes before it is done
            process = subprocess.Popen([BRAID, "merge", *map(str, words), "-o", parent / "out"], cwd=self.root, env=ENVIRONMENT,
                                       stdout=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            while process.poll() is None and not any(parent.iterdir()):
                pass
            process.send_signal(signal.SIGINT)
            if process.wait() != 0:
                break
            shutil.rmtree(parent / "out")
        self.assertEqual(process.returncode, 130)
        self.assertEqual(list(parent.iterdir()), [])

    def test_stopped_it_leaves_nothing(self):
        self.run_ok("new", "hybrid-8.5m", self.root / "m")
        self.stopped(*["m"] * 100, "--mean")
        (self.root / "r.toml").write_text('init = "m"\nsteps = 1\nbatch = 1\nlength = 8\nout = "adapter"\n[lora]\nrank = 2\ntargets = ["q_proj"]\n'
                                          '[data]\nkind = "markov"\n')
        self.run_ok("train", self.root / "r.toml")
        self.stopped("m", "--adapter", "adapter")


class Refusals(MergeCase):
    def test_other_tensors(self):
        a = self.model("a", 0)
        lacks = self.model("lacks", 1, change=lambda made: made.pop("model.norm.weight"))
        more = self.model("more", 1, change=lambda made: made.update({"model.more": ("F32", [2], bytes(8))}))
        def turn(made):
            dtype, shape, data = made[HEAD]
            made[HEAD] = (dtype, shape[::-1], data)
        turned = self.model("turned", 1, change=turn)
        self.refused(a, lacks, "--mean", says=[f"[{lacks}] lacks tensor model.norm.weight, which {a} has"])
        self.refused(a, "--task", f"{more}:1", says=[f"[{more}] has tensor model.more, which {a} lacks"])
        self.refused(a, turned, "--slerp", 0.5, says=[f"[{turned}] tensor {HEAD} has another shape than in {a}; got [24, 301]; expected [301, 24]"])

    def test_other_types(self):
        a = self.model("a", 0)
        for dtype in ("F8_E4M3", "I8"):
            def change(made, dtype=dtype):
                made["model.norm.weight"] = (dtype, [24], bytes(24))
            b = self.model(dtype, 1, change=change)
            self.refused(a, b, "--mean", says=["tensor model.norm.weight has a type that cannot be merged", f"got {dtype}"])
        eight_bits = self.root / "F8_E4M3"  # whose config does not say so
        self.refused(eight_bits, eight_bits, "--mean", says=["tensor model.norm.weight has a type that cannot be merged"])

    def test_quantised(self):
        self.run_ok("quantize", "tiny", self.root / "q", "--format", "fp8")
        self.run_ok("quantize", "tiny", self.root / "i", "--format", "int4")
        for words in (("tiny", self.root / "q", "--mean"), (self.root / "q", "tiny", "--slerp", 0.5), ("tiny", "--task", f"{self.root / 'i'}:1")):
            self.refused(*words, says=["] is quantised; got", "expected weights in F32, F16 or BF16"])

    def test_other_configs(self):
        a = self.model("a", 0)
        for key, value, says in (("rms_norm_eps", 1e-6, "eps; got 1e-06; expected 1e-05"), ("rope_theta", 5e5, "rope_theta; got 500000; expected 10000"),
                                 ("hidden_act", "gelu", "layers 0: activation; got gelu; expected silu"),
                                 ("num_attention_heads", 2, "layers 0: heads; got 2; expected 4"),
                                 ("num_hidden_layers", 1, "layers; got"), ("vocab_size", 300, "vocab_size; got 300; expected 301"),
                                 ("tie_word_embeddings", True, "tied head; got true; expected false")):
            config = CONFIG | {key: value} | ({"head_dim": 6, "num_key_value_heads": 2} if key == "num_attention_heads" else {})
            change = (lambda made: made.pop(HEAD)) if key == "tie_word_embeddings" else None  # its own would not be tied
            self.refused(a, self.model("b", 1, change=change, config=config), "--mean", says=[f"[{self.root}/b] differs from {a} in {says}"])
        more = {"eos_token_id": 7, "max_position_embeddings": 999, "dtype": "float32", "_name_or_path": "x", "attention_dropout": 0.5}
        self.merge(a, self.model("b", 1, config=CONFIG | more), "--mean")

    def test_other_vocabularies(self):
        a = self.model("a", 0, tokenizer=TOKENIZER)
        model = TOKENIZER["model"]
        for tokenizer, says in (({"model": model | {"vocab": {"a": 1, "b": 0, "ab": 2}}}, "the id of a; got 1; expected 0"),
                                ({"model": model | {"vocab": {"a": 0, "b": 1}}}, "the id of ab; got none; expected 2"),
                                ({"added_tokens": [{"id": 3, "content": "<x>"}]}, "the id of <s>; got none; expected 3"),
                                ({"model": model | {"merges": [["b", "a"]]}}, "merge 0; got b a; expected a b"),
                                ({"model": model | {"merges": []}}, "merge 0; got none; expected a b")):
            b = self.model("b", 1, tokenizer=TOKENIZER | tokenizer)
            self.refused(a, b, "--mean", says=[f"[{b}] has another vocabulary than {a}: {says}"])
        pieces = [self.model(f"pieces{score}", 1, tokenizer={"model": {"type": "Unigram", "vocab": [["a", 0.0], ["b", score]]}})
                  for score in (-1.5, -2.5)]
        self.refused(*pieces, "--mean", says=["the id of b; got 1 -2.5; expected 1 -1.5"])
        self.merge(a, self.model("b", 1, tokenizer=TOKENIZER | {"model": model | {"merges": ["a b"]}, "version": "1.0"}), "--mean")

    def test_numbers_that_are_not_finite(self):
        def change(value):
            def of(made):
                dtype, shape, data = made[EMBEDDING]
                made[EMBEDDING] = (dtype, shape, data[:-WIDTH[dtype]] + encoded([value], dtype))
            return of
        a = self.model("a", 0)
        for name, value in (("nan", math.nan), ("inf", -math.inf)):
            b = self.model(name, 1, change=change(value))
            for words in ((a, b, "--mean"), (b, a, "--slerp", 0.5), (a, "--task", f"{b}:0"), (a, b, "--slerp", 0)):
                self.refused(*words, says=[f"[{b}] tensor {EMBEDDING} has values that are not finite"])

    def test_numbers_that_do_not_fit(self):
        a, b = self.model("a", 0), self.model("b", 1)
        self.refused(a, "--task", f"{b}:1e300", says=[f"[{a}] tensor", "beyond the range of", "try smaller factors"])
        self.refused(a, "--task", f"{b}:1e6", says=["beyond the range of F16"])

    def test_command_lines(self):
        a, b = self.model("a", 0), self.model("b", 1)
        ways = "expected one of --adapter, --mean, --task and --slerp"
        for words, says in (((a,), ways), ((a, b), ways), ((a, b, "--mean", "--slerp", 0.5), ways),
                            ((a, "--mean"), "one model is its own mean"), ((a, b, b, "--slerp", 0.5), "got 3"), ((a, "--slerp", 0.5), "got 1"),
                            ((a, b, "--slerp", 1.5), "expected 0 to 1"), ((a, b, "--slerp", "nan"), "expected 0 to 1"),
                            ((a, b, "--task", f"{b}:1"), "one argument too many"), ((a, b, "--adapter", b), "one argument too many"),
                            ((a, "--task", b), "expected MODEL:FACTOR"), ((a, "--task", f"{b}:x"), "got x; expected a number"),
                            ((a, "--task", f"{b}:1,"), "expected MODEL:FACTOR"), ((a, "--task", f"{b}:inf"), "got inf"),
                            ((a, b, "--mean", "--weights", "1"), "got 1; expected 2"), ((a, b, "--mean", "--weights", "1,-1"), "no negative weight"),
                            ((a, b, "--mean", "--weights", "0,0"), "expected above 0"), ((a, b, "--mean", "--weights", "1,,"), "expected a number"),
                            ((a, "--task", f"{b}:1", "--weights", "1"), "are of a mean"), ((a, self.root / "none", "--mean"), "none")):
            self.refused(*words, says=[says])
        self.assertRefused(braid("merge", a, b, "--mean"), "no output is named")
        self.assertRefused(braid("merge", a, b, "--mean", "-o", a), "already exists")


if __name__ == "__main__":
    main()
