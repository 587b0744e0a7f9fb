"""A disk that is full when a run writes its state, publishes its model or appends to its log: one line that names the file,
exit code 1, every checkpoint as it was, nothing half-written left, and a resumed run that ends bit-identical to one
whose disk was never full.

usage: disk_full_test.py BRAID
"""
import json
import resource

from support.program import braid, main
from support.training import SmallDisk, TrainCase, checkpoints, files_of, logged_steps, printed_steps, state_of

FULL = "No space left on device"


class DiskFull(TrainCase):
    def setUp(self):
        super().setUp()
        self.whole = self.root / "whole"
        mount = self.root / "mount"
        mount.mkdir()
        self.disk = SmallDisk(mount, 64 << 20, 400)
        self.addCleanup(self.disk.close)
        self.out = self.disk.path / "out"
        self.trained("checkpoint.every=1", "checkpoint.keep=9", f"log.jsonl={self.out}/log.jsonl")
        self.before = files_of(self.out)

    def size(self, name):
        return len(self.before[f"checkpoints/step-00000002/{name}"])

    def full(self, *words, says):
        done = self.train(*words, "--resume", "auto")
        self.assertOneLine(done, says, FULL)
        after = files_of(self.out)
        self.assertEqual([name for name in after if name.endswith(".part")], [])
        for name, data in self.before.items():
            if name.startswith("checkpoints"):
                self.assertEqual(after[name], data, name)
        return done

    def resumes(self, steps):
        """With free space again; must end bit-identical to a run on another disk."""
        self.disk.free()
        self.trained(f"steps={steps}", "checkpoint.every=1", f"log.jsonl={self.out}/log.jsonl", "--resume", "auto")
        out, self.out = self.out, self.whole
        self.trained(f"steps={steps}", "checkpoint.every=1")
        self.assertEqual(state_of(out, steps), state_of(self.whole, steps))
        self.assertEqual(logged_steps(out), list(range(1, steps + 1)))
        lines = [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()]
        self.assertEqual(lines, list(range(1, steps + 1)))
        published = files_of(out / "checkpoints" / f"step-{steps:08}")
        self.assertEqual({name: (out / name).read_bytes() for name in ("model.safetensors", "config.json")},
                         {name: published[name] for name in ("model.safetensors", "config.json")})

    def test_at_the_state(self):
        self.disk.fill(bytes_left=self.size("model.safetensors") + self.size("training/state.safetensors") // 2)
        done = self.full("steps=4", "checkpoint.every=1", says="state.safetensors")
        self.assertEqual(printed_steps(done.stdout), [3])
        self.assertEqual(checkpoints(self.out), [1, 2])
        self.resumes(4)

    def test_at_the_model(self):
        self.disk.fill(bytes_left=self.size("model.safetensors") // 2)
        self.full("steps=4", "checkpoint.every=1", says="model.safetensors")
        self.assertEqual(checkpoints(self.out), [1, 2])
        self.resumes(4)

    def test_at_the_publish(self):
        # Room for the files of a checkpoint and not one more.
        written = 1 + sum(1 for _ in (self.out / "checkpoints" / "step-00000002").rglob("*"))
        self.disk.fill(files_left=written)
        self.full("steps=3", "checkpoint.every=1", f"log.jsonl={self.out}/log.jsonl", says="cannot be published")
        self.assertEqual(checkpoints(self.out), [1, 2, 3])
        for name in ("model.safetensors", "config.json"):
            self.assertEqual((self.out / name).read_bytes(), self.before[name])
        self.resumes(3)  # there is no step left: what was not published is published now

    def test_at_the_log(self):
        # Both logs are rewritten, each into its own first page; one more page holds some dozen lines.
        self.disk.fill(bytes_left=4096)
        done = self.full("steps=90", f"log.jsonl={self.out}/log.jsonl", says="log.jsonl")
        self.assertGreater(printed_steps(done.stdout)[-1], 3)
        self.assertEqual(checkpoints(self.out), [1, 2])
        self.resumes(4)

    def test_at_a_log_that_cannot_be_rewritten(self):
        self.disk.fill(bytes_left=0)
        done = self.full("steps=4", f"log.jsonl={self.out}/log.jsonl", says="loss.csv")
        self.assertEqual(printed_steps(done.stdout), [])
        self.assertEqual(files_of(self.out), self.before)
        self.resumes(4)


class WithoutNamespaces(TrainCase):
    def test_a_limit_of_file_size_leaves_the_last_checkpoint(self):
        self.trained("checkpoint.every=1")
        before = files_of(self.out / "checkpoints")
        small = (self.out / "checkpoints" / "step-00000002" / "training" / "state.safetensors").stat().st_size - 1

        def limited():  # writes past this fail
            resource.setrlimit(resource.RLIMIT_FSIZE, (small, small))

        self.assertOneLine(self.train("steps=4", "checkpoint.every=1", "--resume", "auto", preexec_fn=limited), "state.safetensors")
        self.assertEqual(files_of(self.out / "checkpoints"), before)
        # A copy of the process fails, and the run ends by it; a rank fails, and the others end by it.
        for words in (("checkpoint.async=true",), ("--ranks", 2), ("--ranks", 2, "checkpoint.async=true")):
            done = self.train("steps=4", "checkpoint.every=1", *words, "--resume", "auto", preexec_fn=limited)
            self.assertOneLine(done, "state.safetensors")
            self.assertEqual(files_of(self.out / "checkpoints"), before, words)
        self.trained("steps=4", "--resume", "auto")

    def test_a_limit_of_file_size_leaves_no_part_of_a_result(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, 100 << 10))

        outputs = self.new_folder()
        for words in (("convert", "tiny", outputs / "t.gguf"), ("quantize", "tiny", outputs / "t"),
                      ("run", "tiny", "-p", "a " * 500, "-n", 0, "--dump-logits", outputs / "t.npy")):
            self.assertRefused(braid(*words, preexec_fn=limited), str(outputs), "File too large")
            self.assertEqual(list(outputs.iterdir()), [], words)

    def test_a_log_that_is_a_device_is_appended_to(self):
        self.trained("checkpoint.every=1")
        before = files_of(self.out / "checkpoints")
        log = self.root / "log"
        log.symlink_to("/dev/full")
        self.assertOneLine(self.train("steps=4", "checkpoint.every=1", "--resume", "auto", f"log.jsonl={log}"), str(log), FULL)
        self.assertEqual(files_of(self.out / "checkpoints"), before)
        self.assertTrue(log.is_symlink())  # not replaced by a file

    def test_a_standard_output_that_takes_no_line(self):
        with open("/dev/full", "w") as full:
            self.assertOneLine(self.train("checkpoint.every=1", stdout=full), "[standard output] cannot be written", FULL)
        self.trained("--resume", "auto")


if __name__ == "__main__":
    main()
