"""The command line as people and scripts use it: help pages that fit a screen, one-line errors, exit codes, signals.

usage: cli_test.py BRAID
"""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from support.program import BRAID, DATA, ENVIRONMENT, Case, braid, commands, main

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "models" / "tiny"


class Pages(Case):
    def test_every_help_page_fits_a_screen(self):
        self.assertIn("info", commands())
        for words in [["--help"]] + [[*name.split(), "--help"] for name in commands()]:
            page = braid(*words)
            lines = page.stdout.splitlines()
            self.assertEqual((page.returncode, page.stderr), (0, ""), words)
            self.assertLessEqual(len(lines), 40, f"{words}: too many lines")
            self.assertLessEqual(max(map(len, lines)), 80, f"{words}: too wide")

    def test_help_is_a_word_too(self):
        for words in ([], ["run"], ["data"], ["data", "synth"]):
            self.assertEqual(braid("help", *words).stdout, braid(*words, "--help").stdout)
        self.assertRefused(braid("help", "rnu"), "unknown subcommand; got rnu; try braid run")

    def test_an_argument_with_a_default_may_be_left_out(self):
        named = []
        for name in commands():
            page = braid(*name.split(), "--help").stdout
            argument = re.search(r"^  ([A-Z]+)  [^-]*\[tiny\]$", page, re.M)
            if argument:
                named.append(name)
                self.assertIn(f"[{argument.group(1)}]", page.splitlines()[2], page)
        self.assertEqual(named, ["chat", "run", "serve", "bench serve", "bench", "eval", "score"])
        answer = braid("run", "--ids", "5,6", "-n", "1", "--ignore-eos", "--json")
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        self.assertEqual(len(json.loads(answer.stdout)["ids"]), 1)

    def test_a_model_is_named_in_the_same_words(self):
        without = []
        for name in commands():
            page = re.sub(r"\s+", " ", braid(*name.split(), "--help").stdout)
            if " MODEL " in page.replace("[MODEL]", " MODEL ") or " CONFIG " in page:
                said = re.search(r"a folder, (a GGUF file, )?(a [a-z]+\.json, |a \.jinja file, )?"
                                 r"org/name of the Hugging Face cache, (or )?tiny\b", page)
                self.assertTrue(said, page)
                without += [] if said.group(1) else [name]
        self.assertEqual(without, ["quantize", "prune", "search", "fuse", "nest", "slice", "merge"])  # gguf_cli_test.py checks that they refuse it

    def test_version_names_commit_compiler_class_and_backends(self):
        self.assertRegex(braid("--version").stdout, r"^braid \d+\.\d+\.\d+ \(commit \w+, (g\+\+|clang) .*\)\n"
                                                    r"cpu .*, class \w+\nbackends  cpu yes, cuda (yes|no)\n$")

    def test_completions_name_every_subcommand_and_parse(self):
        for shell in ("bash", "zsh", "fish"):
            script = braid("--completion", shell)
            self.assertEqual(script.returncode, 0)
            for name in commands():
                for word in name.split():
                    self.assertIn(word, script.stdout)
        check = subprocess.run(["bash", "-n"], input=braid("--completion", "bash").stdout, text=True, capture_output=True)
        self.assertEqual((check.returncode, check.stderr), (0, ""))

    def test_bash_completes_subcommands_and_options(self):
        script = braid("--completion", "bash").stdout + """
            COMP_WORDS=(braid inf) COMP_CWORD=1; _braid; echo "${COMPREPLY[*]}"
            COMP_WORDS=(braid info --mach) COMP_CWORD=2; _braid; echo "${COMPREPLY[*]}"
            COMP_WORDS=(braid da) COMP_CWORD=1; _braid; echo "${COMPREPLY[*]}"
            COMP_WORDS=(braid data to) COMP_CWORD=2; _braid; echo "${COMPREPLY[*]}"
            COMP_WORDS=(braid data bpe --voc) COMP_CWORD=3; _braid; echo "${COMPREPLY[*]}"
            COMP_WORDS=(braid data show --kind mark) COMP_CWORD=4; _braid; echo "${COMPREPLY[*]}"
            COMP_WORDS=(braid bench s) COMP_CWORD=2; _braid; echo "${COMPREPLY[*]}"
            COMP_WORDS=(braid bench --expl) COMP_CWORD=2; _braid; echo "${COMPREPLY[*]}"
            COMP_WORDS=(braid bench tiny --expl) COMP_CWORD=3; _braid; echo "${COMPREPLY[*]}"
            COMP_WORDS=(braid bench serve --good) COMP_CWORD=3; _braid; echo "${COMPREPLY[*]}"
        """
        answer = subprocess.run(["bash", "-c", script], text=True, capture_output=True)
        self.assertEqual(answer.stdout.split(), ["info", "--machine", "data", "tokenize", "--vocab", "markov",
                                                 "serve", "--explain", "--explain", "--goodput"])

    def test_man_page_has_every_subcommand(self):
        page = braid("--man").stdout
        for name in commands():
            self.assertIn(".SS braid " + name.replace("-", "\\-"), page)


