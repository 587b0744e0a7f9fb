"""What a server has to survive: clients that leave, read slowly or send garbage, more load than it takes, signals.

usage: abuse_test.py BRAID [--requests N]   (10,000 in the slow suite; 400 otherwise)

While all of it happens, a well-behaved client asks the same questions again and again and must get the same texts, the
process must neither crash nor hang nor grow by more than 64 MiB beside what --memory allows (512 with a sanitizer), and
at the end no page and no request may be left over.
"""
import http.client
import json
import os
import random
import re
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from support.program import SANITIZED, Case, main
from support.server import Server

REQUESTS = int(sys.argv.pop(sys.argv.index("--requests") + 1)) if "--requests" in sys.argv else 400
if "--requests" in sys.argv:
    sys.argv.remove("--requests")
GROWTH_MAX = (512 if SANITIZED else 64) << 20  # a sanitizer keeps freed memory apart, to find uses of it
CHAT = "/v1/chat/completions"
QUESTIONS = ["What is 17 + 25?", "Reverse PLANE.", "Who are you?", "How many letters does CASTLE have?"]
NUMBERS = ["max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "n", "presence_penalty",
           "frequency_penalty", "repetition_penalty", "top_logprobs", "thinking_token_budget"]
# What they accept: from, to, and only whole numbers; null is as if there were none.
WHOLE, MANY = True, 1 << 30
RANGES = {"max_tokens": (1, MANY, WHOLE), "max_completion_tokens": (1, MANY, WHOLE), "temperature": (0, 100, False), "top_p": (0, 1, False),
          "top_k": (-1, 1 << 24, WHOLE), "min_p": (0, 1, False), "seed": (-2 ** 63, 2 ** 63 - 1, WHOLE), "n": (1, 128, WHOLE),
          "presence_penalty": (-2, 2, False), "frequency_penalty": (-2, 2, False), "repetition_penalty": (0.01, 100, False),
          "top_logprobs": (0, 0, WHOLE), "thinking_token_budget": (-1, MANY, WHOLE)}  # more than 0 top_logprobs need logprobs
# By path: a good body, and its fields that are numbers, or hold some; a.b is b in the object a.
TURN = [{"role": "user", "content": "Hello"}]
NUMBERS_OF = {
    "/v1/completions": ({"prompt": "Hello", "max_tokens": 4}, [n for n in NUMBERS if n != "top_logprobs"] + ["logprobs", "best_of", "prompt"]),
    "/v1/responses": ({"input": "Hello", "max_output_tokens": 4}, ["max_output_tokens", "temperature", "top_p", "top_logprobs", "seed"]),
    "/v1/messages": ({"messages": TURN, "max_tokens": 4, "thinking": {"type": "enabled", "budget_tokens": 2}},
                     ["max_tokens", "temperature", "top_p", "top_k", "thinking.budget_tokens"]),
    CHAT: ({"messages": TURN, "max_tokens": 4, "logit_bias": {"1": 1}}, ["logit_bias", "logit_bias.1", "logit_bias.", "logit_bias.1e999"]),
    "/tokenize": ({"content": "Hello"}, ["content", "prompt", "add_special_tokens"]),
    "/detokenize": ({"tokens": [1]}, ["tokens"])}
ODD = [-1, 0, -2 ** 63, 2 ** 64, 1e308, -1e-300, 0.5, "5", True, [], {}, None, 10 ** 30]


def accepted(name, value):
    least, most, whole = RANGES[name]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value is None or (number and least <= value <= most and (not whole or value == int(value)))


def body_of(text, **more):
    return json.dumps({"model": "any", "messages": [{"role": "user", "content": text}], "max_tokens": 24, "temperature": 0,
                       **more}).encode()


def post(body, path=CHAT, headers=""):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
            ).encode() + body


