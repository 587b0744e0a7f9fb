"""braid serve from outside, with plain HTTP: answers, streams, tools, refusals, the cache of prefixes, and how it stops.

usage: serve_http_test.py BRAID
"""
import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time

from support.program import BRAID, DATA, ENVIRONMENT, Case, braid, main

CHAT = str(DATA / "tiny-chat")
SUM = {"role": "user", "content": "What is 17 + 25?"}
CALCULATOR = {"type": "function", "function": {"name": "calculator", "parameters": {
    "type": "object", "properties": {"expression": {"type": "string"}}}}}


class Server:
    def __init__(self, *words, model=CHAT):
        self.process = subprocess.Popen([BRAID, "serve", model, "--port", "0", "--temp", "0", *map(str, words)], env=ENVIRONMENT,
                                        stderr=subprocess.PIPE, text=True)
        self.greeting = self.process.stderr.readline()
        found = re.search(r"at http://([^:]+):(\d+)$", self.greeting.strip())
        assert found, self.greeting + self.process.stderr.read()
        self.host, self.port = found.group(1), int(found.group(2))

    def send(self, method, path, body=None, headers=()):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        text = body if isinstance(body, (str, bytes, type(None))) else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json", **dict(headers)})
        return connection, connection.getresponse()

    def ask(self, path, body=None, status=200, **headers):
        connection, answer = self.send("POST" if body is not None else "GET", path, body, headers)
        text = answer.read().decode()
        connection.close()
        assert answer.status == status, (answer.status, text)
        return json.loads(text) if "json" in answer.headers["Content-Type"] else text

    def chat(self, *messages, **more):
        return self.ask("/v1/chat/completions", {"model": "any", "messages": messages, **more})

    def events(self, path, body):
        """The data of every event of a stream, [DONE] included, and the comments."""
        connection, answer = self.send("POST", path, {**body, "stream": True})
        assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream", answer.read()
        blocks = answer.read().decode().split("\n\n")
        connection.close()
        assert blocks.pop() == ""
        return [b[6:] for b in blocks if b.startswith("data: ")], [b for b in blocks if not b.startswith("data: ")]

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(20)
        self.process.stderr.close()
        return code


