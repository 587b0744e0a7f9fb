"""What stored results of bench/ record about their run: commit, machine, how a peer was built, and caveats; and when
bench/versus.py calls a run void."""
import contextlib
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from support.program import BRAID, ENVIRONMENT, Case, main

BENCH = Path(__file__).resolve().parent.parent / "bench"
sys.path.insert(0, str(BENCH))
import about  # noqa: E402
import duel  # noqa: E402
import versus  # noqa: E402
import versus_serve  # noqa: E402


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
        env = {**ENVIRONMENT, "XDG_CACHE_HOME": str(cache), "BRAID_CPU": "avx2"}  # no row of the table is of that class
        machine = lambda: json.loads(subprocess.run([BRAID, "info", "--machine", "--json"], env=env, check=True,
                                                    stdout=subprocess.PIPE).stdout)
        first = machine()
        self.assertEqual((first["row"], first["best_known"]), ("", {}))
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
        faults = list(versus.roof_faults("before", second))
        self.assertEqual(len(faults), len(second["low"]))
        self.assertTrue(any(fault.startswith("roof fp32_gflops before: ") for fault in faults), faults)
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
            if script.name in ("about.py", "duel.py", "graph_peer.py", "served.py", "versus_dgl.py", "versus_pyg.py", "versus_serve.py", "versus_torch.py"):  # modules of the others; a peer's program
                continue
            done = subprocess.run([sys.executable, script, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("usage", done.stdout)


class Clock:
    """Stands in for `time` and the counters of the processors in duel.py: a second passes per turn, of which contenders and
    others use their shares of two processors."""

    def __init__(self, used, busy, stolen):
        self.turns, self.used, self.busy, self.stolen = 0, used, busy, stolen

    def monotonic(self):
        return float(self.turns)

    def busy_seconds(self):
        return 2 * self.turns * self.busy, 2 * self.turns * self.stolen


class Turns:
    """A contender whose turns take what a list says, and then always the last of it."""

    def __init__(self, clock, *seconds):
        self.clock, self.seconds = clock, list(seconds)

    def turn(self, steps):
        self.clock.turns += 1
        return [self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]] * steps

    def used(self):
        return self.clock.turns * self.clock.used  # half of two processors' seconds, since there are two contenders


class Verdicts(Case):
    """Which runs of bench/versus.py are void, and what for, by made-up figures."""

    def duel(self, ours=(1.0,), theirs=(2.0,), used=0.5, busy=0.5, stolen=0.0, warm_max=12):
        """What a duel finds, and why it is void."""
        clock = Clock(used, busy, stolen)
        with mock.patch.multiple(duel, time=clock, busy_seconds=clock.busy_seconds), mock.patch.object(duel.os, "cpu_count", lambda: 2):
            got = duel.duel(SimpleNamespace(rounds=5, warm_max=warm_max), (Turns(clock, *ours), Turns(clock, *theirs)), (1, 3))
        void = []
        return duel.compared("name", got, 100, void), void

    def test_rounds_settle_when_three_in_a_row_agree_on_both_sides(self):
        for settled, rounds in ((True, [(1, 10), (1.04, 10.4), (1.02, 10)]),
                                (True, [(9, 90), (1, 10), (1, 10), (1, 10)]),
                                (False, [(1, 10), (1, 10)]),
                                (False, []),
                                (False, [(1, 10), (1.06, 10), (1, 10)]),
                                (False, [(1, 10), (1, 10.6), (1, 10)]),
                                (False, [(1, 10), (1, 10), (1, 10), (1.06, 10)])):
            self.assertIs(duel.settled(rounds), settled, rounds)

    def test_a_sound_duel_is_valid(self):
        row, void = self.duel(ours=(3.0, 1.5, 1.0), theirs=(2.5, 2.0))
        self.assertEqual(void, [])
        self.assertEqual(row["warm_rounds"], 5)  # the first two are slow
        self.assertEqual((row["braid"]["tokens_per_second"], row["peer"]["tokens_per_second"], row["ratio"]), (100, 50, 2))
        self.assertEqual((row["neighbours"], row["stolen"]), (0, 0))

    def test_median_and_spread_of_the_rounds_that_count(self):
        # Three that settle, then five that count.
        row, void = self.duel(ours=(1, 1, 1, 1, 0.5, 2, 1.25, 1))
        self.assertEqual(void, [])
        self.assertEqual(row["braid"], {"tokens_per_second": 100, "slowest": 50, "fastest": 200, "spread_percent": 300,
                                        "samples": [100, 200, 50, 80, 100]})

    def test_a_duel_that_does_not_settle_is_void(self):
        row, void = self.duel(ours=[1 + i % 2 for i in range(99)], warm_max=7)
        self.assertEqual(row["warm_rounds"], 7)
        self.assertEqual(void, ["name: no three rounds in a row agreed within 5%"])

    def test_a_duel_beside_others_is_void(self):
        for more, says in (({"used": 0.44}, "neighbours used 6% of the processors"), ({"stolen": 0.06}, "stolen used 6% of the processors")):
            self.assertEqual(self.duel(**more)[1], ["name: " + says])
        self.assertEqual(self.duel(used=0.46, stolen=0.04)[1], [])

    @staticmethod
    def machine(row="amx", low=(), high=(), **roofs):
        best = {"read_gbs_1": 16.0, "read_gbs": 37.0, "fp32_gflops": 420.0}
        return {"row": row, "low": list(low), "high": list(high), "best_known": best, "roofs": best | roofs}

    def test_roofs_that_are_off_are_faults(self):
        self.assertEqual(list(versus.roof_faults("after", self.machine())), [])
        machine = self.machine(low=["read_gbs"], high=["fp32_gflops"], read_gbs=30.0, fp32_gflops=500.0)
        self.assertEqual(list(versus.roof_faults("after", machine)), ["roof read_gbs after: 30.0, best known 37.0",
                                                                      "roof fp32_gflops after: 500.0, best known 420.0"])
        # A roof above the best that a machine has shown itself is in neither list.
        self.assertEqual(list(versus.roof_faults("before", self.machine(row="", fp32_gflops=500.0))), [])

    def test_the_table_is_raised_to_the_lower_of_two_higher_measurements(self):
        table = self.new_folder() / "best_known.h"
        shutil.copy(versus.BEST_KNOWN, table)
        before = table.read_text()
        once = self.machine(high=["fp32_gflops"], fp32_gflops=500.0)
        for machines in ([self.machine(), self.machine()], [once, self.machine()], [self.machine(row="", fp32_gflops=500.0)] * 2,
                         [self.machine(row="other", high=["fp32_gflops"], fp32_gflops=500.0)] * 2):
            self.assertEqual(versus.raise_table(machines, table), {})
            self.assertEqual(table.read_text(), before)
        high = ["read_gbs", "fp32_gflops"]
        machines = [self.machine(high=high, fp32_gflops=500.0, read_gbs=50.4), self.machine(high=high[::-1], fp32_gflops=480.0, read_gbs=60.0)]
        self.assertEqual(versus.raise_table(machines, table), {"read_gbs": 50.4, "fp32_gflops": 480})
        changed = [(a, b) for a, b in zip(before.splitlines(), table.read_text().splitlines()) if a != b]
        self.assertEqual([[word.strip() for word in pair] for pair in changed],
                         [[".read_gbs = 37,", ".read_gbs = 50,"], [".fp32_gflops = 420,", ".fp32_gflops = 480,"]])

    def losses(self, dtype, ours, theirs):
        void = []
        found = versus.same_losses(dtype, SimpleNamespace(losses=ours), SimpleNamespace(losses=theirs), void)
        self.assertEqual(found["losses"]["bound"], versus.LOSS_BOUNDS[dtype] * ours[0])
        return void

    def test_losses_must_agree_and_fall(self):
        ours = [10.0, 9.0, 8.0, 7.0, 6.0]
        self.assertEqual(self.losses("f32", ours, ours), [])
        self.assertEqual(self.losses("bf16", ours, [10.004, 9.004, 7.996, 7.0, 6.0]), [])
        self.assertEqual(self.losses("bf16", ours, [10.0, 9.0, 8.006, 7.0, 6.0]),
                         ["bf16: the losses of step 3 differ by 0.006: not the same model or update"])
        self.assertEqual(len(self.losses("f32", ours, [10.004, 9.004, 7.996, 7.0, 6.0])), 3)
        nan = self.losses("f32", ours, [10.0, 9.0, float("nan"), 7.0, 6.0])
        self.assertIn("f32: the losses of step 3 differ by nan: not the same model or update", nan)
        flat = [10.0, 9.0, 8.9999, 8.0, 7.0]  # equal, but a wrong second update would not show
        self.assertEqual([reason.split(" by")[0] for reason in self.losses("f32", flat, flat)],
                         ["f32: a loss of braid falls", "f32: a loss of the peer falls"])
        self.assertIn("falls by only -1", self.losses("bf16", ours, [10.0, 9.0, 8.0, 7.0, 8.0])[-1])

    def test_weights_of_another_size_are_another_model(self):
        for ours, is_void in ((100, False), (104, False), (96, False), (106, True), (94, True)):
            void = []
            versus.same_weights("name", ours, 100, void)
            self.assertEqual(void, [f"name: {ours} bytes of weights against 100: other formats"] if is_void else [])

    def test_both_servers_do_the_same_work(self):
        def last(read, answered):
            return {"total_input_tokens": read, "total_cached_tokens": 3, "total_output_tokens": answered}
        for theirs, is_void in ((last(1000, 64), False), (last(1019, 64), False), (last(1025, 64), True), (last(1000, 63), True)):
            void = []
            found = versus_serve.same_work("name", last(1000, 64), theirs, void)
            self.assertEqual(found, {"prompt_tokens_a_turn": [1000, theirs["total_input_tokens"]], "cached_tokens_a_turn": [3, 3]})
            self.assertEqual([reason.rsplit(": ", 1)[1] for reason in void], ["not the same work"] if is_void else [])

    def run_of(self, before, after, reasons=()):
        """The exit code of versus.py with made-up figures, and what it stores."""
        out = self.new_folder() / "out.json"
        row = {"what": "pp8", "ratio": 2, "braid": {"tokens_per_second": 2}, "peer": {"tokens_per_second": 1}}
        def infer(_args, void):
            void.extend(reasons)
            return {"comparisons": [row]}
        words = ["versus.py", "infer", "MODEL", "--gguf", "F", "--llama-bench", "P", "--out", str(out)]
        with mock.patch.multiple(versus, infer=infer, source_of=dict), mock.patch.object(sys, "argv", words), \
                mock.patch.multiple(about, about=lambda *_, **__: {}, measured_machine=mock.Mock(side_effect=[before, after])), \
                contextlib.redirect_stderr(io.StringIO()) as stderr:
            code = versus.main()
        stored = json.loads(out.read_text())["void"]
        self.assertEqual([line for line in stderr.getvalue().splitlines() if "void" in line], [f"versus: void: {why}" for why in stored])
        return code, stored

    def test_exit_code_and_result_say_that_a_run_is_void(self):
        fine, loaded = self.machine(), self.machine(low=["read_gbs"], read_gbs=30.0)
        self.assertEqual(self.run_of(fine, fine), (0, []))
        self.assertEqual(self.run_of(loaded, fine), (3, ["roof read_gbs before: 30.0, best known 37.0"]))
        self.assertEqual(self.run_of(fine, loaded), (3, ["roof read_gbs after: 30.0, best known 37.0"]))
        self.assertEqual(self.run_of(fine, fine, ["the sides differ"]), (3, ["the sides differ"]))


if __name__ == "__main__":
    main()
