"""braid train at its edges: bad recipes, full disks, signals; a message of one line each, and never a lost checkpoint.

usage: train_cli_test.py BRAID
"""
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BRAID = sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin/braid"
MODEL = Path(__file__).resolve().parent / "data" / "hf" / "nemotron-h-latent-mtp"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("BRAID_")}
RECIPE = f'init = "{MODEL}"\nsteps = 2\nbatch = 2\nlength = 8\ndtype = "f32"\n[data]\nkind = "markov"\n'


class Train(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        self.out = self.root / "out"
        (self.root / "r.toml").write_text(RECIPE)

    def train(self, *words, **more):
        line = [BRAID, "train", str(self.root / "r.toml"), f"out={self.out}", "--threads", "1", *words]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, env=ENVIRONMENT, **more)

    def refused(self, *words, says):
        done = self.train(*words)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(says, done.stderr)

    def checkpoints(self):
        return sorted(p.name for p in (self.out / "checkpoints").glob("*"))

    def test_bad_recipes(self):
        self.refused("optimizer.wieght_decay=1", says="try optimizer.weight_decay")
        self.refused("schedule.kind=cosin", says="try cosine")
        self.refused("config=gpt2-124m", says="both init and config")
        self.refused("data.kind=text", "data.path=/none", says="tokenizer.json")  # text, and a model without one
        self.assertFalse((self.out / "checkpoints").exists() and self.checkpoints())

    def test_bad_data(self):
        chat = f"init={MODEL.parents[1] / 'tiny-chat'}"
        (self.root / "empty").mkdir()
        self.refused(chat, "data.kind=jsonl", f"data.path={self.root / 'empty'}", says="empty")
        (self.root / "nothing.jsonl").write_text("\n")
        self.refused(chat, "data.kind=jsonl", f"data.path={self.root / 'nothing.jsonl'}", says="no document")
        ids = self.root / "ids.safetensors"
        head = json.dumps({"batches": {"dtype": "I64", "shape": [1, 2, 9], "data_offsets": [0, 144]}}).encode()
        ids.write_bytes(struct.pack("<Q", len(head)) + head + struct.pack("<18q", *range(17), 10**6))
        self.refused("data.kind=ids", f"data.path={ids}", says="1000000")

    def test_a_checkpoint_of_another_shape(self):
        self.assertEqual(self.train().returncode, 0)
        other = MODEL.parents[1] / "tiny-chat"
        self.refused(f"init={other}", "--resume", "auto", says="another")

    def test_a_run_is_not_overwritten(self):
        self.assertEqual(self.train().returncode, 0)
        self.refused(says="--resume auto")
        self.assertEqual(self.train("--resume", "auto").returncode, 0)

    def test_a_full_disk_leaves_the_last_checkpoint(self):
        self.assertEqual(self.train("checkpoint.every=1").returncode, 0)
        before = self.checkpoints()
        small = (self.out / "checkpoints" / before[-1] / "training" / "state.safetensors").stat().st_size - 1

        def full():  # writes past this fail, as on a full disk
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (small, small))

        done = self.train("steps=4", "checkpoint.every=1", "--resume", "auto", preexec_fn=full)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("state.safetensors", done.stderr)
        self.assertEqual(self.checkpoints(), before)
        self.assertEqual(self.train("steps=4", "--resume", "auto").returncode, 0)

    def test_signals_save(self):
        for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
            line = [BRAID, "train", str(self.root / "r.toml"), f"out={self.out / str(code)}", "steps=100000", "--threads", "1"]
            with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT) as child:
                while not child.stdout.readline().startswith("step 2/"):
                    time.sleep(0.01)
                child.send_signal(number)
                child.stdout.read()
            self.assertEqual(child.returncode, code)
            self.assertTrue(list((self.out / str(code) / "checkpoints").glob("step-*/DONE")))

    def test_dry_run_writes_nothing(self):
        done = self.train("--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("FLOP", done.stdout)
        self.assertFalse(self.out.exists())


unittest.main()
