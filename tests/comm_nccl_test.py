"""braid comm bench and tune over NCCL, on a double of the library (tests/support/fake_nccl.cc), and one-line errors where
libraries or GPUs are missing.

usage: comm_nccl_test.py BRAID FAKE_NCCL
"""
import json
import sys

from support.program import MPI_ENVIRONMENT, Case, braid, main, mpirun

FAKE = sys.argv.pop(1)
OPS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce")


def bench(*words, **variables):
    return braid("comm", "bench", "--transport", "nccl", *words, **{"BRAID_NCCL": FAKE, **variables})


class CommNccl(Case):
    def test_native_beside_our_own(self):
        for op in OPS:
            done = bench("--gpus", 3, "--op", op, "--bytes", "996,24K", "--repeats", 1, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            out = json.loads(done.stdout)
            self.assertEqual((out["transport"], out["nodes"], out["gpus"]), ("nccl", 1, 3))
            sent = {row["algorithm"]: row["node_bytes"] for row in out["rows"]}
            self.assertIsNone(sent["native"])  # what a library sends is not counted
            self.assertGreater(sent["linear"], 0)
            self.assertNotIn("native_blocking", sent)
            self.assertTrue(all(row["measured_us"] > 0 for row in out["rows"]))

    def test_one_rank(self):
        done = bench("--nodes", 1, "--gpus", 1, "--op", "allreduce", "--bytes", "1K,1M", "--repeats", 5)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 node of 1 rank, measured (nccl)", done.stdout)

    def test_tune_has_one_number_of_nodes(self):
        words = ("comm", "tune", "--transport", "nccl", "--nccl", FAKE, "--op", "allreduce", "--gpus", 2, "--bytes", "1K,4K",
                 "--repeats", 1)
        table = self.new_folder() / "times.csv"
        self.run_ok(*words, "--nodes", 1, "-o", table)
        self.assertIn(",native,", table.read_text())
        self.assertRefused(braid(*words, "--nodes", "1,2"), "[--nodes]", "try --nodes 1")

    def test_ranks_of_mpirun(self):
        variables = {"BRAID_NCCL": FAKE, "FAKE_NCCL_GPUS": "2"}
        MPI_ENVIRONMENT.update(variables)
        self.addCleanup(lambda: [MPI_ENVIRONMENT.pop(name) for name in variables])
        words = ("comm", "bench", "--transport", "nccl", "--op", "allgather", "--bytes", "999", "--repeats", 1, "--json")
        done = mpirun(2, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("native", {row["algorithm"] for row in json.loads(done.stdout)["rows"]})
        done = mpirun(3, *words)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("braid: "), 1, done.stderr)
        self.assertIn("ranks 0 and 2 would share GPU", done.stderr)
        done = mpirun(2, *words, "--nccl", "none.so")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("braid: [comm nccl] NCCL is not installed"), 1, done.stderr)

    def test_missing_parts_say_what_to_install(self):
        self.assertRefused(bench("--nccl", "libnccl_none.so.2"), "[comm nccl] NCCL is not installed",
                           "got libnccl_none.so.2: cannot open shared object file", "libnccl2", "nvidia-nccl-cu13")
        self.assertRefused(bench("--nccl", "libc.so.6"), "is not NCCL 2.14 or later; got no ncclGetUniqueId")
        self.assertRefused(bench("--gpus", 2, FAKE_NCCL_GPUS="0"), "rank 0 has no GPU; got no CUDA-capable device is detected")
        self.assertRefused(bench("--gpus", 2, FAKE_NCCL_GPUS="1"), "ranks 0 and 1 would share GPU", "--nodes 1 --gpus 1")

    def test_errors_of_the_library(self):
        words = ("--gpus", 2, "--op", "allreduce", "--algorithm", "native", "--bytes", "1K", "--repeats", 1)
        for name, text in (("ncclCommInitRankConfig", "unhandled system error (2)"), ("cudaMalloc", "out of memory (2)"),
                           ("ncclAllReduce", "NCCL failed among ranks 0, 1; got unhandled system error (2); try NCCL_DEBUG")):
            self.assertRefused(bench(*words, FAKE_NCCL_FAIL=name), text)
        self.assertRefused(bench(*words, FAKE_NCCL_ASYNC="ncclAllReduce"), "NCCL failed among ranks 0, 1", "a peer has gone")
        self.assertRefused(bench(*words[:4], "--algorithm", "native_blocking", "--bytes", "1K"), "other calls may be in flight")


if __name__ == "__main__":
    main()
