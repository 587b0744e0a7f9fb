"""Edge cases of braid train: bad recipes, full disks, signals; one-line messages, and never a lost checkpoint.

usage: train_cli_test.py BRAID
"""
import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

from support.program import braid, main, start, terminal
from support.training import CHAT, HYBRID, RECIPE, TrainCase, checkpoints, files_of, logged_steps, printed_steps


class Train(TrainCase):
    def test_bad_recipes(self):
        self.refused("optimizer.wieght_decay=1", says="try optimizer.weight_decay")
        self.refused("schedule.kind=cosin", says="try cosine")
        self.refused("config=gpt2-124m", says="both init and config")
        for word in ("beta1", "beta2"):
            self.refused(f"optimizer.{word}=1", says=f"optimizer.{word} is out of range; got 1; expected a number from 0 to 0.9999999")
        self.refused("optimizer.eps=0", says="optimizer.eps is out of range; got 0; expected a number from 1e-30 to")
        self.refused("optimizer.lr=nan", says="optimizer.lr is out of range; got nan;")
        self.refused("optimizer.lr=-inf", says="optimizer.lr is out of range; got -inf;")
        self.refused("data.kind=text", f"data.path={self.root / 'r.toml'}", says="tokenizer.json")  # text, and a model without one
        self.refused("data.kind=text", "data.path=/none", says="[/none] does not exist")
        self.assertEqual(checkpoints(self.out), [])

    def test_bad_data(self):
        chat = f"init={CHAT}"
        (self.root / "empty").mkdir()
        self.refused(chat, "data.kind=jsonl", f"data.path={self.root / 'empty'}", says="empty")
        (self.root / "nothing.jsonl").write_text("\n")
        self.refused(chat, "data.kind=jsonl", f"data.path={self.root / 'nothing.jsonl'}", says="no document")
        ids = self.root / "ids.safetensors"
        head = json.dumps({"batches": {"dtype": "I64", "shape": [1, 2, 9], "data_offsets": [0, 144]}}).encode()
        ids.write_bytes(struct.pack("<Q", len(head)) + head + struct.pack("<18q", *range(17), 10**6))
        self.refused("data.kind=ids", f"data.path={ids}", says="1000000")
        ids.write_bytes(struct.pack("<Q", len(head)) + head + struct.pack("<18q", *range(18)))
        for word in ("data.validation=0.5", "eval.every=1"):
            self.refused("data.kind=ids", f"data.path={ids}", "batch=2", "length=8", word,
                         says="batches of ids are all trained on, none is held out; try eval.data")

    def test_a_checkpoint_of_another_shape(self):
        self.trained()
        other = CHAT
        self.refused(f"init={other}", "--resume", "auto", says="does not match the recipe: init is")

    def test_a_run_is_not_overwritten(self):
        self.trained()
        self.refused(says="--resume auto")
        self.trained("--resume", "auto")

    def test_a_checkpoint_that_is_not_complete_is_named(self):
        self.trained("checkpoint.every=1", "checkpoint.keep=3")
        last, first = (self.out / "checkpoints" / f"step-0000000{step}" for step in (2, 1))
        (last / "DONE").unlink()
        self.assertRefused(self.train("--resume", last, "--force"), f"[{last}] is not a complete checkpoint; expected a folder with the file DONE")
        said = f"{last} is incomplete, without its file DONE: passed over\n"
        done = self.trained("--resume", "auto", "checkpoint.every=1")
        self.assertEqual((done.stderr, printed_steps(done.stdout)), (said, [2]))
        self.assertEqual(self.trained("--resume", "auto").stderr, "")  # the run wrote it again
        for path in (first, last):
            (path / "DONE").unlink()
        for words in ((), ("--resume", "auto")):
            self.refused(*words, says=f"[{last}] is incomplete, and no other checkpoint is there; expected a folder with the file DONE")
        for path in self.out.glob("*.*"):  # the model was never published
            path.unlink()
        done = self.trained("--resume", "auto")
        self.assertEqual((done.stderr, printed_steps(done.stdout)), (said.replace(str(last), str(first)) + said, [1, 2]))
        self.assertIn("has no complete checkpoint: starts at step 1\n", done.stdout)

    def test_nothing_but_a_run_is_written_over(self):
        model = self.root / "model"
        shutil.copytree(HYBRID, model)
        before = files_of(model)
        for words in ([f"out={model}"], [f"init={model}", f"out={model}"], [f"out={model}", "--resume", "auto"]):
            self.refused(*words, says="which does not belong to a run")
        for name in ("config.json", "model.safetensors"):
            self.refused(f"log.jsonl={model / name}", says=f"{name}] exists and is not the log.jsonl")
        self.assertEqual(files_of(model), before)
        (self.out / "init").mkdir(parents=True)  # incomplete: no run made it
        self.refused(says="holds init")
        (self.out / "init").rmdir()
        (self.out / "loss.csv").write_text("month,loss\n1,2\n")
        self.refused(says="is not the loss.csv of a run")
        self.assertEqual((self.out / "loss.csv").read_text(), "month,loss\n1,2\n")

    def test_a_folder_that_is_none(self):
        (self.root / "file").write_text("text")
        for out in ("file", "file/inside/x"):
            self.assertRefused(braid("train", "r.toml", f"out={out}", cwd=self.root), "[out] is to be a folder, and a file is in its place; got file; try another out\n")
        self.refused("--resume", "nowhere", says="[nowhere] no such checkpoint; expected a folder with the file DONE")
        self.refused("--resume", self.root / "file", says="file] is a file, not a checkpoint; expected a folder with the file DONE")
        self.refused("--resume", self.root, says=f"[{self.root}] is not a complete checkpoint")
        self.trained("checkpoint.every=1")
        last = self.out / "checkpoints" / "step-00000002"
        self.refused("--resume", self.out, says=f"[{self.out}] is the folder of a run, not one of its checkpoints; try --resume {last}\n")

    def test_what_is_not_a_recipe(self):
        def refused(name, what, hint=""):
            said = f"[{name}] {what}; expected a recipe, a TOML file{hint and '; try '}{hint}\n"
            for words in (("train", name), ("train", name, "steps=3", "--dry-run"), ("law", "sweep", name, "--grid", "8x2")):
                self.assertRefused(braid(*words, cwd=self.root), said)
        self.trained()
        stored = "out/checkpoints/step-00000002/training/recipe.toml"
        refused("tiny", "is a model, not a recipe", 'init = "tiny" in one')
        refused("hybrid-8.5m", "is the name of a shape, not a recipe", 'config = "hybrid-8.5m" in one')
        refused(HYBRID, "is a model, not a recipe", f'init = "{HYBRID}" in one')
        refused("out", "is the folder of a run, not a recipe", stored)
        refused("out/checkpoints/step-00000002", "is a checkpoint, not a recipe", stored)
        refused("out/model.safetensors", "is not a recipe")
        refused("out/config.json", "is not a recipe")
        refused(".", "is a folder, not a recipe")
        (self.root / "first.toml").write_text("")
        refused("frist.toml", "no such file", "first.toml")
        refused("nowhere/x", "no such file")
        (self.root / "first.toml").write_text('name = "x"\nkind = 1\nzzz = 2\nqqqqq = 3\n[project]\nversion = "1"\n')
        for words in ((), ("steps=3",)):
            self.assertRefused(braid("train", "first.toml", *words, cwd=self.root),
                               "[first.toml] is not a recipe: no key in it is of recipes; got ", "; expected init or config, out, steps, [data] and others")

    def test_a_log_has_a_name_of_its_own(self):
        def check(key, path, first):
            self.refused(f"{key}={path}", says=f"[{key}] is the name of what the run writes itself; got {first}; expected another name\n")
            self.assertFalse(self.out.exists())
        for name in ("loss.csv", "loss.svg", "rollouts.jsonl", "config.json", "model.safetensors", "model-00001-of-00002.safetensors", "tokenizer.json",
                     "tokenizer_config.json", "adapter_config.json", "adapter_model.safetensors", "checkpoints", "init"):
            for key in ("log.jsonl", "log.tensorboard"):
                check(key, self.out / name, name)
        check("log.jsonl", self.out / "checkpoints" / "log.jsonl", "checkpoints")
        check("log.tensorboard", self.out / "logs" / ".." / "config.json", "config.json")
        self.refused(f"log.jsonl={self.out}/log", f"log.tensorboard={self.out}/log", says="[log.tensorboard] is the file of log.jsonl, too; got log")
        (self.root / "named.toml").write_text((self.root / "r.toml").read_text() + '[log]\njsonl = "./loss.csv"\n')
        self.assertRefused(braid("train", self.root / "named.toml", f"out={self.out}"), "[log.jsonl] is the name of what the run writes itself")
        self.trained(f"log.jsonl={self.out}/steps.json", f"log.tensorboard={self.out}/loss")  # near such names, but others

    def test_a_log_makes_no_folder_outside_of_out(self):
        self.refused(f"log.jsonl={self.root / 'none' / 'x'}", says="there is no such folder")
        self.assertFalse((self.root / "none").exists() or self.out.exists())
        for self.out, place in ((self.root / "one", "log.jsonl"), (self.root / "two", "two/logs/log.jsonl")):
            self.trained(f"log.jsonl={self.root / place}")
            self.assertEqual(len((self.root / place).read_text().splitlines()), 2)

    def test_a_log_of_the_command_line_lies_in_the_working_folder(self):
        """As every path there; that of the file is a name in `out`."""
        (self.root / "logs.toml").write_text((self.root / "r.toml").read_text() + '[log]\njsonl = "logs/of-file.jsonl"\n')
        (self.root / "here").mkdir()
        for words, log in ((("log.jsonl=named.jsonl", "log.tensorboard=events"), "here/named.jsonl"), ((), "here/out/logs/of-file.jsonl"),
                           (("log.jsonl=out/inside/named.jsonl",), "here/out/inside/named.jsonl")):
            shutil.rmtree(self.root / "here" / "out", ignore_errors=True)
            self.assertEqual(braid("train", "../logs.toml", "out=out", *words, cwd=self.root / "here").returncode, 0)
            self.assertEqual(len((self.root / log).read_text().splitlines()), 2, words)
        self.assertTrue(list((self.root / "here" / "events").iterdir()))

    def test_a_run_that_saved_nothing_begins_again(self):
        words = "init=", f"config={HYBRID / 'config.json'}", f"log.jsonl={self.out}/logs/log.jsonl", f"log.tensorboard={self.out}/events", "steps=1"
        self.trained(*words)
        for path in ((self.out / "checkpoints").iterdir(), self.out.glob("*.json"), self.out.glob("*.safetensors")):
            for each in list(path):
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        (self.out / "bad-batch-00000001.safetensors").touch()
        with open(self.out / "loss.csv", "a") as file:  # torn
            file.write("2,")
        self.trained(*words)
        self.assertEqual(logged_steps(self.out), [1])

    def test_a_rank_is_bounded_by_the_matrix(self):
        lora = 'lora.targets=["in_proj"]', "lora.alpha=4"
        for more in ((), ("--dry-run",)):
            self.refused(*lora, "lora.rank=4000000", *more, says="layers.0.mixer.in_proj; got 4000000; expected at most 96")
        self.assertFalse(self.out.exists())
        self.trained(*lora, "lora.rank=96", "steps=1")

    def test_a_run_that_does_not_fit_is_refused_before_it_begins(self):
        large = "init=", "config=nemotron-3-ultra-550b-a55b"
        self.refused(*large, says="does not fit")  # random weights of it would fill the disk
        self.assertFalse(self.out.exists())
        self.assertIn("the run does not fit", self.trained(*large, "--dry-run").stdout)
        plan = self.trained("--dry-run").stdout
        self.assertNotIn("does not fit", plan)
        self.assertRegex(plan, r"this machine +[\d.]+ [MGT] FLOP/s, ")
        # So many rows that what does not grow with them is negligible.
        plan = json.loads(self.trained("--dry-run", "--json", "batch=256", "length=64").stdout)
        rows = 256 * (1 + 2 * plan["memory_available"] // plan["memory_needed"])
        for size in ((f"batch={rows}", "length=64"), (f"batch={rows}", "length=4096")):
            needed = json.loads(self.trained("--dry-run", "--json", *size).stdout)["memory_needed"]
            error = self.train(*size).stderr
            self.assertIn('try memory.recompute = "full"', error)
            self.assertFalse(self.out.exists())
            named = re.findall(r"([\d.]+) GiB for", error)
            self.assertEqual(len(named), 2, error)
            self.assertAlmostEqual(sum(map(float, named)), needed / 2**30, delta=0.11)

    def test_a_step_that_cannot_be_planned_says_what_it_takes_at_least(self):
        for more in ((), ("--dry-run",)):
            for size in (("batch=1048576", "length=4096"), ("batch=1048576", "length=4194304")):
                error = self.train(*size, *more).stderr
                self.assertIn("[memory] the run does not fit", error)
                self.assertIn("try a larger accumulate, or a smaller batch or length", error)
                free, least = re.search(r"got ([\d.]+) GiB free; expected more than ([\d.]+) GiB for the passes of a step", error).groups()
                self.assertGreater(float(least), float(free))

    def test_nothing_is_offloaded_from_a_cpu(self):
        for what in ("optimizer", "activations", "all"):
            for more in ((), ("--dry-run",), ("--ranks", 2, "parallel.zero=1")):
                self.refused(f"memory.offload={what}", *more,
                             says=f"[memory.offload] leaves in the memory of the host what a GPU has no room for, and this rank is a CPU; got {what}; expected none")
                self.assertFalse(self.out.exists())
        self.refused("memory.offload=disk", says='got "disk"')
        self.trained("memory.offload=none", "steps=1")

    def test_a_damaged_checkpoint_names_an_intact_one(self):
        self.trained("checkpoint.every=1")
        newest, older = (self.out / "checkpoints" / f"step-{step:08}" for step in (2, 1))
        for name in ("training/state.safetensors", "training/manifest.json", "model.safetensors"):
            whole = (newest / name).read_bytes()
            (newest / name).write_bytes(whole[:len(whole) // 2])
            answer = self.train("--resume", "auto")
            self.assertRefused(answer, f"[{newest / name}] is ", f"; try --resume {older}\n")
            self.assertNotIn("download", answer.stderr)
            (newest / name).write_bytes(whole)
        (newest / name).write_bytes(b"")
        self.assertEqual(printed_steps(self.trained("--resume", older).stdout), [2])

    def test_a_finished_run_says_so(self):
        self.assertEqual(self.trained().stdout.splitlines()[-1], f"the model is in {self.out}")
        self.assertIn("already done at step 2 of 2", self.trained("--resume", "auto").stdout)
        other = self.root / "other"
        self.trained("--resume", self.out / "checkpoints" / "step-00000002", f"out={other}")
        self.assertEqual((other / "model.safetensors").read_bytes(), (self.out / "model.safetensors").read_bytes())
        self.assertTrue((other / "checkpoints" / "step-00000002" / "DONE").exists())

    def test_a_checkpoint_of_another_run_does_not_replace_a_run(self):
        self.trained()
        other, checkpoint = self.root / "other", self.out / "checkpoints" / "step-00000002"
        self.trained(f"out={other}", "seed=3", "steps=3", "checkpoint.every=1", "checkpoint.keep=3")
        before = files_of(other)
        self.refused("--resume", checkpoint, f"out={other}", "steps=4",
                     says=f"[{other}] holds a run of step-00000003, and {checkpoint} is of another; try another out, or --force")
        self.assertEqual(files_of(other), before)
        self.trained("--resume", checkpoint, "--force", f"out={other}", "steps=4")
        self.assertTrue((other / "checkpoints" / "step-00000004" / "DONE").exists())

    def test_fewer_steps_than_were_done_are_refused(self):
        self.trained()
        before = files_of(self.out)
        self.refused("--resume", "auto", "steps=1", says="step-00000002] is past the last step of the recipe; got step 2; "
                     "expected at most steps = 1; try a larger steps")
        self.assertEqual(files_of(self.out), before)

    def test_a_refused_resumption_from_the_middle_changes_nothing(self):
        self.trained("steps=3", "checkpoint.every=1", "checkpoint.keep=3")
        before = files_of(self.out)
        self.refused("--resume", self.out / "checkpoints/step-00000002", "steps=1", says="is past the last step of the recipe; got step 2")
        self.assertEqual(files_of(self.out), before)

    def test_another_run_differs_in_a_few_words_and_many_more(self):
        self.trained()
        answer = self.train("seed=3", "length=9", "batch=4", "optimizer.kind=muon", "optimizer.lr=1", "loss.z=1", "--resume", "auto")
        self.assertRefused(answer, "batch is 2 there and 4 here", ", and 2 more; try")

    def test_a_mistyped_word_is_sought_where_it_was_typed(self):
        self.refused("optimzer.lr=1", says="[command line] unknown key optimzer; try optimizer")
        self.refused("optimser={lr=1}", says="[command line] unknown key optimser; try optimizer")
        (self.root / "r.toml").write_text(RECIPE + "[optimiser]\nlr = 1\n")
        self.refused(says="[r.toml] unknown key optimiser; try optimizer")

    def test_relative_paths_start_in_the_folder_of_the_recipe(self):
        folder, elsewhere = self.root / "recipes", self.root / "elsewhere"
        folder.mkdir()
        elsewhere.mkdir()
        (folder / "words.txt").write_text("one two three " * 200)
        file = folder / "own.toml"
        file.write_text(RECIPE.replace(f'init = "{HYBRID}"', f'init = "{CHAT}"\nout = "../runs/own"')
                        .replace('kind = "markov"', 'kind = "text"\npath = "words.txt"'))
        answer = braid("train", file, "steps=1", "batch=1", "length=16", cwd=elsewhere)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        made = self.root / "runs" / "own"
        self.assertTrue((made / "config.json").exists())
        # The copy in the checkpoint works from anywhere.
        copy = (made / "checkpoints" / "step-00000001" / "training" / "recipe.toml").read_text()
        self.assertIn(f'path = "{folder}/words.txt"', copy)
        self.assertIn(f'out = "{made}"', copy)
        # On the command line they start in the working folder.
        (elsewhere / "more.txt").write_text("four five six " * 200)
        answer = braid("train", file, "steps=1", "batch=1", "length=16", "data.path=more.txt", "out=mine", cwd=elsewhere)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertTrue((elsewhere / "mine" / "config.json").exists())
        self.assertRefused(braid("train", file, "data.path=words.txt", "out=other", cwd=elsewhere),
                           "[words.txt] does not exist; expected a path from the folder of the recipe, or on the command line")

    def test_a_path_that_leads_nowhere(self):
        elsewhere = self.root / "elsewhere"
        elsewhere.mkdir()
        text = RECIPE.replace(f'init = "{HYBRID}"', f'config = "{HYBRID / "config.json"}"\ntokenizer = "recipes/tiny"')
        (self.root / "recipes" / "tiny").mkdir(parents=True)
        file = self.root / "recipes" / "tiny.toml"

        def refused(*words, says, folder=elsewhere):
            answer = braid("train", file, f"out={self.out}", *words, cwd=folder)
            self.assertRefused(answer, "] does not exist; expected a path from the folder of the recipe", says)
            self.assertFalse(self.out.exists())

        file.write_text(text)
        refused("data.kind=text", "data.path=recipes/tiny.toml", says="[recipes/tiny")
        # An error about something else says what it is about.
        answer = braid("train", file, f"out={self.out}", "data.path=nowhere.txt", "--dry-run", "memory.recompute=foo", cwd=elsewhere)
        self.assertRefused(answer, "[memory.recompute] unknown policy; got foo")
        file.write_text(RECIPE)
        synth = "try braid data synth --out runs/tiny-data bench/data/tiny-*.jsonl, which makes the data"
        for more in ((), ("--dry-run", "batch=0")):
            refused("data.kind=jsonl", "data.path=runs/tiny-data/train.jsonl", f"init={CHAT}", *more, folder=self.root, says=synth)
        refused("data.kind=jsonl", "data.path=mine/train.jsonl", f"init={CHAT}", says="[mine/train.jsonl]")
        refused("data.kind=indexed", "data.path=prefix", says="[prefix]")

    def test_a_run_goes_on_from_any_folder(self):
        room = self.root / "mine"
        room.mkdir()
        (room / "model").symlink_to(HYBRID)
        (room / "r.toml").write_text(RECIPE.replace(f'init = "{HYBRID}"', 'init = "./model"'))

        def steps(file, *words, folder):
            answer = braid("train", file, f"out={self.out}", *words, cwd=folder)
            self.assertEqual((answer.returncode, answer.stderr), (0, ""))
            return printed_steps(answer.stdout)

        self.assertEqual(steps("mine/r.toml", folder=self.root), [1, 2])
        self.assertEqual(steps("r.toml", "steps=3", "--resume", "auto", folder=room), [3])
        stored = self.out / "checkpoints" / f"step-{checkpoints(self.out)[-1]:08}" / "training" / "recipe.toml"
        self.assertEqual(steps(stored, "steps=4", "--resume", "auto", folder="/"), [4])
        moved = self.root / "moved"
        moved.mkdir()
        shutil.move(room, moved)
        shutil.move(self.out, moved)
        old, self.out = self.out, moved / self.out.name
        self.assertEqual(steps("mine/r.toml", "steps=5", "--resume", "auto", folder=moved), [5])
        self.assertFalse(old.exists())
        newest = self.out / "checkpoints" / "step-00000005"
        self.out = self.root / "deeper" / "another"
        self.assertEqual(steps("mine/r.toml", "steps=6", "--resume", newest, folder=moved), [6])

    def test_data_or_out_may_be_moved_alone(self):
        text = self.root / "text.txt"
        text.write_text("What is 17 + 25? It is 42.\n" * 200)
        words = f"init={CHAT}", "data.kind=text", "length=16", "batch=2"
        self.trained(*words, f"data.path={text}")
        (self.root / "elsewhere" / "deeper").mkdir(parents=True)
        moved = shutil.move(text, self.root / "elsewhere" / "renamed.txt")
        self.assertEqual(printed_steps(self.trained(*words, f"data.path={moved}", "steps=3", "--resume", "auto").stdout), [3])
        self.out = shutil.move(self.out, self.root / "elsewhere" / "deeper" / "out")
        self.assertEqual(printed_steps(self.trained(*words, f"data.path={moved}", "steps=4", "--resume", "auto").stdout), [4])
        moved.write_text("What is 17 + 25? It is 43.\n" * 200)
        self.refused(*words, f"data.path={moved}", "steps=5", "--resume", "auto", says="does not match the recipe: ")

    def test_words_that_do_nothing_are_named(self):
        self.assertIn("schedule.warmup = 5 is more than steps = 2", self.trained("schedule.warmup=5", "loss.aux=0.1").stderr)
        gpt2 = self.trained("init=", "config=gpt2-124m", "loss.aux=0.1", "--dry-run").stderr
        self.assertEqual(gpt2, "loss.aux = 0.1 does nothing: the model has no experts\n")
        idle = self.trained("schedule.decay=1", "checkpoint.merge=1", "eval.data=/none", "loss.mtp_steps=2", "--dry-run").stderr
        for says in ("schedule.kind is constant", "checkpoint.merge = 1 does nothing", "eval.data and eval.batches do nothing", "loss.mtp_steps does nothing"):
            self.assertIn(says, idle)
        idle = self.trained("graph.model=gat", "distill.temperature=3", "preference.beta=0.5", "rollout.tokens=9", "policy.kl=0.1",
                            "loop.sigma=0.7", "--dry-run").stderr
        for says in ('graph.model = "gat" does nothing without objective = "graph"', "distill.temperature = 3.0 does nothing without distill.teacher",
                     "preference.beta = 0.5 does nothing without preference.kind", "rollout.tokens = 9 does nothing without rollout.environments",
                     "policy.kl = 0.1 does nothing without policy.advantage", "loop.sigma = 0.7 does nothing without a model of recurrent depth"):
            self.assertIn(says, idle)
        idle = self.trained("data.hops=3", "data.branch=2", "data.path=none", "--dry-run").stderr
        self.assertEqual(idle, "data.hops = 3 does nothing without data.kind = hops\ndata.path does nothing: data.kind = markov is generated\n")
        self.assertIn("wsd without schedule.decay", self.trained("schedule.kind=wsd", "--dry-run").stderr)
        held = self.trained("data.validation=0.5", "eval.every=1", "eval.data=/none", "--dry-run").stderr
        self.assertEqual(held, "".join(f"{word} does nothing: data.kind = markov is generated, and held-out rows are never those of training\n"
                                       for word in ("data.validation", "eval.data")))

    def test_a_dry_run_refuses_rows_that_are_too_short_as_the_run_does(self):
        for words, says in ((("data.kind=recall",), "[data.pairs] is out of range; got 16; expected 1 to 3; try a larger length, or more data.states"),
                            (("data.kind=recall", "length=3"), "[length] a row is too short for a pair and a question; got 3; expected 4 or more")):
            self.refused(*words, says=says)
            self.refused(*words, "--dry-run", says=says)

    def test_a_log_on_a_full_device_is_one_line(self):
        self.out.mkdir()
        (self.out / "loss.csv").symlink_to("/dev/full")
        answer = self.train()
        self.assertOneLine(answer, f"[{self.out / 'loss.csv'}] cannot be written")

    def test_a_closed_standard_output_is_not_a_log(self):
        answer = self.train(preexec_fn=lambda: os.close(1))
        self.assertEqual(answer.returncode, 1)
        self.assertNotIn("step 1/", (self.out / "loss.csv").read_text())

    def test_signals_save(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.out = self.root / str(int(number))
            with start(*self.line("steps=100000"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
                while (line := child.stdout.readline()) and not line.startswith("step 2/"):
                    time.sleep(0.01)
                child.send_signal(number)
                child.stdout.read()
            self.assertEqual(child.returncode, 128 + number)
            self.assertTrue(checkpoints(self.out))

    def test_a_closed_pipe_saves(self):
        """As of `braid train ... | tee log`: the Ctrl-C that ends both ends the reader first."""
        for number, words in ((None, ()), (signal.SIGINT, ()), (signal.SIGINT, ("batch=16", "length=2000", "-t", 1))):
            self.out = self.root / f"pipe-{number}-{len(words)}"
            with start(*self.line("steps=100000", *words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
                while (line := child.stdout.readline()) and not line.startswith("step 2/"):
                    time.sleep(0.01)
                child.stdout.close()
                if number:  # perhaps more than a second before the end of the step, whose line cannot be written
                    child.send_signal(number)
                child.wait()
            self.assertIn(child.returncode, (128 + signal.SIGHUP, 128 + (number or signal.SIGHUP)))
            self.assertTrue(checkpoints(self.out))

    def test_a_run_outlives_its_terminal_by_a_checkpoint(self):
        master, slave = terminal()
        with start(*self.line("steps=100000"), stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as child:
            os.close(slave)
            said = b""
            while b"step 2/" not in said:
                said += os.read(master, 4096)
            os.close(master)
            self.assertEqual(child.wait(timeout=120), 128 + signal.SIGHUP)
        self.assertTrue(checkpoints(self.out))

    def test_progress_is_drawn_between_logged_steps(self):
        master, slave = terminal()
        with start(*self.line("steps=10000000", "log.every=10000000"), stdout=subprocess.DEVNULL, stderr=slave) as child:
            os.close(slave)
            said = b""
            ready = True
            while said.count(b"training  [") < 2 and ready:
                ready = select.select([master], [], [], 60)[0]
                said += os.read(master, 4096) if ready else b""
            child.kill()
        os.close(master)
        self.assertTrue(ready, said)

    def test_the_first_step_is_logged_and_scores_once_there_are_any(self):
        log = self.out / "log.jsonl"
        said = self.trained("log.every=3", "steps=7", f"log.jsonl={log}").stdout
        self.assertEqual(printed_steps(said), [1, 3, 6, 7])
        self.assertEqual([json.loads(line)["step"] for line in log.read_text().splitlines()], [1, 3, 6, 7])
        self.assertNotIn("(", said)
        self.assertNotIn("in brackets", said)
        said = self.trained("log.every=20", "steps=9", "--resume", "auto", f"log.jsonl={log}").stdout
        self.assertEqual(printed_steps(said), [8, 9])
        self.assertEqual([json.loads(line)["step"] for line in log.read_text().splitlines()], [1, 3, 6, 7, 8, 9])
        self.out = self.root / "scored"
        said = self.trained("spike.window=2", "steps=4").stdout
        self.assertIn("in brackets behind a loss, from step 3 on: its deviations from the mean of the 2 before\n", said)
        scored = [re.match(r"step \d+/4  loss \S+ \([+-]\d", line) is not None for line in said.splitlines() if line.startswith("step ")]
        self.assertEqual(scored, [False, False, True, True])

    def test_a_resumption_that_differs_names_each_word(self):
        self.trained("checkpoint.every=1")
        self.refused("seed=3", "--resume", "auto", says="seed is 0 there and 3 here")
        self.refused("length=9", "batch=4", "--resume", "auto", says="batch is 2 there and 4 here, length is 8 there and 9 here")
        self.refused("optimizer.kind=muon", "--resume", "auto", says='optimizer.kind is "adamw" there and "muon" here')
        self.refused("--force", says="--resume")
        for file in self.out.glob("checkpoints/*/training/manifest.json"):
            file.unlink()
        self.refused("steps=3", "--resume", "auto", says="it has no training/manifest.json")
        done = self.train("steps=3", "--resume", "auto", "--force")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--force: it has no training/manifest.json", done.stderr)
        # A corpus with other content under the same name.
        text = [f"init={CHAT}", "data.kind=text", f"data.path={self.root / 'corpus.txt'}"]
        self.out = self.root / "text"
        (self.root / "corpus.txt").write_text("the cat sat on the mat. " * 40)
        self.trained(*text)
        (self.root / "corpus.txt").write_text("the dog sat on the mat. " * 40)
        self.refused(*text, "steps=3", "--resume", "auto", says="content of the data is")
        done = self.trained(*text, "steps=3", "--resume", "auto", "--force")
        self.assertIn("--force: content of the data is", done.stderr)
        # One word of many, in batches that the run is far from.
        self.out = self.root / "long"
        words = ("the cat sat on the mat " * 4000).split()
        (self.root / "corpus.txt").write_text(" ".join(words))
        self.trained(*text)
        self.assertIn(": \"all ", (self.out / "checkpoints" / "step-00000002" / "training" / "manifest.json").read_text())
        words[len(words) // 2 + 1] = "dog"
        (self.root / "corpus.txt").write_text(" ".join(words))
        self.refused(*text, "steps=3", "--resume", "auto", says="content of the data is")

    def test_an_adapter_does_not_resume_on_another_model(self):
        model = self.root / "model"
        shutil.copytree(HYBRID, model)
        words = f"init={model}", "lora.rank=2", "lora.alpha=4", 'lora.targets=["in_proj"]'
        self.trained(*words)
        weights = model / "model.safetensors"
        data = bytearray(weights.read_bytes())
        for i in range(len(data) // 2, len(data)):
            data[i] ^= 1
        weights.write_bytes(data)
        self.refused(*words, "steps=3", "--resume", "auto", says="weights of the model is")

    def test_json_is_the_log_line_by_line(self):
        done = self.trained("--json", "eval.every=2", "ema.decay=0.5", "steps=3")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([line["step"] for line in lines], [1, 2, 2, 3])
        self.assertGreater(lines[2]["held_out_loss"], 0)
        self.assertGreater(lines[2]["ema_held_out_loss"], 0)
        self.assertIn("entropy floor", done.stderr)

    def test_nothing_is_written_before_the_data_was_opened(self):
        (self.root / "r.toml").write_text(RECIPE.replace(f'init = "{HYBRID}"', f'config = "{HYBRID / "config.json"}"'))
        for words, says in ((["data.kind=indexed", "data.path=/none"], "/none"),
                            (["data.kind=text", "data.path=/etc/hostname"], "[tokenizer] text data needs a tokenizer"),
                            (["accumulate=3"], "[accumulate] more parts than the batch has sequences; got 3; expected 1 to 2"),
                            (["accumulate=3", "--dry-run"], "[accumulate] more parts")):
            self.refused(*words, says=says)
            self.assertFalse(self.out.exists())
        self.trained("loss.router_z=0")
        self.assertTrue((self.out / "init" / "DONE").exists())

    def test_random_weights_are_those_of_the_recipe(self):
        recipe = RECIPE.replace(f'init = "{HYBRID}"', f'config = "{HYBRID / "config.json"}"')
        (self.root / "r.toml").write_text(recipe)
        self.refused("checkpoint.merge=2", says="fewer checkpoints")
        self.refused("loss.mtp_scale=1", f"config={HYBRID.parent / 'gpt2' / 'config.json'}", says="prediction block")
        self.assertFalse(self.out.exists())
        init = self.out / "init" / "model.safetensors"
        self.trained("seed=1", "checkpoint.every=1")
        wanted = files_of(self.out / "checkpoints")
        first = init.read_bytes()
        self.trained("seed=1", "steps=3", "--resume", "auto")
        self.assertEqual(init.read_bytes(), first)
        shutil.rmtree(self.out)
        # A run that was killed before its first checkpoint, of another seed and of another config.
        config = json.loads((HYBRID / "config.json").read_text())
        config["vocab_size"] += 8
        (self.root / "other.json").write_text(json.dumps(config))
        for words in (["seed=2"], ["seed=1", f"config={self.root / 'other.json'}"]):
            self.trained(*words, "steps=1")
            for path in self.out.iterdir():
                if path.is_dir() and path.name != "init":
                    shutil.rmtree(path)
                elif path.is_file():
                    path.unlink()
            self.assertNotEqual(init.read_bytes(), first)
            self.trained("seed=1", "checkpoint.every=1")
            self.assertEqual(init.read_bytes(), first)
            self.assertEqual(files_of(self.out / "checkpoints"), wanted)
            shutil.rmtree(self.out)
        # A config whose content changed is reported, like any changed setting.
        (self.root / "c.json").write_text((HYBRID / "config.json").read_text())
        self.trained(f"config={self.root / 'c.json'}")
        (self.root / "c.json").write_text(json.dumps(config))
        self.refused(f"config={self.root / 'c.json'}", "--resume", "auto", says="model.vocab_size is")

    def test_exact_refuses_what_no_score_computes(self):
        self.refused("exact=true", "precision.recipe=fp8", "dtype=bf16", says="precision.recipe")
        self.refused("exact=true", "dropout=0.1", says="dropout")
        self.refused("exact=true", "lora.rank=2", 'lora.targets=["in_proj"]', "lora.dropout=0.1", says="lora.dropout")
        self.refused("exact=true", "precision.recipe=fp8", "dtype=bf16", "--dry-run", says="precision.recipe")
        model = self.root / "gpt2"
        shutil.copytree(HYBRID.parent / "gpt2", model)
        config = json.loads((model / "config.json").read_text())
        config.update(attn_pdrop=0.0, resid_pdrop=0.1, embd_pdrop=0.0)
        (model / "config.json").write_text(json.dumps(config))
        self.refused(f"init={model}", "exact=true", says="try dropout = 0")
        self.assertFalse(self.out.exists())
        self.trained(f"init={model}", "exact=true", "dropout=0")

    def test_a_second_interrupt_does_not_wait_for_the_step(self):
        self.trained("checkpoint.every=1")
        before = files_of(self.out / "checkpoints")
        slow = "steps=100", "length=256", "batch=64", f"log.jsonl={self.out}/slow.jsonl"  # a step takes longer than the signals
        line = self.line(*slow, "--resume", "auto", "--force")
        with start(*line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
            while not (self.out / "slow.jsonl").exists() and child.poll() is None:  # made just before the first step
                time.sleep(0.01)
            time.sleep(0.2)
            child.send_signal(signal.SIGINT)
            time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            said = child.stderr.read()
        self.assertEqual(child.returncode, 130, said)
        self.assertNotIn("stopped after", said)
        self.assertEqual((self.out / "slow.jsonl").read_text(), "")
        self.assertEqual(files_of(self.out / "checkpoints"), before)

    def test_a_mean_that_is_added_begins_with_the_weights(self):
        self.trained("checkpoint.every=1")
        words = "ema.decay=0.9", "--resume", "auto", "--force"
        self.trained(*words)
        self.assertEqual((self.out / "ema" / "model.safetensors").read_bytes(), (self.out / "model.safetensors").read_bytes())
        self.trained(*words, "steps=3")
        self.assertNotEqual((self.out / "ema" / "model.safetensors").read_bytes(),
                            (self.out / "model.safetensors").read_bytes())

    def test_goldfish_leaves_out_the_same_tokens_whatever_the_seed(self):
        text = [f"init={CHAT}", "data.kind=text", f"data.path={self.root / 'corpus.txt'}",
                "loss.goldfish_k=3", "data.validation=0"]
        (self.root / "corpus.txt").write_text("one two three")
        (self.root / "r.toml").write_text(RECIPE.replace("length = 8", "length = 64").replace("batch = 2", "batch = 1"))
        shown = []
        for words in ((), ("seed=7",), ("loss.goldfish_seed=7",)):
            done = braid("data", "show", self.root / "r.toml", "out=x", *text, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            shown.append(done.stdout)
        self.assertEqual(shown[0], shown[1])
        self.assertNotEqual(shown[0], shown[2])

    def test_the_routers_z_loss_is_reached(self):
        logs = []
        for weight in ("0", "0.1"):
            self.out = self.root / weight
            done = self.trained("--json", f"loss.router_z={weight}")
            logs.append(json.loads(done.stdout.splitlines()[0]))
        self.assertNotIn("router_z_loss", logs[0])
        self.assertGreater(logs[1]["router_z_loss"], 0)
        self.assertEqual(logs[0]["loss"], logs[1]["loss"])
        self.assertNotEqual(logs[0]["grad_norm"], logs[1]["grad_norm"])

    def test_dropout_of_a_config_is_not_ignored(self):
        model = self.root / "gpt2"
        shutil.copytree(HYBRID.parent / "gpt2", model)
        (model / "golden.safetensors").unlink(missing_ok=True)
        config = json.loads((model / "config.json").read_text())
        for key in ("attn_pdrop", "resid_pdrop", "embd_pdrop"):
            del config[key]  # transformers takes 0.1
        (model / "config.json").write_text(json.dumps(config))
        self.refused(f"init={model}", says="attn_pdrop or attention_dropout = 0.1")
        self.refused(f"init={model}", "--dry-run", says="try dropout = 0")
        config.update(attn_pdrop=0.0)
        logs = []
        for words in (["dropout=0"], ["dropout=0.1"], []):  # the config's own 0.1 last
            (model / "config.json").write_text(json.dumps(config))
            self.out = self.root / f"out{len(logs)}"
            done = self.trained(f"init={model}", *words, "--json", "steps=1")
            logs.append(json.loads(done.stdout)["loss"])
        self.assertNotEqual(logs[0], logs[1])
        self.assertEqual(logs[1], logs[2])
        self.refused(f"init={model}", "dropout=1", says="dropout")

    def test_dry_run_refuses_what_it_would_not_read(self):
        for words in (("--resume", "auto"), ("--force",)):
            self.refused("--dry-run", *words, says=f"[{words[0]}] does nothing with --dry-run")

    def test_rows_of_text_need_a_length(self):
        self.refused("length=0", says="has rows of any length; got 0; expected 1 to 4194304 tokens; try length=512")

    def test_dry_run_writes_nothing(self):
        done = self.trained("--dry-run")
        self.assertIn("FLOP", done.stdout)
        self.assertRegex(done.stdout, r"a step +rows: 2, tokens of each: 8, parts: 1\n")
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    main()
