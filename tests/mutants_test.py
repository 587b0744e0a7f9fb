"""The verdicts of mutants/run.py on programs that pass, fail and hang, without building any."""
import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "mutants"))
import run  # noqa: E402


class Verdicts(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="braid-test-")
        self.addCleanup(holder.cleanup)
        self.bench = run.Bench.__new__(run.Bench)
        self.bench.build, self.bench.seconds = Path(holder.name), {}
        self.addCleanup(setattr, run, "TEST_SECONDS", run.TEST_SECONDS)

    def program(self, name, text):
        path = self.bench.build / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def refusal(self, work, *arguments):
        with self.assertRaises(SystemExit) as caught, contextlib.redirect_stdout(io.StringIO()):
            work(*arguments)
        return str(caught.exception)

    def test_a_failure_kills_and_a_pass_does_not(self):
        self.program("good_test", "exit 0")
        self.program("bad_test", "echo '[  FAILED  ] A.B'; exit 1")
        self.bench.measure(["good_test"])
        self.assertEqual(self.bench.first_failure(["good_test"]), ("ALIVE", "survived good_test"))
        self.assertEqual(self.bench.first_failure(["good_test", "bad_test"]), ("killed", "bad_test: A.B"))
        self.assertIn("bad_test fails without a mutant", self.refusal(self.bench.measure, ["bad_test"]))

    def test_a_hang_kills_only_if_the_test_was_fast(self):
        run.TEST_SECONDS = 0.2
        self.program("hanging_test", "exec sleep 60")
        self.bench.seconds["hanging_test"] = 0.01
        verdict, how = self.bench.first_failure(["hanging_test"])
        self.assertEqual(verdict, "killed")
        self.assertIn("no answer after 0.2 s", how)
        self.bench.seconds["hanging_test"] = 0.15
        self.assertEqual(self.bench.first_failure(["hanging_test"])[0], "SLOW")
        self.assertIn("takes longer than 0.2 s without a mutant", self.refusal(self.bench.measure, ["hanging_test"]))

    def test_a_mutant_for_another_processor_is_skipped(self):
        output = io.StringIO()
        self.addCleanup(setattr, run, "processor_flags", run.processor_flags)
        name = "attention-tile-past-the-diagonal"
        with contextlib.redirect_stdout(output):
            run.processor_flags = set
            self.assertEqual(run.chosen([name], 1, 1), [])
            run.processor_flags = lambda: {"amx_bf16"}
            self.assertEqual([mutant.name for mutant in run.chosen([name], 1, 1)], [name])
        self.assertEqual(output.getvalue(), f"SKIPPED {name}: no amx_bf16 on this machine\n")


class Patches(unittest.TestCase):
    @unittest.skipUnless(shutil.which("git"), "no git; apt-get install git")
    def test_all_apply(self):
        tests = Path(__file__).resolve().parent
        for patch in sorted((tests / "mutants").glob("*.patch")):
            done = subprocess.run(["git", "apply", "--check", patch], cwd=tests.parent, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, f"{patch.name}: {done.stderr}")


if __name__ == "__main__":
    unittest.main()