class Serve(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_an_answer_is_that_of_run(self):
        for think in (True, False):
            want = json.loads(braid("run", CHAT, "--chat", SUM["content"], "--think", "on" if think else "off", "--temp", 0, "--json").stdout)
            got = self.server.chat(SUM, chat_template_kwargs={"enable_thinking": think})
            choice = got["choices"][0]
            self.assertEqual(choice["message"]["content"], want["text"])
            self.assertEqual(choice["message"].get("reasoning_content", ""), want["reasoning"])
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertEqual(got["usage"]["prompt_tokens"], len(want["prompt_ids"]))
            self.assertEqual(got["usage"]["completion_tokens"], len(want["ids"]))
            self.assertEqual(got["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0, think)
            self.assertEqual((got["object"], got["model"]), ("chat.completion", "tiny-chat"))
        effort = self.server.chat(SUM, reasoning_effort="none")
        self.assertEqual(effort["choices"], got["choices"])

    def test_streams_join_to_the_whole_answer(self):
        whole = self.server.chat(SUM)["choices"][0]["message"]
        data, _ = self.server.events("/v1/chat/completions", {"messages": [SUM], "stream_options": {"include_usage": True}})
        self.assertEqual(data.pop(), "[DONE]")
        chunks = [json.loads(d) for d in data]
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertGreater(chunks.pop()["usage"]["completion_tokens"], 10)
        self.assertEqual(len({c["id"] for c in chunks}), 1)
        deltas = [c["choices"][0]["delta"] for c in chunks]
        self.assertEqual(deltas[0], {"role": "assistant", "content": ""})
        self.assertEqual("".join(d.get("content", "") for d in deltas), whole["content"])
        self.assertEqual("".join(d.get("reasoning_content", "") for d in deltas), whole["reasoning_content"])
        self.assertEqual([c["choices"][0]["finish_reason"] for c in chunks], [None] * (len(chunks) - 1) + ["stop"])
        self.assertTrue(all(c["usage"] is None for c in chunks))

    def test_many_at_once_get_what_one_gets(self):
        questions = [f"What is {n} + {n + 3}?" for n in range(12, 24)]
        alone = [self.server.chat({"role": "user", "content": q})["choices"][0]["message"] for q in questions]
        found = [None] * len(questions)

        def ask(i):
            found[i] = self.server.chat({"role": "user", "content": questions[i]})["choices"][0]["message"]
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(questions))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([m["content"] for m in found], [m["content"] for m in alone])

    def test_a_second_turn_reads_only_what_is_new(self):
        first = self.server.chat(SUM)
        message = first["choices"][0]["message"]
        turn = [SUM, message, {"role": "user", "content": "What is 3 + 4?"}]
        second = self.server.chat(*turn)
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        # All of the first prompt but the few tokens that open an answer.
        self.assertGreater(cached, first["usage"]["prompt_tokens"] - 8)
        again = self.server.chat(*turn)
        self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], second["usage"]["prompt_tokens"] - 8)
        self.assertEqual(again["choices"][0]["message"], second["choices"][0]["message"])

    def test_a_tool_call(self):
        question = {"role": "user", "content": "What is 345 * 678?"}
        server = Server(model="tiny")
        self.addCleanup(server.stop)
        body = {"messages": [question], "tools": [CALCULATOR], "reasoning_effort": "none"}
        whole = server.ask("/v1/chat/completions", body)["choices"][0]
        data, _ = server.events("/v1/chat/completions", body)
        deltas = [json.loads(d)["choices"][0] for d in data[:-1]]
        streamed = [call for d in deltas for call in d["delta"].get("tool_calls", [])]
        self.assertEqual(whole["finish_reason"], "tool_calls", whole)
        for call in (*whole["message"]["tool_calls"], *streamed):
            self.assertEqual((call["type"], call["function"]["name"]), ("function", "calculator"))
            self.assertIn("345", json.loads(call["function"]["arguments"])["expression"])
        self.assertEqual(len(streamed), 1)
        self.assertEqual(deltas[-1]["finish_reason"], "tool_calls")
        self.assertNotIn("<tool_call>", json.dumps(deltas))
        # The call comes back, with arguments as text, and its result.
        call = whole["message"]["tool_calls"][0]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "233910"}
        answer = server.chat(question, whole["message"], result, tools=[CALCULATOR], reasoning_effort="none")
        self.assertEqual(answer["choices"][0]["message"]["content"], "233910")

    def test_limits_stops_and_log_probabilities(self):
        cut = self.server.chat(SUM, max_tokens=3)
        self.assertEqual((cut["choices"][0]["finish_reason"], cut["usage"]["completion_tokens"]), ("length", 3))
        text = self.server.chat(SUM, reasoning_effort="none")["choices"][0]["message"]["content"]
        stopped = self.server.chat(SUM, reasoning_effort="none", stop=[text[1:]])["choices"][0]
        self.assertEqual((stopped["message"]["content"], stopped["finish_reason"]), (text[:1], "stop"))
        probable = self.server.chat(SUM, logprobs=True, top_logprobs=2, max_tokens=4)["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(probable), 4)
        for token in probable:
            self.assertEqual(bytes(token["bytes"]).decode(errors="replace"), token["token"])
            self.assertEqual(token["top_logprobs"][0]["id"], token["id"])

    def test_seeds(self):
        hot = {"temperature": 6, "max_tokens": 24}
        same = [self.server.chat(SUM, seed=7, **hot)["choices"][0]["message"] for _ in range(2)]
        self.assertEqual(*same)
        self.assertGreater(len({json.dumps(self.server.chat(SUM, **hot)["choices"][0]["message"]) for _ in range(4)}), 1)

    def test_completions(self):
        ids = self.server.ask("/tokenize", {"content": "What is"})["tokens"]
        self.assertEqual(self.server.ask("/detokenize", {"tokens": ids})["content"], "What is")
        want = json.loads(braid("run", CHAT, "-p", "What is", "-n", 8, "--temp", 0, "--json").stdout)["text"]
        got = self.server.ask("/v1/completions", {"prompt": ["What is", ids], "max_tokens": 8})
        self.assertEqual([c["text"] for c in got["choices"]], [want, want])
        data, _ = self.server.events("/v1/completions", {"prompt": "What is", "max_tokens": 8})
        self.assertEqual("".join(json.loads(d)["choices"][0]["text"] for d in data[:-1]), want)

    def test_refusals_are_json_and_leave_a_server(self):
        chat = "/v1/chat/completions"
        for path, body, status, says in (
                (chat, "{", 400, "body"),
                (chat, "[]", 400, "not a JSON object"),
                (chat, "[" * 100000, 400, "body"),
                (chat, {}, 400, "messages"),
                (chat, {"messages": []}, 400, "messages"),
                (chat, {"messages": [{"role": "user", "content": 5}]}, 400, "content"),
                (chat, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "not text"),
                (chat, {"messages": [SUM], "temperature": "hot"}, 400, "temperature"),
                (chat, {"messages": [SUM], "top_p": 2}, 400, "top_p"),
                (chat, {"messages": [SUM], "n": 2}, 400, "'n'"),
                (chat, {"messages": [SUM], "response_format": {"type": "xml"}}, 400, "response_format"),
                (chat, {"messages": [SUM], "max_tokens": 0}, 400, "max_tokens"),
                (chat, {"messages": [{"role": "user", "content": "a " * 9000}]}, 400, "context"),
                (chat, {"messages": [SUM], "tools": [{}]}, 400, "tool"),
                (chat, {"messages": [SUM], "stop": [""]}, 400, "stop"),
                (chat, {"messages": [SUM], "chat_template_kwargs": 5}, 400, "chat_template_kwargs"),
                (chat, {"messages": [SUM], "reasoning_effort": "silly"}, 400, "reasoning_effort"),
                (chat, {"messages": [SUM], "logprobs": True, "stream": True}, 400, "logprobs"),
                (chat, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]}, 400,
                 "not a JSON object"),
                (chat, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[" * 9999}}]}]}, 400,
                 "arguments"),
                (chat, None, 405, "expected POST"),
                ("/v1/completions", {"prompt": [10 ** 9]}, 400, "no token"),
                ("/v1/completions", {"prompt": "a", "echo": True}, 400, "echo"),
                ("/v1/nothing", {}, 404, "no such request"),
                ("/detokenize", {"tokens": [-1]}, 400, "token"),
                ("/detokenize", '{"tokens": [' + "[" * 1000000 + "]" * 1000000 + "]}", 400, "body"),
                (chat, {"messages": [SUM], "response_format": 5}, 400, "response_format"),
                ("/tokenize", {}, 400, "no text")):
            error = self.server.ask(path, body, status)["error"]
            self.assertIn(says, error["message"], (path, str(body)[:80]))
            self.assertTrue(error["type"].endswith("_error"), error)
        self.assertEqual(self.server.ask("/health"), {"status": "ok"})
        self.assertEqual(self.server.chat(SUM)["choices"][0]["finish_reason"], "stop")

    def test_the_type_of_a_body_does_not_matter(self):
        body = json.dumps({"messages": [{"role": "user", "content": "a" * 10000}], "max_tokens": 1})
        for kind in ("application/json", "application/x-www-form-urlencoded", "text/plain"):
            connection, answer = self.server.send("POST", "/v1/chat/completions", body, {"Content-Type": kind})
            text = answer.read().decode()
            connection.close()
            self.assertIn("context", json.loads(text)["error"]["message"], kind)

    def test_a_client_that_leaves_ends_its_answer(self):
        body = json.dumps({"messages": [SUM], "stream": True, "ignore_eos": True, "max_tokens": 4000}).encode()
        with socket.create_connection((self.server.host, self.server.port)) as s:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            s.recv(200)
        deadline = time.monotonic() + 30
        while self.metric("vllm:num_requests_running") > 0:
            self.assertLess(time.monotonic(), deadline, "the answer goes on without its reader")
            time.sleep(0.05)

    def metric(self, name):
        return int(re.search(rf"^{name} (\d+)$", self.server.ask("/metrics"), re.M).group(1))

    def test_models_and_metrics(self):
        model = self.server.ask("/v1/models")["data"][0]
        self.assertEqual((model["id"], model["max_model_len"]), ("tiny-chat", 4096))
        self.assertEqual(self.server.ask("/v1/models/tiny-chat"), model)
        self.server.ask("/v1/models/other", status=404)
        before = self.metric("vllm:generation_tokens_total")
        answer = self.server.chat(SUM)
        self.assertEqual(self.metric("vllm:generation_tokens_total") - before, answer["usage"]["completion_tokens"])


