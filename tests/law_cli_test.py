"""braid law: a law from a table to a fit file to a plan, and what is refused.

usage: law_cli_test.py BRAID
"""
import json
from pathlib import Path

from support.program import Case, braid, main

ROOT = Path(__file__).resolve().parents[1]


class Law(Case):
    def setUp(self):
        self.folder = self.new_folder()
        self.table = self.folder / "runs.csv"
        rows = [(2**n * 1e7, 3**d * 1e9) for n in range(6) for d in range(5)]
        self.write((n, d, 1.8 + 480 / n**0.35 + 2000 / d**0.37) for n, d in rows)

    def write(self, rows):
        self.table.write_text("params,tokens,loss\n" + "".join(f"{n},{d},{loss}\n" for n, d, loss in rows))

    def test_fit_and_plan(self):
        fit = self.folder / "fit.json"
        found = json.loads(braid("law", "fit", self.table, "--out", fit, "--resamples", "10", "--json").stdout)
        self.assertAlmostEqual(found["law"]["alpha"]["value"], 0.35, 4)
        self.assertAlmostEqual(found["law"]["E"]["value"], 1.8, 4)
        self.assertNotIn("draws", found)
        plan = json.loads(braid("law", "plan", fit, "--hours", "2", "--rate", "1e14", "--json").stdout)
        self.assertAlmostEqual(plan["hours"], 2)
        self.assertAlmostEqual(6 * plan["params"] * plan["tokens"] / 7.2e17, 1, 6)
        self.assertLess(plan["loss_interval"][0] - 1e-6, plan["loss"])
        by_flops = json.loads(braid("law", "plan", fit, "--flops", "7.2e17", "--json").stdout)
        self.assertEqual(by_flops["params"], plan["params"])
        self.assertIn("by the formula", braid("law", "plan", fit, "--flops", "1e18").stdout)
        self.assertIn("far beyond", braid("law", "plan", fit, "--flops", "1e25").stderr)

    def test_refusals(self):
        self.write((2**n * 1e7, 1e9, 3 + 1 / (n + 1)) for n in range(6))
        self.assertRefused(braid("law", "fit", self.table), "tokens do not vary")
        self.write([(1e7, 1e9, "x")])
        self.assertRefused(braid("law", "fit", self.table), "runs.csv:2] loss is not a positive number")
        for words, says in [(["--flops", "1e18"], "not valid JSON"), ([], "no single budget"), (["--hours", "3"], "--rate"),
                            (["--flops", "-1"], "--flops")]:
            self.assertRefused(braid("law", "plan", self.table, *words), says)


if __name__ == "__main__":
    main()
