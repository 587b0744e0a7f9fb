"""The pages hold: their commands run, their links lead somewhere, and their options exist.

A line of docs/ that begins with four spaces and `$ ` is a command; those of one page run in order in one folder. Every
other line with a command of this repository stands in RUNS, with what runs in its place, or in EXCLUDED, with the reason.

usage: docs_test.py BRAID
"""
import re
import shutil
import struct
import subprocess
from pathlib import Path

from help_test import COMMANDS, OPTION, command_of, options_of
from support.program import BRAID, ENVIRONMENT, MPI_ENVIRONMENT, Case, braid, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
ALL = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "models" / "tiny" / "README.md"]
PATH = f"{Path(BRAID).parent}:{ENVIRONMENT['PATH']}"
LINE = r"^    (?:\$ (?=\./run))?((?:mpirun -np \d+ )?(?:braid(?= [a-z])|\./run|bench/\w+\.py|tools/\w+|\.ci/run|cmake|curl|lm_eval) .*|\.ci/run)$"

# A line: what runs in its place, smaller or with what its words in capitals stand for. In order, in one folder a page.
RUNS = {
    "README.md": {"./run chat": 'echo "What is 17 + 25?" | braid chat'},
    "models/tiny/README.md": {
        "braid data synth --out runs/tiny-data bench/data/tiny-*.jsonl":
            "braid data synth --out runs/tiny-data bench/data/tiny-*.jsonl --train 40 --valid 4 --tasks 4",
        "braid train recipes/tiny.toml": "braid train recipes/tiny.toml steps=1"},
    "docs/benchmarks.md": {
        "braid new nemotron-3-nano-30b-a3b slice --layers 13 --format nvfp4":
            "braid new hybrid-8.5m slice --layers 2 --format nvfp4",
        "braid run slice --ids 1 -n 1 -c 512": "braid run slice --ids 1 -n 1 -c 512"},
    "docs/comm.md": {"mpirun -np 4 braid comm bench --transport mpi --op allreduce --bytes 1K,64K": ""},
    "docs/graphs.md": {
        "braid data graph edges.mtx -o graph.safetensors --features x.npy --labels y.npy --train 0.5": ""},
    "docs/ranks.md": {
        "braid bench MODEL --tp 4": "braid bench tiny --tp 2 -p 16 -n 4 -r 1",
        "mpirun -np 4 braid eval MODEL --tasks tasks.jsonl --tp 2 --pp 2":
            "braid eval tiny --tasks tasks.jsonl --tp 2 --pp 2 -n 4"},
}
BUILDS, SERVES = "builds or tests everything, as .ci/run does", "a server and its clients: tests/serve_http_test.py, tests/bench_serve_test.py"
# The beginning of a line: why it does not run. Its options are checked all the same.
EXCLUDED = {
    "./run chat": "builds; README.md's runs", "./run build": BUILDS, "./run test": BUILDS, ".ci/run": BUILDS,
    "cmake --workflow": BUILDS, "tools/lines": "tests/tidy_test.py runs it", "tools/site": "tests/site_test.py runs it",
    "braid serve tiny": SERVES, "braid bench serve": SERVES, "curl http://127.0.0.1:8080": SERVES,
    "lm_eval": "needs lm-evaluation-harness: tests/clients/clients_test.py",
    "bench/": "needs a peer, or many minutes; its options are read from its source",
    "braid train RECIPE.toml": "the form of the command", "braid train --ranks 4": "needs a recipe: tests/mesh_test.py",
    "mpirun -np 4 braid train": "needs MPI and a recipe: tests/mesh_test.py", "braid train --hosts": "several machines",
    "braid run MODEL --tp 2 --hosts": "several machines: tests/ranks_test.py runs it on one",
    "braid comm bench --transport nccl": "needs GPUs: tests/comm_nccl_test.py runs it on a double",
    "mpirun -np 8 braid comm bench --transport nccl": "needs GPUs and MPI",
    "braid repro eda": "minutes: tests/repro_test.py runs it smaller",
}
# Options in prose that are not Braid's, nor of a script that the page names.
OTHERS = {"docs/getting-started.md": {"--prefix"}, "docs/commands.md": {"--prefix", "--preset"},
          "CONTRIBUTING.md": {"--slow", "--preset", "--workflow"}, "docs/graphs.md": {"--preset"},
          "docs/troubleshooting.md": {"--preset"}, "docs/benchmarks.md": {"--spec-type"},
          "docs/serve.md": {"--tasks"}, "docs/internals/formats.md": {"--spec-type"}}
# Pages that name no command to try: generated, a transcript, or of a server that has to be left running.
WITHOUT_COMMANDS = {"ops.md", "transcript.md", "serve.md"}


def name_of(page):
    return str(page.relative_to(ROOT))


def plain_lines(page):
    """Commands of a page that no `$` marks, without their comments and what they print."""
    return [re.sub(r" +#.*|  +\S.*", "", line).rstrip(" \\&") for line in re.findall(LINE, page.read_text(), re.M)]


