"""What stored results of bench/ record about their run: commit, machine, how a peer was built, and caveats."""
import contextlib
import io
import json
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from support.program import BRAID, ENVIRONMENT, Case, main

BENCH = Path(__file__).resolve().parent.parent / "bench"
sys.path.insert(0, str(BENCH))
import about  # noqa: E402


class Bench(Case):
    def git(self, *words):
        return subprocess.run(["git", "-C", self.root, "-c", "user.name=x", "-c", "user.email=x", *words], check=True,
                              stdout=subprocess.PIPE, text=True).stdout.strip()

    def test_a_result_of_other_sources_has_a_caveat(self):
        if not shutil.which("git"):
            self.skipTest("no git")
        self.root = self.new_folder()
        self.assertIn("unknown", about.caveats_of("braid 1 (commit 1234567, g++)", self.root)[0])
        self.git("init", "-q")
        (self.root / "a.cc").write_text("1")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "x")
        head = self.git("rev-parse", "--short", "HEAD")
        version = f"braid 0.1.0 (commit {head}, g++ 12)"
        self.assertEqual(about.caveats_of(version, self.root), [])
        self.assertIn("from commit 0000000, the sources are at " + head, about.caveats_of("braid (commit 0000000)", self.root)[0])
        self.assertIn("from commit unknown", about.caveats_of("braid (commit unknown)", self.root)[0])
        (self.root / "bench" / "results").mkdir(parents=True)
        (self.root / "bench" / "results" / "x.json").write_text("{}")  # output of a bench, not a source
        self.assertEqual(about.caveats_of(version, self.root), [])
        (self.root / "new.cc").write_text("1")
        (self.root / "a.cc").write_text("2")
        self.assertIn("2 changed or new files", about.caveats_of(version, self.root)[0])

    def test_fields_about_a_run(self):
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            fields = about.about(BRAID)
        self.assertRegex(fields["braid"], r"^braid \S+ \(commit \w+, ")
        self.assertRegex(fields["date"], r"^\d{4}-\d\d-\d\d$")
        self.assertEqual(set(fields["machine"]), set(about.MACHINE))
        self.assertEqual(len(stderr.getvalue().splitlines()), len(fields.get("caveats", [])))

    def test_a_machine_without_a_row_is_compared_with_its_own_best(self):
        cache = self.new_folder()
        env = {**ENVIRONMENT, "XDG_CACHE_HOME": str(cache)}
        machine = lambda: json.loads(subprocess.run([BRAID, "info", "--machine", "--json"], env=env, check=True,
                                                    stdout=subprocess.PIPE).stdout)
        first = machine()
        if first["row"]:
            self.skipTest(f"the table has the row {first['row']} for this machine")
        self.assertEqual(first["best_known"], {})
        file = cache / "braid" / "roofs.json"
        kept = json.loads(file.read_text())
        (key, roofs), = kept.items()
        self.assertIn(first["cpu"], key)
        self.assertEqual(roofs["fp32_gflops"], first["roofs"]["fp32_gflops"])
        roofs["fp32_gflops"] *= 10
        roofs["read_gbs"] /= 10
        file.write_text(json.dumps(kept))
        second = machine()
        self.assertEqual(second["best_known"]["fp32_gflops"], roofs["fp32_gflops"])
        self.assertIn("fp32_gflops", second["low"])
        self.assertEqual(second["high"], [])  # a higher roof of one's own is no fault: it is kept
        after = json.loads(file.read_text())[key]
        self.assertEqual(after["fp32_gflops"], roofs["fp32_gflops"])
        self.assertGreater(after["read_gbs"], roofs["read_gbs"])
        file.write_text("[not roofs")
        self.assertEqual(machine()["best_known"], {})

    def test_the_flags_of_a_peer(self):
        root = self.new_folder()
        (root / "bin").mkdir()
        program = root / "bin" / "llama-bench"
        program.touch()
        self.assertIsNone(about.peer_flags(program))
        (root / "CMakeCache.txt").write_text("# x\nCMAKE_BUILD_TYPE:STRING=Release\nCMAKE_C_FLAGS:STRING=-O2 -mavx2\n"
                                             "GGML_NATIVE:BOOL=ON\nGGML_CUDA_FA:BOOL=ON\nGGML_NATIVE-ADVANCED:INTERNAL=1\n")
        self.assertEqual(about.peer_flags(program), {"CMAKE_BUILD_TYPE": "Release", "CMAKE_C_FLAGS": "-O2 -mavx2", "GGML_NATIVE": "ON"})

    def test_every_script_has_help(self):
        for script in BENCH.glob("*.py"):
            if script.name in ("about.py", "duel.py", "served.py", "versus_serve.py", "versus_torch.py"):  # modules of the others; a peer's program
                continue
            done = subprocess.run([sys.executable, script, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("usage", done.stdout)


if __name__ == "__main__":
    main()