class Starting(Case):
    def test_keys(self):
        server = Server("--api-key", "secret", "--alias", "mine", "--parallel", 1, "--cached-prefixes", 0)
        self.addCleanup(server.stop)
        body = {"messages": [SUM], "max_tokens": 2}
        for headers in ({}, {"Authorization": "Bearer wrong!"}, {"x-api-key": "secre"}, {"Authorization": "secret"}):
            self.assertEqual(server.ask("/v1/chat/completions", body, 401, **headers)["error"]["type"], "authentication_error")
        for headers in ({"Authorization": "Bearer secret"}, {"x-api-key": "secret"}):
            self.assertEqual(server.ask("/v1/chat/completions", body, **headers)["model"], "mine")
        self.assertEqual(server.ask("/health"), {"status": "ok"})

    def test_it_stops_while_it_answers(self):
        for how, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            server = Server()
            connection, answer = server.send("POST", "/v1/chat/completions", {"messages": [SUM], "stream": True, "ignore_eos": True,
                                                                             "max_tokens": 4000})
            answer.read(100)
            self.assertEqual(server.stop(how), code)
            connection.close()

    def test_refused_at_the_start(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.assertRefused(braid("serve", CHAT, "--port", taken.getsockname()[1]), "cannot listen")
        other = Server()
        self.addCleanup(other.stop)
        self.assertRefused(braid("serve", CHAT, "--port", other.port), "cannot listen")
        # Found after the port is bound.
        self.assertRefused(braid("serve", CHAT, "--port", 0, "-c", 100000, timeout=20), "context")
        self.assertRefused(braid("serve", CHAT, "--port", 0, "--temp", -3, timeout=20), "temp")
        self.assertRefused(braid("serve", CHAT, "--host", "0.0.0.0"), "--api-key")
        self.assertRefused(braid("serve", CHAT, "--parallel", 0), "--parallel")
        self.assertRefused(braid("serve", "nothing-here", "--port", 0), "nothing-here")


if __name__ == "__main__":
    main()
