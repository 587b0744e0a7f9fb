"""Shared by the tests of `braid train`: a small recipe, its runs and their files, and a disk that can be filled."""
import os
import subprocess
import unittest
from pathlib import Path

from support.program import DATA, Case, braid

HYBRID, CHAT = DATA / "hf" / "nemotron-h-latent-mtp", DATA / "tiny-chat"
RECIPE = f'init = "{HYBRID}"\nsteps = 2\nbatch = 2\nlength = 8\ndtype = "f32"\n[data]\nkind = "markov"\n'


def checkpoints(out):
    """The steps of the complete checkpoints of a run."""
    return sorted(int(done.parent.name.removeprefix("step-")) for done in (Path(out) / "checkpoints").glob("step-*/DONE"))


def files_of(folder):
    """Every file below a folder by name, with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def state_of(out, step):
    """The files that determine the rest of a run."""
    folder = Path(out) / "checkpoints" / f"step-{step:08}"
    return {name: (folder / name).read_bytes()
            for name in ("model.safetensors", "training/state.safetensors", "training/state.json", "config.json")}


def logged_steps(out):
    """The steps in loss.csv."""
    return [int(line.split(",")[0]) for line in (Path(out) / "loss.csv").read_text().splitlines()[1:]]


def printed_steps(text):
    """The steps in the output of a run."""
    return [int(line.split()[1].split("/")[0]) for line in text.splitlines() if line.startswith("step ")]


class TrainCase(Case):
    recipe = RECIPE

    def setUp(self):
        self.root = self.new_folder()
        self.out = self.root / "out"
        (self.root / "r.toml").write_text(self.recipe)

    def line(self, *words):
        return ["train", self.root / "r.toml", f"out={self.out}", "--threads", "1", *words]

    def train(self, *words, **streams):
        return braid(*self.line(*words), **streams)

    def trained(self, *words):
        done = self.train(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, *words, says):
        self.assertRefused(self.train(*words), says)


class SmallDisk:
    """A file system in memory that only this test sees, in the mount namespace of a child. If the system allows none,
    the test is skipped. It is reached through /proc, so that nothing has to enter the namespace."""

    def __init__(self, folder, size, inodes):
        mount = f'mount -t tmpfs -o size={size},nr_inodes={inodes} braid "$1" && echo mounted && exec cat'
        try:
            self.keeper = subprocess.Popen(
                ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        except OSError as error:
            raise unittest.SkipTest(f"no mount namespace here: {error}") from error
        self.path = Path(f"/proc/{self.keeper.pid}/root{folder}")
        if self.keeper.stdout.readline() != "mounted\n":
            _, stderr = self.keeper.communicate()
            raise unittest.SkipTest(f"no mount namespace here: {stderr.strip()}")

    def close(self):
        self.keeper.communicate()

    def fill(self, bytes_left=None, files_left=None):
        """Leaves `bytes_left`, rounded down to whole pages, or `files_left` files."""
        self.free()
        (self.path / "filler").mkdir()
        if bytes_left is not None:
            page = os.statvfs(self.path).f_bsize
            with open(self.path / "filler" / "bytes", "wb") as file:
                file.write(bytes(page * (os.statvfs(self.path).f_bavail - bytes_left // page)))
        while files_left is not None and os.statvfs(self.path).f_favail > files_left:
            (self.path / "filler" / str(os.statvfs(self.path).f_favail)).touch()

    def free(self):
        for file in (self.path / "filler").glob("*"):
            file.unlink()
        if (self.path / "filler").exists():
            (self.path / "filler").rmdir()
