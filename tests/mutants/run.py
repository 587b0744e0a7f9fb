#!/usr/bin/env python3
"""Known mistakes, applied one at a time: each must make a test fail.

usage: run.py CMAKE ROOT WORK [--part K/N] [NAME...]

A mutant is a file NAME.patch next to this script: some lines of prose (the pitfall and its source), one line
`targets: TEST...` with the test programs that must fail, and a diff for `git apply`. The sources are copied to
WORK/tree, where every patch is applied, its targets are built and run, and the patch is reverted. A mutant survives
if all its targets pass. One that hangs counts as killed only if its target passed far within the limit before:
otherwise there is no verdict, since the machine may be slow. Survivors, mutants without a verdict, patches that no longer apply
and mutants that do not compile fail this script; so does a target that fails without a mutant, since it would prove
nothing. A line `needs: FLAG...` names flags of /proc/cpuinfo; a machine without them skips the mutant. WORK is kept: the
next run rebuilds only what changed.
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
WELL_WITHIN = 0.1  # of that limit: a target that took at most this long and now reaches the limit hangs


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
    """(exit code, output); the code is None if the command timed out."""
    environment = os.environ | {"GTEST_BRIEF": "1", "GTEST_FAIL_FAST": "1"}
    try:
        done = subprocess.run(command, cwd=cwd, timeout=seconds, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        return None, f"no answer after {seconds} s"


def processor_flags():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return set(next((line.split(":")[1] for line in f if line.startswith("flags")), "").split())


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
        needs = re.search(r"^needs: (.+)$", text, re.M)
        self.needs = needs.group(1).split() if needs else []


class Bench:
    """The copied tree and its build."""

    def __init__(self, cmake, root, work):
        self.tree, self.build = work / "tree", work / "build"
        self.seconds = {}
        self.tree.mkdir(parents=True, exist_ok=True)
        copy(root, self.tree)
        # Like the quick preset, which compiles in half the time; differences between SIMD targets are tested on the real build.
        code, output = call(cmake, "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None",
                            "-DCMAKE_CXX_FLAGS=-O1 -Wno-maybe-uninitialized", "-DBRAID_QUICK=ON")
        if code:
            fail("the copy does not configure", output)

    def apply(self, mutant, *options):
        # The tree may be inside another repository, whose settings must not apply.
        return call("git", f"--git-dir={os.devnull}", "apply", "-C1", *options, mutant.patch, cwd=self.tree)

    def make(self, targets):
        return call("ninja", "-C", self.build, *targets)

    def run(self, target):
        """(exit code, output, seconds)"""
        program = next(path for path in self.build.rglob(target) if path.is_file())
        begin = time.monotonic()
        return *call(program, seconds=TEST_SECONDS), time.monotonic() - begin

    def measure(self, targets):
        """How long each target takes without a mutant; each must pass."""
        for target in targets:
            code, output, self.seconds[target] = self.run(target)
            if code is None:
                fail(f"{target} takes longer than {TEST_SECONDS} s without a mutant")
            if code:
                fail(f"{target} fails without a mutant", output)

    def first_failure(self, targets):
        """(verdict, what the first failing target printed)"""
        for target in targets:
            code, output, _ = self.run(target)
            if code is None:
                hangs = self.seconds[target] <= WELL_WITHIN * TEST_SECONDS
                return "killed" if hangs else "SLOW", f"{target}: {output}, {self.seconds[target]:.0f} s without the mutant"
            if code:
                found = re.search(r"^\[  FAILED  \] (\S+)", output, re.M)
                return "killed", f"{target}: {found.group(1) if found else 'exit code ' + str(code)}"
        return "ALIVE", f"survived {', '.join(targets)}"

    def verdict(self, mutant):
        """(killed, ALIVE, or SLOW if the machine may be to blame; how)"""
        code, output = self.apply(mutant)
        if code:
            return "ALIVE", f"the patch no longer applies:\n{output}"
        try:
            code, output = self.make(mutant.targets)
            if code:
                return "ALIVE", f"it does not compile:\n{output[-2000:]}"
            return self.first_failure(mutant.targets)
        finally:
            self.apply(mutant, "-R")


def chosen(names, part, parts):
    """The mutants of these names, or all, that this machine can run."""
    mutants = [Mutant(patch) for patch in sorted(HERE.glob("*.patch")) if not names or patch.stem in names]
    if len(mutants) < len(names) or not mutants:
        fail(f"no such mutants among: {' '.join(names)}")
    flags = processor_flags()
    able = []
    for mutant in mutants[part - 1::parts]:
        if missing := [flag for flag in mutant.needs if flag not in flags]:
            print(f"SKIPPED {mutant.name}: no {', '.join(missing)} on this machine")
        else:
            able.append(mutant)
    return able


def main():
    cmake, root, work, *names = sys.argv[1:]
    if not shutil.which("git"):
        print("SKIPPED mutants: no git to apply them")
        return
    part, parts = 1, 1
    if names[:1] == ["--part"]:
        part, parts = map(int, names[1].split("/"))
        names = names[2:]
    mutants = chosen(names, part, parts)
    if not mutants:
        return
    bench = Bench(cmake, Path(root).resolve(), Path(work).resolve())
    targets = sorted({target for mutant in mutants for target in mutant.targets})
    code, output = bench.make(targets)
    if code:
        fail("the copy does not build", output)
    bench.measure(targets)
    found = []
    for mutant in mutants:
        begin = time.monotonic()
        verdict, how = bench.verdict(mutant)
        found.append(verdict)
        print(f"{verdict:6} {mutant.name} ({time.monotonic() - begin:.0f} s): {how}", flush=True)
    if found.count("SLOW"):
        print(f"[mutants] no verdict on {found.count('SLOW')} of {len(mutants)}: their tests were slow even without them")
    if found.count("ALIVE"):
        fail(f"{found.count('ALIVE')} of {len(mutants)} mutants survived")
    if found.count("SLOW"):
        fail("this needs a faster or an idle machine")


if __name__ == "__main__":
    main()
