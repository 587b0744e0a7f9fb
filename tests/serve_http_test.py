"""braid serve from outside, with plain HTTP: answers, streams, tools, refusals, the cache of prefixes, and how it stops.

usage: serve_http_test.py BRAID
"""
import json
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

from support.program import DATA, Case, braid, main
from support.server import CHAT, Server, ServerCase
from support.tensors import tensors

SUM = {"role": "user", "content": "What is 17 + 25?"}
CALCULATOR = {"type": "function", "function": {"name": "calculator", "parameters": {
    "type": "object", "properties": {"expression": {"type": "string"}}}}}


def write_adapter(folder):
    """A LoRA adapter of rank 1 for the outputs of every Mamba block of tiny-chat, as PEFT writes one; large enough to be seen."""
    header, data = {}, b""
    config = json.loads((DATA / "tiny-chat" / "config.json").read_text())
    generator = random.Random(5)
    for name, tensor in tensors(DATA / "tiny-chat").items():
        if not name.endswith("mixer.out_proj.weight"):
            continue
        rows, cols = tensor.shape
        for part, shape in (("lora_A", [1, cols]), ("lora_B", [rows, 1])):
            values = [generator.uniform(-1, 1) for _ in range(shape[0] * shape[1])]
            raw = struct.pack(f"<{len(values)}f", *values)
            key = f"base_model.model.{name.removesuffix('.weight')}.{part}.weight"
            header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 1, "lora_alpha": 0.5, "lora_dropout": 0.0, "bias": "none",
        "target_modules": ["out_proj"], "base_model_name_or_path": config["model_type"]}))


