"""braid train --ranks: ranks that share a run compute what one rank does, save what any number of them can resume, and
end together.

usage: mesh_test.py BRAID
"""
import os
import resource
import shutil
import signal
import subprocess
import time

from support.mesh import MODEL, MeshCase, recipe_of
from support.program import BRAID, DATA, ENVIRONMENT, MPI_ENVIRONMENT, ONE_LINE, braid, main, mpirun
from support.tensors import write_header
from support.training import files_of, state_of


class Ranks(MeshCase):
    recipe = recipe_of(steps=4)

    def test_ranks_compute_what_one_does(self):
        one = self.run_in("one")
        for ranks, words in ((2, ()), (3, ("parallel.zero=1",)), (2, ("parallel.zero=1", "optimizer.kind=muon"))):
            want = one if "optimizer.kind=muon" not in words else self.run_in("muon", "optimizer.kind=muon")
            got = self.run_in(f"some-{ranks}-{len(words)}", "--ranks", ranks, *words)
            self.assertClose(got, want)

    def test_algorithms_are_chosen_by_times(self):
        """Three ranks sum a vector around a ring in another order than by halves: the last bits show which it was."""
        table = self.root / "times.csv"
        table.write_text("op,nodes,per_node,bytes,algorithm,us\n" + "".join(
            f"all_reduce,1,3,{size},{name},{us}\n" for size in (64, 1 << 24) for name, us in (("ring", 1), ("recursive", 9))))
        one = self.run_in("one")
        by_size, by_times = (self.run_in(f"three-{i}", "--ranks", 3, *words)
                             for i, words in enumerate(((), (f"parallel.collectives={table}",))))
        self.assertClose(by_size, one)
        self.assertClose(by_times, one)
        self.assertNotEqual(by_size, by_times)
        table.write_text("op,us\n")
        self.refused("--ranks", 3, f"parallel.collectives={table}", says="is not a table of timed calls")

    def test_overlapped_sums_have_the_same_bits(self):
        for ranks, words in ((2, ()), (3, ("parallel.zero=1", "accumulate=1")), (2, ("parallel.zero=2", "accumulate=2")),
                             (2, ("dtype=bf16", "accumulate=2", "memory.recompute=selective"))):
            name = f"{ranks}-{len(words)}-{words[:1]}"
            for overlap in ("false", "true"):
                self.run_in(f"{name}-{overlap}", "--ranks", ranks, f"parallel.overlap={overlap}", *words)
            self.assertEqual(state_of(self.root / f"{name}-true", 4), state_of(self.root / f"{name}-false", 4), words)
        for words, says in ((("--ranks", 2, "parallel.tp=2"), "cannot be used with parallel.tp"),
                            (("--ranks", 2, "parallel.zero=3"), "cannot be used with parallel.zero = 3"),
                            ((), "there is one rank")):
            self.refused("parallel.overlap=true", *words, says=says)

    def test_parts_of_blocks_add_up(self):
        one = self.run_in("one")
        for ranks, words in ((2, ()), (4, ("parallel.zero=1",)), (2, ("memory.recompute=selective",)),
                             (4, ("parallel.tp=4", "memory.recompute=full"))):  # of two keys and two groups
            got = self.run_in(f"tp-{ranks}-{len(words)}", "--ranks", ranks, "parallel.tp=2", *words)
            self.assertClose(got, one)

    def test_muon_reads_divided_matrices_whole(self):
        muon = ("optimizer.kind=muon", "batch=4")
        one = self.run_in("one", *muon)
        for i, (ranks, words) in enumerate(((2, ("parallel.tp=2",)), (4, ("parallel.tp=2", "parallel.sp=true", "parallel.zero=1")),
                                            (4, ("parallel.tp=2", "parallel.zero=3")), (4, ('parallel.grid="2,1,2,1"',)),
                                            (4, ("parallel.tp=2", "parallel.ep=4")), (4, ("parallel.tp=2", "parallel.pp=2")))):
            for way in ("gather", "duplicate"):
                self.assertClose(self.run_in(f"{way}-{i}", "--ranks", ranks, f"parallel.muon={way}", *muon, *words), one)
            self.assertEqual(state_of(self.root / f"gather-{i}", 4), state_of(self.root / f"duplicate-{i}", 4), words)

    def test_other_families(self):
        words = ("loss.mtp_scale=0", "loss.aux=0", "loss.router_bias_rate=0", "batch=2", "steps=3")
        for name in ("nemotron-h-legacy", "nemotron-nas"):
            init = f"init={DATA / 'hf' / name}"
            keys = ("loss", "grad_norm")
            one = self.run_in(name, init, *words, keys=keys)
            self.assertClose(self.run_in(f"{name}-2", init, *words, "--ranks", 2, "parallel.tp=2", keys=keys), one)
        self.refused("--ranks", 2, "parallel.tp=2", f"init={DATA / 'hf' / 'gpt2'}", *words, says="added to a sum over ranks")

    def test_a_cut_model_is_resumed_whole(self):
        whole = self.run_in("whole", "steps=6", "ema.decay=0.9")
        self.run_in("part", "steps=3", "--ranks", 4, "parallel.tp=2", "parallel.zero=1", "ema.decay=0.9")
        for ranks, words in ((1, ()), (2, ("parallel.tp=2",)), (3, ())):
            shutil.copytree(self.root / "part", self.root / f"on-{ranks}")
            some = () if ranks == 1 else ("--ranks", ranks)
            got = self.run_in(f"on-{ranks}", "--resume", "auto", *some, *words, "steps=6", "ema.decay=0.9")
            self.assertClose(got, whole)

    def test_exact_ranks_have_the_bits_of_one(self):
        self.run_in("one", "dtype=bf16")
        want = state_of(self.root / "one", 4)
        for words in ((), ("accumulate=2",)):
            out = f"exact-{len(words)}"
            self.run_in(out, "dtype=bf16", "--ranks", 2, "parallel.exact=true", *words)
            self.assertEqual(state_of(self.root / out, 4), want)

    def test_a_checkpoint_is_resumed_by_any_number(self):
        whole = self.run_in("whole", "steps=6")
        self.run_in("part", "steps=3", "--ranks", 3, "parallel.zero=1")
        for ranks in (1, 2):
            shutil.copytree(self.root / "part", self.root / f"on-{ranks}")
            words = () if ranks == 1 else ("--ranks", ranks, "parallel.zero=1")
            got = self.run_in(f"on-{ranks}", "--resume", "auto", *words, "steps=6")
            self.assertClose(got, whole)

    def test_the_same_ranks_resume_bit_for_bit(self):
        words = ("--ranks", 2, "parallel.zero=1")
        self.run_in("whole", "steps=4", *words)
        self.run_in("parts", "steps=2", *words)
        self.run_in("parts", "steps=4", "--resume", "auto", *words)
        self.assertEqual(state_of(self.root / "parts", 4), state_of(self.root / "whole", 4))

    def test_random_weights_are_written_once(self):
        config = MODEL / "config.json"
        text = self.recipe.replace(self.recipe.splitlines()[0], f'config = "{config}"')
        (self.root / "r.toml").write_text(text)
        one = self.run_in("one", "steps=2")
        self.assertClose(self.run_in("four", "steps=2", "--ranks", 4), one)
        self.assertEqual(files_of(self.root / "one" / "init"), files_of(self.root / "four" / "init"))

    def start(self, *words):
        line = [BRAID, *map(str, self.line("steps=100000", "--ranks", 3, *words))]
        run = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.addCleanup(run.kill)
        self.assertTrue(run.stdout.readline())
        while not run.stdout.readline().startswith("step 2/"):
            self.assertIsNone(run.poll())
        with open(f"/proc/{run.pid}/task/{run.pid}/children", encoding="ascii") as children:
            return run, [int(child) for child in children.read().split()]

    def end_of(self, run):
        stdout, stderr = run.communicate(timeout=20)
        return run.returncode, stdout, stderr

    def test_a_killed_rank_ends_the_run_by_name(self):
        run, children = self.start()
        os.kill(children[1], signal.SIGKILL)
        code, _, stderr = self.end_of(run)
        self.assertEqual(code, 1)
        self.assertRegex(stderr, ONE_LINE)
        self.assertIn("rank 2 was killed by signal 9", stderr)

    def test_the_first_rank_takes_the_others_with_it(self):
        run, children = self.start()
        run.kill()
        self.end_of(run)
        self.assertGone(children)

    def test_a_second_interrupt_ends_all_ranks(self):
        run, children = self.start()
        run.send_signal(signal.SIGINT)
        run.send_signal(signal.SIGINT)
        self.assertEqual(self.end_of(run)[0], 130)
        self.assertGone(children)

    def assertGone(self, processes):
        deadline = time.monotonic() + 10
        while any(os.path.exists(f"/proc/{process}/exe") for process in processes):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_ranks_end_with_their_mpirun(self):
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun; apt-get install openmpi-bin")
        line = ["mpirun", "-np", "2", BRAID, *map(str, self.line("steps=100000"))]
        run = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=MPI_ENVIRONMENT)
        self.addCleanup(run.kill)
        while not run.stdout.readline().startswith("step 2/"):
            self.assertIsNone(run.poll())
        with open(f"/proc/{run.pid}/task/{run.pid}/children", encoding="ascii") as children:
            ranks = [int(child) for child in children.read().split()]
        self.assertEqual(len(ranks), 2)
        run.kill()
        run.communicate(timeout=20)
        self.assertGone(ranks)

    def test_ranks_that_are_started_by_hand(self):
        port = 41000 + os.getpid() % 20000
        words = ("--hosts", f"127.0.0.1:{port},127.0.0.2:{port}", f"out={self.root / 'hand'}", "parallel.overlap=true")
        other = subprocess.Popen([BRAID, *map(str, self.line(*words, "--rank", 1))], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.addCleanup(other.kill)
        self.trained(*words, "--rank", 0)
        self.assertEqual(other.communicate(timeout=60), ("", ""))
        self.run_in("shared", "--ranks", 2)
        self.assertEqual(state_of(self.root / "hand", 4), state_of(self.root / "shared", 4))

    def test_cores_are_divided_among_ranks_of_a_machine(self):
        """Two addresses stand for two machines."""
        cores = len(os.sched_getaffinity(0))
        for machines, each in (((1, 2), cores), ((1, 1), max(1, cores // 2))):
            port = 41000 + os.getpid() % 20000
            hosts = ",".join(f"127.0.0.{machine}:{port + rank}" for rank, machine in enumerate(machines))
            words = ("--hosts", hosts, f"out={self.root / 'machines'}", "steps=1", "--threads", 0)
            other = subprocess.Popen([BRAID, *map(str, self.line(*words, "--rank", 1))], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
            self.addCleanup(other.kill)
            done = braid(*self.line(*words, "--rank", 0))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(other.communicate(timeout=60)[1], "")
            self.assertIn(f"2 ranks, {each} threads each", done.stdout)
            shutil.rmtree(self.root / "machines")

    def by_hand(self, words, others, **second):
        """Two ranks with other words, both to their end; the second process with such attributes."""
        port = 41000 + os.getpid() % 20000
        hosts = ("--hosts", f"127.0.0.1:{port},127.0.0.2:{port}", f"out={self.root / 'hand'}")
        ranks = [subprocess.Popen([BRAID, *map(str, self.line(*hosts, *more, "--rank", rank))], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, **(second if rank else {}))
                 for rank, more in enumerate((words, others))]
        for rank in ranks:
            self.addCleanup(rank.kill)
        return ranks

    def test_ranks_with_other_options_are_refused(self):
        for words, others, says in (
                ((), ("optimizer.lr=1e-2",), "got optimizer.lr = 0.01 on rank 1; expected optimizer.lr = "),
                ((), ("seed=7",), "seed = 7 on rank 1"), (("parallel.tp=2",), (), "parallel.tp = 1 on rank 1"),
                ((), ("steps=5",), "steps = 5 on rank 1; expected steps = 4, as on rank 0"),
                (("parallel.zero=1",), ("parallel.zero=0",), "parallel.zero = 0 on rank 1")):
            for rank in self.by_hand(words, others):
                _, stderr = rank.communicate(timeout=60)
                self.assertEqual(rank.returncode, 1, stderr)
                self.assertIn("[ranks] were started with different options; " + ("" if says.startswith("got") else "got "), stderr)
                self.assertIn(says, stderr)
            self.assertFalse((self.root / "hand").exists())

    def test_a_disk_that_is_full_for_one_rank_only(self):
        """Of two that write a checkpoint together: both end and name it, and earlier checkpoints stay."""
        words = ("parallel.zero=1", "checkpoint.every=1")
        for rank in self.by_hand((*words, "steps=2"), (*words, "steps=2")):
            self.assertEqual((rank.communicate(timeout=60)[1], rank.returncode), ("", 0))
        before = files_of(self.root / "hand" / "checkpoints")
        last = self.root / "hand" / "checkpoints" / "step-00000002"
        for name in ("training/state.safetensors", "model.safetensors"):
            size = (last / name).stat().st_size - 1

            def limited():  # writes past this fail
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            more = (*words, "--resume", "auto")
            for number, rank in enumerate(self.by_hand(more, more, preexec_fn=limited)):
                stderr = rank.communicate(timeout=60)[1]
                self.assertEqual(rank.returncode, 1, stderr)
                self.assertRegex(stderr, rf"(?m)^braid: \[rank 1: .*{name}\] .*File too large", number)
            self.assertEqual(files_of(self.root / "hand" / "checkpoints"), before, name)
        self.trained("--ranks", 2, *words, "--resume", "auto", f"out={self.root / 'hand'}")

    def test_a_rank_that_waits_ends_at_the_second_signal(self):
        ranks = self.by_hand(("steps=100000",), ("steps=100000",))
        while not ranks[0].stdout.readline().startswith("step 2/"):
            self.assertIsNone(ranks[0].poll())
        ranks[1].send_signal(signal.SIGSTOP)
        ranks[0].terminate()
        time.sleep(1.2)
        self.assertIsNone(ranks[0].poll())
        ranks[0].terminate()
        self.assertEqual(ranks[0].wait(timeout=20), 128 + signal.SIGTERM)

    def test_a_refusal_is_printed_once(self):
        done = mpirun(3, *self.line("parallel.tp=2"))
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("[parallel.tp] does not divide the number of ranks"), 1, done.stderr)

    def test_a_signal_saves_and_resumes(self):
        run, _ = self.start()
        run.terminate()
        code, _, stderr = self.end_of(run)
        self.assertEqual(code, 128 + signal.SIGTERM, stderr)
        done = int(stderr.split("stopped after step ")[1].split(";")[0])
        self.trained("--resume", "auto", f"steps={done + 1}", "--ranks", 2)

    def test_a_failed_run_is_reported_once(self):
        done = self.train("optimizer.lr=1e9", "optimizer.clip=0", "optimizer.weight_decay=1e9", "steps=30", "--ranks", 3)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, ONE_LINE)
        self.assertIn("is not finite", done.stderr)

    def test_meshes_that_cannot_be(self):
        self.refused("--ranks", 6, says="has too few sequences for every rank and part")
        self.refused("--ranks", 2, "accumulate=3", says="has too few sequences")
        self.refused("--ranks", 300, says="out of range")
        self.refused("parallel.zero=1", says="there is one rank")
        self.refused("parallel.zero=1", "parallel.exact=true", "--ranks", 2, says="sums all gradients on every rank")
        self.refused("parallel.tp=2", says="does not divide the number of ranks")
        self.refused("parallel.tp=2", "--ranks", 3, says="try --ranks 4")
        self.refused("parallel.tp=2", "--ranks", 2, "loss.z=0.1", says="cannot be used with loss.z")
        self.refused("parallel.zero=7", "--ranks", 2, says="zero")
        self.refused("parallel.muon=gather", "--ranks", 2, says="the optimiser is AdamW")
        self.refused("parallel.muon=gather", "--ranks", 2, "optimizer.kind=muon", says="ranks do not divide matrices; try parallel.tp=2")
        self.refused("parallel.etp=2", "--ranks", 2, "optimizer.kind=muon", says="cannot be used with optimizer.kind = muon")
        self.refused('parallel.grid="1,2,1,1"', "--ranks", 2, "optimizer.kind=muon", says="y divides both sides of a matrix")
        self.refused("--ranks", 2, "objective=graph", says="of a graph are those of a grid")
        self.refused("--ranks", 2, "data.path=/nowhere", "data.kind=ids", says="/nowhere")
        ids = self.root / "ids.safetensors"
        write_header(ids, {"batches": {"dtype": "I64", "shape": [2, 2, 13], "data_offsets": [0, 416]}}, bytes(416))
        words = ("--ranks", 3, "batch=0", f"data.path={ids}", "data.kind=ids")
        for more in ((), ("--dry-run",)):
            self.refused(*words, *more, says="[batch] has too few sequences for every rank and part; got 2; expected at least 3 ranks x 1 parts")

    def test_mpirun_starts_ranks_too(self):
        one = self.run_in("one", "steps=2")
        done = mpirun(2, *self.line(f"out={self.root / 'mpi'}", "steps=2"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertClose(self.losses("mpi"), one)


if __name__ == "__main__":
    main()