class Refusals(Case):
    def refusal_of(self, *words):
        answer = braid(*words)
        self.assertRefused(answer)
        return answer.stderr

    def refused(self, *words, says, **variables):
        self.assertRefused(braid(*words, **variables), *says)

    def test_paths_are_printed_as_typed(self):
        self.refused("run", "mod\u00e8le-\u4e00", says=["[mod\u00e8le-\u4e00] "])
        for words in (("tokenize", "tiny", "-f", ""), ("data", "tokenize", ""), ("new", ""), ("train", ""), ("law", "fit", "")):
            self.assertNotIn("[]", self.refusal_of(*words))

    def test_tiny_is_the_model_that_ships(self):
        folder = self.new_folder()
        done = braid("quantize", "tiny", "tiny", cwd=folder)
        self.assertRefused(done, "[tiny] is the name of the model that ships with Braid", "try ./tiny")
        note = "note: tiny is the model that ships with Braid; the folder here is ./tiny\n"
        self.assertEqual(braid("info", "tiny", cwd=folder).stderr, "")
        (folder / "tiny").mkdir()
        self.assertEqual(braid("info", "tiny", cwd=folder).stderr, "")
        (folder / "tiny" / "config.json").write_text("{}")
        self.assertEqual(braid("info", "tiny", cwd=folder).stderr, note)
        self.assertNotIn(note, braid("info", "./tiny", cwd=folder).stderr)

    def test_options_are_named_as_typed(self):
        for words, says in ((("bench", "--drafts", "50,150"), "[--drafts] out of range; got 150; expected 0 to 100"),
                            (("bench", "--drafts", "-1"), "[--drafts] out of range; got -1; expected 0 to 100"),
                            (("bench", "--drafts", "50", "-n", "0"), "[--n-gen] out of range; got 0; expected 2 to"),
                            (("bench", "--drafts", "50", "-n", "8,16"), "[--n-gen] is a list, and --drafts takes one value; got 8,16"),
                            (("bench", "--drafts", "50", "-b", "1,2"), "[--batch] is a list"),
                            (("bench", "--draft-model", "tiny", "-p", "8,16"), "[--n-prompt] is a list, and --draft-model takes"),
                            (("bench", "--drafts", "50", "-d", "8"), "[--n-depth] does not apply to --drafts; got 8; expected 0"),
                            (("data", "bpe", __file__, "--vocab", "5", "-o", "x"), "[--vocab] out of range; got 5"),
                            (("data", "bpe", __file__, "--special", "a,a", "-o", "x"), "[--special] an added token is"),
                            (("run", "--ids", "1,99999"), "[--ids] out of range; got 99999; expected 0 to 2047"),
                            (("run", "-p", "a", "--seed", "-1"), "[--seed] out of range; got -1"),
                            (("template", "tiny", "--now", "x"), "[--now] is not a date; got x"),
                            (("comm", "bench", "--algorithm", "rign"), "[--algorithm] all_reduce has no such algorithm; got rign"),
                            (("eval", "--text", __file__, "--stride", "-1"), "[--stride] out of range; got -1; expected 0 to 511")):
            self.refused(*words, says=[says])
        self.assertNotIn("native", self.refusal_of("comm", "bench", "--algorithm", "rign"))

    def test_a_model_is_not_a_recipe(self):
        file = self.new_folder() / "model.gguf"
        file.write_bytes(b"GGUF" + bytes(2 << 20))
        self.refused("train", str(file), says=[f"[{file}] is a GGUF file; expected TOML"])

    def test_install_wants_a_folder(self):
        for words in (("--prefix",), ("--prefix", ""), ("--nope",)):
            answer = subprocess.run([ROOT / "run", "install", *words], capture_output=True, text=True, env=ENVIRONMENT)
            self.assertEqual((answer.returncode, answer.stdout), (1, ""), words)
            self.assertRegex(answer.stderr, r"\A\S+ \[(--prefix|install)\] [^\n]+\n\Z")

    def test_nearest_names(self):
        self.refused("inf", says=["unknown subcommand", "try braid info"])
        self.refused("info", "--machin", says=["unknown option; got --machin", "try --machine"])
        self.refused("data", "shwo", says=["unknown subcommand; got data shwo", "try braid data show"])
        self.refused("data", says=["[data] lacks its subcommand; expected show, tokenize, ", "try braid data --help"])
        self.refused("--versoin", says=["try braid --version"])
        self.refused("qqqqqqqq", says=["try braid --help"])

    def test_a_choice_within_limits(self):
        file = self.new_folder() / "i.json"
        layers = [[{"score": 0, "cost": [3]}, {"score": 1, "cost": [1]}], [{"score": 0, "cost": [2]}]]
        file.write_text(json.dumps({"layers": layers, "limits": [4]}))
        answer = json.loads(braid("search", "--solve", file, "--json").stdout)
        self.assertEqual(answer, {"choice": [1, 0], "score": 1, "bound": 1, "cost": [3]})
        self.assertIn("score  1, proven to be the least", braid("search", "--solve", file).stdout)
        file.write_text(json.dumps({"layers": layers, "limits": [2.5]}))
        self.refused("search", "--solve", file, says=["limits[0] cannot be met; got 2.5; expected at least 3"])
        self.refused("search", says=["no model is named; try braid search MODEL OUT, or --solve INSTANCE.json"])

    def test_the_rest(self):
        self.refused(says=["no subcommand"])
        self.refused("info", "a", "b", "c", says=["one argument too many"])
        self.refused("run", TINY, "hello", says=["one argument too many; got hello; try -p TEXT"])
        self.refused("repro", "nothing", says=["unknown subcommand; got repro nothing; try braid repro --help"])
        self.refused("serve", "tiny", "--cors", says=["[--cors] lacks its value; try braid serve --help"])
        self.refused("serve", "tiny", "--cors", "--port", "0", says=["[--cors] lacks its value; got --port; expected ORIGINS"])
        self.refused("--completion", "ksh", says=["got ksh", "bash, zsh or fish"])
        self.refused("a\nb\x1b[31m", says=["a\\x0ab\\x1b[31m"])
        self.refused("info", "--machine", BRAID_CPU="i486", says=["BRAID_CPU"])
        self.refused("run", "tiny", "-p", "hi", "--exact", "--kv-cache-dtype", "int8", says=["--exact", "expected auto"])
        self.refused("run", "tiny", "-p", "hi", "--dtype", "f32", "--activations", "int8",
                     says=["[--activations] --dtype f32 rounds no activations; got int8; expected bf16"])

    def test_8_bit_activations_without_weights_for_them(self):
        words = ("-p", "hi", "-n", "1", "--activations", "int8")
        self.assertIn("note: --activations int8 changes nothing", braid("run", "tiny", *words).stderr)

    def test_two_inputs_where_one_is_read(self):
        for words in (("-f", "x"), ("--chat", "x"), ("--ids", "1"), ("--ids-file", "x.npy")):
            self.refused("run", "-p", "a", *words, says=["two prompts", "--prompt and --", "one of them"])
        self.refused("run", "--ids", "1", "--ids-file", "x.npy", says=["got --ids and --ids-file"])
        self.refused("tokenize", TINY, "--jsonl", "-p", "a", says=["--jsonl", "got --prompt"])
        self.refused("tokenize", TINY, "--jsonl", "-f", "a", says=["--jsonl", "got --file"])

    def test_a_dash_is_standard_input(self):
        whole = braid("tokenize", TINY, "-p", "12 plus 7")
        self.assertEqual(braid("tokenize", TINY, "-f", "-", text="12 plus 7").stdout, whole.stdout)
        ids = json.loads(braid("run", "-f", "-", "-n", "1", "--json", text="12 plus 7").stdout)["prompt_ids"]
        self.assertEqual(",".join(map(str, ids)) + "\n", whole.stdout)

    def test_tokenize_shows_pieces(self):
        whole = braid("tokenize", TINY, "-p", "12 plus 7é", "--no-special").stdout.strip()
        rows = [line.split("\t") for line in braid("tokenize", TINY, "-p", "12 plus 7é", "--no-special", "--show").stdout.splitlines()]
        self.assertEqual(",".join(id for id, _ in rows), whole)
        self.assertEqual("".join(json.loads(piece) for _, piece in rows), "12 plus 7é")
        self.refused("tokenize", TINY, "--jsonl", "--show", says=["got --show as well"])
        one = json.loads(braid("tokenize", TINY, "-p", "12 plus 7é", "--no-special", "--show", "--json").stdout)
        self.assertEqual([(str(i), p) for i, p in zip(one["ids"], one["pieces"])], [(i, json.loads(p)) for i, p in rows])
        self.assertEqual(json.loads(braid("tokenize", TINY, "-p", "", "--no-special", "--show", "--json").stdout), {"ids": [], "pieces": []})
        self.refused("tokenize", TINY, "--jsonl", "--json", says=["got --json as well"])

    def test_template_as_json(self):
        body = json.dumps({"messages": [{"role": "user", "content": "Hé\n"}]})
        text = braid("template", TINY, text=body).stdout
        answer = braid("template", TINY, "--json", text=body).stdout
        self.assertEqual((json.loads(answer), answer.count("\n")), ({"text": text}, 1))
        self.refused("template", TINY, "--json", "--jsonl", says=["both --json and --jsonl"])

    def test_thinking_is_not_part_of_the_answer(self):
        answer = braid("run", "--chat", "Sort the letters of TINY.")
        self.assertEqual((answer.returncode, answer.stdout), (0, "INTY\n"))
        self.assertRegex(answer.stderr, r"\A<think>\n[^<]+\n</think>\n\d+ tokens, .* tokens/s, prompt \d+ tokens, .*\n\Z")

    def test_a_budget_ends_the_thinking(self):
        ask = lambda *more: json.loads(braid("run", "--chat", "What is 345 * 678?", "--think", "on", "--json", *more).stdout)
        whole, cut, none = ask(), ask("--reasoning-budget", "8"), ask("--reasoning-budget", "0")
        self.assertTrue(whole["reasoning"].startswith(cut["reasoning"].strip()), cut)
        self.assertTrue(0 < len(cut["reasoning"]) < len(whole["reasoning"]) / 2, cut)
        self.assertEqual(none["reasoning"].strip(), "")
        self.assertTrue(cut["text"] and none["text"])
        self.assertRefused(braid("run", "-p", "x", "--reasoning-budget", "-2"), "[--reasoning-budget]")
        tasks = Path(self.new_folder()) / "t.jsonl"
        tasks.write_text('{"task": "a", "messages": [{"role": "user", "content": "What is 345 * 678?"}], "answers": ["233910"]}\n')
        scores = [json.loads(braid("eval", "--tasks", str(tasks), "--think", "on", "--mtp", "--json", *more).stdout)
                  for more in ((), ("--reasoning-budget", "8"))]
        self.assertEqual(round(scores[0]["interval"][0 if scores[0]["right"] else 1], 1), 20.7 if scores[0]["right"] else 79.3)
        self.assertLess(scores[1]["mtp"]["drafted"], scores[0]["mtp"]["drafted"] / 2)
        self.assertTrue(0 <= scores[0]["mtp"]["accepted"] <= scores[0]["mtp"]["drafted"])
        full = json.loads(braid("eval", "--tasks", str(tasks), "--think", "on", "--mtp", "--json", "-c", "64").stdout)
        self.assertTrue(10 < full["mtp"]["drafted"] < 64, full)  # the answer fills the context
        off = braid("run", "--chat", "Hi", "--think", "off", "--reasoning-budget", "8")
        self.assertIn("--reasoning-budget: no thinking was asked for\n", off.stderr)
        for words in (("--mtp",), ("--think", "on")):
            self.assertRefused(braid("eval", "--text", str(tasks), *words), f"[{words[0]}] does not fit the input; expected --tasks FILE")
        self.assertRefused(braid("eval", "--tasks", str(tasks), "--stride", "4"), "[--stride] does not fit")
        self.assertRefused(braid("eval", "--text", str(tasks), "-n", "3"), "[--predict] does not fit the input; expected --tasks FILE")
        self.assertEqual(braid("eval", "--text", str(tasks), "-c", "64", BRAID_PREDICT="3").returncode, 0)
        self.assertEqual(braid("eval", "--text", str(TINY / "README.md"), "-c", "64", BRAID_SLOTS="4").returncode, 0)

    def test_drafts_change_no_text(self):
        prompt, counts = "17 + 25 = 42\n" * 6, []
        run = lambda *more: json.loads(braid("run", "-p", prompt, "-n", 80, "--ignore-eos", "--json", "--temp", 0, *more).stdout)
        want = run("--draft", "off")
        self.assertEqual((want["timings"]["draft_n"], want["timings"]["draft_n_accepted"]), (0, 0))
        for words in ((), ("--draft", "ngram"), ("--draft", "mtp"), ("--draft", "ngram", "--draft-max", 7), ("--draft-model", "tiny")):
            got = run(*words)
            self.assertEqual((got["ids"], got["text"]), (want["ids"], want["text"]), words)
            counts.append((got["timings"]["draft_n_accepted"], got["timings"]["draft_n"]))
            self.assertLessEqual(*counts[-1])
        self.assertGreater(sum(accepted for accepted, _ in counts), 0, counts)  # each drafts as the clock says that it pays
        for words in (("--draft", "many"), ("--draft-max", 8), ("--draft", "mtp", "--draft-model", "tiny"), ("--draft-model", "none")):
            self.assertEqual(braid("run", "-p", prompt, *words).returncode, 1, words)

    def test_a_model_of_recurrent_depth_drafts_with_fewer_steps(self):
        words = ("run", ROOT / "tests" / "data" / "huginn", "--ids", "5,6,7", "-n", "12", "--temp", "0", "--ignore-eos", "--num-steps", "3", "--json")
        alone = json.loads(braid(*words).stdout)
        drafted = json.loads(braid(*words, "--self-speculate", "2").stdout)
        self.assertEqual(drafted["ids"], alone["ids"])
        self.assertEqual(alone["timings"]["draft_n"], 0)  # nothing repeats
        self.assertGreater(drafted["timings"]["draft_n"], 0)

    def test_info_tells_the_loop(self):
        folder = ROOT / "tests" / "data" / "huginn"
        config = json.loads((folder / "config.json").read_text())
        first = config["n_layers_in_prelude"]
        last = first + config["n_layers_in_recurrent_block"] - 1
        self.assertEqual(json.loads(braid("info", folder, "--json").stdout)["loop"],
                         {"layers": [first, last], "steps": config["mean_recurrence"], "backward_steps": config["mean_backprop_depth"]})
        self.assertIn(f"layers {first} to {last}, {config['mean_recurrence']} times", braid("info", folder).stdout)
        self.assertIsNone(json.loads(braid("info", "tiny", "--json").stdout)["loop"])

    def test_run_takes_a_conversation(self):
        file = self.new_folder() / "messages.json"
        file.write_text(json.dumps([{"role": "user", "content": "What is 17 + 25?"},
                                    {"role": "assistant", "content": "42"}, {"role": "user", "content": "What is 5 + 6?"}]))
        answer = json.loads(braid("run", "--messages", str(file), "--json").stdout)
        self.assertEqual(answer["text"], "11")
        whole = [len(json.loads(braid("run", "--messages", str(file), "--json", "-n", "1", *words).stdout)["prompt_ids"])
                 for words in ((), ("--system", "Be brief."))]
        self.assertGreater(whole[1], whole[0])
        file.write_text('[{"content": "no role"}]')
        self.refused("run", "--messages", str(file), says=["[0] is not a message", 'expected [{"role": "user"'])
        for content in (5, [{"type": "image_url"}], None):
            file.write_text(json.dumps([{"role": "user", "content": content}]))
            self.refused("run", "--messages", str(file), says=["[0] is not a message"])
        file.write_text(json.dumps([{"role": "user", "content": [{"type": "text", "text": "What is "}, {"text": "5 + 6?"}]}]))
        self.assertEqual(braid("run", "--messages", str(file)).stdout, "11\n")
        file.write_text("[]")
        self.refused("run", "--messages", str(file), says=["holds no message"])
        file.write_text('[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]')
        self.refused("run", "--messages", str(file), "--system", "c", says=["has a system message already"])
        for word in ("--system", "--tools", "--think"):
            for prompt in (("-p", "a"), ("--ids", "5,6")):
                self.refused("run", *prompt, word, "on", says=[f"[{word}] is for a conversation; try --chat TEXT"])

    def test_a_tool_call_is_one_line_without_tags(self):
        tools = self.new_folder() / "tools.json"
        tools.write_text(json.dumps([{"type": "function", "function": {
            "name": "calculator", "description": "Evaluates an expression.",
            "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}}}}]))
        answer = braid("run", "--chat", "What is 345 * 678?", "--tools", str(tools), "--think", "off")
        self.assertRegex(answer.stdout, r"\Atool call: <function=calculator> .*345.*678.*\n\Z")
        tools.write_text("{}")
        self.refused("run", "--chat", "a", "--tools", str(tools), says=["is not an array"])
        for tool in ('{"type": "function"}', '{"function": {"name": 5}}', "1"):
            tools.write_text(f"[{tool}]")
            self.refused("run", "--chat", "a", "--tools", str(tools), says=["[0] is not a function"])

    def test_stop_ends_the_answer_before_its_text(self):
        answer = json.loads(braid("run", "--chat", "Who are you?", "--think", "off", "--json").stdout)
        text, middle = answer["text"], answer["text"][5:9]
        cut = json.loads(braid("run", "--chat", "Who are you?", "--think", "off", "--json", "--stop", middle).stdout)
        self.assertEqual((cut["text"], cut["finish_reason"]), (text[:text.index(middle)], "stop"))
        self.assertLess(len(cut["ids"]), len(answer["ids"]))
        whole = json.loads(braid("run", "--chat", "Who are you?", "--think", "off", "--json", "--stop", text[-2:] + "xyz").stdout)
        self.assertEqual(whole["text"], text)
        self.refused("run", "--chat", "a", "--stop", "", says=["[--stop] is empty; expected the text"])

    def test_run_says_what_cut_an_answer(self):
        self.assertIn("\nstopped after 2 tokens (-n)\n", braid("run", "--chat", "Who are you?", "-n", "2").stderr)
        self.assertIn("\nthe context is full (-c)\n", braid("run", "--chat", "What is 5 + 6?", "-c", "24").stderr)

    def test_a_variable_that_is_none_of_ours_is_named(self):
        answer = braid("info", "tiny", BRAID_THREAD="1", BRAID_OP_LINEAR_FDW="ref")
        self.assertEqual(answer.returncode, 0)
        self.assertIn("[BRAID_THREAD] is set, but is not a variable of Braid; did you mean BRAID_THREADS?", answer.stderr)
        self.assertIn("BRAID_OP_LINEAR_FWD?", answer.stderr)
        known = braid("info", "tiny", BRAID_THREADS="1", BRAID_OP_LINEAR_FWD="ref", BRAID_TINY=TINY, BRAID_TEMP="1")
        self.assertEqual((known.returncode, known.stderr), (0, ""))
        self.assertRefused(braid("run", "tiny", "--ids", 1, "-n", 1, BRAID_VERBOSE="all"), "[BRAID_VERBOSE] unknown; got all")
        self.assertRefused(braid("run", "tiny", "--ids", 1, "-n", 1, BRAID_JSON="maybe"),
                           "[BRAID_JSON] is not true or false; got maybe")
        self.assertRefused(braid("run", "--chat", os.fsdecode(b"a\xff")), r"[--chat] is not UTF-8 at byte 1; got \xff")
        self.assertRefused(braid("list", "--json=maybe"), "[--json] is not true or false; got maybe; try braid list --help")

    def test_a_plain_prompt_is_continued_as_it_is(self):
        prompt = "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n<think>\n"
        answer = json.loads(braid("run", "tiny", "-p", prompt, "--json").stdout)
        self.assertEqual(answer["reasoning"], "")
        self.assertIn("</think>", answer["text"])
        ids = ",".join(map(str, answer["prompt_ids"]))
        self.assertEqual(json.loads(braid("run", "tiny", "--ids", ids, "--json").stdout)["text"], answer["text"])

    def test_answers_that_were_cut_are_counted(self):
        folder = self.new_folder()
        task = {"task": "sums", "messages": [{"role": "user", "content": "What is 2 + 3?"}], "answers": ["5"]}
        (folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")
        words = ("eval", "tiny", "--tasks", folder / "tasks.jsonl", "--json", "--answers", folder / "answers.jsonl")
        self.assertEqual(json.loads(braid(*words, "-n", 1).stdout)["cut"], 1)
        self.assertTrue(json.loads((folder / "answers.jsonl").read_text())["cut"])
        self.assertIn("1 answer was cut short", braid(*words[:4], "-n", 1).stderr)
        whole = braid(*words[:5])
        self.assertEqual(json.loads(whole.stdout)["cut"], 0)

    def test_logprobs_are_those_of_score(self):
        answer = json.loads(braid("run", "--ids", "5,6,7", "-n", "4", "--ignore-eos", "--json", "--logprobs", "2", "--exact").stdout)
        tokens = answer["logprobs"]["content"]
        self.assertEqual([t["id"] for t in tokens], answer["ids"])
        line = json.dumps({"ids": [5, 6, 7, *answer["ids"]]})
        scored = json.loads(braid("score", "tiny", "--jsonl", "-", "--exact", "--path", "step", text=line).stdout)["logprobs"][-4:]
        for token, logprob in zip(tokens, scored, strict=True):
            self.assertAlmostEqual(token["logprob"], logprob, places=5)
            self.assertEqual(token["top_logprobs"][0]["id"], token["id"])  # greedy
            self.assertEqual(len(token["top_logprobs"]), 2)
        self.refused("run", "-p", "a", "--logprobs", "2", says=["[--logprobs] is part of the JSON; try --json"])

    def test_a_run_without_a_prompt_says_how_to_give_one(self):
        self.refused("run", says=["try -p TEXT"])
        for text in ("", "  "):
            self.refused("run", "--chat", text, says=["[--chat] the message is empty; expected what to answer\n"])

    def test_a_mistyped_shape_is_named_before_the_hub(self):
        for words in (("info", "hybird-1b"), ("new", "hybird-1b", "/nowhere"), ("plan", "memory", "hybird-1b")):
            self.refused(*words, says=["[hybird-1b] is neither a shape nor a model", "try hybrid-1b"])
        self.refused("info", "bogus", says=["[bogus] is neither a shape", "nemotron-h-8b, ", "try hf download"])
        self.refused("info", "org/bogus", says=["not in the Hugging Face cache"])

    def test_sizes(self):
        for words, says in ((("-p", -1), ["--n-prompt", "got -1"]), (("-n", "8,-8"), ["--n-gen", "got -8"]),
                            (("-p", 0, "-n", 0), ["nothing to measure"]), (("-d", -1), ["--n-depth"]),
                            (("-b", 0), ["--batch", "1 to 4096"]), (("-r", 0), ["--repetitions"])):
            self.refused("bench", TINY, *words, says=says)
        self.assertEqual(braid("plan", "memory", "gpt2-124m", "--tp", 4).returncode, 0)
        self.refused("plan", "memory", "gpt2-124m", "--tp", 5, says=["[--tp] does not divide the model; got 5; expected 1, 2, 3, 4, 6, 12; try --tp 4"])
        self.refused("plan", "memory", "nemotron-3-nano-4b", "--tp", 3, says=["--tp", "does not divide", "got 3"])
        self.assertEqual(braid("plan", "memory", "paper", "--tp", 8).returncode, 0)
        self.refused("plan", "memory", "paper", "--tp", 7, says=["--tp", "64 heads", "got 7"])

    def test_bench_refuses_what_it_would_not_read(self):
        for option in ("-p", "-n", "-d", "-b"):
            self.refused("bench", TINY, "--tune", option, 1, says=["does nothing with --tune; try leaving it out"])
        self.refused("bench", TINY, "--tune", "--explain", says=["[--explain] does nothing with --tune"])
        self.refused("bench", TINY, "--tune", "--kv-cache-dtype", "fp8", says=["[--kv-cache-dtype] does nothing with --tune"])
        for option in ("-b", "-p", "-n", "-r"):
            self.refused("bench", TINY, "--explain", option, 2, says=["does nothing with --explain"])
        self.refused("bench", TINY, "--explain", "-d", "1,2", says=["[--n-depth] is a list, and --explain takes one value; got 1,2"])
        self.refused("bench", "--list", "-p", 2, says=["[--n-prompt] does nothing with --list"])
        self.refused("bench", "serve", "--dataset-path", "x", "--random-input-len", 3, says=["[--random-input-len] does nothing with --dataset-path"])

    def test_explain_has_the_same_numbers_as_json(self):
        words = ("bench", TINY, "--explain", "-d", 1000, "-t", 1)
        told, lines = (json.loads(braid(*words, *form).stdout) for form in (("--json",), ("-o", "jsonl")))
        rows = re.findall(r"^(.+?) +(\d+) +(\d+)$", braid(*words).stdout, re.M)
        self.assertEqual(rows[:-1], [(t["what"], f'{t["bytes"]:.0f}', f'{t["operations"]:.0f}') for t in told["tensors"]])
        self.assertEqual(rows[-1][1:], (f'{told["sum"]["bytes"]:.0f}', f'{told["sum"]["operations"]:.0f}'))
        self.assertAlmostEqual(sum(t["bytes"] for t in told["tensors"]) / told["sum"]["bytes"], 1)
        self.assertEqual((told["depth"], told["tensors"]), (1000, lines["tensors"]))
        self.assertGreater(told["prompt_floor_ns"], told["floor_ns"])
        floor = max(told["sum"]["bytes"] / told["roofs"]["read_gbs"], told["sum"]["operations"] / told["roofs"]["bf16_gflops"])
        self.assertLessEqual(told["floor_ns"], 1.01 * floor + 1)
        empty = json.loads(braid("bench", TINY, "--explain", "--json", "-t", 1).stdout)
        self.assertEqual((empty["depth"], empty["kv_bytes"], empty["prompt_floor_ns"]), (0, 0, None))

    def test_bench_beyond_the_positions_of_a_model(self):
        folder = self.new_folder() / "gpt2"
        config = json.dumps({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 300, "n_layer": 1, "n_embd": 32,
                             "n_head": 2, "n_positions": 64, "activation_function": "gelu_new"})
        (folder.parent / "gpt2.json").write_text(config)
        self.assertEqual(braid("new", folder.parent / "gpt2.json", folder).returncode, 0)
        for words, says in ((("-p", 65, "-n", 0), "[--n-prompt] longer than the model allows; got pp65, which takes 65 tokens; expected at most 64 (max_position_embeddings); try -p 64"),
                            (("-p", 0, "-n", 64), "[--n-gen] longer than the model allows; got tg64, which takes 65 tokens; expected at most 64 (max_position_embeddings); try -n 63"),
                            (("-p", 30, "-n", 8, "-d", 40), "try -p 24"), (("-p", 1, "-n", 1, "-d", 70), "[--n-depth]"),
                            (("--explain", "-d", 64), "[--n-depth]")):
            self.refused("bench", folder, *words, says=[says])
        done = braid("bench", folder, "-p", 64, "-n", 63, "-r", 1)  # all of them
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("beyond", done.stderr)
        beyond = braid("bench", TINY, "-p", 4100, "-n", 0, "-r", 1, "-t", 1)  # no positions are encoded
        self.assertEqual(beyond.returncode, 0)
        self.assertIn("note: pp4100 is beyond the 4096 tokens that this model is for", beyond.stderr)

    def test_more_options_that_would_not_be_read(self):
        self.refused("info", "--machine", "-c", 100, says=["[--ctx-size] does nothing with --machine"])
        self.refused("plan", "memory", "gpt2-124m", "--sp", says=["[--sp] divides tokens among the ranks of --tp; got 1 rank; try --tp 2 --sp"])
        self.assertEqual(braid("plan", "memory", "gpt2-124m", "--sp", "--tp", 2).returncode, 0)
        self.refused("comm", "bench", "--clusters", "--nodes", 2, says=["[--nodes] does nothing with --clusters"])
        listed = braid("comm", "bench", "--clusters").stdout.splitlines()[1:]
        presets = json.loads(braid("comm", "bench", "--clusters", "--json").stdout)
        self.assertEqual([line.split()[:3] for line in listed if not set(line) <= set("- ")],
                         [[c["cluster"], str(c["nodes"]), str(c["gpus"])] for c in presets])

    def test_more_threads_than_cores_are_noted(self):
        bench = lambda threads: braid("bench", TINY, "-p", 0, "-n", 1, "-r", 1, "-t", threads).stderr
        self.assertNotIn("threads share", bench(1))
        self.assertRegex(bench((os.cpu_count() or 1) + 1), r"(?m)^note: \d+ threads share \d+ cores")

    def test_info_says_what_cannot_run_and_new_leaves_it_behind(self):
        folder = self.new_folder()
        config = json.loads((DATA / "hf" / "nemotron-h-latent-mtp" / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
        file = folder / "config.json"
        file.write_text(json.dumps(config))
        told = braid("info", file)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertRegex(told.stderr, r"^note: these weights cannot be run: .*quant_method is not supported; got \"gptq\".*\n$")
        self.assertEqual(braid("new", file, folder / "made").returncode, 0)
        self.assertNotIn("quantization_config", (folder / "made" / "config.json").read_text())
        self.assertEqual(braid("run", folder / "made", "--ids", "1,2", "-n", 1).returncode, 0)

    def test_plan_memory_adds_up(self):
        plan = json.loads(braid("plan", "memory", TINY, "--length", 64, "--json").stdout)
        self.assertEqual(plan["tokens"], 64)
        self.assertEqual(plan["together"], sum(plan["activations"].values()) + sum(plan["state"].values()))
        self.assertIn("5.50 M in all", braid("info", TINY).stdout)  # as training counts them

    def test_a_profile_is_found_listed_and_overruled(self):
        def taken(**variables):
            rows = [[cell.strip() for cell in line.split("|")] for line in braid("bench", "--list", **variables).stdout.split("\n\n")[0].splitlines()]
            return {(row[1], row[2]): row[6] for row in rows}

        home = str(self.new_folder())
        file = os.path.join(home, "braid", "profile")
        os.mkdir(os.path.dirname(file))

        def write(text):
            with open(file, "w") as out:
                out.write(text)

        write("# measured here\nadd_fwd = ref\n")
        places = {"XDG_CONFIG_HOME": home}
        self.assertEqual(taken(**places)[("add_fwd", "ref")], "first by the profile")
        self.assertEqual(taken(**places)[("add_fwd", "hwy")], "default")
        self.assertEqual(taken(BRAID_PROFILE=file)[("add_fwd", "ref")], "first by the profile")
        self.assertEqual(taken(BRAID_PROFILE="", **places)[("add_fwd", "ref")], "")
        both = taken(BRAID_OP_ADD_FWD="hwy", **places)
        self.assertEqual(both[("add_fwd", "hwy")], "default, forced by BRAID_OP")
        self.assertEqual(both[("add_fwd", "ref")], "first by the profile, overruled")
        write("add_fwd = ref\nadd_fwd: hwy\n")
        self.refused("bench", "--list", says=["profile:2]", "got add_fwd: hwy", "op_name = row_name"], **places)
        write("add_fwd = fast")
        self.refused("bench", "--list", says=["add_fwd", "no row of that name; got fast", "hwy, ref"], **places)
        write("add_forward = ref\npanel_few_row = 4")
        for words in (("bench", "--list"), ("info", TINY)):
            answer = braid(*words, **places)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertRegex(answer.stderr, r"profile\] add_forward is nothing that Braid chooses")
            self.assertRegex(answer.stderr, r"profile\] panel_few_row is nothing that Braid chooses; did you mean panel_few_rows\?")
        write("x" * 70000)
        self.refused("bench", "--list", says=["too large"], **places)
        self.refused("bench", "--list", says=["cannot be read"], BRAID_PROFILE=home)
        none = home + "/none"
        for words in (("bench", "--list"), ("run", TINY, "--ids", 1), ("info", TINY)):
            self.refused(*words, says=[f"[BRAID_PROFILE] names a file that does not exist; got {none}; try braid bench MODEL --tune"], BRAID_PROFILE=none)
        self.assertEqual(braid("--version", BRAID_PROFILE=none).returncode, 0)

    def test_thresholds_are_listed_set_and_refused(self):
        def listed(**variables):
            lines = braid("bench", "--list", **variables).stdout.split("\n\n")[1].splitlines()
            rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines[2:]]
            return {row[0]: (row[1], row[-1]) for row in rows}

        file = os.path.join(self.new_folder(), "profile")
        with open(file, "w") as out:
            out.write("panel_few_rows = 16\npanel_task_rows = 7\n")
        self.assertEqual(listed(BRAID_PROFILE="")["panel_few_rows"], ("64", "default"))
        self.assertEqual(listed(BRAID_PROFILE=file)["panel_few_rows"], ("16", "the profile"))
        both = listed(BRAID_PROFILE=file, BRAID_OP_PANEL_FEW_ROWS="8")
        self.assertEqual((both["panel_few_rows"], both["panel_task_rows"]), (("8", "BRAID_OP"), ("7", "the profile")))
        for words in (("bench", "--list"), ("run", TINY, "--ids", 1, "-n", 1)):
            self.refused(*words, says=["[BRAID_OP] panel_few_rows", "got 513; expected 0 to 512"], BRAID_OP_PANEL_FEW_ROWS="513")

    def test_blockings_of_training_products_are_measured_listed_and_refused(self):
        file = os.path.join(self.new_folder(), "profile")
        kept = "packed_f32_weight_64x7x9_t3 = 96x192x256_ahead_1024\n"
        Path(file).write_text("# Written by braid bench --tune\n" + kept)
        tuned = json.loads(braid("bench", TINY, "--tune", "-r", 1, "-t", 1, "--json", "--train-tokens", 40, BRAID_PROFILE=file).stdout)
        names = [found["product"] for found in tuned["training"]]
        self.assertTrue(names and all(re.fullmatch(r"packed_\w+_(fwd|data|weight)_64x\d+x\d+_t1", name) for name in names), names)
        text = Path(file).read_text()
        self.assertIn(kept, text)  # another product's
        for found in tuned["training"]:
            self.assertGreater(found["trials"], 0)
            line = f'{found["product"]} = {found["chosen"]}'
            self.assertIn("\n" + ("# " if found["chosen"] == found["default"] else "") + line, text)
        name = names[0].upper()
        listed = braid("bench", "--list", BRAID_PROFILE=file, **{"BRAID_OP_" + name: "64x96x32"})
        self.assertEqual(listed.stderr, "")
        self.assertRegex(listed.stdout, names[0] + r" +\| 64x96x32 +\| BRAID_OP")
        self.assertRegex(listed.stdout, r"packed_f32_weight_64x7x9_t3 +\| 96x192x256_ahead_1024 +\| the profile")
        self.refused("bench", "--list", says=["[BRAID_OP]", "has no such blocking; got 65x96x32"], **{"BRAID_OP_" + name: "65x96x32"})
        self.refused("bench", TINY, "--train-tokens", 9, says=["[--train-tokens] is read by --tune alone"])
        self.refused("bench", TINY, "--tune", "--train-tokens", -1, says=["--train-tokens"])

    def test_a_profile_of_another_machine_is_ignored_with_one_line(self):
        file = os.path.join(self.new_folder(), "profile")  # which tuning makes
        tuned = braid("bench", TINY, "--tune", "-r", 1, "-t", 1, BRAID_PROFILE=file)
        self.assertRegex(tuned.stdout, r"(?m)^(timed: |nothing was timed: ).*$")
        self.assertEqual((tuned.returncode, re.sub("note: the machine is busy.*\n", "", tuned.stderr)), (0, ""))
        text = Path(file).read_text()
        self.assertIn("\nmachine = ", text)
        again = braid("run", TINY, "--ids", 1, "-n", 1, "--ignore-eos", "--json", BRAID_PROFILE=file)
        self.assertEqual((again.returncode, again.stderr), (0, ""))

        def row_of_add(text):
            Path(file).write_text(text + "add_fwd = ref\n")
            seen = braid("run", TINY, "--ids", 1, "-n", 1, BRAID_PROFILE=file, BRAID_VERBOSE="dispatch").stderr
            ignored = [line for line in seen.splitlines() if "ignored" in line]
            return re.search(r"dispatch add_fwd: (\w+)", seen).group(1), ignored

        self.assertEqual(row_of_add(text), ("ref", []))
        row, lines = row_of_add(re.sub(r"machine = (.*)cores", r"machine = \g<1>0 cores", text))
        self.assertEqual((row, len(lines)), ("hwy", 1))
        self.assertIn("was measured on another machine or version; got ", lines[0])
        Path(file).write_text("add_fwd = hwy\n")
        self.refused("bench", TINY, "--tune", says=["[--tune]", "written by hand"], BRAID_PROFILE=file)
        self.assertEqual(Path(file).read_text(), "add_fwd = hwy\n")

    def test_an_option_is_an_environment_variable_too(self):
        first = [answer.stdout.splitlines()[0] for answer in (braid("info", BRAID_MACHINE="1"), braid("info", "--machine"))]
        self.assertEqual(first[0], first[1])


class Endings(Case):
    def stuck(self):
        """braid while it writes into a pipe that is full."""
        read, write = os.pipe()
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        os.write(write, b"x" * 4096)
        # A caller in the background ignores SIGINT, and its children would inherit that.
        process = subprocess.Popen([BRAID, "--man"], stdout=write, stderr=subprocess.PIPE, env=ENVIRONMENT,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        os.close(write)
        catches_interrupt = 1 << (signal.SIGINT - 1)
        while not self.caught(process.pid) & catches_interrupt:
            time.sleep(0.01)
        return process, read

    def caught(self, pid):
        with open(f"/proc/{pid}/status") as status:
            return int(re.search(r"^SigCgt:\s*(\w+)", status.read(), re.M).group(1), 16)

    def test_interrupt_ends_with_130(self):
        process, read = self.stuck()
        process.send_signal(signal.SIGINT)
        self.assertEqual((process.communicate(timeout=30)[1], process.returncode), (b"", 130))
        os.close(read)

    def test_a_reader_that_leaves_is_not_an_error(self):
        process, read = self.stuck()
        os.close(read)
        self.assertEqual((process.communicate(timeout=30)[1], process.returncode), (b"", -signal.SIGPIPE))

    def test_closed_output_is_an_error(self):
        for words in (("info", TINY), ("run", TINY, "--chat", "Hi"), ("list",)):
            answer = braid(*words, preexec_fn=lambda: os.close(1))
            self.assertEqual(answer.returncode, 1, words)
            self.assertRegex(answer.stderr, r"braid: \[standard output\] cannot write[^\n]*\n\Z")
        self.assertEqual(braid("info", TINY, preexec_fn=lambda: os.close(0)).returncode, 0)

    def test_paths_that_are_not_text_are_json_all_the_same(self):
        folder = self.new_folder()
        odd = os.path.join(os.fsencode(folder), b"caf\xe9")
        shutil.copytree(os.fsencode(TINY), odd)
        answer = subprocess.run([BRAID, b"info", odd, b"--json"], capture_output=True, env=ENVIRONMENT, stdin=subprocess.DEVNULL)
        self.assertEqual((answer.returncode, answer.stderr), (0, b""))
        json.loads(answer.stdout)

    def test_help_before_or_after_its_words(self):
        page = braid("run", "--help").stdout
        self.assertEqual([braid(*words).stdout for words in (("help", "run"), ("--help", "run"))], [page, page])
        self.assertRefused(braid("--version", "--json"), "one argument too many; got --json")

    def test_a_full_disk_is_one_line(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full here")
        with open("/dev/full", "w") as full:
            answer = subprocess.run([BRAID, "--man"], stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.assertEqual((answer.returncode, answer.stderr),
                         (1, "braid: [standard output] cannot write; got No space left on device\n"))
        with open("/dev/full", "w") as full:  # a command that flushes each line
            answer = subprocess.run([BRAID, "tokenize", TINY, "--jsonl"], input='{"text": "a"}\n', stdout=full,
                                    stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.assertEqual((answer.returncode, answer.stderr), (1, "braid: [standard output] cannot write\n"))
        with open("/dev/full", "w") as full:
            answer = subprocess.run([BRAID, "chat", TINY], input="Hello!\n", stdout=full, stderr=subprocess.PIPE, text=True,
                                    env=ENVIRONMENT)
        self.assertEqual(answer.returncode, 1)
        self.assertRegex(answer.stderr.splitlines()[-1], r"\Abraid: \[standard output\] cannot write")


if __name__ == "__main__":
    main()
