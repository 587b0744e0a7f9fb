"""braid plan layout: terms that add up, clusters from files, and one-line errors.

usage: layout_cli_test.py BRAID
"""
import json

from support.program import Case, braid, main

DEVICE = 'base = "h100-ib"\n[device]\ntflops = 900\ngb_per_s = 3000\nmemory_gb = 80\n'


class Layout(Case):
    def plan(self, *words):
        return json.loads(self.run_ok("plan", "layout", *words, "--json"))

    def refused(self, *words, says):
        self.assertRefused(braid("plan", "layout", *words), *says)

    def file(self, text):
        path = self.new_folder() / "cluster.toml"
        path.write_text(text)
        return path

    def test_terms_add_up_and_layouts_are_in_order(self):
        plan = self.plan("hybrid-1b", "--ranks", 16, "--batch", 64, "--top", 40)
        steps = [x["modelled_step_seconds"] for x in plan["layouts"]]
        self.assertEqual(len(steps), 40)
        self.assertEqual(steps, sorted(steps))
        self.assertGreater(plan["legal"], 1000)
        for x in plan["layouts"]:
            self.assertAlmostEqual(sum(x["seconds"].values()) / x["modelled_step_seconds"], 1, 9)
            self.assertAlmostEqual(sum(x["memory"].values()) / x["memory_bytes"], 1, 9)
            self.assertTrue(x["fits"])
            if "dp" in x:
                self.assertEqual(x["dp"] * x["tp"] * x["cp"] * x["pp"], 16)
        text = self.run_ok("plan", "layout", "hybrid-1b", "--ranks", 16, "--batch", 64)
        self.assertIn("modelled, not measured", text)
        self.assertIn("roofs: H100 SXM data sheet (recalled)", text)
        self.assertEqual(text.count("  memory  "), 5)

    def test_a_default_length_fits_the_model(self):
        self.assertEqual(self.plan("gpt2-124m", "--ranks", 2, "--top", 1)["length"], 1024)

    def test_words_change_the_plan(self):
        plan = self.plan("hybrid-1b", "--ranks", 8, "--zero", 0, "--recompute", "full", "--micro", 2, "--top", 1000)
        for x in plan["layouts"]:
            self.assertEqual((x.get("zero", 0), x["recompute"]), (0, "full"))
            if "dp" in x and x["virtual_stages"] == 1:
                self.assertEqual(x["accumulate"], max(1, 32 // x["dp"] // 2))
        plan = self.plan("hybrid-1b", "--ranks", 8, "--batch", 18, "--zero", 0, "--recompute", "full", "--micro", 3, "--top", 1000)
        runs = [x for x in plan["layouts"] if x.get("virtual_stages", 1) > 1]
        for x in runs:  # parts come in groups of pp
            rows = -(-18 // x["dp"])
            parts = -(-rows // 3)
            self.assertEqual(x["accumulate"], min(-(-parts // x["pp"]) * x["pp"], max(x["pp"], rows // x["pp"] * x["pp"])))
        self.assertIn(8, {x["accumulate"] for x in runs})
        overlapped, not_ = (self.plan("llama-3.1-8b", "--ranks", 8, "--overlap", o, "--top", 1)["layouts"][0]
                            for o in ("state", "none"))
        self.assertLess(overlapped["modelled_step_seconds"], not_["modelled_step_seconds"])
        self.assertEqual(not_["hidden_seconds"], 0)

    def test_clusters_from_files(self):
        slow, fast = (self.plan("hybrid-1b", "--ranks", 8, "--cluster", self.file(DEVICE + f"efficiency = {e}\n"))
                      for e in (0.2, 0.8))
        self.assertLess(fast["layouts"][0]["modelled_step_seconds"], slow["layouts"][0]["modelled_step_seconds"])
        for text, says in (('base = "h100-ib"', ["has no device.tflops"]), (DEVICE.replace("900", "0"), ["tflops", "0"]),
                           (DEVICE.replace("80", "0"), ["memory_gb"]), (DEVICE + "cores = 3\n", ["cores", "not a field"]),
                           ("nodes = 0\n" + DEVICE, ["nodes"]), ("gpus = 0\n" + DEVICE, ["gpus"]),
                           ("network.gb_per_s = 0\n" + DEVICE, ["gb_per_s"]), ('base = "h100"\n', ["is not a preset"])):
            self.refused("hybrid-1b", "--cluster", self.file(text), says=says)
        self.refused("hybrid-1b", "--cluster", "dgx-h10", says=["neither a preset nor a file", "try dgx-h100"])

    def test_what_cannot_be_planned(self):
        self.refused("hybrid-1b", "--ranks", 12, says=["[--ranks] is not a whole number of nodes", "got 12", "try --ranks 8"])
        self.refused("hybrid-1b", "--ranks", 0, says=["--ranks", "got 0"])
        self.refused("hybrid-1b", "--length", 0, says=["--length"])
        self.refused("hybrid-1b", "--top", 0, says=["--top"])
        self.refused("hybrid-1b", "--imbalance", 0.5, says=["--imbalance"])
        self.refused("hybrid-1b", "--recompute", "fit:1", says=["--recompute"])
        self.refused("hybrid-1b", "--recompute", "some", says=["some"])
        done = braid("plan", "layout", "nemotron-3-super-120b-a12b", "--ranks", 2, "--batch", 2)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no layout fits; got ", done.stderr)
        self.assertIn("recompute full", done.stdout)  # the nearest
        self.assertEqual(self.plan("gpt2-124m", "--ranks", 1, "--length", 1024)["legal"], 1)
        self.refused("gpt2-124m", "--ranks", 1, "--length", 4096, says=["[--length]", "got 4096", "at most 1024"])
        for x in self.plan("hybrid-1b", "--ranks", 8, "--length", 2, "--top", 1000)["layouts"]:
            self.assertLessEqual(x.get("cp", 1) * (x.get("tp", 1) if x.get("sp") else 1), 2)

    def test_answers(self):
        plan = self.plan("nemotron-3-nano-30b-a3b", "--ranks", 8, "--serve", "--batch", 8)
        for x in plan["layouts"]:
            self.assertEqual(x["tp"] * x["pp"] * x["replicas"], 8)
            self.assertAlmostEqual(x["modelled_seconds"], x["modelled_prompts_seconds"] + 256 * x["modelled_token_seconds"])
        done = braid("plan", "layout", "nemotron-3-ultra-550b-a55b", "--ranks", 1, "--serve")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no layout fits", done.stderr)
        self.refused("hybrid-1b", "--serve", "--prompt", 0, says=["--prompt"])
        self.refused("hybrid-1b", "--serve", "--zero", 1, says=["[--zero] applies only to training; got --serve"])
        self.refused("hybrid-1b", "--answer", 3, says=["[--answer] applies only to serving; try --serve"])


if __name__ == "__main__":
    main()
