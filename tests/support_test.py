"""The helpers of the other tests: a machine without a pseudo-terminal skips tests with a reason, and a refusal that is
not one line is detected.

usage: support_test.py
"""
import subprocess
import sys
import unittest
from pathlib import Path

from support.program import Case

FOLDER = Path(__file__).resolve().parent
WITHOUT_TERMINALS = """
import pty, runpy, sys
def openpty():
    raise OSError(2, "out of pty devices")
pty.openpty = openpty
sys.path.insert(0, sys.argv[1])
sys.argv = ["chat_test.py", "/bin/false", "AtATerminal"]
runpy.run_path("chat_test.py", run_name="__main__")
"""


class Support(Case):
    def test_without_a_pseudo_terminal_tests_are_skipped_by_name(self):
        done = subprocess.run([sys.executable, "-c", WITHOUT_TERMINALS, FOLDER], cwd=FOLDER, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertIn("SKIPPED AtATerminal.test_a_conversation: no pseudo-terminal here: [Errno 2] out of pty devices", lines)
        self.assertTrue(all(line.startswith("SKIPPED AtATerminal.") for line in lines), lines)
        self.assertRegex(done.stderr, r"OK \(skipped=\d+\)")

    def test_a_script_that_lacks_a_package_is_listed(self):
        script = "from support.elsewhere import restart_or_skip; restart_or_skip(ImportError('no x'), 'NO_SUCH_PYTHON', 'x')"
        done = subprocess.run([sys.executable, "-c", script], cwd=FOLDER, capture_output=True, text=True)
        self.assertRegex(done.stdout, r"\ASKIPPED \S+: no x; NO_SUCH_PYTHON names a Python with x\n\Z")

    def test_what_is_not_a_refusal_fails(self):
        def answer(code=1, out="", error="braid: [a] b\n"):
            return subprocess.CompletedProcess([], code, out, error)

        self.assertRefused(answer(), "b")
        for wrong in (answer(code=0), answer(out="x"), answer(error="braid: [a] b\nc\n"), answer(error="b\n"),
                      answer(error="braid: [a] b")):
            with self.assertRaises(AssertionError):
                self.assertRefused(wrong)
        with self.assertRaises(AssertionError):
            self.assertRefused(answer(), "c")


if __name__ == "__main__":
    unittest.main()