class Client:
    """One badly behaved client: every method is a way to be bad, and returns the status it got, or what it did."""

    def __init__(self, server, seed):
        self.server, self.random = server, random.Random(seed)

    def connect(self, timeout=60):
        return socket.create_connection((self.server.host, self.server.port), timeout=timeout)

    def exchange(self, data, timeout=60):
        """The status of the answer to these bytes; "closed" where the server hangs up without one."""
        with self.connect(timeout) as s:
            try:
                s.sendall(data)
                head = s.recv(4096)
            except (ConnectionError, BrokenPipeError):
                return "closed"
            except TimeoutError:
                return "HANGS"
            return head.split(b" ")[1].decode() if head.startswith(b"HTTP/") else "closed"

    def leave_at_once(self):
        with self.connect() as s:
            s.sendall(post(body_of(self.random.choice(QUESTIONS), stream=self.random.random() < 0.5)))
            if self.random.random() < 0.5:  # a reset in place of a close
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return "left"

    def leave_in_the_middle(self):
        with self.connect() as s:
            s.sendall(post(body_of("Write these words in capitals: apple, banana, cherry", stream=True, max_tokens=200)))
            s.recv(self.random.randint(1, 900))
        return "left"

    def read_slowly(self):
        """An answer of 4 MB, of which the sockets' buffers hold 2, is not read at first: the server has to wait."""
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # before connect(), which announces it
            s.settimeout(60)
            s.connect((self.server.host, self.server.port))
            s.sendall(post(body_of("Hello", n=8, max_tokens=300, ignore_eos=True, temperature=1, stream=True, logprobs=True, top_logprobs=20)))
            time.sleep(2)
            got = bytearray()
            while b"[DONE]" not in got[-64:]:
                try:
                    piece = s.recv(4096)
                except TimeoutError:
                    return "HANGS"
                if not piece:
                    return "closed"
                got += piece
                if self.random.random() < 0.1:
                    time.sleep(0.01)
        return "200" if len(got) > 3_000_000 else f"{len(got)} bytes"

    def send_half(self):
        whole = post(body_of("Hello"))
        with self.connect() as s:
            s.sendall(whole[:self.random.randint(1, len(whole) - 1)])
        return "left"

    def claim_a_gigabyte(self):
        return self.exchange(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {1 << 30}\r\n\r\n".encode() + b"x" * 4096)

    def chunk_without_end(self):
        return self.flood(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode(),
                          b"10000\r\n" + b"x" * 65536 + b"\r\n", 96)

    def claim_a_huge_chunk(self):
        return self.flood(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n".encode(), b"x" * 65536, 96)

    def request_line_without_end(self):
        return self.flood(b"GET /", b"a" * 65536, 48)

    def headers_without_end(self):
        return self.flood(b"GET /health HTTP/1.1\r\n", b"".join(b"X-%d: %s\r\n" % (i, b"y" * 100) for i in range(600)), 48)

    def header_without_end(self):
        return self.flood(b"GET /health HTTP/1.1\r\nX: ", b"y" * 65536, 48)

    def flood(self, begin, piece, count):
        """Sends the piece until the server has had enough, or all are sent."""
        with self.connect(20) as s:
            try:
                s.sendall(begin)
                for _ in range(count):
                    s.sendall(piece)
                s.shutdown(socket.SHUT_WR)
                head = s.recv(4096)
            except (ConnectionError, BrokenPipeError):
                return "closed"
            except TimeoutError:
                return "HANGS"
        return head.split(b" ")[1].decode() if head.startswith(b"HTTP/") else "closed"

    def nest_deeply(self):
        depth = self.random.choice([65, 1000, 100000])
        return self.exchange(post(b'{"messages": ' + b"[" * depth + b"]" * depth + b"}"))

    def bad_utf8(self):
        return self.exchange(post(b'{"messages": [{"role": "user", "content": "\xff\xfe\xc0\xaf"}]}'))

    def odd_number(self):
        name, value = self.random.choice(NUMBERS), self.random.choice(ODD)
        status, want = self.exchange(post(body_of("Hello", **{name: value}))), "200" if accepted(name, value) else "400"
        return status if status in (want, "429") else f"WRONG: {status} in place of {want} for {name} {value!r}"

    def odd_number_elsewhere(self):
        path = self.random.choice(list(NUMBERS_OF))
        body, names = NUMBERS_OF[path]
        odd = self.random.choice(ODD)
        field, dot, inner = self.random.choice(names).partition(".")
        value = self.random.choice([odd, [odd]])
        return self.exchange(post(json.dumps({**body, field: {**body[field], inner: value} if dot else value}).encode(), path))

    def odd_shape(self):
        body = self.random.choice([b"", b"[]", b"null", b'"text"', b"{", b'{"messages": 5}', b'{"messages": [5]}', b'{"messages": []}',
                                   b'{"messages": [{"role": 5}]}', b'{"messages": [{"role": "user", "content": {}}]}',
                                   b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
                                   b'{"messages": [{"role": "tool", "tool_calls": [1, {"function": 2}]}], "tools": 7}'])
        return self.exchange(post(body))

    def detokenize_much(self):
        return self.exchange(post(b'{"tokens": [' + b"99," * (2 ** 20) + b"99]}", "/detokenize"))

    def garbage(self):
        return self.exchange(self.random.randbytes(self.random.randint(1, 3000)) + b"\r\n\r\n", timeout=20)

    def be_good(self):
        return self.exchange(post(body_of(self.random.choice(QUESTIONS), stream=self.random.random() < 0.3)))


RARE = ["chunk_without_end", "claim_a_huge_chunk", "request_line_without_end", "headers_without_end", "header_without_end", "read_slowly",
        "detokenize_much"]
OFTEN = ["leave_at_once", "leave_in_the_middle", "send_half", "claim_a_gigabyte", "nest_deeply", "bad_utf8", "odd_number", "odd_number_elsewhere", "odd_shape",
         "garbage", "be_good"]


def memory_of(server):
    """Bytes that are resident beside the states and the prefix cache, which may fill their --memory."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        resident = int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) << 10
    return resident - int(server.metric("braid:memory_bytes"))


def settle(server):
    """Waits until nothing runs any more."""
    for _ in range(600):
        if server.metric("vllm:num_requests_running") == 0 and server.metric("vllm:num_requests_waiting") == 0:
            return
        time.sleep(0.1)
    raise AssertionError("requests are left over:\n" + server.ask("/metrics"))


class Abuse(Case):
    def test_everybody_else_is_served(self):
        server = Server("--parallel", 4, "--memory", "96MiB", model="tiny")
        self.addCleanup(lambda: server.process.poll() is None and server.stop(signal.SIGKILL))
        texts = {q: server.chat({"role": "user", "content": q}, temperature=0)["choices"][0]["message"] for q in QUESTIONS}
        warm = [Client(server, 1000 + i) for i in range(4)]
        for name in OFTEN + RARE:  # everything once, so that what is allocated once is
            getattr(warm[0], name)()
        settle(server)
        before, counts, wrong, over = memory_of(server), Counter(), [], threading.Event()

        def abuse(seed):
            client = Client(server, seed)
            for i in range(seed, REQUESTS, 8):
                name = client.random.choice(RARE) if i % 40 == 7 else client.random.choice(OFTEN)
                try:
                    result = getattr(client, name)()
                except OSError as error:
                    result = f"{type(error).__name__}"
                counts[f"{name}: {result}"] += 1

        def watch():
            while not over.is_set():
                for q, text in texts.items():
                    try:
                        message = server.chat({"role": "user", "content": q}, temperature=0)["choices"][0]["message"]
                    except (AssertionError, OSError, http.client.HTTPException) as error:
                        wrong.append(f"{q}: {error}")
                        continue
                    if message != text:
                        wrong.append(f"{q}: {message} in place of {text}")
                    time.sleep(0.05)

        threads = [threading.Thread(target=abuse, args=(seed,)) for seed in range(8)]
        watcher = threading.Thread(target=watch)
        watcher.start()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        over.set()
        watcher.join()
        self.assertIsNone(server.process.poll(), "it has ended")
        settle(server)
        grown = memory_of(server) - before
        print(f"{sum(counts.values())} requests, memory {grown / (1 << 20):+.1f} MiB")
        for what, count in sorted(counts.items()):
            print(f"  {count:6} {what}")
        self.assertEqual(wrong, [])
        self.assertLess(grown, GROWTH_MAX)
        self.assertEqual([what for what in counts if "HANGS" in what or "WRONG" in what or re.search(r": 5\d\d$", what)], [])
        for name, wants in (("claim_a_gigabyte", {"413"}), ("nest_deeply", {"400"}), ("bad_utf8", {"400"}), ("odd_shape", {"400"}),
                            ("detokenize_much", {"400"})):
            self.assertLessEqual({what for what in counts if what.startswith(name + ": ")}, {f"{name}: {w}" for w in wants | {"429"}})
        good = Counter({what: count for what, count in counts.items() if what.startswith("be_good: ")})
        self.assertGreater(good.total(), REQUESTS // 40)
        self.assertGreaterEqual(good["be_good: 200"], 0.95 * good.total(), good)  # a 429 may come in between
        self.assertEqual([what for what in counts if what.startswith("read_slowly: ") and what != "read_slowly: 200"], [])
        self.assertEqual(server.metric("braid:pages_leaked"), 0)
        self.assertLessEqual(server.metric("braid:memory_bytes"), server.metric("braid:memory_limit_bytes"))
        self.assertEqual(server.stop(), 128 + signal.SIGTERM)

    def test_every_odd_number_in_every_field(self):
        server = Server(model="tiny")
        self.addCleanup(server.stop)
        client = Client(server, 0)
        for name in NUMBERS:
            for value in ODD:
                want = "200" if accepted(name, value) else "400"
                self.assertEqual(client.exchange(post(body_of("Hello", **{"max_tokens": 2, name: value}))), want, (name, value))

    def test_overload_is_refused_and_passes(self):
        server = Server("--parallel", 2, "--queue", 4, model="tiny")
        self.addCleanup(lambda: server.process.poll() is None and server.stop(signal.SIGKILL))
        statuses, retry = Counter(), []

        def ask():
            connection, answer = server.send("POST", CHAT, body_of("Sort the letters of CASTLE.", max_tokens=200))
            answer.read()
            statuses[answer.status] += 1
            if answer.status == 429:
                retry.append(answer.headers["Retry-After"])
            connection.close()

        threads = [threading.Thread(target=ask) for _ in range(60)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(set(statuses), {200, 429})
        self.assertEqual(sum(statuses.values()), 60)
        self.assertTrue(all(r and int(r) > 0 for r in retry), retry)
        settle(server)
        self.assertIn("42", server.chat({"role": "user", "content": "What is 17 + 25?"})["choices"][0]["message"]["content"])
        server.stop()

    def test_a_burst_of_connections_is_answered(self):
        server = Server("--queue", 400, model="tiny")
        self.addCleanup(lambda: server.process.poll() is None and server.stop(signal.SIGKILL))
        sockets = [socket.create_connection((server.host, server.port), timeout=60) for _ in range(250)]
        for s in sockets:
            s.sendall(post(body_of("Who are you?", max_tokens=4)))
        self.assertEqual(Counter(s.recv(12)[-3:] for s in sockets), {b"200": 250})
        for s in sockets:
            s.close()
        server.stop()

    def test_many_answers_of_one_request_let_others_in(self):
        server = Server("--parallel", 2, "--draft", "off", model="tiny")
        self.addCleanup(lambda: server.process.poll() is None and server.stop(signal.SIGKILL))
        many = json.dumps({"prompt": ["a"] * 600, "max_tokens": 60, "ignore_eos": True}).encode()
        with socket.create_connection((server.host, server.port)) as greedy:
            greedy.sendall(post(many, "/v1/completions"))
            while server.metric("vllm:num_requests_waiting") < 32:
                time.sleep(0.01)
            server.ask("/v1/completions", {"prompt": "b", "max_tokens": 2})
            waiting = server.metric("vllm:num_requests_waiting")  # and hundreds that have not been submitted
            self.assertTrue(16 <= waiting <= 32, waiting)

    def test_many_large_requests_do_not_stop_an_answer(self):
        """A stream goes on while twenty clients ask for 1,024 answers each, and a newcomer is answered."""
        server = Server("--parallel", 4, "--draft", "off", model="tiny")
        self.addCleanup(lambda: server.process.poll() is None and server.stop(signal.SIGKILL))
        many = post(json.dumps({"prompt": [[5 + i for i in range(8)]] * 1024, "max_tokens": 8, "ignore_eos": True}).encode(), "/v1/completions")
        connection, answer = server.send("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True})
        answer.readline()
        greedy = [socket.create_connection((server.host, server.port)) for _ in range(20)]
        for s in greedy:
            s.sendall(many)
        gap, last, most = 0, time.monotonic(), time.monotonic() + 60
        while time.monotonic() < most and answer.readline():
            now = time.monotonic()
            gap, last = max(gap, now - last), now
        self.assertLess(gap, 5)
        self.assertLessEqual(server.metric("vllm:num_requests_waiting"), 20 * 32)
        begun = time.monotonic()
        server.ask("/v1/completions", {"prompt": "b", "max_tokens": 2})
        self.assertLess(time.monotonic() - begun, 20)
        for s in [*greedy, connection]:
            s.close()

    def test_a_signal_lets_running_answers_end(self):
        server = Server(model="tiny")
        connection, answer = server.send("POST", CHAT, body_of("Reverse CASTLE.", stream=True, max_tokens=200))
        first = answer.read(40)
        os.kill(server.process.pid, signal.SIGTERM)
        rest = answer.read()
        connection.close()
        self.assertTrue(b"[DONE]" in rest or b'"error"' in rest, first + rest)
        self.assertEqual(server.process.wait(30), 128 + signal.SIGTERM)
        server.process.stderr.close()

    def test_an_endless_body_is_not_read_to_its_end(self):
        """Up to a gigabyte is offered; 32 MiB of body and 4 of framing are what a request may have, and buffers hold some more."""
        server = Server(model="tiny")
        self.addCleanup(lambda: server.process.poll() is None and server.stop(signal.SIGKILL))
        before = memory_of(server)
        for head, piece in (("Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"),
                            ("Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n", b"x" * (1 << 20))):
            for path in (CHAT, "/v1/messages", "/tokenize"):
                accepted = 0
                with socket.create_connection((server.host, server.port), timeout=20) as s:
                    try:
                        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{head}".encode())
                        while accepted < 1 << 30:
                            accepted += s.send(piece[accepted % len(piece):])
                    except ConnectionError:
                        pass
                self.assertLess(accepted, 80 << 20, path)  # of the 1 GiB, socket buffers included
        settle(server)
        self.assertLess(memory_of(server) - before, GROWTH_MAX)
        server.ask(CHAT, {"messages": TURN, "max_tokens": 2})
        server.stop()

    def test_killed_with_a_file_of_prefixes(self):
        """Killed while it answers, and while it writes the file: the next server uses the file, or says in one line why not."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = Path(folder.name) / "prefixes"
        question = {"messages": [{"role": "user", "content": QUESTIONS[0]}], "temperature": 0}
        text, used = None, 0
        for i in range(6):
            server = Server("--cache-file", file, model="tiny")
            self.assertLessEqual(server.before.count("\n"), 1, server.before)
            answer = server.ask(CHAT, question)
            text = text or answer["choices"][0]["message"]
            self.assertEqual(answer["choices"][0]["message"], text)
            used += i > 0 and answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
            if i == 0:
                server.ask("/cache/save", {})
            Client(server, i).leave_in_the_middle()
            saving = threading.Thread(target=self.save_until_it_is_killed, args=(server,))
            saving.start()
            time.sleep(0.03 * i)
            server.stop(signal.SIGKILL)
            saving.join()
            if i == 4:  # what a lost write would leave
                file.write_bytes(file.read_bytes()[:-100])
        self.assertGreaterEqual(used, 4)
        self.assertIn("is ignored", server.before)

    @staticmethod
    def save_until_it_is_killed(server):
        try:
            while True:
                server.ask("/cache/save", {})
        except (OSError, AssertionError, http.client.HTTPException):
            pass

    def test_killed_and_started_again(self):
        server = Server(model="tiny")
        text = server.chat({"role": "user", "content": QUESTIONS[0]})["choices"][0]["message"]
        Client(server, 5).leave_in_the_middle()
        server.stop(signal.SIGKILL)
        again = Server(model="tiny")
        self.assertEqual(again.chat({"role": "user", "content": QUESTIONS[0]})["choices"][0]["message"], text)
        again.stop()


if __name__ == "__main__":
    main()
