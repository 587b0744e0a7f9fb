"""braid comm bench and tune, repro nvrar and pccl: bytes in every output, clusters from files, choices by times, and
one-line errors.

usage: comm_cli_test.py BRAID
"""
import csv
import ctypes
import json
import math
import re
import subprocess
import textwrap
from pathlib import Path

from support.program import BRAID, ONE_LINE, Case, braid, main, mpirun


def bench(*words, **more):
    return braid("comm", "bench", *words, **more)


class CommBench(Case):
    def rows(self, *words):
        done = bench("--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["rows"]

    def refusal(self, *words):
        done = bench(*words)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, ONE_LINE)
        return done.stderr

    def test_bytes_are_the_same_modelled_and_measured(self):
        words = ("--algorithm", "ring,nvrar,two_level", "--nodes", 2, "--gpus", 2, "--bytes", "1000,64K")
        by_transport = [self.rows("--transport", t, *words) for t in ("sim", "inproc", "shm")]
        for rows in zip(*by_transport):
            counted = [(r["algorithm"], r["bytes"], r["node_bytes"], r["network_bytes"], r["messages"]) for r in rows]
            self.assertEqual(counted[0], counted[1])
            self.assertEqual(counted[0], counted[2])
        self.assertIn("modelled_us", by_transport[0][0])
        self.assertIn("measured_us", by_transport[1][0])
        two_level = by_transport[0][5]
        self.assertEqual((two_level["node_bytes"], two_level["network_bytes"]), (2 * 2 * 65536, 2 * 65536))

    def test_mpi_counts_the_same(self):
        words = ["--json", "--algorithm", "ring,nvrar", "--gpus", "2", "--nodes", "1", "--bytes", "1000", "--repeats", "2"]
        done = mpirun(2, "comm", "bench", "--transport", "mpi", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        for row, other in zip(rows, self.rows("--transport", "shm", *words[1:])):
            for key in ("algorithm", "bytes", "node_bytes", "network_bytes", "messages"):
                self.assertEqual(row[key], other[key], row)

    def test_native_collectives_are_chosen_by_times(self):
        words = ["--op", "allreduce", "--gpus", "2", "--bytes", "1000,4K", "--repeats", "1"]
        table = self.new_folder() / "times.csv"
        done = mpirun(2, "comm", "tune", "--transport", "mpi", *words, "-o", table)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = list(csv.DictReader(table.read_text().splitlines()))
        self.assertLessEqual({"native", "native_blocking", "ring"}, {row["algorithm"] for row in rows})
        lines = table.read_text().splitlines()
        table.write_text("\n".join([lines[0]] + [line.rsplit(",", 1)[0] + (",0.01" if ",native" in line else ",9")
                                                 for line in lines[1:]]) + "\n")
        done = mpirun(2, "comm", "bench", "--transport", "mpi", *words, "--times", table, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in json.loads(done.stdout)["rows"]:
            self.assertEqual(row["chosen"], "native")  # no call can block beside others
            self.assertEqual(row["node_bytes"] is None, row["algorithm"].startswith("native"))
        self.assertIn("those over mpi and nccl do", self.refusal("--transport", "shm", "--algorithm", "native"))

    def test_a_plot_has_its_csv(self):
        folder = self.new_folder()
        done = bench("--algorithm", "ring,bruck", "--op", "allgather", "--bytes", "16K:64K", "-o", folder / "gather")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = list(csv.DictReader((folder / "gather.csv").read_text().splitlines()))
        self.assertEqual([r["bytes"] for r in rows], ["16384", "16384", "32768", "32768", "65536", "65536"])
        self.assertEqual({r["network_bytes"] for r in rows if r["algorithm"] == "ring"}, {"63488", "126976", "253952"})
        self.assertIn("modelled", (folder / "gather.svg").read_text())

    def test_calls_are_chosen_by_times(self):
        folder = self.new_folder()
        table = folder / "times.csv"
        done = braid("comm", "tune", "--op", "allreduce,alltoall", "--nodes", "2:8", "--gpus", 2, "--bytes", "4K:4M",
                     "--cluster", "perlmutter", "-o", table, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        regret = {(r["op"], r["chosen_by"]): r["held_out"] for r in json.loads(done.stdout)["regret"]}
        for op in ("all_reduce", "all_to_all"):
            self.assertLess(regret[op, "costs"]["mean"], 0.03)
            self.assertGreater(regret[op, "costs"]["points"], 10)
        rows = list(csv.DictReader(table.read_text().splitlines()))
        # Of what a call costs, the table knows all: it names another algorithm once another is the fastest.
        words = ("--op", "allreduce", "--cluster", "perlmutter", "--nodes", 4, "--gpus", 2, "--bytes", "64K")
        chosen = lambda *more: bench(*words, *more).stdout.splitlines()[-1].split()[-2]
        fast = min((r for r in rows if (r["op"], r["nodes"], r["bytes"]) == ("all_reduce", "4", "65536")),
                   key=lambda r: float(r["us"]))["algorithm"]
        self.assertEqual(chosen("--times", table), fast)
        table.write_text("".join(line.rsplit(",", 1)[0] + (",0.01\n" if ",ring," in line else ",9\n") if i else line + "\n"
                                 for i, line in enumerate(table.read_text().splitlines())))
        self.assertEqual(chosen("--times", table), "ring")
        self.assertRegex(braid("comm", "tune", "--op", "barrier").stderr, ONE_LINE)
        self.assertRegex(bench("--times", folder / "none.csv").stderr, ONE_LINE)

    def test_times_are_measured_too(self):
        done = braid("comm", "tune", "--transport", "shm", "--op", "allgather", "--nodes", "1,2", "--bytes", "1K,4K",
                     "--repeats", 1, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(json.loads(done.stdout)["calls"], 12)

    def test_cells_beside_data_and_a_flag(self):
        done = braid("comm", "cells", "--bytes", "1,100,4K", "--rounds", 2, "--messages", 50, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual([row["bytes"] for row in rows], [1, 100, 4096])
        self.assertTrue(all(row["cells_ns"] > 0 and row["flag_ns"] > 0 for row in rows))
        for size in ("0", "2M"):
            self.assertRegex(braid("comm", "cells", "--bytes", size).stderr, ONE_LINE)

    def test_pccl_beside_its_published_speedups(self):
        done = braid("repro", "pccl", "--endpoints", 64, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in json.loads(done.stdout)["rows"]:
            us = row["modelled_us"]
            self.assertLess(min(us["pccl_ring"], us["pccl_recursive"]), us["ring"])
        self.assertRegex(braid("repro", "pccl", "--endpoints", 20).stderr, ONE_LINE)

    def test_how_pccl_scales(self):
        out = self.new_folder() / "pccl"
        text = self.run_ok("repro", "pccl", "--endpoints", 32, "-o", out)
        rows = list(csv.DictReader(out.with_suffix(".csv").read_text().splitlines()))
        self.assertEqual({(r["cluster"], r["op"]) for r in rows},
                         {(c, o) for c in ("frontier", "perlmutter") for o in ("all_gather", "reduce_scatter")})
        gpus = {"frontier": 8, "perlmutter": 4}
        for r in rows:
            ranks, size, nodes = int(r["ranks"]), int(r["bytes"]), int(r["ranks"]) // gpus[r["cluster"]]
            # Every block has to reach every other node; a ring of all ranks enters a node once for all of it.
            crossings = {"ring": nodes * (ranks - 1) / ranks if nodes > 1 else 0}.get(r["algorithm"], nodes - 1)
            self.assertEqual(int(r["network_bytes"]), size * crossings, r)
        self.assertEqual({int(r["ranks"]) for r in rows if r["algorithm"] == "ring"}, {8, 16, 32})
        self.assertEqual({int(r["bytes"]) for r in rows}, {2**n for n in range(24, 31)})
        self.check_crossing(rows, text, cluster="perlmutter", op="all_gather", ranks="32")
        for op in ("all_gather", "reduce_scatter"):
            self.assertIn("1.00 GiB", Path(f"{out}-{op}.svg").read_text())
        self.assertRegex(braid("repro", "pccl", "--endpoints", 16, "-o", "/nowhere/pccl").stderr, ONE_LINE)

    def check_crossing(self, rows, text, **of):
        """The table says where the faster PCCL algorithm beats the ring as the CSV does."""
        line = next(x for x in text.splitlines() if re.match(r"perlmutter +all_gather +32 ", x))
        us = {(int(r["bytes"]), r["algorithm"]): float(r["modelled_us"]) for r in rows if of.items() <= r.items()}
        ratio = us[2**28, "ring"] / min(us[2**28, "pccl_ring"], us[2**28, "pccl_recursive"])
        self.assertIn(f"{ratio:.2f} x", line)
        if all(us[n, "ring"] > min(us[n, "pccl_ring"], us[n, "pccl_recursive"]) for n in {n for n, _ in us}):
            self.assertRegex(line, r" x +all ")

    def test_the_cluster_of_the_docs(self):
        docs = (Path(__file__).resolve().parent.parent / "docs" / "comm.md").read_text()
        example = docs[docs.index('    base = "perlmutter"'):].split("\n\n")[0]
        file = self.new_folder() / "cluster.toml"
        file.write_text(textwrap.dedent(example))
        for op in ("allreduce", "allgather", "reducescatter", "alltoall"):
            rows = self.rows("--op", op, "--cluster", file, "--nodes", 7, "--gpus", 3, "--bytes", "1000,1000000")
            self.assertTrue(all(row["modelled_us"] > 12 for row in rows), op)

    def test_a_cluster_from_a_file(self):
        file = self.new_folder() / "mine.toml"
        file.write_text('base = "perlmutter"\nnics = 1\nnetwork.latency_us = 100\n')
        words = ("--algorithm", "recursive", "--bytes", "1000")
        self.assertGreater(self.rows("--cluster", file, *words)[0]["modelled_us"],
                           self.rows("--cluster", "perlmutter", *words)[0]["modelled_us"] + 2 * 90)
        file.write_text("network.latency_ms = 1\n")
        self.assertIn("network.latency_ms is not a field of a link", self.refusal("--cluster", file))
        file.write_text('nodes = "many"\n')
        self.assertIn("nodes is not a whole number", self.refusal("--cluster", file))
        file.write_text('base = "perlmutter"\nnics = 8\n')
        self.assertIn("nics is more than a node's GPUs", self.refusal("--cluster", file))
        file.write_text('base = "cray"\n')
        self.assertIn("base is not a preset", self.refusal("--cluster", file))
        # Nothing is divided by what is not there; latencies may be 0.
        for word in ("nodes", "gpus", "nics", "node.gb_per_s", "network.gb_per_s", "copy_gb_per_s", "reduce_gb_per_s", "taper"):
            file.write_text(f'base = "perlmutter"\n{word} = 0\n')
            self.assertIn(f"[mine.toml] {word} is out of range; got 0", self.refusal("--cluster", file))
        for value in ("-1", "nan", "inf"):
            file.write_text(f'base = "perlmutter"\nnetwork.latency_us = {value}\n')
            self.assertIn(f"network.latency_us is out of range; got {value}", self.refusal("--cluster", file))
        file.write_text('base = "perlmutter"\nnetwork.latency_us = 0\nnetwork.overhead_us = 0\nlaunch_us = 0\n')
        self.assertGreater(self.rows("--cluster", file, *words)[0]["modelled_us"], 0)

    def test_errors_name_what_would_do(self):
        self.assertIn("expected h100-ib, perlmutter", self.refusal("--cluster", "perlmuter"))
        self.assertIn("expected linear, binomial, ring", self.refusal("--algorithm", "rings"))
        self.assertIn("is an empty range", self.refusal("--bytes", "64K:16K"))
        self.assertIn("is not a size", self.refusal("--bytes", "16X"))
        self.assertIn("too many ranks", self.refusal("--transport", "shm", "--nodes", 999))
        self.assertIn("[--repeats] is for what is measured", self.refusal("--repeats", 3))
        self.assertIn("[--algorithm] is named twice; got ring", self.refusal("--algorithm", "ring,linear,ring"))
        self.assertIn("[--bytes] is less than an element of BF16; got 1; expected 0, or at least 2", self.refusal("--bytes", "1"))
        self.assertNotIn("nan", braid("comm", "bench", "--cluster", "equal", "--bytes", "0,2", "--nodes", 2).stdout)
        self.assertIn("[--cluster] is for virtual time", self.refusal("--transport", "shm", "--cluster", "h100-ib"))
        self.assertIn("[--nics] is for virtual time", self.refusal("--transport", "inproc", "--nics", 2))

    def test_mpi_without_mpirun_says_what_to_do(self):
        self.assertRegex(self.refusal("--transport", "mpi", "--bytes", "1K"), "mpirun -np 4 braid|apt-get install openmpi-bin")

    def test_the_program_does_not_need_mpi(self):
        needed = subprocess.run(["ldd", BRAID], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertNotIn("libmpi", needed)
        try:
            ctypes.CDLL("libmpi.so.40")
        except OSError:
            pass
        else:
            self.skipTest("Open MPI is installed")
        of_mpirun = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
        recipe = self.new_folder() / "recipe.toml"
        recipe.write_text('config = "hybrid-8.5m"\nout = "out"\nbatch = 2\nlength = 16\nsteps = 1\ndata.kind = "markov"\n')
        for words in (("train", recipe), ("run", "tiny", "-p", "x", "-n", 1, "--tp", 2),
                      ("comm", "bench", "--transport", "mpi", "--bytes", "1K")):
            done = braid(*words, **of_mpirun)
            self.assertEqual(done.returncode, 1, words)
            self.assertOneLine(done, "apt-get install openmpi-bin")


class ReproLayouts(Case):
    def test_axonn_beside_its_published_rates(self):
        done = braid("repro", "axonn", "--ranks", 512, "--batch", 512, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        self.assertEqual(out["published"], {"gpus": 4096, "pflops": 620.1})
        grid = out["strategies"][0]
        self.assertTrue(grid["fits"] and "grid" in grid["layout"], grid)
        overlaps = out["modelled_overlap_seconds"]
        self.assertGreaterEqual(overlaps["none"], overlaps["all_reduces"])
        self.assertGreaterEqual(overlaps["all_reduces"], overlaps["all"])
        for words in (("--machine", "summit"), ("--ranks", 7)):
            self.assertRegex(braid("repro", "axonn", *words).stderr, ONE_LINE)

    def test_folding_is_one_of_the_layouts_without(self):
        done = braid("repro", "megatron-moe", "--ranks", 64, "--batch", 256, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in json.loads(done.stdout)["rows"]:
            plain = row["not_folded"]["modelled_mfu"] if "not_folded" in row else 0
            self.assertGreaterEqual(row["folded"]["modelled_mfu"], plain)
            sent = {d["name"]: d["network_bytes"] for d in row.get("dispatchers", [])}
            if sent:  # a copy for each node that has an expert, and never more than for each expert
                self.assertLessEqual(sent["node"], sent["alltoall"])
        self.assertRegex(braid("repro", "megatron-moe", "--ranks", 12).stderr, ONE_LINE)


class ReproNvrar(Case):
    def test_each_published_time_from_the_others(self):
        done = braid("repro", "nvrar", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in json.loads(done.stdout)["leave_one_out"]:
            self.assertLess(abs(row["predicted_us"] / row["published_us"] - 1), 0.08, row)
        self.assertIn("157.5", braid("repro", "nvrar").stdout)
        self.assertRefused(braid("repro", "nvrar", "--nodes", 8), "[--nodes] applies only with --out")
        folder = f"{self.new_folder()}/"
        for words in (("repro", "nvrar"), ("repro", "pccl", "--endpoints", 16), ("repro", "plexus"),
                      ("comm", "bench", "--op", "allreduce", "--transport", "sim", "--bytes", "1K")):
            self.assertRefused(braid(*words, "-o", folder), "is a folder", f"try {folder}name")

    def test_how_it_scales(self):
        out = self.new_folder() / "nvrar"
        text = self.run_ok("repro", "nvrar", "--nodes", 8, "-o", out)
        rows = list(csv.DictReader(out.with_suffix(".csv").read_text().splitlines()))
        us = {(int(r["ranks"]), int(r["bytes"]), r["algorithm"]): float(r["modelled_us"]) for r in rows}
        self.assertEqual({n for n, _, _ in us}, {8, 16, 32})
        self.assertEqual({n for _, n, _ in us}, {2**n for n in range(14, 27)})
        for r in rows:
            nodes, size = int(r["ranks"]) // 4, int(r["bytes"])
            if r["algorithm"] == "nvrar":  # log2 N exchanges of the slices, half of the bytes flags
                self.assertEqual(int(r["network_bytes"]), 2 * nodes * (nodes.bit_length() - 1) * size)
            if r["algorithm"] == "two_level":
                self.assertEqual(int(r["network_bytes"]), 2 * (nodes - 1) * size)
        table = [x.split() for x in text.split("at which it is the faster")[1].splitlines() if re.match(r" +[248] ", x)]
        self.assertEqual([row[0] for row in table], ["2", "4", "8"])
        for row in table:
            at = 4 * int(row[0]), 128 << 10
            self.assertEqual(row[1], f"{min(us[*at, 'ring'], us[*at, 'double_tree']) / us[*at, 'nvrar']:.2f}")
        # Between sizes of which one is faster and the next is not.
        self.assert_ends(us, table[2])
        self.assertIn("8 nodes", out.with_suffix(".svg").read_text())
        self.assertRegex(braid("repro", "nvrar", "--nodes", 1).stderr, ONE_LINE)

    def assert_ends(self, us, row):
        """Of the last cell, "93.2 KiB to 171 KiB": the sizes around both ends have another winner."""
        def wins(size):
            return all(us[32, size, "nvrar"] < t for (n, s, name), t in us.items() if (n, s) == (32, size) and name != "nvrar")
        begin, end = (float(row[i]) * {"KiB": 2**10, "MiB": 2**20}[row[i + 1]] for i in (-5, -2))
        for at, before in ((begin, False), (end, True)):
            below = 2 ** int(math.log2(at))
            self.assertEqual((wins(below), wins(2 * below)), (before, not before), at)


if __name__ == "__main__":
    main()
