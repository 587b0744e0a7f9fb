"""Figures of pages are those of the stored results: sentences and rows of tables, made anew from bench/results/*.json, occur
in the pages word for word. Needs no program.
"""
import json
import re
import unittest
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TASKS = {"sums with thinking": "sums", "sums, thinking off": "sums, thinking off", "puzzles": "strings", "tool calls": "tool calls",
         "questions about the answer before": "follow-ups", "questions about Braid": "about Braid",
         "off topic, declined": "off topic", "beyond its range, declined": "off range"}


def stored(name):
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())


def page(name):
    """A page with its line ends as spaces."""
    return re.sub(r"\s+", " ", (ROOT / name).read_text())


def percent(accuracy):
    return "100%" if accuracy == 100 else f"{accuracy:.1f}%"


def task(result, turn, key):
    """The figures of a task at a turn; what only follows an answer is stored next to the first turn."""
    return result[turn].get(key) or result[key]


def fixed(number, digits=2):
    """As people round what a file has in a few digits: halves go up."""
    return str(Decimal(str(number)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def sides(comparison, form="{:,.0f}"):
    """Tokens a second of Braid and of the peer, and their ratio."""
    return [form.format(comparison[side]["tokens_per_second"]) for side in ("braid", "peer")] + [fixed(comparison["ratio"])]


def less(comparison):
    ours, theirs = comparison["memory_bytes"]
    return f"{100 * (1 - ours / theirs):.0f}%"


class Figures(unittest.TestCase):
    def has(self, name, *sentences):
        for sentence in sentences:
            with self.subTest(page=name, sentence=sentence):
                self.assertIn(sentence, page(name))

    def test_readme(self):
        bf16, f32 = stored("versus-gpt2-124m")["comparisons"]
        self.has("README.md", "runs at {} against {} tokens/s in BF16".format(*sides(bf16)),
                 "at {} against {} in FP32, in {} and {} less memory".format(*sides(f32)[:2], less(bf16), less(f32)))

    def test_tiny_at_every_turn(self):
        tiny = stored("tiny")
        rows = re.findall(r"^\| ([^|]+?): (\d+) \|(.*)\|$", (ROOT / "models/tiny/README.md").read_text(), re.M)
        self.assertEqual(len(rows), len(TASKS))
        for label, count, cells in rows:
            key = TASKS["puzzles" if label.startswith("puzzles") else label]
            for turn, cell in zip(("turn 1", "turn 4", "turn 8", "turn 12"), cells.split("|"), strict=True):
                with self.subTest(task=label, turn=turn):
                    made = task(tiny, turn, key)
                    self.assertEqual(int(count), made["n"])
                    text, low, high = re.fullmatch(r"\s*([\d.]+%) \((\d+) to (\d+)\)\s*", cell).groups()
                    self.assertEqual(text, percent(made["accuracy"]))
                    for whole, end in zip((low, high), made["interval"]):
                        self.assertLessEqual(abs(int(whole) - end), 0.5)

    def test_tiny_by_seed(self):
        seeds = [stored("tiny"), stored("tiny-seed-1"), stored("tiny-seed-2")]
        for label, key in TASKS.items():
            cells = " | ".join(percent(task(seed, "turn 1", key)["accuracy"]) for seed in seeds)
            with self.subTest(task=label):
                self.assertRegex(page("models/tiny/README.md"), rf"\| {re.escape(label)} \|[^|]*\| {re.escape(cells)} \|")

    def test_tiny_with_less_thinking(self):
        tiny = stored("tiny")
        right = {n: "{:.1f}%".format(tiny[f"sums, {n} tokens of thinking"]["accuracy"]) for n in (16, 64, 256)}
        self.has("models/tiny/README.md", f"Within 16 tokens of thinking it has {right[16]}",
                 f"within 64 tokens {right[64]}", f"within 256 tokens {right[256]}",
                 "drafts {}% of the thinking".format(tiny["turn 1"]["sums"]["mtp"]["rate"]))
        self.has("docs/benchmarks.md", "{:.1f}% without, {} within 16 tokens, {} within 64, {} within 256".format(
            tiny["turn 1"]["sums, thinking off"]["accuracy"], right[16], right[64], right[256]))

    def test_benchmarks_of_tiny(self):
        tiny, one, two = stored("tiny"), stored("tiny-seed-1"), stored("tiny-seed-2")

        def at(result, turn, key):
            return task(result, turn, key)["accuracy"]

        self.has("docs/benchmarks.md",
                 "sums with thinking {:.1f}% at turn 1, {:.1f}% at turn 12; {:.1f}% without".format(
                     at(tiny, "turn 1", "sums"), at(tiny, "turn 12", "sums"), at(tiny, "turn 1", "sums, thinking off")),
                 "sums with thinking {:.1f}% and {:.1f}%, {:.1f}% and {:.1f}% without".format(
                     *(at(r, "turn 1", key) for key in ("sums", "sums, thinking off") for r in (one, two))),
                 "off topic {:.0f}% and {:.0f}%, off range {:.0f}% and {:.0f}% declined (seed 0: {:.0f}% and {:.0f}%)".format(
                     *(at(r, "turn 1", key) for key in ("off topic", "off range") for r in (one, two)),
                     at(tiny, "turn 1", "off topic"), at(tiny, "turn 1", "off range")))

    def test_benchmarks_beside_peers(self):
        for name in ("versus-gpt2-124m", "versus-gpt2-124m-avx512", "versus-hybrid-8.5m"):
            bf16, f32 = stored(name)["comparisons"]
            self.has("docs/benchmarks.md", "BF16 {} tokens/s against {} ({} times)".format(*sides(bf16)))
            ours, theirs, ratio = sides(f32)
            with self.subTest(result=name):
                self.assertRegex(page("docs/benchmarks.md"), rf"FP32 {ours} (tokens/s )?against {theirs} \({ratio}[ )]")
        for name in ("versus-gpt2-124m-zen4", "versus-hybrid-8.5m-zen4"):
            self.has("docs/benchmarks.md", "BF16 {} tokens/s against {} ({} times)".format(*sides(stored(name)["comparisons"][0])))
        for name, tests in (("versus-slice", ("{:.1f}", "{:.1f}")), ("versus-slice-q4_0", ("{:.0f}", "{:.1f}")),
                            ("versus-slice-avx2", ("{:.0f}", "{:.1f}")), ("versus-slice-zen4", ("{:.1f}", "{:.0f}"))):
            for comparison, form in zip(stored(name)["comparisons"], tests, strict=True):
                ours, theirs, ratio = sides(comparison, form)
                kind = comparison["what"].split(", ")[-1]
                with self.subTest(result=name, test=kind):
                    self.assertRegex(page("docs/benchmarks.md"), rf"{kind} {ours} (tokens/s )?against {theirs} \({ratio}[ )]")
        prompts = stored("versus-serve-prompts")["comparisons"]
        ours, theirs = zip(*(sides(c)[:2] for c in prompts))
        self.has("docs/benchmarks.md", "{}, {} and {} tokens/s against {}, {} and {}".format(*ours, *theirs))

    def test_benchmarks_of_training(self):
        goldfish = {row["arm"]: 100 * row["exact_match"] for row in stored("goldfish")["rows"]}
        self.has("docs/benchmarks.md", "{:.0f}%, {:.0f}%, {:.0f}% with one in 8, 4, 3 left out".format(
            *(goldfish[f"k = {k}"] for k in (8, 4, 3))))
        arms = stored("balance")["arms"]
        load = {name: sum(arm["load"]) / len(arm["load"]) for name, arm in arms.items()}
        self.has("docs/benchmarks.md", "{:.2f} without, {:.2f} with a loss, {:.2f} with biases, {:.2f} with quantiles".format(
            *(load[name] for name in ("none", "aux", "bias", "quantile"))))
        lora = stored("lora-nvfp4")
        self.has("docs/benchmarks.md", "NVFP4 {:.2f} times the tokens/s ({:.2f} to {:.2f} by round), {:.2f} by CPU time".format(
            lora["ratio"], min(lora["ratios"]), max(lora["ratios"]), lora["cpu_ratio"]))

    def test_benchmarks_of_answers(self):
        largest = stored("exactness-slice")["default"]["half of the prompt cached"]["largest_difference"]
        self.has("docs/benchmarks.md", f"half-cached prompts differ by up to {largest:.3f}")
        tiny = stored("speculation")["tiny"]
        self.has("docs/benchmarks.md", "text that repeats {}, sums {}, drawn text {}".format(
            *(fixed(tiny[text]["ratio"]) for text in ("repeated", "sums", "drawn"))))
        runs = {run["arm"]: run["mismatch"] for run in stored("grpo-tiny")["runs"]}
        self.has("docs/benchmarks.md", "{:.4f} in BF16 without, {:.3f} in FP8, {:.3f} in INT4".format(
            runs["not-exact"], runs["fp8"], runs["int4"]))

    def test_every_stored_result_has_a_row(self):
        section = (ROOT / "docs/benchmarks.md").read_text().split("## Stored results")[1]
        for result in (ROOT / "bench" / "results").iterdir():
            named = result.name in section or f"{result.stem}." in section and f"`{result.suffix}`" in section
            self.assertTrue(named, result.name)

    def test_every_script_has_a_row(self):
        section = (ROOT / "docs/benchmarks.md").read_text().split("## Scripts")[1].split("\n## ")[0]
        for script in (ROOT / "bench").glob("*.py"):
            self.assertIn(f"`bench/{script.name}`", section)


if __name__ == "__main__":
    unittest.main()
