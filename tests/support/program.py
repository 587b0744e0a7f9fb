"""Shared by the tests of the program: the binary, its environment, one-line errors, and skips with a reason.

A script takes the binary as its first argument and ends with main().
"""
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

# A shell without job control ignores it for what it starts with `&`, and children would inherit that: tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
BRAID = os.path.abspath(sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "build/release/bin/braid")
SANITIZED = os.path.exists(BRAID) and any(name in Path(BRAID).read_bytes() for name in (b"__asan_init", b"__tsan_init"))
# Without the caller's own settings.
CACHE = tempfile.TemporaryDirectory()  # not the user's
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("BRAID_") and k != "NO_COLOR"}
ENVIRONMENT["XDG_CACHE_HOME"] = CACHE.name
DATA = Path(__file__).resolve().parent.parent / "data"
ONE_LINE = r"\Abraid: \[[^\n]+\] [^\n]+\n\Z"


def braid(*words, text=None, timeout=120, stdout=subprocess.PIPE, preexec_fn=None, cwd=None, **variables):
    """The finished process of `braid WORDS`, with `text` or nothing on its standard input."""
    stdin = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
    return subprocess.run([BRAID, *map(str, words)], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=timeout,
                          env={**ENVIRONMENT, **variables}, check=False, preexec_fn=preexec_fn, cwd=cwd, **stdin)


def commands():
    """Every subcommand, as the overview and the pages of its groups list them."""
    names = []
    for name in re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", braid("--help").stdout, re.M):
        page = braid(*name.split(), "--help").stdout
        group = page.startswith(f"usage: braid {name} <subcommand>")
        names += re.findall(r"^  ([a-z]+ [a-z0-9-]+)  ", page, re.M) if group else [name]
    return names


MPI_ENVIRONMENT = {
    **ENVIRONMENT, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "ASAN_OPTIONS": "detect_leaks=0"}  # Open MPI keeps what it allocates


def mpirun(ranks, *words):
    """The finished process of so many ranks of `braid WORDS` on this machine; skips the test where there is no mpirun."""
    if not shutil.which("mpirun"):
        raise unittest.SkipTest("no mpirun; apt-get install openmpi-bin")
    return subprocess.run(["mpirun", "-np", str(ranks), BRAID, *map(str, words)], env=MPI_ENVIRONMENT,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)


def start(*words, **streams):
    """`braid WORDS`, running."""
    return subprocess.Popen([BRAID, *map(str, words)], env=ENVIRONMENT, text=True, **streams)


def terminal():
    """Both ends of a pseudo-terminal; skips the test if the system has none."""
    try:
        return pty.openpty()
    except OSError as error:
        raise unittest.SkipTest(f"no pseudo-terminal here: {error}") from error


class Case(unittest.TestCase):
    def new_folder(self):
        """A folder that is removed after the test."""
        holder = tempfile.TemporaryDirectory(prefix="braid-test-")
        self.addCleanup(holder.cleanup)
        return Path(holder.name)

    @classmethod
    def shared_folder(cls):
        """A folder that is removed after the tests of the class; for setUpClass."""
        holder = tempfile.TemporaryDirectory(prefix="braid-test-")
        cls.addClassCleanup(holder.cleanup)
        return Path(holder.name)

    def run_ok(self, *words, **more):
        """Standard output of `braid WORDS`, which has to end with 0."""
        done = braid(*words, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def assertOneLine(self, answer, *says):
        """Exit code 1, and one line on standard error that contains `says`."""
        self.assertEqual(answer.returncode, 1, answer.stderr)
        self.assertRegex(answer.stderr, ONE_LINE)
        for text in says:
            self.assertIn(text, answer.stderr)

    def assertRefused(self, answer, *says):
        """The same, and nothing on standard output."""
        self.assertOneLine(answer, *says)
        self.assertEqual(answer.stdout, "", answer.stderr)


class Result(unittest.TextTestResult):
    # `./run test` lists lines that begin with SKIPPED: no skip is silently green.
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"SKIPPED {re.sub('^__main__.', '', test.id())}: {reason}", flush=True)


def main():
    unittest.main(module="__main__", testRunner=unittest.TextTestRunner(resultclass=Result))
