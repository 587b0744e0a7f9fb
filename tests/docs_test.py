"""The pages of docs/ hold: their commands run, their links lead somewhere, and their options exist.

A line of a page that begins with four spaces and `$ ` is a command. Those of one page run in order in one folder.

usage: docs_test.py BRAID
"""
import re
import subprocess
from pathlib import Path

from support.program import BRAID, ENVIRONMENT, Case, braid, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


class Docs(Case):
    def test_every_command_runs(self):
        path = f"{Path(BRAID).parent}:{ENVIRONMENT['PATH']}"
        for page in PAGES:
            folder = self.new_folder()
            for command in re.findall(r"^    \$ (.+)$", page.read_text(), re.M):
                with self.subTest(page=page.name, command=command):
                    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], cwd=folder, text=True, timeout=300,
                                          env={**ENVIRONMENT, "PATH": path}, stdin=subprocess.DEVNULL, capture_output=True)
                    self.assertEqual(done.returncode, 0, done.stderr)

    def test_pages_for_users_have_commands(self):
        names = ("getting-started", "chat", "models", "training", "evaluation", "environment", "benchmarks",
                 "troubleshooting")
        for name in names:
            self.assertIn("\n    $ ", (ROOT / "docs" / f"{name}.md").read_text(), name)

    def test_options_in_pages_exist(self):
        known = set(re.findall(r"--[a-z][a-z0-9-]*", braid("--man").stdout.replace("\\-", "-")))
        self.assertIn("--context-shift", known)
        known |= {"--help", "--version", "--man", "--completion", "--slow", "--prefix", "--preset"}
        known.add("--spec-type")  # of llama-server
        for script in (ROOT / "bench").glob("*.py"):
            known |= set(re.findall(r'add_argument\([^)]*?"(--[a-z][a-z0-9-]*)"', script.read_text()))
        for page in [*PAGES, ROOT / "README.md"]:  # but for ops.md, which names a script's, too
            if page.name == "ops.md":
                continue
            for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", page.read_text()):
                self.assertIn(option, known, page.name)


if __name__ == "__main__":
    main()
