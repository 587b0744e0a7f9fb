"""Checkpoints that ranks write together: the bytes of those that one rank writes, also with a copy of each process writing;
without a shared folder the first rank writes; a rank that cannot write ends the run, and leaves what was there.

usage: shared_checkpoint_test.py BRAID
"""
import contextlib
import os
import resource
import shutil
import signal
import subprocess

from support.mesh import MeshCase, recipe_of
from support.program import BRAID, ENVIRONMENT, ONE_LINE, main
from support.training import checkpoints, files_of

def children_of(process):
    try:
        with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as children:
            return [int(child) for child in children.read().split()]
    except OSError:
        return []


LAYOUTS = ((2, "parallel.tp=2"), (2, "parallel.pp=2", "accumulate=2"), (2, "parallel.ep=2", "parallel.zero=2", "optimizer.kind=muon"),
           (2, "parallel.zero=3", "dtype=bf16"))
KEPT = ("checkpoint.every=1", "checkpoint.keep=9", "checkpoint.merge=2", "ema.decay=0.9")


class SharedCheckpoint(MeshCase):
    recipe = recipe_of(steps=3)
    port = 41000 + os.getpid() % 20000

    def by_hand(self, outs, *words, limits=(None, None)):
        """Ranks of two machines, each with its folder and its limit of file size; what each of them ends with."""
        hosts = f"127.0.0.1:{self.port},127.0.0.2:{self.port}"
        ranks = []
        for rank, (out, limit) in enumerate(zip(outs, limits)):
            line = [BRAID, *map(str, self.line(f"out={self.root / out}", "--hosts", hosts, "--rank", rank, *words))]
            limited = limit and (lambda size=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
            ranks.append(subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
                                          preexec_fn=limited))
            self.addCleanup(ranks[-1].kill)
        return [(*rank.communicate(timeout=60), rank.returncode) for rank in ranks]

    def weights(self, out):
        """All files but the recipes, which have their own words."""
        return {name: data for name, data in files_of(self.root / out).items() if name.endswith((".safetensors", "state.json"))}

    def test_same_bytes_whoever_writes(self):
        for i, (ranks, *words) in enumerate(LAYOUTS):
            self.run_in(f"together-{i}", "--ranks", ranks, *words, *KEPT)
            want = self.weights(f"together-{i}")
            self.assertEqual(len([name for name in want if name.startswith("checkpoints")]), 9)
            self.run_in(f"copies-{i}", "--ranks", ranks, *words, *KEPT, "checkpoint.async=true")
            self.assertEqual(self.weights(f"copies-{i}"), want, words)
            first, other = self.by_hand((f"gathered-{i}", f"elsewhere-{i}"), *words, *KEPT)
            self.assertEqual((first[2], other[2]), (0, 0), first[1] + other[1])
            self.assertEqual(first[0].count("rank 1 does not see the first rank's files, which writes for all"), 1, first[0])
            self.assertEqual(self.weights(f"gathered-{i}"), want, words)
            self.assertEqual(self.weights(f"elsewhere-{i}"), {}, words)

    def test_ranks_that_see_one_folder_under_two_names(self):
        (self.root / "real").mkdir()
        (self.root / "link").symlink_to("real")
        first, _ = self.by_hand(("real", "link"), "parallel.tp=2")
        self.assertNotIn("does not see", first[0])
        self.run_in("want", "--ranks", 2, "parallel.tp=2")
        self.assertEqual(self.weights("real"), self.weights("want"))

    def test_one_rank_that_cannot_write(self):
        self.run_in("out", "--ranks", 2, "parallel.tp=2", "checkpoint.every=1")
        before = files_of(self.root / "out" / "checkpoints")
        # The second half of each matrix is the other rank's; the limit is of the place in a file.
        for more in ((), ("checkpoint.async=true",)):
            small = (self.root / "out" / "model.safetensors").stat().st_size // 2
            first, other = self.by_hand(("out", "out"), "parallel.tp=2", "checkpoint.every=1", "steps=6", "--resume", "auto", *more,
                                        limits=(None, small))
            for _, stderr, code in (first, other):
                self.assertEqual(code, 1, stderr)
                self.assertRegex(stderr, ONE_LINE)
                self.assertRegex(stderr, r"\[rank 1: [^]]*/model.safetensors\] cannot be written; got File too large")
            self.assertEqual(files_of(self.root / "out" / "checkpoints"), before, more)
        self.assertEqual(checkpoints(self.root / "out"), [2, 3])
        self.run_in("out", "--ranks", 2, "parallel.tp=2", "steps=4", "--resume", "auto")
        shutil.rmtree(self.root / "out")
        self.run_in("out", "--ranks", 2, "parallel.tp=2", "steps=4")

    def test_one_rank_that_cannot_read(self):
        self.run_in("out", "--ranks", 2, "parallel.tp=2", "checkpoint.every=1")
        shutil.copytree(self.root / "out", self.root / "other")
        state = self.root / "other" / "checkpoints" / "step-00000003" / "training" / "state.safetensors"
        os.truncate(state, state.stat().st_size - 4)
        before = files_of(self.root / "out")
        for _, stderr, code in self.by_hand(("out", "other"), "parallel.tp=2", "steps=4", "--resume", "auto"):
            self.assertEqual(code, 1, stderr)
            self.assertRegex(stderr, ONE_LINE)
            self.assertRegex(stderr, r"\[rank 1: [^]]*/other/checkpoints/step-00000003/training/state.safetensors\] is truncated")
        self.assertEqual(files_of(self.root / "out"), before)

    def test_a_copy_of_one_rank_that_is_killed(self):
        words = ("--ranks", 2, "parallel.zero=2", "checkpoint.every=1", "steps=30")
        self.run_in("want", *words)
        line = [BRAID, *map(str, self.line(f"out={self.root / 'out'}", *words, "checkpoint.async=true"))]
        run = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.addCleanup(run.kill)
        while not run.stdout.readline().startswith("step 2/"):
            self.assertIsNone(run.poll())
        other = children_of(run.pid)[0]
        killed = False
        while run.poll() is None:  # one that is done already is killed for nothing
            for copy in children_of(other):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(copy, signal.SIGKILL)
                    killed = True
        stdout, stderr = run.communicate(timeout=60)
        self.assertEqual((run.returncode, killed), (0, True), stderr)
        self.assertEqual(stdout.count("no copy of the process writes it (rank 1: Killed)"), 1, stdout)
        self.assertEqual({name: data for name, data in self.weights("out").items() if "checkpoints" in name},
                         {name: data for name, data in self.weights("want").items() if "checkpoints" in name})

    def test_a_disk_that_is_full_for_the_first_rank(self):
        self.run_in("out", "--ranks", 2, "parallel.zero=2", "checkpoint.every=1")
        before = files_of(self.root / "out" / "checkpoints")
        small = (self.root / "out" / "checkpoints" / "step-00000003" / "training" / "state.safetensors").stat().st_size - 1

        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (small, small))

        done = self.train("--ranks", 2, "parallel.zero=2", "steps=6", "--resume", "auto", f"out={self.root / 'out'}", preexec_fn=limited)
        self.assertOneLine(done, "/state.safetensors] cannot be written; got File too large")
        self.assertEqual(files_of(self.root / "out" / "checkpoints"), before)


if __name__ == "__main__":
    main()