class Serve(ServerCase):
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

    def test_an_answer_that_continues_a_message(self):
        # "m" is also the last letter of text that the template adds behind the message.
        for begun in ("17 + 25 =", "17 + 25 = \n", "m", "{", "<think>\n17 + 25 ="):
            prompt = ("<|im_start|>system\n<|im_end|>\n<|im_start|>user\nWhat is 17 + 25?<|im_end|>\n"
                      f"<|im_start|>assistant\n<think></think>{begun}")
            want = self.server.ask("/v1/completions", {"prompt": prompt, "max_tokens": 24})
            last = {"role": "assistant", "content": begun}
            got = self.server.chat(SUM, last, continue_final_message=True, add_generation_prompt=False, max_tokens=24)
            self.assertEqual(got["usage"]["prompt_tokens"], want["usage"]["prompt_tokens"], begun)
            message, text = got["choices"][0]["message"], want["choices"][0]["text"]
            if "<think>" in begun:
                self.assertEqual(message["reasoning_content"].strip("\n"), text.split("</think>")[0].strip("\n"))
                continue
            self.assertEqual(message["content"], text, begun)
            self.assertFalse(message.get("reasoning_content"))
            anthropic = self.server.ask("/v1/messages", {"messages": [SUM, last], "max_tokens": 24})
            self.assertEqual("".join(b["text"] for b in anthropic["content"]), text, begun)

    def test_messages_that_cannot_be_continued(self):
        for last, more, field in (({"role": "user", "content": "Hi"}, {}, "messages"), ({"role": "assistant", "content": " "}, {}, "messages"),
                                  ({"role": "assistant", "content": "a</think>b"}, {}, "messages"),
                                  ({"role": "assistant", "content": "a"}, {"add_generation_prompt": True}, "add_generation_prompt")):
            body = {"messages": [SUM, last], "continue_final_message": True, **more}
            self.assertEqual(self.server.ask("/v1/chat/completions", body, status=400)["error"]["param"], field, last)

    def test_a_body_without_a_length(self):
        answer, _ = self.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertRegex(answer, r"\AHTTP/1.1 411 ")

    def test_a_second_turn_reads_only_what_is_new(self):
        first = self.server.chat(SUM)
        message = first["choices"][0]["message"]
        turn = [SUM, message, {"role": "user", "content": "What is 3 + 4?"}]
        second = self.server.chat(*turn)
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        # All of the first prompt but the few tokens that open an answer.
        self.assertGreater(cached, first["usage"]["prompt_tokens"] - 8)
        again = self.server.chat(*turn)
        self.assertEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], second["usage"]["prompt_tokens"])
        self.assertEqual(again["choices"][0]["message"], second["choices"][0]["message"])

    def test_snapshots_in_int8(self):
        server = Server("--snapshots", "int8", model="tiny")
        self.addCleanup(server.stop)
        plain = Server(model="tiny")
        self.addCleanup(plain.stop)
        self.assertEqual([s.ask("/state")["snapshots"] for s in (server, plain)], ["int8", "f32"])
        first = server.chat(SUM)
        turn = [SUM, first["choices"][0]["message"], {"role": "user", "content": "What is 3 + 4?"}]
        second, want = server.chat(*turn), plain.chat(*turn)
        self.assertGreater(second["usage"]["prompt_tokens_details"]["cached_tokens"], first["usage"]["prompt_tokens"] - 8)
        self.assertEqual(want["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(second["choices"][0]["message"], want["choices"][0]["message"])
        self.assertRefused(braid("serve", "tiny", "--exact", "--snapshots", "int8", "--port", 0), "--snapshots", "int8", "--exact")

    def test_memory_of_constraints_is_shown(self):
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {
            "type": "object", "properties": {"only here": {"type": "integer"}}, "required": ["only here"]}}}
        before = self.server.metric("braid:grammar_bytes")
        self.server.chat(SUM, response_format=form, max_tokens=20)
        deadline = time.monotonic() + 30
        while self.server.metric("braid:grammar_bytes") <= before:
            self.assertLess(time.monotonic(), deadline, "not counted")
            time.sleep(0.05)
        self.assertEqual(self.server.ask("/state")["memory"]["grammar_bytes"], self.server.metric("braid:grammar_bytes"))

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
        arguments = "".join(call["function"]["arguments"] for call in streamed)
        self.assertEqual(arguments, whole["message"]["tool_calls"][0]["function"]["arguments"])
        for call in whole["message"]["tool_calls"]:
            self.assertEqual((call["type"], call["function"]["name"]), ("function", "calculator"))
            self.assertIn("345", json.loads(call["function"]["arguments"])["expression"])
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
        self.assertGreater(len({json.dumps(self.server.chat(SUM, seed=2 ** 60 + i, **hot)["choices"][0]["message"]) for i in range(4)}), 1)
        self.assertIn("seed", self.server.ask("/v1/chat/completions", {"messages": [SUM], "seed": 2 ** 63}, 400)["error"]["message"])

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
                (chat, {"messages": [SUM], "n": 200}, 400, "'n'"),
                (chat, {"messages": [SUM], "best_of": 2}, 400, "best_of"),
                (chat, {"messages": [SUM], "logit_bias": {"x": 1}}, 400, "logit_bias"),
                (chat, {"messages": [SUM], "logit_bias": {"5": 101}}, 400, "logit_bias"),
                (chat, {"messages": [SUM], "chat_template_kwargs": {"messages": []}}, 400, "chat_template_kwargs"),
                ("/v1/responses", {}, 400, "input"),
                ("/v1/responses", {"input": "a", "previous_response_id": "resp_1"}, 400, "previous_response_id"),
                ("/v1/responses", {"input": [{"type": "item_reference", "id": "x"}]}, 400, "not kept here"),
                ("/v1/completions", {"prompt": "a", "suffix": "b"}, 400, "suffix"),
                ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
                (chat, {"messages": [SUM], "response_format": {"type": "xml"}}, 400, "response_format"),
                (chat, {"messages": [SUM], "max_tokens": 0}, 400, "max_tokens"),
                (chat, {"messages": [{"role": "user", "content": "a " * 9000}]}, 400, "context"),
                (chat, {"messages": [SUM], "tools": [{}]}, 400, "tool"),
                (chat, {"messages": [SUM], "stop": [""]}, 400, "stop"),
                (chat, {"messages": [SUM], "chat_template_kwargs": 5}, 400, "chat_template_kwargs"),
                (chat, {"messages": [SUM], "reasoning_effort": "silly"}, 400, "reasoning_effort"),
                (chat, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}]}, 400,
                 "not a JSON object"),
                (chat, None, 405, "expected POST"),
                ("/v1/completions", {"prompt": [10 ** 9]}, 400, "no token"),
                ("/v1/nothing", {}, 404, "no such request"),
                ("/detokenize", {"tokens": [-1]}, 400, "token"),
                ("/detokenize", {"tokens": [7] * (2 ** 20 + 1)}, 400, "at most 1048576"), ("/tokenize", {"prompt": "a" * (2 ** 23 + 1)}, 400, "at most 8388608"),
                ("/detokenize", '{"tokens": [' + "[" * 1000000 + "]" * 1000000 + "]}", 400, "body"),
                (chat, {"messages": [SUM], "response_format": 5}, 400, "response_format"),
                ("/tokenize", {}, 400, "no text")):
            error = self.server.ask(path, body, status)["error"]
            self.assertIn(says, error["message"], (path, str(body)[:80]))
            self.assertTrue(error["type"].endswith("_error"), error)
        self.assertEqual(self.server.ask("/health"), {"status": "ok"})
        self.assertEqual(self.server.chat(SUM)["choices"][0]["finish_reason"], "stop")

    def test_pages_of_other_origins_are_refused(self):
        own = f"{self.server.host}:{self.server.port}"
        for headers, status in (({"Origin": "http://evil.example"}, 403), ({"Host": "evil.example"}, 403), ({"Origin": "null"}, 403),
                                ({"Origin": "http://" + own}, 200), ({"Origin": "https://" + own}, 200),
                                ({"Origin": "ftp://" + own}, 403), ({"Host": "localhost"}, 200), ({"Host": "[::1]:80"}, 200)):
            connection, answer = self.server.send("GET", "/v1/models", headers=headers.items())
            self.assertEqual(answer.status, status, headers)
            if status == 403:
                self.assertIn("--api-key" if "Host" in headers else "another origin", answer.read().decode())
            connection.close()

    def test_a_call_that_was_cut_can_be_sent_back(self):
        call = {"id": "c", "type": "function", "function": {"name": "calculator", "arguments": '{"expression":"34'}}
        answer = self.server.chat(SUM, {"role": "assistant", "content": None, "tool_calls": [call]},
                                  SUM, max_tokens=4)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")

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
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            s.recv(200)
        deadline = time.monotonic() + 30
        while self.server.metric("vllm:num_requests_running") > 0:
            self.assertLess(time.monotonic(), deadline, "the answer goes on without its reader")
            time.sleep(0.05)

    def count(self, **body):
        return self.server.ask("/v1/messages/count_tokens?beta=true", {"model": "claude-x", **body})["input_tokens"]

    def test_several_answers(self):
        more = {"n": 3, "temperature": 4, "seed": 5, "max_tokens": 12}
        whole = self.server.chat(SUM, **more)
        texts = [c["message"]["reasoning_content"] for c in whole["choices"]]
        self.assertEqual([c["index"] for c in whole["choices"]], [0, 1, 2])
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(whole["usage"]["completion_tokens"], 36)
        self.assertEqual(whole["usage"]["prompt_tokens"], self.server.chat(SUM, max_tokens=1)["usage"]["prompt_tokens"])
        data, _ = self.server.events("/v1/chat/completions", {"messages": [SUM], **more})
        streamed = ["", "", ""]
        for d in data[:-1]:
            for choice in json.loads(d)["choices"]:
                streamed[choice["index"]] += choice["delta"].get("reasoning_content", "")
        self.assertEqual(streamed, texts)
        first = self.server.ask("/metrics")
        self.server.chat({"role": "user", "content": "Reverse the word granite."}, **more)
        cached = [int(re.search(r"^braid:cached_tokens_total (\d+)$", m, re.M).group(1)) for m in (first, self.server.ask("/metrics"))]
        self.assertGreater(cached[1] - cached[0], 2 * 10, "the second and third read their prompt again")

    def test_bias(self):
        text = self.server.chat(SUM, reasoning_effort="none", logprobs=True)["choices"][0]["logprobs"]["content"]
        banned = self.server.chat(SUM, reasoning_effort="none", logprobs=True, logit_bias={str(text[0]["id"]): -100})
        self.assertNotEqual(banned["choices"][0]["logprobs"]["content"][0]["id"], text[0]["id"])

    def test_the_prompts_log_probabilities_are_those_of_score(self):
        texts = ["What is 17 + 25? " * 9, "Reverse the word stone."]
        ids = [self.server.ask("/tokenize", {"content": t})["tokens"] for t in texts]
        lines = "".join(json.dumps({"ids": one}) + "\n" for one in ids)
        want = [json.loads(line)["logprobs"] for line in braid("score", CHAT, "--jsonl", "-", text=lines).stdout.splitlines()]
        for tokens in (0, 1):
            got = self.server.ask("/v1/completions", {"prompt": ids, "echo": True, "logprobs": 2, "max_tokens": tokens})
            for choice, text, one, logprobs in zip(got["choices"], texts, ids, want):
                found = choice["logprobs"]
                self.assertTrue(choice["text"].startswith(text))
                self.assertEqual({len(found[k]) for k in found}, {len(one) + tokens})
                self.assertEqual((found["token_logprobs"][0], found["top_logprobs"][0]), (None, None))
                for a, b in zip(found["token_logprobs"][1:len(one)], logprobs):
                    self.assertLess(abs(a - b), 1e-3)
                for token, offset in zip(found["tokens"][:len(one)], found["text_offset"]):
                    self.assertEqual(choice["text"][offset:offset + len(token)], token)
            self.assertEqual(got["usage"]["completion_tokens"], 2 * tokens)

    def test_thinking_is_what_was_asked_for(self):
        def rendered(**more):
            answer = self.server.chat(SUM, max_tokens=1, **more)
            return answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
        on, off = rendered(chat_template_kwargs={"enable_thinking": True}), rendered(chat_template_kwargs={"enable_thinking": False})
        self.assertNotEqual(on, off)
        for effort, want in (("none", off), ("minimal", on), ("high", on)):
            self.assertEqual(rendered(reasoning_effort=effort), want)
        self.assertEqual(rendered(reasoning_effort="high", chat_template_kwargs={"enable_thinking": False}), off)
        self.assertEqual(rendered(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True}), on)
        turn = [{"role": "user", "content": "Hi"}]
        thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
        for more, kind in ((thinking, "thinking"), ({}, "text"), ({"thinking": {"type": "disabled"}}, "text"),
                           ({**thinking, "chat_template_kwargs": {"enable_thinking": False}}, "text")):
            answer = self.server.ask("/v1/messages", {"max_tokens": 4, "messages": turn, **more})
            self.assertEqual(answer["content"][0]["type"], kind, more)

    def test_a_budget_leaves_room_for_the_answer(self):
        free = self.server.chat(SUM)["usage"]["completion_tokens_details"]["reasoning_tokens"]
        for budget in (0, 4, 8):
            answer = self.server.chat(SUM, thinking_token_budget=budget)
            used = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
            self.assertLess(used, min(free, budget + budget // 8 + 8), budget)
            self.assertTrue(answer["choices"][0]["message"]["content"], budget)
        tight = self.server.chat(SUM, thinking_token_budget=1000, max_tokens=20)
        self.assertTrue(tight["choices"][0]["message"]["content"])

    def test_bodies_of_agents(self):
        billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch=1f2e3;"}
        rules = {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        turns = [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>be quick</system-reminder>"},
                                              {"type": "text", "text": "What is 17 + 25?", "cache_control": {"type": "ephemeral"}}]},
                 {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "from elsewhere"},
                                                   {"type": "text", "text": "42"}]},
                 {"role": "user", "content": "What is 3 + 4?"}]
        claude = {"model": "claude-opus", "max_tokens": 30, "system": [billing, rules], "messages": turns, "stream": False,
                  "metadata": {"user_id": "u"}, "thinking": {"type": "adaptive"}, "context_management": {"edits": []},
                  "output_config": {"effort": "high"}, "temperature": 1,
                  "tools": [{"name": "Bash", "input_schema": {"type": "object", "properties": {}}, "cache_control": {"type": "ephemeral"}},
                            {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]}
        self.assertEqual(self.server.ask("/v1/messages?beta=true", claude)["type"], "message")
        self.assertEqual(self.count(system=[billing, rules], messages=turns), self.count(system=[rules], messages=turns))
        head, say = billing["text"] + "\n", rules["text"]
        for lines, without in ((head + say, say), (say + "\n" + head, say + "\n"), (head + head + say + "\n" + head, say + "\n")):
            self.assertEqual(self.count(system=lines, messages=turns), self.count(system=without, messages=turns), lines)
        codex = {"model": "gpt-x", "instructions": "You are an agent.", "stream": False, "store": False, "parallel_tool_calls": False,
                 "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "max_output_tokens": 20,
                 "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "low"}, "tool_choice": "auto",
                 "tools": [{"type": "function", "name": "shell", "strict": False, "parameters": {"type": "object", "properties": {}}},
                           {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}, {"type": "local_shell"}],
                 "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
                           {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                           {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": None},
                           {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"},
                           {"type": "function_call_output", "call_id": "c1", "output": "ok"},
                           {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}]}
        server = Server(model="tiny")  # whose template knows tools
        self.addCleanup(server.stop)
        self.assertEqual(server.ask("/v1/responses", codex)["object"], "response")
        vllm = {"ignore_eos": False, "min_p": 0, "top_k": -1, "repetition_penalty": 1, "skip_special_tokens": True, "user": "u"}
        late = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "And kind."}, SUM,
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]},
                {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "42"}]},
                {"role": "system", "content": "A reminder."}, {"role": "user", "content": "And now?"}]
        self.assertTrue(server.chat(*late, max_tokens=2, **vllm)["choices"])
        body = {"max_tokens": 1, "reasoning_effort": "none"}
        both = [server.chat(SUM, {"role": "assistant", "content": "42", **field}, SUM, **body)["usage"]["prompt_tokens"]
                for field in ({"reasoning": "so"}, {"reasoning_content": "so"}, {"reasoning_content": None, "reasoning": "so"}, {})]
        self.assertEqual(both[:3], both[:1] * 3)
        self.assertGreater(both[0], both[3])

    def test_errors_of_messages_have_their_form(self):
        for body, status, kind in (({}, 400, "invalid_request_error"), ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400,
                                                                       "invalid_request_error")):
            error = self.server.ask("/v1/messages", body, status)
            self.assertEqual((error["type"], error["error"]["type"]), ("error", kind))

    def raw(self, *parts, more=None):
        """What the server says to these bytes, and then to `more` again and again, until it closes the connection."""
        sent = 0
        with socket.create_connection((self.server.host, self.server.port), timeout=30) as s:
            try:
                for part in parts:
                    s.sendall(part)
                while more and sent < 200 << 20:
                    s.sendall(more)
                    sent += len(more)
            except OSError:
                pass
            answer = b""
            try:
                while block := s.recv(65536):
                    answer += block
            except OSError:
                pass
        return answer.decode(errors="replace"), sent

    def test_bodies_that_are_not_whole(self):
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        rest = b"\r\n{}\r\n0\r\n\r\n"
        for body in (b"zz" + rest, b"-1" + rest, b"-5" + rest, b"" + rest, b"2zz" + rest, b"+2" + rest, b"0x2" + rest, b"1" + rest,
                     b"100000002" + rest, b"2\n{}\n0\n\n"):
            answer, _ = self.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + body)
            self.assertRegex(answer, r"\AHTTP/1.1 400 ", body)
            self.assertIn("chunk", answer)
        for size in (b"2", b"02", b"2 ", b"2;name=value"):
            answer, _ = self.raw(head + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + size + rest)
            self.assertIn("no 'prompt'", answer, size)

    def test_requests_without_end(self):
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        for parts, more, most in (((b"GET /",), b"a" * 65536, 8 << 20), ((head,), b"X-Header: " + b"b" * 1000 + b"\r\n", 8 << 20),
                                  ((head + b"X: ",), b"c" * 65536, 8 << 20),
                                  ((head + b"Transfer-Encoding: chunked\r\n\r\n",), chunk, 48 << 20)):
            _, sent = self.raw(*parts, more=more)
            self.assertLess(sent, most, parts)
        for length in (b"abc", b"-1", b"12abc", b"99999999999999999999", b"1\r\nContent-Length: 2", b"5\r\nTransfer-Encoding: chunked", b""):
            answer, _ = self.raw(head + b"Content-Length: " + length + b"\r\n\r\nGET /v1/models HTTP/1.1\r\n\r\n")
            self.assertRegex(answer, r"\AHTTP/1.1 4\d\d ", length)
            self.assertEqual(answer.count("HTTP/1.1 "), 1, answer)
        self.assertEqual(self.server.ask("/health"), {"status": "ok"})

    def test_a_client_that_leaves_before_a_whole_answer_ends_it(self):
        body = json.dumps({"messages": [SUM], "ignore_eos": True, "max_tokens": 4000}).encode()
        before = self.server.metric("vllm:generation_tokens_total")
        with socket.create_connection((self.server.host, self.server.port)) as s:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            while self.server.metric("vllm:num_requests_running") == 0:
                time.sleep(0.01)
        while self.server.metric("vllm:num_requests_running") > 0:
            time.sleep(0.05)
        self.assertLess(self.server.metric("vllm:generation_tokens_total") - before, 4000)

    def test_drafts_are_counted_and_change_no_text(self):
        body = {"prompt": "17 + 25 = 42\n" * 6, "max_tokens": 100, "ignore_eos": True}
        texts, drafted = [], 0
        for draft in ("off", "auto", "ngram", "mtp"):
            server = Server("--draft", draft, "--parallel", 1, model="tiny")
            answer = server.ask("/v1/completions", body)
            texts.append(answer["choices"][0]["text"])
            counts = answer["usage"]["completion_tokens_details"]
            accepted, rejected = counts["accepted_prediction_tokens"], counts["rejected_prediction_tokens"]
            metrics, label = server.ask("/metrics"), '{model_name="tiny"}'
            self.assertIn(f"\nvllm:spec_decode_num_draft_tokens_total{label} {accepted + rejected}\n", metrics)
            self.assertIn(f"\nvllm:spec_decode_num_accepted_tokens_total{label} {accepted}\n", metrics)
            self.assertTrue(draft != "off" or accepted + rejected == 0)
            drafted += accepted + rejected  # each source drafts as the clock says that it pays
            server.stop()
        self.assertGreater(drafted, 0)
        self.assertEqual(texts, texts[:1] * 4)
        for words in (("--draft", "many"), ("--draft-max", 8)):
            self.assertEqual(braid("serve", "tiny", *words, "--port", 0).returncode, 1)

    def test_a_draft_model_is_part_of_the_memory(self):
        server = Server("--draft-model", CHAT, "--memory", "64MiB")
        self.addCleanup(server.stop)
        self.assertEqual(server.chat(SUM)["choices"], self.server.chat(SUM)["choices"])
        memory = server.ask("/state")["memory"]
        self.assertEqual(memory["limit_bytes"] + memory["draft_limit_bytes"] + memory["draft_weight_bytes"], 64 << 20)
        self.assertGreater(memory["draft_weight_bytes"], 100000)
        self.assertIn(f"\nbraid:draft_memory_limit_bytes {memory['draft_limit_bytes']}\n", server.ask("/metrics"))

    def test_models_and_metrics(self):
        model = self.server.ask("/v1/models")["data"][0]
        self.assertEqual((model["id"], model["max_model_len"]), ("tiny-chat", 4096))
        self.assertEqual(self.server.ask("/v1/models/tiny-chat"), model)
        self.server.ask("/v1/models/other", status=404)
        before = self.server.metric("vllm:generation_tokens_total")
        answer = self.server.chat(SUM)
        self.assertEqual(self.server.metric("vllm:generation_tokens_total") - before, answer["usage"]["completion_tokens"])


    def test_ends_and_latencies_are_counted(self):
        def numbers():
            text = self.server.ask("/metrics")
            series = re.findall(r'^(vllm:[a-z0-9_]+){model_name="tiny-chat",?(.*)} (\S+)$', text, re.M)
            return {f"{name} {more}".strip(): float(value) for name, more, value in series}

        ends = [f'vllm:request_success_total finished_reason="{end}"' for end in ("stop", "length", "abort")]
        families = [f"vllm:{name}_seconds" for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_prefill_time",
                                                        "request_decode_time", "request_time_per_output_token", "inter_token_latency")]
        time.sleep(0.2)
        before = numbers()
        self.server.chat(SUM, stop=self.server.chat(SUM)["choices"][0]["message"]["content"][-1:])
        self.server.chat(SUM, max_tokens=1)
        after = numbers()
        self.assertEqual([after[name] - before[name] for name in ends + [f"{family}_count" for family in families[:6]]], [2, 1, 0, 3, 3, 3, 3, 3, 2])
        for family in families:
            buckets = [after[name] for name in after if name.startswith(family + "_bucket")]
            self.assertEqual(buckets, sorted(buckets))
            self.assertEqual(buckets[-1], after[family + "_count"])
            self.assertGreater(after[family + "_sum"], before[family + "_sum"])
        self.assertTrue(0 < after["vllm:kv_cache_usage_perc"] <= 1, after)

    def test_the_state_is_that_of_the_metrics(self):
        self.server.chat(SUM)
        state = self.server.ask("/state")
        self.assertEqual((state["status"], state["model"], state["context"], state["parallel"]), ("ok", "tiny-chat", 4096, 4))
        for group, key, name in (("requests", "total", "braid:requests_total"), ("tokens", "generated", "vllm:generation_tokens_total"),
                                 ("cache", "looked_up_tokens", "vllm:prefix_cache_queries_total"), ("cache", "hits", "braid:cache_hits_total"), ("memory", "limit_bytes", "braid:memory_limit_bytes")):
            self.assertEqual(state[group][key], self.server.metric(name), name)
            self.assertGreater(state[group][key], 0, name)
        self.assertEqual(state["memory"]["pages_leaked"], 0)

    def test_counters_under_vllms_names_count_tokens(self):
        names = ("vllm:prompt_tokens_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
        time.sleep(0.2)
        before = [self.server.metric(name) for name in names]
        usage = [self.server.chat({"role": "user", "content": "A prompt that only this test has."}, max_tokens=2)["usage"] for _ in range(2)]
        prompt, cached = sum(u["prompt_tokens"] for u in usage), sum(u["prompt_tokens_details"]["cached_tokens"] for u in usage)
        deadline = time.monotonic() + 10  # those of the cache are of the last pass, which may not be over yet
        while (found := [self.server.metric(name) - b for name, b in zip(names, before)]) != [prompt, prompt, cached]:
            self.assertLess(time.monotonic(), deadline, (found, prompt, cached))
            time.sleep(0.05)
        self.assertGreaterEqual(cached, usage[1]["prompt_tokens"])

    def test_the_address_without_a_version(self):
        body = {"messages": [SUM], "max_tokens": 4}
        without, with_version = (self.server.ask(f"{v}/chat/completions", body)["choices"] for v in ("", "/v1"))
        self.assertEqual(without, with_version)
        self.assertEqual(self.server.ask("/models"), self.server.ask("/v1/models"))
        self.assertEqual(self.server.send("GET", "/completions")[1].status, 405)

    def test_progress_of_a_long_prompt(self):
        server = Server("--chunk", 64, model="tiny")
        self.addCleanup(server.stop)
        body = {"messages": [{"role": "user", "content": "apple banana cherry " * 60}], "max_tokens": 2, "stream_options": {"include_usage": True}}
        for again in (False, True):
            chunks = [json.loads(e) for e in server.events("/v1/chat/completions", {**body, "return_progress": True})[0][:-1]]
            told = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
            usage = chunks[-1]["usage"]
            self.assertEqual(told[-1]["processed"] if told else usage["prompt_tokens"], usage["prompt_tokens"])
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            steps = [cached, *(p["processed"] for p in told)]
            self.assertEqual(steps, sorted(set(steps)))
            self.assertEqual({(p["total"], p["cache"]) for p in told} or {(usage["prompt_tokens"], cached)}, {(usage["prompt_tokens"], cached)})
            self.assertEqual(len(told) > 2, not again)  # a prompt that was cached whole is not read again
        silent = server.events("/v1/chat/completions", body)[0]
        self.assertFalse(any("prompt_progress" in e for e in silent))


class Starting(Case):
    def test_keys(self):
        server = Server("--api-key", "secret", "--alias", "mine", "--parallel", 1, "--memory", "64MiB")
        self.addCleanup(server.stop)
        body = {"messages": [SUM], "max_tokens": 2}
        for headers in ({}, {"Authorization": "Bearer wrong!"}, {"x-api-key": "secre"}, {"Authorization": "secret"}):
            self.assertEqual(server.ask("/v1/chat/completions", body, 401, **headers)["error"]["type"], "authentication_error")
        for headers in ({"Authorization": "Bearer secret"}, {"x-api-key": "secret"}):
            self.assertEqual(server.ask("/v1/chat/completions", body, **headers)["model"], "mine")
        self.assertEqual(server.ask("/health"), {"status": "ok"})
        self.assertIn("no --cache-file", server.ask("/cache/save", {}, 400, **{"x-api-key": "secret"})["error"]["message"])

    def test_it_stops_while_it_answers(self):
        for how, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            server = Server()
            connection, answer = server.send("POST", "/v1/chat/completions", {"messages": [SUM], "stream": True, "ignore_eos": True,
                                                                             "max_tokens": 4000})
            answer.read(100)
            self.assertEqual(server.stop(how), code)
            connection.close()

    def test_a_log_of_requests(self):
        file = self.new_folder() / "requests.log"
        server = Server("--log", file, "--parallel", 1, "--queue", 0)
        self.addCleanup(server.stop)

        def logged(lines):  # a line follows its answer
            deadline = time.monotonic() + 60
            while len(file.read_text().splitlines()) < lines:
                self.assertLess(time.monotonic(), deadline, file.read_text())
                time.sleep(0.01)

        messages = {"messages": [SUM]}
        usage = []
        for i in range(2):
            usage.append(server.chat(SUM)["usage"])
            logged(i + 1)
        events, _ = server.events("/v1/chat/completions", {**messages, "stream_options": {"include_usage": True}})
        usage.append(json.loads(events[-2])["usage"])
        logged(3)
        server.chat(SUM, max_tokens=3)
        logged(4)
        server.ask("/health")
        logged(5)
        server.ask("/v1/chat/completions?key=secret", {}, 400)
        logged(6)
        server.ask("/a%20b%0Ac", status=404)
        logged(7)
        connection, answer = server.send("POST", "/v1/chat/completions", {**messages, "stream": True, "ignore_eos": True, "max_tokens": 4000})
        answer.read(2000)  # past the role and some tokens
        server.ask("/v1/chat/completions", messages, 429)
        logged(8)
        connection.close()
        answer.close()
        logged(9)
        server.stop()
        lines = file.read_text().splitlines()
        self.assertNotIn("17", re.sub(r"\S+=\S+|^\S+", "", file.read_text(), flags=re.M))
        self.assertNotIn("secret", file.read_text())
        form = r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z 127\.0\.0\.1 POST /v1/chat/completions 200 prompt=(\d+) cached=(\d+) " \
               r"completion=(\d+) queue_ms=(\d+) first_ms=(\d+) total_ms=(\d+) finish=(\w+)\Z"
        for line, want, finish in zip(lines, [*usage, None], ("stop", "stop", "stop", "length")):
            self.assertRegex(line, form)
            prompt, cached, completion, queue, first, total, how = re.match(form, line).groups()
            if want:
                self.assertEqual((int(prompt), int(cached), int(completion)),
                                 (want["prompt_tokens"], want["prompt_tokens_details"]["cached_tokens"], want["completion_tokens"]))
            self.assertTrue(int(queue) <= int(first) <= int(total), line)
            self.assertEqual(how, finish)
        for line, end in zip(lines[4:7], (r"GET /health 200 total_ms=\d+", r"POST /v1/chat/completions 400 total_ms=\d+",
                                          r"GET /a\S*c 404 total_ms=\d+")):
            self.assertRegex(line, end + r"\Z")
        self.assertRegex(lines[7], r" POST /v1/chat/completions 429 total_ms=\d+\Z")
        self.assertRegex(lines[8], r"Z 127\.0\.0\.1 POST \S+ 200 prompt=\d+ cached=\d+ completion=[1-9]\d* .* finish=left\Z")
        self.assertRefused(braid("serve", CHAT, "--log", "/no/such/folder/file", "--port", 0), "there is no such folder")

    def test_a_queue_has_an_end(self):
        server = Server("--parallel", 1, "--queue", 1)
        self.addCleanup(server.stop)
        long = {"messages": [SUM], "stream": True, "ignore_eos": True, "max_tokens": 4000}
        streams = [server.send("POST", "/v1/chat/completions", long) for _ in range(2)]
        connection, refused = server.send("POST", "/v1/chat/completions", {"messages": [SUM]})
        self.assertEqual((refused.status, refused.headers["Retry-After"]), (429, "1"))
        self.assertEqual(json.loads(refused.read())["error"]["type"], "rate_limit_error")
        self.assertEqual(server.ask("/v1/messages", {"messages": [SUM], "max_tokens": 4}, 429)["error"]["type"], "rate_limit_error")
        for c, _ in (*streams, (connection, refused)):
            c.close()

    def test_half_sent_requests_keep_nobody_out(self):
        server = Server("--parallel", 1, "--queue", 1)  # 34 threads
        self.addCleanup(server.stop)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
        half = [socket.create_connection((server.host, server.port)) for _ in range(100)]
        for s in half:
            s.sendall(head)
        for _ in range(3):
            self.assertTrue(server.chat(SUM, max_tokens=4)["choices"])
        running = server.send("POST", "/v1/chat/completions", {"messages": [SUM], "max_tokens": 2000, "ignore_eos": True, "stream": True})[1]
        running.read(10)
        more = [socket.create_connection((server.host, server.port)) for _ in range(100)]
        for s in more:
            s.sendall(head)
        self.assertIn(b"[DONE]", running.read())  # an answer on its way is not cut
        for s in half + more:
            s.close()

    def test_which_temperature_holds(self):
        """The request's, else the flag's, else that of the model's generation_config.json, else 0."""
        folder = self.new_folder()
        for file in (DATA / "tiny-chat").iterdir():
            (folder / file.name).symlink_to(file)
        def temperatures(*words):
            server = Server(*words, model=str(folder), temperature=())
            self.addCleanup(server.stop)
            return [server.ask("/v1/responses", {"input": "Hi", "max_output_tokens": 1, **more})["temperature"]
                    for more in ({}, {"temperature": 0.75})]
        self.assertEqual(temperatures(), [0, 0.75])
        config = json.loads((folder / "generation_config.json").read_text())
        (folder / "generation_config.json").unlink()
        (folder / "generation_config.json").write_text(json.dumps({**config, "do_sample": True, "temperature": 0.25}))
        self.assertEqual(temperatures(), [0.25, 0.75])
        self.assertEqual(temperatures("--temp", 0.5), [0.5, 0.75])

    @unittest.skipUnless(shutil.which("curl"), "curl is not installed")
    def test_curl(self):
        server = Server("--api-key", "k")
        self.addCleanup(server.stop)
        def curl(path, *words):
            done = subprocess.run(["curl", "--silent", "--show-error", "--max-time", "60", *words, f"http://127.0.0.1:{server.port}{path}"],
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return done.stdout
        key, body = ("-H", "Authorization: Bearer k"), {"messages": [SUM], "max_tokens": 4}
        self.assertEqual(json.loads(curl("/health")), {"status": "ok"})
        self.assertEqual(json.loads(curl("/v1/chat/completions", "-d", "{}"))["error"]["type"], "authentication_error")
        whole = json.loads(curl("/v1/chat/completions", *key, "-d", json.dumps(body)))  # as a form, curl's own type
        self.assertEqual(whole["usage"]["completion_tokens"], 4)
        sent = curl("/v1/chat/completions", *key, "--no-buffer", "--json", json.dumps({**body, "stream": True}))
        events = [e.removeprefix("data: ") for e in sent.split("\n\n") if e.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        said = "".join(json.loads(e)["choices"][0]["delta"].get("reasoning_content", "") for e in events[:-1])
        self.assertEqual(said, whole["choices"][0]["message"]["reasoning_content"])
        status = curl("/v1/completions", *key, "--http1.0", "-o", "/dev/null", "-w", "%{http_code}", "-d", '{"prompt": "Hi", "max_tokens": 1}')
        self.assertEqual(status, "200")

    def test_it_drains(self):
        body = {"messages": [SUM], "stream": True}
        for grace, more, last in ((30, {}, "stop"), (0, {"ignore_eos": True, "max_tokens": 4000}, "unavailable_error")):
            server = Server("--grace", grace)
            connection, answer = server.send("POST", "/v1/chat/completions", {**body, **more})
            answer.read(100)
            server.process.send_signal(signal.SIGTERM)
            events = [e[6:] for e in answer.read().decode().split("\n\n") if e.startswith("data: ")]
            self.assertEqual(events[-1], "[DONE]")
            self.assertIn(last, events[-2])
            connection.close()
            self.assertEqual(server.process.wait(20), 143)
            server.process.stderr.close()

    def test_the_name_of_thinking(self):
        server = Server("--reasoning-field", "reasoning", "--reasoning-budget", 4)
        self.addCleanup(server.stop)
        answer = server.chat(SUM)
        self.assertIn("reasoning", answer["choices"][0]["message"])
        self.assertNotIn("reasoning_content", answer["choices"][0]["message"])
        self.assertLess(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 12)
        self.assertGreater(server.chat(SUM, thinking_token_budget=-1)["usage"]["completion_tokens_details"]["reasoning_tokens"], 12)

    def test_a_log_on_a_full_disk(self):
        server = Server("--log", "/dev/full")
        for _ in range(3):
            server.ask("/health")
        server.process.send_signal(signal.SIGTERM)
        _, said = server.process.communicate(timeout=20)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("/dev/full cannot be written: No space left on device", said)

    def test_an_adapter(self):
        """Its text is that of `braid run --adapter`, and not the model's own."""
        folder = self.new_folder()
        write_adapter(folder)
        prompt = "Tell me of the sea"
        want = {words: braid("run", CHAT, *words, "--temp", "0", "-n", "12", "-p", prompt).stdout.strip()
                for words in ((), ("--adapter", str(folder)))}
        self.assertEqual(len(set(want.values())), 2, want)
        for words, text in want.items():
            server = Server(*words)
            got = server.ask("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0})["choices"][0]["text"]
            server.stop()
            self.assertEqual(got.strip(), text.removeprefix(prompt).strip())

    def test_help_of_the_seed(self):
        self.assertRegex(braid("serve", "--help").stdout, r"--seed.*\n?.*\[a random one\]")
        self.assertRegex(braid("run", "--help").stdout, r"--seed.*\[0\]")

    def test_refused_at_the_start(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.assertRefused(braid("serve", CHAT, "--port", taken.getsockname()[1]), "cannot listen: Address already in use")
        self.assertRefused(braid("serve", CHAT, "--host", "no.such.host.invalid", "--api-key", "k", "--port", 0, timeout=60), "cannot listen: ", "known")
        for key in ("", "a\nb", " a"):
            self.assertRefused(braid("serve", CHAT, "--api-key", key, "--port", 0), "--api-key", "spaces" if key else "is empty")
        other = Server()
        self.addCleanup(other.stop)
        self.assertRefused(braid("serve", CHAT, "--port", other.port), "cannot listen")
        # Found after the port is bound.
        self.assertRefused(braid("serve", CHAT, "--port", 0, "-c", 100000, timeout=20), "context")
        self.assertRefused(braid("serve", CHAT, "--port", 0, "--temp", -3, timeout=20), "temp")
        self.assertRefused(braid("serve", CHAT, "--host", "0.0.0.0"), "--api-key")
        self.assertRefused(braid("serve", CHAT, "--parallel", 0), "--parallel")
        self.assertRefused(braid("serve", CHAT, "--cache-file", CHAT + "/config.json"), "another file has this name")
        self.assertRefused(braid("serve", CHAT, "--cache-file", "/no/such/folder/file"), "there is no such folder")
        for memory in ("4 parrots", "0", "-1GiB", "nan", "GiB", "1e30"):
            self.assertRefused(braid("serve", CHAT, f"--memory={memory}"), "--memory")
        self.assertRefused(braid("serve", CHAT, "--port", 0, "--memory", "4096TiB", timeout=20), "smaller --memory", "got 4194304.0 GiB; expected at most the ")
        self.assertRefused(braid("serve", CHAT, "--port", 0, "--memory", "64KiB", timeout=20), "larger --memory")
        self.assertRefused(braid("serve", "nothing-here", "--port", 0), "nothing-here")


if __name__ == "__main__":
    main()
