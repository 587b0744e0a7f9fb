"""braid search MODEL OUT: a folder within its limits that loads again, its table and JSON, and what it refuses.

usage: search_test.py BRAID
"""
import json
import shutil
import subprocess
import time

from support.program import DATA, Case, braid, main, start
from support.tensors import read_header, tensors, write_header
from support.training import files_of

MODEL, TEXT = DATA / "tiny-chat", DATA / "calibration" / "text.txt"
QUICK = ("--samples", "4", "--held", "2", "--row", "48", "--length", "48", "--rounds", "1", "-t", "1")


def search(out, *words, model=MODEL, data=TEXT):
    return braid("search", model, out, "--data", data, *QUICK, *words)


def stored(folder):
    """Bytes of all tensors of the folder."""
    return sum(len(tensor.data) for tensor in tensors(folder).values())


class Search(Case):
    def setUp(self):
        self.place = self.new_folder()

    def told(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_folder_meets_the_limits_and_loads(self):
        out = self.place / "small"
        told = self.told(search(out, "--limit", "gib=80%,kv=90%", "--distill-tokens", "200", "--json"))
        before, after = told["before"], told["after"]
        self.assertEqual(stored(MODEL), before["bytes"])
        self.assertEqual(stored(out), after["bytes"])
        self.assertLessEqual(after["bytes"], 0.8 * before["bytes"])
        self.assertLessEqual(after["kv_bytes"], 0.9 * before["kv_bytes"])
        chosen = [site["variants"][site["chosen"]] for site in told["sites"]]
        for kind in ("bytes", "kv_bytes", "params"):
            self.assertEqual(sum(v[kind] for v in chosen) + told["rest"][kind], after[kind], kind)
        self.assertAlmostEqual(sum(v["kl"] for v in chosen), told["score"], places=9)
        self.assertTrue(any(v["trained"] for site in told["sites"] for v in site["variants"]))
        for site in told["sites"]:
            for v in site["variants"]:
                if v["trained"]:
                    self.assertLess(v["local_error"], v["local_error_untrained"])
        self.assertGreater(after["tokens_s"], 0)
        answer = braid("run", out, "-p", "Hello", "-n", "4", "--temp", "0")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        # The printed instance alone has the same choice.
        instance = self.place / "instance.json"
        instance.write_text(json.dumps(told["instance"]))
        solved = json.loads(braid("search", "--solve", instance, "--json", BRAID_THREADS="1").stdout)
        self.assertEqual(solved["choice"], [site["chosen"] for site in told["sites"]])

    def test_goes_on_after_a_kill(self):
        """From the variants that were finished, with the same folder and scores; and only for the same search."""
        words = ("--limit", "params=85%", "--distill-tokens", "3000", "--json")
        whole = self.told(search(self.place / "whole", *words))
        out, work = self.place / "killed", self.place / "killed.search"
        process = start("search", MODEL, out, "--data", TEXT, *QUICK, *words, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)
        while len(list(work.glob("*.json"))) < 4 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        self.assertFalse(out.exists())
        finished = {file: file.stat().st_mtime_ns for file in work.glob("site-*.json")}
        self.assertGreaterEqual(len(finished), 3)
        self.assertRefused(search(out, *words, "--distill-tokens", "2000"), "holds a search that differs in --distill-tokens")
        self.assertRefused(search(out, *words, "--row", "40"), "differs in the data; got the data 6 rows")
        done = search(out, *words)
        again = self.told(done)
        self.assertRegex(done.stderr, r"\d+ variants of an earlier search")
        self.assertGreaterEqual(int(done.stderr.split()[0]), len(finished))
        self.assertEqual([[v["kl"] for v in site["variants"]] for site in again["sites"]],
                         [[v["kl"] for v in site["variants"]] for site in whole["sites"]])
        self.assertEqual(tensors(out), tensors(self.place / "whole"))
        self.assertFalse(work.exists())

    def test_damaged_work_is_named(self):
        """Of a search that was killed: one line that says what is wrong, whatever is, and how to begin again."""
        out, work = self.place / "out", self.place / "out.search"
        file = self.place / "v.toml"
        file.write_text('kv_groups = [0.5]\nexpert_ffn = [0.5]\n')
        words = ("--limit", "params=95%", "--variants", file, "--distill-tokens", "1000")
        process = start("search", MODEL, out, "--data", TEXT, *QUICK, *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(list(work.glob("site-*.json"))) < 2 and process.poll() is None:
            time.sleep(0.01)
        self.assertRefused(search(out, *words), "[search] another process uses this file; got ", "out.search/search.json; try another name, or ending that process")
        process.kill()
        process.wait()
        whole = files_of(work)
        names = [name for name in whole if name.endswith(".safetensors")]
        self.assertTrue(names)
        again = f"; try removing {work}, which begins the search again\n"

        def damaged(name, data, *says):
            for path, before in whole.items():
                (work / path).write_bytes(before)
            (work / name).unlink() if data is None else (work / name).write_bytes(data)
            self.assertRefused(search(out, *words), *says, again)
        damaged("search.json", b"{", "search.json")
        for name in names:
            scores = name.replace(".safetensors", ".json")
            values = json.loads(whole[scores])
            damaged(name, None, name)
            damaged(name, whole[name][:-3], name)
            damaged(scores, b"[]", scores)
            damaged(scores, json.dumps(values | {"values": {}}).encode(), "lacks a tensor of the variant")
            damaged(scores, json.dumps(values | {"values": dict.fromkeys(values["values"], "nothing")}).encode(), "names a tensor that the variant does not have")
            for change, says in ((lambda t: t.update(shape=t["shape"][::-1] if t["shape"][0] != t["shape"][1] else [1, *t["shape"]]), "another type or shape"),
                                 (lambda t: t.update(dtype="I32" if t["dtype"] == "F32" else "I16"), "another type or shape")):
                for path, before in whole.items():
                    (work / path).write_bytes(before)
                header, body = read_header(work / name)
                change(next(value for key, value in header.items() if key != "__metadata__"))
                write_header(work / name, header, body)
                damaged(name, (work / name).read_bytes(), name, says)
        for path, before in whole.items():
            (work / path).write_bytes(before)
        self.assertIn("of an earlier search", search(out, *words).stderr)

    def test_the_working_folder_may_be_out(self):
        """Unfinished work is kept next to OUT, not in it; a model with another config is another model."""
        out, other = self.place / "here", self.place / "other"
        out.mkdir()
        shutil.copytree(MODEL, other)
        config = json.loads((other / "config.json").read_text())
        config["routed_scaling_factor"] = 7
        (other / "config.json").write_text(json.dumps(config))
        own = ("--limit", "params=50%", "--distill-tokens", "100")
        words = ("--data", TEXT, *QUICK, *own)
        process = start("search", MODEL, ".", *words, cwd=out, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        work = self.place / "here.search"
        while len(list(work.glob("site-*.json"))) < 1 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        self.assertEqual(list(out.iterdir()), [])
        self.assertRefused(search(out, *own, model=other), "holds a search that differs in the model")
        done = braid("search", MODEL, ".", *words, cwd=out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((out / "config.json").exists())

    def test_variants_and_scores(self):
        file = self.place / "v.toml"
        file.write_text('expert_ffn = [0.5]\nmamba = ["none"]\nkeep = [1]\n')
        scores = {}
        for score in ("kl", "loss", "cosine"):
            told = self.told(search(self.place / score, "--limit", "params=0.9x", "--variants", file, "--score", score,
                                    "--json"))
            scores[score] = told["sites"]
            for site in told["sites"]:
                names = [v["name"] for v in site["variants"]]
                kept = site["layer"] == 1 or site["block"] == "attention"
                self.assertEqual(len(names), 1 if kept else 2, names)
                for v in site["variants"]:
                    self.assertEqual(v["score"], v[score])
        for site, same in zip(scores["kl"], scores["loss"]):
            self.assertEqual([v["kl"] for v in site["variants"]], [v["kl"] for v in same["variants"]])

    def test_layers_that_differ(self):
        file = self.place / "v.json"
        file.write_text('{"kv_groups": [0.5], "mamba_heads": [0.5], "keep": [0]}')
        out = self.place / "small"
        told = self.told(search(out, "--limit", "params=98%", "--variants", file, "--json"))
        config = json.loads((out / "config.json").read_text())
        names = {site["variants"][site["chosen"]]["name"] for site in told["sites"]}
        self.assertIn("whole", names)
        self.assertGreater(len(names), 1)
        self.assertEqual(config["model_type"], "nemotron_h_puzzle")
        self.assertEqual(len(config["block_configs"]), len(told["sites"]))
        info = braid("info", out, "--json")
        self.assertEqual(info.returncode, 0, info.stderr)

    def test_table(self):
        done = search(self.place / "small", "--limit", "decode_ms=10x,gib=90%")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("choice", "local error", "before", "after", "predicted", "measured", "sum of scores"):
            self.assertIn(word, done.stdout)

    def test_refusals(self):
        out = self.place / "out"
        limit = ("--limit", "gib=80%")
        file = self.place / "v.toml"
        for words, says in (((), "no limit is given"),
                            (("--limit", "size=3"), "no such limit"),
                            (("--limit", "gib=1%"), "as the nearest"),
                            (("--limit", "gib=100%"), "[--limit] the model meets this as it is; got gib=100%; expected below 100%, which is "),
                            (("--limit", "kv=1.5x,gib=80%"), "the model meets this as it is; got kv=150%"),
                            (("--limit", "params=1e12"), "the model meets this as it is; got params=1e+12; expected below 100%, which is "),
                            (("--limit", "decode_ms=200%"), "the model meets this as it is; got decode_ms=200%; expected below 100%, or another limit beside it"),
                            (("--limit", "decode_ms=1e-9"), "as the nearest"),
                            ((*limit, "--batch", "0"), "--batch"),
                            ((*limit, "--length", "99999999"), "--length"),
                            ((*limit, "--distill-lr", "0"), "--distill-lr"),
                            ((*limit, "--variants", file), "v.toml"),
                            ((*limit, "--solve", file), "takes an instance alone")):
            self.assertRefused(search(out, *words), says)
            self.assertFalse(out.exists())
        few = self.place / "few"
        shutil.copytree(DATA / "hf" / "nemotron-nas", few)
        config = json.loads((few / "config.json").read_text())
        (few / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2}))
        self.assertRefused(search(out, *limit, "--length", "1", model=few), "too few positions for steps to be timed; got max_position_embeddings: 2")
        for text, says in (("ffn = ", "v.toml"), ("width = [1]", "is not a kind of variant"), ("experts = [true]", "experts[0]"),
                           ("keep = [99]", "no such layer"), ('attention = ["linear"]', "can be linear"),
                           ('mamba = ["linear"]', "can be linear"), ("expert_ffn = [99999]", "no smaller size")):
            file.write_text(text)
            self.assertRefused(search(out, *limit, "--variants", file), says)
        self.assertRefused(braid("search", "--solve", file, *limit), "takes an instance alone")
        for words in (("--score", "kl"), ("-b", "2"), ("--length", "8"), ("--seed", "1"), ("--distill-tokens", "9"), ("-t", "1")):
            self.assertRefused(braid("search", "--solve", file, *words), "takes an instance alone")
        self.assertRefused(braid("search", MODEL, out, *limit), "--data")
        self.assertRefused(braid("search", MODEL), "no output folder")
        self.assertRefused(search(out, *limit, model=DATA / "hf" / "nemotron-h-modelopt-nvfp4"), "quantised")
        self.assertRefused(search(out, *limit, model=DATA / "hf" / "gpt2"), "braid prune")
        self.assertRefused(search(out, *limit, model=DATA / "huginn"), "recurrent depth")
        out.mkdir()
        (out / "x").write_text("x")
        self.assertRefused(search(out, *limit), "out")


if __name__ == "__main__":
    main()
