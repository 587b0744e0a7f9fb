"""What help pages and the man page say about commands holds: `braid help` gives every page, every command and option that
a text names exists, and the examples of the man page run. cli_test.py holds the pages of subcommands to a screen.

usage: help_test.py BRAID
"""
import re
import shlex
import subprocess
from pathlib import Path

from support.program import BRAID, ENVIRONMENT, Case, braid, commands, main

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = commands()
GROUPS = sorted({name.split()[0] for name in COMMANDS if " " in name})
MAN = braid("--man").stdout.replace("\\-", "-")
OPTION = r"(?<![\w-])--?[a-z][a-z0-9-]*"


def options_of(name):
    """The options that the man page lists for a subcommand."""
    section = re.search(rf"^\.SS braid {name} (?![a-z]).*?(?=^\.S[SH] )", MAN, re.M | re.S)[0]
    return {option for label in re.findall(r"^\.B (-.*)", section, re.M) for option in re.findall(OPTION, label)} | {"--help"}


def command_of(words):
    """The subcommand that words after `braid` name, one or two of them."""
    return next((name for name in COMMANDS if words[:len(name.split())] == name.split()), None)


class Help(Case):
    def test_help_word_gives_every_page(self):
        self.assertIn("train", COMMANDS)
        self.assertIn("data", GROUPS)
        for name in [*COMMANDS, *GROUPS]:
            page, same = braid(*name.split(), "--help"), braid("help", *name.split())
            self.assertEqual((same.returncode, same.stdout, same.stderr), (0, page.stdout, ""), name)

    def test_pages_of_groups_fit_a_screen(self):
        for name in GROUPS:
            lines = braid(name, "--help").stdout.splitlines()
            self.assertTrue(len(lines) <= 40 and max(map(len, lines)) <= 80, name)

    def test_the_overview_names_the_pages(self):
        page = braid("--help").stdout
        for name in ("docs", "tools/site"):
            self.assertIn(name, page.splitlines()[-1])
            self.assertTrue((ROOT / name).exists())

    def test_the_page_of_commands_has_each(self):
        page = (ROOT / "docs" / "commands.md").read_text()
        self.assertEqual(re.findall(r"^\| `braid ([a-z]+(?: [a-z0-9-]+)?)", page, re.M), COMMANDS)

    def test_every_command_that_a_text_names_exists(self):
        top = set(re.findall(OPTION, braid("--help").stdout))
        self.assertTrue({"--man", "--version"} <= top)
        for text in [MAN, *(braid(*name.split(), "--help").stdout for name in [*COMMANDS, *GROUPS])]:
            for named in re.findall(r"\bbraid (--[a-z]+|[a-z]+(?: [a-z0-9-]+)?)", re.sub(r"[ \n]+", " ", text)):
                words = named.split()
                self.assertTrue(named in top or command_of(words) or words[0] in GROUPS, f"braid {named}")

    def test_every_option_that_a_page_names_exists(self):
        for name in COMMANDS:
            page = braid(*name.split(), "--help").stdout
            self.assertLessEqual(set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", page)), options_of(name) | {"--man"}, name)

    def test_commands_within_sentences_exist(self):
        """Of `braid ...` in pages and in READMEs; words in capitals and options stand for what a reader has."""
        seen = 0
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md"), ROOT / "models" / "tiny" / "README.md"]:
            for named in re.findall(r"`(?:\./run )?braid\s([a-z][^`]*)`", page.read_text()):
                words = [word for word in named.split() if re.fullmatch(r"[a-z0-9-]+(?:\|[a-z0-9-]+)*", word)][:2]
                each = [[first, *rest] for first in words[0].split("|") for rest in ([w] for w in words[1].split("|"))] if words[1:] else [words]
                for command in each:
                    with self.subTest(page=page.name, named=named):
                        self.assertTrue(command_of(command) or (command[0] in GROUPS and len(command) == 1))
                        seen += 1
        self.assertGreater(seen, 100)

    def test_every_page_of_help_leads_to_one_of_docs(self):
        for name in COMMANDS:
            page = re.search(r"See (docs/[a-z-]+\.md)\.$", braid(*name.split(), "--help").stdout.splitlines()[-1])
            self.assertTrue(page and (ROOT / page[1]).exists(), name)
            self.assertIn(f"braid {name}", (ROOT / page[1]).read_text(), name)

    def test_the_page_of_train_explains_its_log(self):
        page = braid("train", "--help").stdout
        for word in ("loss", "load_balance", "norm, lr", "tok/s, mfu", "MiB", "held out"):
            self.assertRegex(page, rf"(?m)^  {re.escape(word)} ")

    def test_options_that_the_man_page_names_exist(self):
        section = re.search(r"^\.SH ENVIRONMENT\n(.*?)^\.SH", MAN, re.M | re.S)[1].replace("\\-", "-")
        named = set(re.findall(r"--[a-z-]+", section))
        self.assertTrue(named)
        for option in named:
            self.assertTrue(any(option in options_of(name) for name in commands()), option)
            self.assertIn("BRAID_" + option[2:].upper().replace("-", "_"), section)

    def test_examples_of_the_man_page(self):
        """They run, in order in one folder, unless a word in capitals stands for a file of the reader's."""
        examples = re.search(r"^\.SH EXAMPLES\n\.nf\n(.*?)^\.fi$", MAN, re.M | re.S)[1].splitlines()
        folder, path = self.new_folder(), f"{Path(BRAID).parent}:{ENVIRONMENT['PATH']}"
        ran = 0
        for example in examples:
            with self.subTest(example=example):
                words = shlex.split(example[example.index("braid ") + len("braid "):])
                name = command_of(words)
                self.assertTrue(name)
                named = {word for word in words if re.fullmatch(OPTION, word)}
                self.assertLessEqual(named, options_of(name))
                if any(re.match(r"[A-Z]{3,}\b", word) for word in words):
                    continue
                done = subprocess.run(["bash", "-c", f"set -o pipefail; {example}"], cwd=folder, text=True, timeout=300,
                                      env={**ENVIRONMENT, "PATH": path}, stdin=subprocess.DEVNULL, capture_output=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                ran += 1
        self.assertGreater(ran, 3)


if __name__ == "__main__":
    main()
