"""braid serve: fields and habits of other servers' clients, each with what it changes in the answer or with a refusal.

usage: serve_fields_test.py BRAID
"""
import gzip
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request

from support.program import BRAID, ENVIRONMENT, Case, braid, main
from support.server import Server, ServerCase

SUM = {"role": "user", "content": "What is 17 + 25?"}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Fields(ServerCase):
    model = "tiny"

    def thinks(self, **more):
        return "reasoning_content" in self.server.chat(SUM, max_tokens=40, **more)["choices"][0]["message"]

    def test_switches_of_thinking(self):
        self.assertTrue(self.thinks())
        for off in ({"thinking": {"type": "disabled"}}, {"reasoning": {"effort": "none"}}, {"reasoning": {"enabled": False}},
                    {"enable_thinking": False}, {"reasoning_effort": "high", "enable_thinking": False}):
            self.assertFalse(self.thinks(**off), off)
            self.assertTrue(self.thinks(**off, chat_template_kwargs={"enable_thinking": True}), off)
        for on in ({"thinking": {"type": "enabled"}}, {"reasoning": {"effort": "low"}}, {"enable_thinking": True}):
            self.assertTrue(self.thinks(**on), on)
        for wrong in ({"thinking": {"type": "often"}}, {"thinking": True}, {"reasoning": "none"}, {"reasoning": {"effort": "some"}},
                      {"enable_thinking": "no"}):
            error = self.server.ask(CHAT, {"messages": [SUM], **wrong}, 400)["error"]
            self.assertEqual(error["param"], next(iter(wrong)))

    def test_log_probabilities_of_responses(self):
        """Those of the text's tokens alone, as chat has them; neither of thinking and its tags nor of calls."""
        wanted = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        chat = self.server.chat(SUM, max_tokens=60, logprobs=True, top_logprobs=2)["choices"][0]
        by_chat = [t for t in chat["logprobs"]["content"] if not t["token"].startswith("<|")]
        body = {"input": [SUM], "max_output_tokens": 60, **wanted}
        part = self.server.ask("/v1/responses", body)["output"][-1]["content"][0]
        self.assertEqual(part["text"], chat["message"]["content"])
        self.assertEqual("".join(t["token"] for t in part["logprobs"]), part["text"])
        self.assertEqual(len(part["logprobs"][0]["top_logprobs"]), 2)
        def near(tokens):
            return [(t["id"], round(t["logprob"], 1)) for t in tokens]
        self.assertEqual(near(part["logprobs"]), near(by_chat[-len(part["logprobs"]):]))
        events = [json.loads(e.split("data: ")[1]) for e in self.server.events("/v1/responses", body)[1]]
        def of(kind):
            return [e for e in events if e["type"] == f"response.output_text.{kind}"]
        for delta in of("delta"):
            self.assertEqual("".join(t["token"] for t in delta["logprobs"]), delta["delta"])
        self.assertEqual([t for d in of("delta") for t in d["logprobs"]], of("done")[0]["logprobs"])
        self.assertEqual(events[-1]["response"]["output"][-1]["content"][0]["logprobs"], of("done")[0]["logprobs"])
        plain = self.server.ask("/v1/responses", {"input": [SUM], "max_output_tokens": 60, "top_logprobs": 2})
        self.assertEqual(plain["output"][-1]["content"][0]["logprobs"], [])
        self.assertEqual(self.server.ask("/v1/responses", {"input": [SUM], "include": 5}, 400)["error"]["param"], "include")
        # Text before a call, and none of the call's tokens.
        tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
        call = {"input": [SUM], "tools": [tool], "tool_choice": "required", "reasoning": {"effort": "none"}, **wanted}
        for item in self.server.ask("/v1/responses", call)["output"]:
            for content in item.get("content", ()):
                self.assertEqual("".join(t["token"] for t in content["logprobs"]), content["text"])

    def complete(self, status=200, **more):
        return self.server.ask(COMPLETIONS, {"prompt": "17 + 25 =", "max_tokens": 8, "logprobs": 0, **more}, status)

    def test_stop_token_ids(self):
        plain = self.complete()["choices"][0]
        tokens = plain["logprobs"]["tokens"]
        self.assertGreater(len(tokens), 3)
        third = tokens[2]
        id = self.server.ask("/tokenize", {"content": third})["tokens"]
        self.assertEqual(len(id), 1, tokens)
        first = tokens.index(third)
        stopped = self.complete(stop_token_ids=id)["choices"][0]
        self.assertEqual((stopped["text"], stopped["finish_reason"]), ("".join(tokens[:first]), "stop"))
        shown = self.complete(stop_token_ids=id, include_stop_str_in_output=True)["choices"][0]
        self.assertEqual((shown["text"], shown["finish_reason"]), ("".join(tokens[:first + 1]), "stop"))
        self.assertEqual(self.complete(stop_token_ids=id, ignore_eos=True)["choices"][0]["text"], stopped["text"])
        for wrong in (5, [-1], [10 ** 9], ["a"], [2 ** 64 - 1], [1.5]):
            self.assertEqual(self.complete(400, stop_token_ids=wrong)["error"]["param"], "stop_token_ids")

    def test_stop_texts_that_are_shown(self):
        plain = self.complete()["choices"][0]["text"]
        stop = plain[2:4]
        at = plain.index(stop)
        self.assertEqual(self.complete(stop=stop)["choices"][0]["text"], plain[:at])
        self.assertEqual(self.complete(stop=stop, include_stop_str_in_output=True)["choices"][0]["text"], plain[:at + len(stop)])
        self.assertEqual(self.complete(stop="")["choices"][0]["text"], plain)

    def test_min_tokens(self):
        body = {"reasoning_effort": "none", "max_tokens": 64}
        short = self.server.chat(SUM, **body)
        self.assertLess(short["usage"]["completion_tokens"], 20)
        long = self.server.chat(SUM, **body, min_tokens=20)
        self.assertGreaterEqual(long["usage"]["completion_tokens"], 20)
        text = short["choices"][0]["message"]["content"]
        self.assertTrue(long["choices"][0]["message"]["content"].startswith(text))
        stopped = self.server.chat(SUM, **body, stop=text[-1])
        self.assertEqual(stopped["choices"][0]["message"]["content"], text[:text.index(text[-1])])
        later = self.server.chat(SUM, **body, stop=text[-1], min_tokens=20)
        self.assertGreaterEqual(later["usage"]["completion_tokens"], 20)
        # A form that is complete ends all the same.
        choice = self.server.chat(SUM, **body, guided_choice=["yes", "no"], min_tokens=20)["choices"][0]
        self.assertIn(choice["message"]["content"], ("yes", "no"))

    def test_min_tokens_of_a_model_that_thinks(self):
        """They count thinking, as vLLM's do; a model that may not end writes no tags of thinking into its answer."""
        for more in ({}, {"reasoning_effort": "none"}, {"temperature": 1, "seed": 3}):
            for least in (40, 120, 200):
                got = self.server.chat(SUM, max_tokens=200, min_tokens=least, **more)
                self.assertGreaterEqual(got["usage"]["completion_tokens"], least)
                content = got["choices"][0]["message"]["content"] or ""
                self.assertNotRegex(content, "</?think>", (more, least))

    def test_fields_that_would_change_the_answer_are_refused(self):
        for field, value, default in (("prompt_logprobs", 1, None), ("bad_words", ["a"], []), ("truncate_prompt_tokens", 5, None),
                                      ("allowed_token_ids", [5], None), ("use_beam_search", True, False), ("chat_template", "x", None)):
            for path, body in ((CHAT, {"messages": [SUM]}), (COMPLETIONS, {"prompt": "a"}), ("/v1/responses", {"input": "a"})):
                error = self.server.ask(path, {**body, field: value, "max_tokens": 1}, 400)["error"]
                self.assertEqual((error["param"], error["code"]), (field, "unsupported_parameter"))
                self.server.ask(path, {**body, field: default, "max_tokens": 1})

    def test_integers_beyond_64_bits(self):
        for digits in ("12345678901234567890", "-98765432109876543210", "123456789012345678901234567890"):
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"id": %s}' % digits}}
            schema = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 12345678901234567890}}}
            tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
            # `echo` shows no prompt of a chat: the template is asked through its tokens.
            before = self.server.chat(SUM, {"role": "assistant", "content": None, "tool_calls": [call]},
                                      {"role": "tool", "tool_call_id": "c", "content": "ok"}, tools=tools, max_tokens=1)
            self.assertEqual(before["choices"][0]["finish_reason"], "length")
            # In a form they are written digit by digit.
            only = {"type": "object", "properties": {"id": {"enum": [int(digits)]}}, "required": ["id"]}
            shown = self.server.chat(SUM, reasoning_effort="none", max_tokens=80, guided_json=only)["choices"][0]
            self.assertEqual(json.loads(shown["message"]["content"]), {"id": int(digits)})
            called = self.server.ask("/v1/messages", {"messages": [SUM], "max_tokens": 200, "thinking": {"type": "disabled"},
                                                      "tools": [{"name": "f", "input_schema": only}], "tool_choice": {"type": "any"}})
            self.assertEqual(called["content"][-1]["input"], {"id": int(digits)})
        error = self.server.ask(CHAT, {"messages": [SUM], "guided_json": {"type": "integer", "minimum": 10 ** 22}}, 400)["error"]
        self.assertIn("a number beyond 64 bits at /minimum; got 10000000000000000000000; expected at most 18 digits", error["message"])
        error = self.server.ask(CHAT, {"messages": [SUM], "stop_token_ids": [10 ** 22]}, 400)["error"]
        self.assertEqual(error["message"], f"'stop_token_ids' holds what is not a token id: {10 ** 22}")
        error = self.server.ask(CHAT, {"messages": [SUM], "seed": 2 ** 64}, 400)["error"]
        self.assertEqual(error["message"], f"'seed' is not a number from -9223372036854775808 to 9223372036854775807; got {2 ** 64}")

    def test_parameters_that_are_no_schema_are_refused_with_any_choice(self):
        for parameters, says in (({"properties": 5}, "'properties' of tool f are not an object of schemas"),
                                 ({"properties": {"a": "string"}}, "'properties' of tool f are not an object of schemas"),
                                 ({"required": "a"}, "'required' of tool f is not a list of names"),
                                 ({"properties": [], "required": [], "x": 1, "minProperties": 9}, "")):
            body = {"messages": [SUM], "max_tokens": 1,
                    "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]}
            for choice in ("auto", "none"):
                answer = self.server.ask(CHAT, {**body, "tool_choice": choice}, 400 if says else 200)
                self.assertIn(says, answer.get("error", {"message": ""})["message"])

    def test_offsets_count_characters(self):
        prompt = "日本語 é word"
        got = self.complete(prompt=prompt, echo=True, max_tokens=4)["choices"][0]
        logprobs = got["logprobs"]
        self.assertTrue(got["text"].startswith(prompt))
        self.assertEqual(logprobs["text_offset"][0], 0)
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
            if "\ufffd" not in token:
                self.assertEqual(got["text"][offset:offset + len(token)], token)
        at = next(i for i, token in enumerate(logprobs["tokens"]) if token.endswith("word") or token == " word" or token == " w")
        self.assertIn(logprobs["text_offset"][at], (5, 6), list(zip(logprobs["tokens"], logprobs["text_offset"])))

    def test_bodies_in_another_coding(self):
        body = gzip.compress(json.dumps({"messages": [SUM]}).encode())
        for path in (CHAT, "/v1/messages"):
            self.assertIn("gzip", json.dumps(self.server.ask(path, body, 415, **{"Content-Encoding": "gzip"})))
        self.server.ask("/tokenize", {"content": "a"}, **{"Content-Encoding": "identity"})

    def test_stop_sequences_of_messages(self):
        body = {"messages": [SUM], "max_tokens": 4}
        for stops in (["a"] * 17, [""], 5):
            message = self.server.ask("/v1/messages", {**body, "stop_sequences": stops}, 400)["error"]["message"]
            self.assertIn("'stop_sequences'", message)

    def test_an_assistants_turn_of_thinking_alone(self):
        turn = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
        answer = self.server.ask("/v1/messages", {"messages": [SUM, turn], "max_tokens": 40})
        self.assertEqual(answer["content"][0]["type"], "text")

    def test_tokens_of_messages(self):
        body = {"messages": [SUM], "chat_template_kwargs": {"enable_thinking": False}}
        got = self.server.ask("/tokenize", body)
        used = self.server.chat(SUM, chat_template_kwargs=body["chat_template_kwargs"], max_tokens=1)["usage"]["prompt_tokens"]
        self.assertEqual((got["count"], len(got["tokens"]), got["max_model_len"]), (used, used, 4096))
        self.assertTrue(self.server.ask("/detokenize", {"tokens": got["tokens"]})["content"].endswith("<think></think>"))
        self.assertEqual(self.server.ask("/tokenize", {"messages": 5}, 400)["error"]["param"], "messages")

    def test_models_in_anthropics_form(self):
        headers = {"anthropic-version": "2023-06-01"}
        listed = self.server.ask("/v1/models", **headers)
        self.assertEqual((listed["has_more"], listed["first_id"], listed["last_id"]), (False, "tiny", "tiny"))
        self.assertEqual(listed["data"][0], self.server.ask("/v1/models/tiny", **headers))
        self.assertEqual(self.server.ask("/v1/models/other", None, 404, **headers)["error"]["type"], "not_found_error")
        self.assertEqual(self.server.ask("/v1/models")["object"], "list")

    def test_a_prompt_that_is_too_long_says_how_long(self):
        error = self.server.ask(CHAT, {"messages": [{"role": "user", "content": "a " * 9000}]}, 400)["error"]
        self.assertEqual((error["type"], error["n_ctx"]), ("exceed_context_size_error", 4096))
        self.assertIn(f"{error['n_prompt_tokens']} tokens", error["message"])

    def request(self, body, version=b"1.1"):
        text = json.dumps(body).encode()
        return (b"POST " + CHAT.encode() + b" HTTP/" + version + b"\r\nHost: localhost\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(text), text))

    def test_a_client_that_closes_its_end_gets_its_answer(self):
        body = {"messages": [SUM], "ignore_eos": True, "max_tokens": 300}
        for stream in (False, True):
            with socket.create_connection((self.server.host, self.server.port), timeout=60) as s:
                s.sendall(self.request({**body, "stream": stream}))
                s.shutdown(socket.SHUT_WR)
                answer = b""
                while block := s.recv(65536):
                    answer += block
            end = b'"finish_reason":"length"'
            self.assertIn(end, answer[-2000:])
            self.assertIn(b"HTTP/1.1 200 OK", answer)

    def test_a_client_that_leaves_ends_its_answer(self):
        for version, stream in ((b"1.1", False), (b"1.0", False), (b"1.1", True)):
            body = {"messages": [SUM], "ignore_eos": True, "max_tokens": 3900, "stream": stream}
            before = self.server.metric("vllm:generation_tokens_total")
            with socket.create_connection((self.server.host, self.server.port)) as s:
                s.sendall(self.request(body, version))
                while self.server.metric("vllm:num_requests_running") == 0:
                    time.sleep(0.01)
            while self.server.metric("vllm:num_requests_running") > 0:
                time.sleep(0.05)
            self.assertLess(self.server.metric("vllm:generation_tokens_total") - before, 3000, (version, stream))


class Keys(ServerCase):
    words = ("--api-key", "secret")

    def test_either_header_will_do(self):
        for headers, status in (({"Authorization": "Bearer other", "x-api-key": "secret"}, 200),
                                ({"Authorization": "Bearer secret", "x-api-key": "other"}, 200),
                                ({"Authorization": "Bearer other", "x-api-key": "other"}, 401), ({"x-api-key": ""}, 401),
                                ({"Authorization": "Basic secret"}, 401), ({}, 401)):
            self.server.ask("/v1/models", None, status, **headers)


class OtherPages(ServerCase):
    words = ("--api-key", "secret", "--cors", "https://a.example,http://localhost:3000")

    def headers(self, method, origin, status, **more):
        connection, answer = self.server.send(method, "/v1/models", headers={"Origin": origin, **more})
        answer.read()
        connection.close()
        self.assertEqual(answer.status, status, origin)
        return answer.headers

    def test_they_may_use_it_if_they_are_named(self):
        key = {"Authorization": "Bearer secret"}
        for origin in ("https://a.example", "http://localhost:3000"):
            self.assertEqual(self.headers("GET", origin, 200, **key)["Access-Control-Allow-Origin"], origin)
            self.assertEqual(self.headers("GET", origin, 401)["Access-Control-Allow-Origin"], origin)
            asked = {"Access-Control-Request-Method": "POST",
                     "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang,anthropic-version"}
            told = self.headers("OPTIONS", origin, 204, **asked)
            self.assertEqual((told["Access-Control-Allow-Origin"], told["Vary"]), (origin, "Origin"))
            self.assertEqual(told["Access-Control-Allow-Headers"], asked["Access-Control-Request-Headers"])
            self.assertIn("POST", told["Access-Control-Allow-Methods"])
        for origin in ("https://b.example", "http://a.example", "null", "https://a.example.evil.example"):
            self.assertIsNone(self.headers("GET", origin, 403, **key)["Access-Control-Allow-Origin"])
            self.assertIsNone(self.headers("OPTIONS", origin, 403, **{"Access-Control-Request-Method": "POST"})["Access-Control-Allow-Origin"])

    def test_all_of_them(self):
        server = Server("--cors", "*")
        self.addCleanup(server.stop)
        connection, answer = server.send("POST", "/tokenize", {"content": "a"}, {"Origin": "https://any.example"})
        self.assertEqual((answer.status, answer.headers["Access-Control-Allow-Origin"]), (200, "https://any.example"))
        connection.close()
        for wrong in ("a.example", "https://", "https://a.example/", "https://a b"):
            self.assertRefused(braid("serve", "tiny", "--port", 0, "--cors", wrong), "not an origin")


class Detached(Case):
    def test_it_runs_without_standard_error(self):
        """Closed, as by daemons, or full."""
        for error in ("2>&-", "0<&- >&- 2>&-", "2>/dev/full"):
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                port = s.getsockname()[1]
            process = subprocess.Popen(["sh", "-c", f'exec "$0" serve tiny --port {port} {error}', BRAID], env=ENVIRONMENT)
            try:
                for _ in range(200):
                    try:
                        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                            self.assertEqual(answer.status, 200)
                        break
                    except OSError:
                        self.assertIsNone(process.poll(), error)
                        time.sleep(0.05)
                else:
                    self.fail(error)
            finally:
                process.terminate()
                code = process.wait(20)
            self.assertEqual(code, 128 + signal.SIGTERM, error)


class LateErrors(Case):
    def test_they_close_what_is_open(self):
        server = Server("--grace", 0, model="tiny")
        self.addCleanup(server.process.stderr.close)
        connection, answer = server.send("POST", "/v1/responses", {"input": "What is 17 + 25?", "stream": True, "ignore_eos": True})
        text = answer.read1(65536).decode()
        while "_text.delta" not in text:
            text += answer.read1(65536).decode()
        os.kill(server.process.pid, signal.SIGTERM)
        text += answer.read().decode()
        connection.close()
        server.process.wait(20)
        events = [json.loads(block.split("data: ")[1]) for block in text.split("\n\n") if "data: " in block]
        kinds = [e["type"] for e in events]
        self.assertEqual(kinds[-3:], ["response.content_part.done", "response.output_item.done", "response.failed"])
        self.assertRegex(kinds[-4], r"_text\.done\Z")
        self.assertEqual(kinds.count("response.output_item.added"), kinds.count("response.output_item.done"))
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
        failed = events[-1]["response"]
        self.assertEqual((failed["status"], failed["error"]["code"]), ("failed", "server_error"))
        self.assertEqual(failed["output"][-1]["status"], "incomplete")


if __name__ == "__main__":
    main()