def options_in(text):
    return set(re.findall(OPTION, text))


def options_of_script(path):
    text = (ROOT / path).read_text()
    return set(re.findall(r'"(--?[a-z][a-z0-9-]*)"', text)) | set(re.findall(r"(?<!\S)(--[a-z-]+)\)", text)) | {"--help"}


def known_to(words):
    """The options of what words begin with; None: of another project."""
    if words[0] == "mpirun":
        words = words[3:]
    if words[0] == "braid" or (words[0] == "./run" and command_of(words[1:])):
        return options_of(command_of(words[1:])) | {"-np"}
    if words[0] == "./run":
        return {"--slow", "--prefix", "-j"}
    return options_of_script(words[0]) if words[0].startswith("bench/") else None


class Docs(Case):
    def run_in(self, folder, command, **environment):
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], cwd=folder, text=True, timeout=300,
                              env={**ENVIRONMENT, **environment, "PATH": PATH}, stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_every_command_runs(self):
        for page in PAGES:
            folder = self.new_folder()
            for command in re.findall(r"^    \$ (.+)$", page.read_text(), re.M):
                with self.subTest(page=page.name, command=command):
                    self.run_in(folder, command)

    def folder_of_sources(self):
        """What the lines of RUNS expect where they run."""
        folder = self.new_folder()
        (folder / "bench").symlink_to(ROOT / "bench")
        shutil.copytree(ROOT / "recipes", folder / "recipes")
        (folder / "edges.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n")
        for name, dtype, shape, data in (("x", "<f4", "(3, 2)", struct.pack("<6f", *range(6))),
                                         ("y", "<i8", "(3,)", struct.pack("<3q", 0, 1, -1))):
            head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            (folder / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)
        (folder / "tasks.jsonl").write_text('{"task": "sums", "messages": [{"role": "user", "content": "2 + 3?"}], "answers": ["5"]}\n')
        return folder

    def test_lines_without_a_mark_run_or_say_why_not(self):
        ran = set()
        for page in ALL:
            folder, runs = None, RUNS.get(name_of(page), {})
            for line in plain_lines(page):
                with self.subTest(page=name_of(page), line=line):
                    if line not in runs:
                        self.assertTrue(any(line.startswith(beginning) for beginning in EXCLUDED), "neither in RUNS nor in EXCLUDED")
                        continue
                    ran.add((name_of(page), line))
                    command = runs[line] or line
                    if command.startswith("mpirun") and not shutil.which("mpirun"):
                        continue
                    folder = folder or self.folder_of_sources()
                    printed = self.run_in(folder, command, **(MPI_ENVIRONMENT if "mpirun" in command else {}))
                    if line == "./run chat":
                        self.assertEqual(printed, "42\n")
        self.assertEqual(ran, {(page, line) for page, lines in RUNS.items() for line in lines})

    def test_lines_without_a_mark_have_options_of_their_command(self):
        lines = [(page, line) for page in ALL for line in plain_lines(page)]
        self.assertGreater(len(lines), 30)
        for page, line in lines:
            with self.subTest(page=name_of(page), line=line):
                if (known := known_to(line.split())) is not None:
                    self.assertLessEqual({word for word in line.split() if re.fullmatch(OPTION, word)}, known)

    def test_every_page_has_commands(self):
        for page in (ROOT / "docs").glob("*.md"):
            self.assertEqual("\n    $ " in page.read_text(), page.name not in WITHOUT_COMMANDS, page.name)

    def test_options_in_sentences_are_of_commands_that_the_page_names(self):
        top = options_in(braid("--help").stdout) | {"--help", "--version", "--man", "--completion"}
        for page in ALL:  # but for ops.md, which names a script's, too
            if page.name == "ops.md":
                continue
            text, known = page.read_text(), top | OTHERS.get(name_of(page), set())
            inside = name_of(page).startswith("docs/internals/") or page.name in ("transcript.md", "CONTRIBUTING.md")
            for name in COMMANDS:  # pages of the engine speak of any
                if inside or re.search(r"(?:braid|\./run)\s+" + name.replace(" ", r"\s+") + r"\b", text):
                    known = known | options_of(name)
            for script in set(re.findall(r"bench/\w+\.py", text)):
                known = known | options_of_script(script)
            for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text):
                with self.subTest(page=name_of(page), option=option):
                    self.assertIn(option, known)

    def test_options_within_quoted_commands_are_of_that_command(self):
        seen = 0
        for page in ALL:
            for quoted in re.findall(r"`(?:\./run )?braid\s([a-z][^`]*)`", page.read_text()):
                if name := command_of(quoted.split()):
                    with self.subTest(page=name_of(page), quoted=quoted):
                        self.assertLessEqual(options_in(quoted), options_of(name))
                        seen += bool(options_in(quoted))
        self.assertGreater(seen, 40)


if __name__ == "__main__":
    main()
