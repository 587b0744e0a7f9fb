"""braid chat at a terminal (a pty) and in a pipe: keys, commands, interrupts, what goes to which stream.

usage: chat_test.py BRAID
"""
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import termios
import time

from support import program
from support.program import BRAID, DATA, main, terminal

ENVIRONMENT = {**program.ENVIRONMENT, "TERM": "xterm", "BRAID_THREADS": "1"}
PROMPT = ">>> "
UP, CTRL_C, CTRL_D = "\x1b[A", "\x03", "\x04"
DIM = "\x1b[2m"
TINY = str(DATA / "tiny-chat")


def endless(folder):
    """tiny with an end token that it never generates: it talks until its context is full."""
    for name in os.listdir(TINY):
        if name.endswith("config.json") and not name.startswith("tokenizer"):
            with open(os.path.join(TINY, name)) as file:
                config = json.load(file)
            with open(os.path.join(folder, name), "w") as file:
                json.dump({**config, "eos_token_id": 3}, file)
        else:
            os.symlink(os.path.join(TINY, name), os.path.join(folder, name))
    return folder


def with_model(words):
    """The words of a command line, with TINY if they name no model."""
    words = tuple(words)
    return words if words and not words[0].startswith("-") else (TINY, *words)


class Terminal:
    def __init__(self, *words, **variables):
        words = with_model(words)
        self.master, self.slave = terminal()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, b"\x18\x00\x50\x00\x00\x00\x00\x00")  # 24 rows of 80
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([BRAID, "chat", *words], stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        env={**ENVIRONMENT, **variables}, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def send(self, text):
        os.write(self.master, text.encode())

    def until(self, pattern, seconds=60):
        """What appears up to and with the pattern; the rest stays for the next call."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            ready = select.select([self.master], [], [], max(0, end - time.monotonic()))[0]
            if not ready:
                raise AssertionError(f"{pattern!r} did not appear in {self.seen!r}")
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        text, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return text

    def say(self, text):
        """Sends a line and returns what follows it, up to the next prompt."""
        self.send(text + "\r")
        self.until("\r\n")
        return self.until(re.escape("\x1b[?2004h") + ".*" + PROMPT)

    def messages(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "said.json")
            self.say(f"/save {path}")
            with open(path) as file:
                return json.load(file)

    def leave(self, keys=CTRL_D):
        self.send(keys)
        return self.process.wait(timeout=60)


class Case(program.Case):
    def endless(self):
        return endless(str(self.new_folder()))


class AtATerminal(Case):
    def chat(self, *words, **variables):
        terminal = self.enterContext(Terminal(*words, **variables))
        self.greeting = terminal.until(PROMPT)
        return terminal

    def test_the_greeting_names_the_format_of_quantised_weights(self):
        self.chat()  # first, so that the test is skipped if no pseudo-terminal is available
        self.assertIn("nemotron_h in BF16, context", self.greeting)
        quantised = str(self.new_folder() / "q8.gguf")
        self.assertEqual(program.braid("convert", TINY, quantised, "--type", "q8_0").returncode, 0)
        self.chat(quantised)
        self.assertIn("nemotron_h in Q8_0, context", self.greeting)

    def test_a_conversation(self):
        chat = self.chat()
        self.assertRegex(self.greeting, r"tiny-chat: nemotron_h in BF16, context 4096 tokens \(all that the model allows\)")
        answer = chat.say("What is 17 + 25?")
        self.assertRegex(answer, re.escape(DIM) + r"ones 7 \+ 5 = 12, carry 1[^\x1b]*so 42\r\n\x1b\[0m42\r\n")
        self.assertRegex(answer, re.escape(DIM) + r"38 tokens, [\d.]+ K?M? ?tokens/s, prompt 25 tokens, [\d.]+ K?M? ?tokens/s")
        self.assertIn("46\r\n", chat.say("What is 93 - 47?"))
        self.assertEqual([m["role"] for m in chat.messages()], ["user", "assistant"] * 2)
        self.assertEqual(chat.messages()[1], {"role": "assistant", "content": "42", "reasoning_content":
                         "ones 7 + 5 = 12, carry 1. tens 1 + 2 + 1 = 4. so 42\n"})
        self.assertEqual(chat.leave(), 0)
        self.assertEqual(termios.tcgetattr(chat.slave), chat.before)

    def test_later_turns_read_only_what_is_new(self):
        chat = self.chat("--think", "off")
        self.assertIn("prompt 25 tokens", chat.say("What is 17 + 25?"))
        self.assertIn("prompt 22 tokens", chat.say("What is 93 - 47?"))

    def test_thinking_that_the_template_drops_is_not_read_again(self):
        chat = self.chat()
        self.assertIn("prompt 25 tokens, ", chat.say("What is 17 + 25?"))
        first = re.search(r"prompt (\d+) tokens \((\d+) more cached\)", chat.say("What is 93 - 47?"))
        second = re.search(r"prompt (\d+) tokens \((\d+) more cached\)", chat.say("What is 5 + 7?"))
        self.assertGreater(int(first[2]), 16)
        begins_answer = 25 - int(first[2])  # tokens that a prompt ends with, read again in another form
        self.assertEqual(int(second[2]), int(first[1]) + int(first[2]) - begins_answer)

    def test_an_answer_that_a_limit_cuts_says_so(self):
        self.assertIn("stopped after 3 tokens (-n)", self.chat("-n", "3").say("What is 17 + 25?"))

    def test_context_shift_drops_the_oldest_turns(self):
        chat = self.chat("-c", "128", "-n", "16", "--think", "off", "--context-shift", "--system", "Be brief.")
        said = [chat.say("What is 17 + 25?") for _ in range(8)]
        self.assertNotIn("dropped", said[0])
        self.assertIn("2 of the oldest messages were dropped", said[-1])
        self.assertNotIn("too long", "".join(said))
        before = chat.messages()
        self.assertIn("the conversation is too long", chat.say("What is 17 + 25? " * 12))
        self.assertEqual(chat.messages(), before)  # nothing is dropped for a message that cannot be answered
        self.assertEqual(chat.messages()[0], {"role": "system", "content": "Be brief."})

    def test_a_template_without_a_switch_refuses_it(self):
        folder = self.endless()
        os.remove(os.path.join(folder, "chat_template.jinja"))
        with open(os.path.join(folder, "chat_template.jinja"), "w") as file:
            file.write("{% for m in messages %}{{ m.content.split('</think>')[-1] }}\n{% endfor %}")
        chat = self.chat(folder, "-n", "2")
        self.assertIn("[think] this model's chat template has no switch for thinking", chat.say("/think on"))
        self.assertIn("has no switch for thinking: off changes nothing", chat.say("/think off"))
        self.assertIn("2 tokens, ", chat.say("Hello!"))

    def test_pasted_lines_are_one_message(self):
        chat = self.chat("--think", "off")
        chat.send("\x1b[200~Which is larger,\n31 or 13?\x1b[201~")
        chat.say("")
        said = chat.messages()
        self.assertEqual(len(said), 2)
        self.assertEqual(said[0]["content"], "Which is larger,\n31 or 13?")

    def test_interrupt_stops_the_answer_not_the_program(self):
        chat = self.chat(self.endless(), "--think", "off")
        chat.send("Who are you?\r")
        chat.until("I am Tiny")
        chat.send(CTRL_C)
        chat.until(PROMPT)
        self.assertTrue(chat.messages()[1]["content"].startswith("I am Tiny"))
        chat.send("rubbish" + CTRL_C)
        chat.until(r"\^C\s")
        chat.until(PROMPT)
        self.assertEqual(len(chat.messages()), 2)
        chat.send(CTRL_C)
        chat.until("Ctrl-C once more leaves")
        self.assertEqual(chat.leave(CTRL_C), 130)

    def test_interrupts_between_two_prompts_count(self):
        """The terminal turns Ctrl-C into a signal while it is not raw: for a moment between two prompts."""
        chat = self.chat("--think", "off")
        chat.process.send_signal(signal.SIGINT)
        chat.until("Ctrl-C once more leaves")
        chat.until(PROMPT)
        self.assertIn("40\r\n", chat.say("What is 17 + 25?"))  # whole
        chat.process.send_signal(signal.SIGINT)
        chat.until("Ctrl-C once more leaves")
        chat.process.send_signal(signal.SIGINT)
        self.assertEqual(chat.process.wait(timeout=60), 130)

    def test_a_request_to_stop_leaves_the_terminal_as_it_was(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            for busy in (False, True):
                chat = self.chat(self.endless(), "--think", "off")
                if busy:
                    chat.send("Who are you?\r")
                    chat.until("I am Tiny")
                chat.process.send_signal(number)
                chat.until(re.escape("\x1b[?2004l"))
                self.assertEqual(chat.process.wait(timeout=60), 128 + number)
                self.assertEqual(termios.tcgetattr(chat.slave), chat.before)

    def test_commands(self):
        chat = self.chat()
        self.assertIn("thinking is off", chat.say("/think off"))
        self.assertIn("40\r\n", answer := chat.say("What is 17 + 25?"))
        self.assertNotIn("carry", answer)
        self.assertIn("new instructions", chat.say("/system Be brief."))
        self.assertEqual([m["role"] for m in chat.messages()], ["system", "user", "assistant"])
        with tempfile.TemporaryDirectory() as folder:
            chat.say(f"/save {folder}/said")
            with open(f"{folder}/other", "w") as file:
                file.write("mine")
            self.assertIn("other] already exists; try another name", chat.say(f"/save {folder}/other"))
            with open(f"{folder}/other") as file:
                self.assertEqual(file.read(), "mine")
            self.assertIn("3 messages in", chat.say(f"/save {folder}/said"))  # its own file
            self.assertIn("is forgotten", chat.say("/reset"))
            self.assertEqual(chat.messages(), [{"role": "system", "content": "Be brief."}])
            self.assertIn("no instructions", chat.say("/system"))
            self.assertEqual(chat.messages(), [])
            chat.say(f"/load {folder}/said")
            self.assertEqual(len(chat.messages()), 3)
            with open(f"{folder}/bad", "w") as file:
                file.write('[{"role": "user"}]')
            self.assertIn("[0] is not a message", chat.say(f"/load {folder}/bad"))
            self.assertIn("is missing", chat.say("/load " + 300 * "a"))
            with open(f"{folder}/robot", "w") as file:
                file.write('[{"role": "robot", "content": "beep"}]')
            self.assertIn("unknown role robot", chat.say(f"/load {folder}/robot"))
            self.assertIn("[/load] the chat itself uses standard input and output; expected a file", chat.say("/load -"))
            self.assertIn("[/save] the chat itself uses standard input and output; expected a file", chat.say("/save -"))
            self.assertIn("/none] is missing; expected [{\"role\": \"user\"", chat.say(f"/load {folder}/none"))
        self.assertEqual(len(chat.messages()), 3)
        self.assertIn("[/thnik] no such command; try /help", chat.say("/thnik"))
        self.assertIn("expected on or off", chat.say("/think maybe"))
        self.assertIn("lacks its argument; expected /save FILE", chat.say("/save  "))
        self.assertIn("/save", chat.say("/help"))
        chat.send("/exit\r")
        self.assertEqual(chat.process.wait(timeout=60), 0)

    def test_history_and_editing(self):
        chat = self.chat("--think", "off")
        chat.say("What is 5 + 7?")
        chat.say("Hello!")
        chat.say(UP + UP + "\x1b[D\x7f6 ")  # 7? -> 6 ?
        self.assertEqual(chat.messages()[4]["content"], "What is 5 + 6 ?")

    def test_without_colour_thinking_is_between_its_tags(self):
        chat = self.chat(NO_COLOR="1")
        answer = chat.say("What is 17 + 25?")
        self.assertRegex(answer, r"<think>\r\nones .* so 42\r\n</think>\r\n42\r\n")
        self.assertNotIn(DIM, self.greeting + answer)

    def test_a_full_context_is_reported(self):
        chat = self.chat(self.endless(), "-c", "40", "--think", "off")
        self.assertIn("(as asked for)", self.greeting)
        self.assertIn("the context of 40 tokens is full: /reset forgets, --context-shift at the start drops the oldest turns", chat.say("Who are you?"))
        self.assertRegex(chat.say("one two three four five six seven eight nine ten eleven"),
                         r"\[context\] the conversation is too long; got \d+ tokens; expected fewer than 40")
        self.assertEqual(len(chat.messages()), 2)
        chat.say("/reset")
        self.assertIn("I am Tiny", chat.say("Who are you?"))


class InAPipe(Case):
    def ask(self, text, *words):
        return subprocess.run([BRAID, "chat", *with_model(words)], input=text.encode(), capture_output=True, timeout=60, env=ENVIRONMENT)

    def test_all_of_standard_input_is_one_message(self):
        answer = self.ask("What is 17 + 25?\n")
        self.assertEqual((answer.returncode, answer.stdout), (0, b"42\n"))
        self.assertIn(b"<think>\nones", answer.stderr)
        two = self.ask("Which is larger,\n31 or 13?\n", "--think", "off")
        self.assertEqual((two.returncode, two.stdout.count(b"\n")), (0, 1))

    def test_drafts_change_no_answer(self):
        text = "Repeat after me: one two three four one two three four."
        want = self.ask(text, "tiny", "--draft", "off")
        self.assertEqual(want.returncode, 0, want.stderr)
        for words in (("--draft", "ngram"), ("--draft", "mtp"), ("--draft-model", "tiny"), ("--draft-max", "7")):
            got = self.ask(text, "tiny", *words)
            self.assertEqual((got.returncode, got.stdout), (0, want.stdout), words)
        self.assertEqual(self.ask(text, "--draft", "mtp").returncode, 1)  # tiny-chat has no prediction block

    def test_refusals_are_one_line(self):
        for text, words in (("", []), ("\n", []), (" \t\n \n", []), ("a\xff", []), ("Hello!", ["-c", "8"]), ("Hello!", ["no-such-model"])):
            answer = subprocess.run([BRAID, "chat", *with_model(words)], input=text.encode("latin-1"), capture_output=True, timeout=60,
                                    env=ENVIRONMENT)
            self.assertEqual((answer.returncode, answer.stdout), (1, b""), text)
            self.assertRegex(answer.stderr.decode(), program.ONE_LINE)

    def test_a_larger_context_is_advised_where_the_model_allows_it(self):
        long = "Hello! " * 3000
        self.assertRegex(self.ask(long).stderr.decode(), r"expected fewer than 4096; try /reset, or --context-shift\n\Z")
        self.assertIn(b"or a larger -c", self.ask(long, "-c", "99").stderr)

    def test_interrupt_ends_with_130(self):
        process = subprocess.Popen([BRAID, "chat", self.endless(), "--think", "off"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
        process.stdin.write(b"Who are you?")
        process.stdin.close()
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        process.stderr.read()
        self.assertEqual(process.wait(timeout=60), 130)
        process.stdout.close()
        process.stderr.close()


if __name__ == "__main__":
    main()
