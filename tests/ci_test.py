"""The results of .ci/run when time runs out: what was left out is reported as partial or skipped, never as passed. CMake,
Ninja and CTest are stubs; the tests they know have programs a, b and c.
"""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The first Ninja call builds the parsers' programs, later ones all; `builds` is the number of calls that end in time.
NINJA = """calls=$(($(cat calls 2>/dev/null || echo 0) + 1))
echo $calls >calls
[ $calls -le $(cat builds) ] || exit 124
mkdir -p build/fuzz/src
for name in a $([ $calls -lt 3 ] || echo b c); do touch build/fuzz/src/$name; done
"""
CTEST = """case "$*" in *json-v1*) echo '{"tests": [
{"name": "a", "command": ["'$PWD'/build/fuzz/src/a"]}, {"name": "b", "command": ["'$PWD'/build/fuzz/src/b"]},
{"name": "c", "command": ["'$PWD'/build/fuzz/src/c"]}]}';; *) echo "$*" >>tested;; esac
"""
# The first call is the start of the run; later ones return the stored number of seconds.
DATE = """[ -f clock ] || { touch clock; echo 0; exit; }
cat seconds
"""


@unittest.skipUnless(shutil.which("bash"), "no bash")
class Ci(unittest.TestCase):
    def sanitizers(self, builds, seconds):
        """(exit code, result of the stage, last line) if `builds` builds end in time and the stage starts after `seconds`."""
        holder = tempfile.TemporaryDirectory(prefix="braid-test-")
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        (self.root / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "run", self.root / ".ci" / "run")
        (self.root / "src" / "kernels").mkdir(parents=True)
        (self.root / "builds").write_text(str(builds))
        (self.root / "seconds").write_text(str(seconds))
        tools = self.root / "tools"
        tools.mkdir()
        for name, text in {"cmake": "", "ninja": NINJA, "ctest": CTEST, "date": DATE}.items():
            (tools / name).write_text("#!/bin/sh\n" + text)
            (tools / name).chmod(0o755)
        done = subprocess.run(["bash", ".ci/run", "sanitizers"], cwd=self.root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}, check=False)
        result = re.search(r"^--- sanitizers: (\w+), ", done.stdout, re.M)
        self.assertIsNotNone(result, done.stdout)
        return done.returncode, result.group(1), done.stdout.splitlines()[-1]

    def test_all_built_is_passed(self):
        code, result, last = self.sanitizers(builds=3, seconds=1)
        self.assertEqual((code, result), (0, "passed"))
        self.assertIn("failed stages: none; partial or skipped: none", last)
        self.assertIn("-R ^(engine|", (self.root / "tested").read_text())

    def test_unbuilt_tests_are_listed(self):
        code, result, last = self.sanitizers(builds=1, seconds=1)
        self.assertEqual((code, result), (0, "partial"))
        self.assertIn("failed stages: none; partial or skipped: sanitizers (without b c)", last)
        self.assertIn("|b|c)$", (self.root / "tested").read_text())

    def test_the_longest_tests_are_left_out_when_it_is_late(self):
        code, result, last = self.sanitizers(builds=3, seconds=900)
        self.assertEqual((code, result), (0, "partial"))
        self.assertIn("partial or skipped: sanitizers (no time for engine serve ", last)
        self.assertNotIn("-R ^(engine|", (self.root / "tested").read_text())

    def test_no_build_at_all_fails(self):
        code, result, last = self.sanitizers(builds=0, seconds=1)
        self.assertEqual((code, result), (1, "FAILED"))
        self.assertIn("failed stages: sanitizers; partial or skipped: none", last)
        self.assertFalse((self.root / "tested").exists())

    def test_no_build_in_too_little_time_is_skipped(self):
        for seconds, left in ((2000, "0 s"), (500, "1[0-4][0-9] s")):
            code, result, last = self.sanitizers(builds=0, seconds=seconds)
            self.assertEqual((code, result), (0, "SKIPPED"))
            self.assertRegex(last, rf"partial or skipped: sanitizers \(only {left} were left\)")


if __name__ == "__main__":
    unittest.main()
