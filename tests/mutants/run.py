#!/usr/bin/env python3
"""Known mistakes, put in one at a time: each must make a test fail.

usage: run.py CMAKE ROOT WORK [--part K/N] [NAME...]

A mutant is a file NAME.patch next to this script: some lines of prose (the pitfall and its source), one line
`targets: TEST...` with the test programs that must notice, and a diff for `git apply`. The sources are copied to
WORK/tree, where every patch is applied, its targets are built and run, and the patch is taken back. A mutant survives
when every one of its targets passes. Survivors, patches that no longer apply and mutants that do not compile fail this
script; so does a target that fails without a mutant, since it would prove nothing. WORK is kept: the next run rebuilds
only what changed.
"""
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
IGNORED = shutil.ignore_patterns(".*", "build", "__pycache__")
TEST_SECONDS = 300


def copy(root, tree):
    """Makes `tree` equal to `root`; files that are equal already keep their times, so that nothing is rebuilt."""
    wanted = set()
    for folder, folders, files in os.walk(root):
        names = folders + files
        skipped = IGNORED(folder, names)
        folders[:] = [name for name in folders if name not in skipped]
        for name in set(files) - skipped:
            source = Path(folder, name)
            target = tree / source.relative_to(root)
            wanted.add(target)
            if not target.exists() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    for path in tree.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()


def call(*command, cwd=None, seconds=None):
    """(exit code, output); a command that takes too long has failed."""
    environment = os.environ | {"GTEST_BRIEF": "1", "GTEST_FAIL_FAST": "1"}
    try:
        done = subprocess.run(command, cwd=cwd, timeout=seconds, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        return 1, f"no answer after {seconds} s"


def fail(what, output=""):
    print(output[-3000:])
    sys.exit(f"[mutants] {what}")


class Mutant:
    def __init__(self, patch):
        self.patch, self.name = patch, patch.stem
        text = patch.read_text()
        head = re.search(r"^targets: (.+)$", text, re.M)
        if not head:
            fail(f"{patch.name} has no line `targets: TEST...`")
        self.targets = head.group(1).split()


class Bench:
    """The copied tree and its build."""

    def __init__(self, cmake, root, work):
        self.tree, self.build = work / "tree", work / "build"
        self.tree.mkdir(parents=True, exist_ok=True)
        copy(root, self.tree)
        # As the quick preset, which compiles in half the time; what tells targets apart is tested on the real build.
        code, output = call(cmake, "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None",
                            "-DCMAKE_CXX_FLAGS=-O1 -Wno-maybe-uninitialized", "-DBRAID_QUICK=ON")
        if code:
            fail("the copy does not configure", output)

    def apply(self, mutant, *options):
        # The tree may lie inside another repository, whose settings are not to be asked.
        return call("git", f"--git-dir={os.devnull}", "apply", "-C1", *options, mutant.patch, cwd=self.tree)

    def make(self, targets):
        return call("ninja", "-C", self.build, *targets)

    def first_failure(self, targets):
        """What the first failing target printed; empty when all pass."""
        for target in targets:
            program = next(path for path in self.build.rglob(target) if path.is_file())
            code, output = call(program, seconds=TEST_SECONDS)
            if code:
                found = re.search(r"^\[  FAILED  \] (\S+)", output, re.M)
                return f"{target}: {found.group(1) if found else 'exit code ' + str(code)}"
        return ""

    def verdict(self, mutant):
        """(killed, how)"""
        code, output = self.apply(mutant)
        if code:
            return False, f"the patch does not apply any more:\n{output}"
        try:
            code, output = self.make(mutant.targets)
            if code:
                return False, f"it does not compile:\n{output[-2000:]}"
            how = self.first_failure(mutant.targets)
            return bool(how), how or f"survived {', '.join(mutant.targets)}"
        finally:
            self.apply(mutant, "-R")


def main():
    cmake, root, work, *names = sys.argv[1:]
    if not shutil.which("git"):
        print("SKIPPED mutants: no git to apply them")
        return
    part, parts = 1, 1
    if names[:1] == ["--part"]:
        part, parts = map(int, names[1].split("/"))
        names = names[2:]
    mutants = [Mutant(patch) for patch in sorted(HERE.glob("*.patch")) if not names or patch.stem in names]
    if len(mutants) < len(names) or not mutants:
        fail(f"no such mutants among: {' '.join(names)}")
    mutants = mutants[part - 1::parts]
    bench = Bench(cmake, Path(root).resolve(), Path(work).resolve())
    targets = sorted({target for mutant in mutants for target in mutant.targets})
    code, output = bench.make(targets)
    if code:
        fail("the copy does not build", output)
    if broken := bench.first_failure(targets):
        fail(f"{broken} fails without a mutant")
    alive = 0
    for mutant in mutants:
        begin = time.monotonic()
        killed, how = bench.verdict(mutant)
        alive += not killed
        print(f"{'killed' if killed else 'ALIVE '} {mutant.name} ({time.monotonic() - begin:.0f} s): {how}", flush=True)
    if alive:
        fail(f"{alive} of {len(mutants)} mutants were not noticed")


if __name__ == "__main__":
    main()
