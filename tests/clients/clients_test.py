"""The Python packages of OpenAI and Anthropic, unmodified, against a running server, and with strict validation except
for completions that are streamed or echo log-probabilities: there OpenAI's own answers hold null, which it calls invalid.

usage: clients_test.py BRAID

The packages are those of this interpreter, or of BRAID_CLIENTS_PYTHON; without them the tests are skipped.
"""
import json
import sys
from pathlib import Path
from typing import Literal, Optional

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from support.elsewhere import restart_or_skip

try:
    import anthropic
    import openai
    import pydantic
except ImportError as error:
    restart_or_skip(error, "BRAID_CLIENTS_PYTHON", "openai and anthropic")

from support.program import Case, main
from support.server import Server

SUM = "What is 17 + 25?"
PRODUCT = "What is 345 * 678?"
PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
FUNCTION = {"name": "calculator", "description": "Computes.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}


class Clients(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(model="tiny")
        url = f"http://127.0.0.1:{cls.server.port}"
        cls.openai = openai.OpenAI(base_url=url + "/v1", api_key="none", _strict_response_validation=True, max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=url, api_key="none", _strict_response_validation=True, max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.openai.close()
        cls.anthropic.close()
        cls.server.stop()


class OpenAI(Clients):
    def chat(self, text, **more):
        return self.openai.chat.completions.create(model="tiny", messages=[{"role": "user", "content": text}], **more)

    def test_chat(self):
        whole = self.chat(SUM, logprobs=True, top_logprobs=2)
        choice = whole.choices[0]
        self.assertEqual((choice.message.content, choice.finish_reason), ("42", "stop"))
        self.assertTrue(choice.message.reasoning_content)
        chunks = list(self.chat(SUM, logprobs=True, top_logprobs=2, stream=True, stream_options={"include_usage": True}))
        usage = chunks.pop()
        self.assertEqual((usage.choices, usage.usage.completion_tokens), ([], whole.usage.completion_tokens))
        deltas = [c.choices[0].delta for c in chunks]
        self.assertEqual("".join(d.content or "" for d in deltas), choice.message.content)
        self.assertEqual("".join(getattr(d, "reasoning_content", None) or "" for d in deltas), choice.message.reasoning_content)
        streamed = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
        self.assertEqual([t.token for t in streamed], [t.token for t in choice.logprobs.content])
        self.assertEqual(len(streamed), whole.usage.completion_tokens)
        self.assertTrue(all(len(t.top_logprobs) == 2 for t in streamed))

    def test_several_answers_share_their_prompt(self):
        whole = self.chat(SUM, n=3, temperature=1.5, seed=3, max_tokens=20)
        self.assertEqual([c.index for c in whole.choices], [0, 1, 2])
        self.assertGreater(len({c.message.reasoning_content for c in whole.choices}), 1)
        texts = {}
        for chunk in self.chat(SUM, n=3, temperature=1.5, seed=3, max_tokens=20, stream=True):
            for c in chunk.choices:
                texts[c.index] = texts.get(c.index, "") + (getattr(c.delta, "reasoning_content", None) or "")
        self.assertEqual([texts[i] for i in range(3)], [c.message.reasoning_content for c in whole.choices])
        again = self.chat(SUM, n=3, temperature=1.5, seed=3, max_tokens=20)
        self.assertEqual([c.message for c in again.choices], [c.message for c in whole.choices])

    def test_tools(self):
        more = {"tools": [TOOL], "reasoning_effort": "none"}
        whole = self.chat(PRODUCT, **more).choices[0]
        self.assertEqual(whole.finish_reason, "tool_calls")
        call = whole.message.tool_calls[0]
        self.assertIn("345", json.loads(call.function.arguments)["expression"])
        chunks = [c.choices[0] for c in self.chat(PRODUCT, stream=True, **more)]
        parts = [t for c in chunks for t in c.delta.tool_calls or []]
        self.assertEqual([(p.function.name, bool(p.id)) for p in parts[:1]], [("calculator", True)])
        self.assertTrue(all(p.id is None and p.function.name is None and p.index == 0 for p in parts[1:]))
        self.assertEqual("".join(p.function.arguments for p in parts), call.function.arguments)
        self.assertEqual(chunks[-1].finish_reason, "tool_calls")
        messages = [{"role": "user", "content": PRODUCT}, whole.message.model_dump(exclude_none=True),
                    {"role": "tool", "tool_call_id": call.id, "content": "233910"}]
        answer = self.openai.chat.completions.create(model="tiny", messages=messages, **more)
        self.assertEqual(answer.choices[0].message.content, "233910")

    def test_structured_output(self):
        schema = {"type": "object", "properties": {"sum": {"type": "integer"}, "kind": {"enum": ["even", "odd"]}},
                  "required": ["sum", "kind"], "additionalProperties": False}
        form = {"name": "answer", "schema": schema, "strict": True}
        more = {"reasoning_effort": "none", "max_tokens": 200}
        whole = self.chat(SUM, response_format={"type": "json_schema", "json_schema": form}, **more).choices[0]
        self.assertEqual(whole.finish_reason, "stop")
        found = json.loads(whole.message.content)
        self.assertEqual((set(found), type(found["sum"])), ({"sum", "kind"}, int))
        self.assertIn(found["kind"], ("even", "odd"))
        chunks = self.chat(SUM, response_format={"type": "json_schema", "json_schema": form}, stream=True, **more)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), whole.message.content)

        class Answer(pydantic.BaseModel):  # the package itself makes the schema, and reads the answer
            sum: int
            note: Optional[Literal["a", "b"]]
        messages = [{"role": "user", "content": SUM}]
        parsed = self.openai.chat.completions.parse(model="tiny", messages=messages, response_format=Answer, **more)
        self.assertIsInstance(parsed.choices[0].message.parsed, Answer)
        parsed = self.openai.responses.parse(model="tiny", input=SUM, text_format=Answer, reasoning={"effort": "none"})
        self.assertIsInstance(parsed.output_parsed, Answer)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat(SUM, response_format={"type": "json_schema", "json_schema": {**form, "schema": {"not": {}}}})
        self.assertEqual(refused.exception.param, "response_format")

    def test_a_call_that_is_cut_is_no_call_to_run(self):
        cut = self.chat(PRODUCT, tools=[TOOL], reasoning_effort="none", max_tokens=14)
        self.assertEqual(cut.choices[0].finish_reason, "length")
        for call in cut.choices[0].message.tool_calls or []:
            self.assertRaises(ValueError, json.loads, call.function.arguments)

    def test_completions(self):
        whole = self.openai.completions.create(model="tiny", prompt=["17 + 25 =", "Hi"], max_tokens=4, logprobs=2)
        for choice in whole.choices:
            self.assertEqual("".join(choice.logprobs.tokens), choice.text)
            for token, offset in zip(choice.logprobs.tokens, choice.logprobs.text_offset):
                self.assertEqual(choice.text[offset:offset + len(token)], token)
        # OpenAI's own chunks have no finish_reason before the last, which its package does not expect.
        client = openai.OpenAI(base_url=self.openai.base_url, api_key="none")
        self.addCleanup(client.close)
        chunks = list(client.completions.create(model="tiny", prompt="17 + 25 =", max_tokens=4, echo=True, stream=True))
        self.assertEqual("".join(c.choices[0].text for c in chunks), "17 + 25 =" + whole.choices[0].text)

    def test_completions_beyond_ascii(self):
        prompt = "日本語 é word"
        whole = self.openai.completions.create(model="tiny", prompt=prompt, max_tokens=4, logprobs=0)
        self.assertEqual(whole.choices[0].logprobs.text_offset[0], 0)
        # The first token of an echo has no log-probability: OpenAI's own package calls null there invalid.
        client = openai.OpenAI(base_url=self.openai.base_url, api_key="none")
        self.addCleanup(client.close)
        echo = client.completions.create(model="tiny", prompt=prompt, max_tokens=4, logprobs=1, echo=True).choices[0]
        self.assertTrue(echo.text.startswith(prompt))
        self.assertIsNone(echo.logprobs.token_logprobs[0])
        self.assertTrue(all(p < 0 for p in echo.logprobs.token_logprobs[1:]))
        seen = 0
        for token, offset in zip(echo.logprobs.tokens, echo.logprobs.text_offset):
            self.assertGreaterEqual(offset, seen)
            seen = offset
            if "\ufffd" not in token:
                self.assertEqual(echo.text[offset:offset + len(token)], token)

    def test_late_errors(self):
        """A server that is stopped in mid-stream sends an error event that the package parses."""
        def stopped(ask):
            server = Server("--grace", 0, model="tiny")
            url = f"http://127.0.0.1:{server.port}"
            with openai.OpenAI(base_url=url + "/v1", api_key="none", _strict_response_validation=True, max_retries=0) as client, \
                    anthropic.Anthropic(base_url=url, api_key="none", _strict_response_validation=True, max_retries=0) as other:
                events = []
                try:
                    for event in ask(client, other):
                        events.append(event)
                        if len(events) == 8:
                            server.process.terminate()
                    return events, None
                except (openai.APIError, anthropic.APIError) as error:
                    return events, error
                finally:
                    server.process.wait(20)
                    server.process.stderr.close()
        more = {"model": "tiny", "stream": True, "extra_body": {"ignore_eos": True}}
        events, error = stopped(lambda o, a: o.responses.create(input=SUM, **more))
        self.assertIsNone(error)
        self.assertEqual((events[-1].type, events[-1].response.error.code), ("response.failed", "server_error"))
        self.assertEqual(events[-2].type, "response.output_item.done")
        messages = [{"role": "user", "content": SUM}]
        _, error = stopped(lambda o, a: o.chat.completions.create(messages=messages, **more))
        self.assertIn("stopping", str(error))
        _, error = stopped(lambda o, a: a.messages.create(messages=messages, max_tokens=3000, **more))
        self.assertIn("stopping", str(error))

    def test_responses(self):
        whole = self.openai.responses.create(model="tiny", input=SUM, instructions="Be brief.", reasoning={"effort": "low"})
        self.assertEqual((whole.status, whole.output_text), ("completed", "42"))
        self.assertEqual([item.type for item in whole.output], ["reasoning", "message"])
        self.assertGreater(whole.usage.output_tokens_details.reasoning_tokens, 0)
        events = list(self.openai.responses.create(model="tiny", input=SUM, instructions="Be brief.", reasoning={"effort": "low"}, stream=True))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        kinds = [e.type for e in events]
        self.assertEqual(kinds[:4], ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"])
        self.assertEqual(kinds[-4:], ["response.output_text.done", "response.content_part.done", "response.output_item.done",
                                      "response.completed"])
        texts = [e for e in events if e.type == "response.output_text.delta"]
        self.assertEqual("".join(e.delta for e in texts), "42")
        self.assertTrue(all(e.logprobs == [] for e in texts))
        scored = self.openai.responses.create(model="tiny", input=SUM, include=["message.output_text.logprobs"], top_logprobs=1,
                                              reasoning={"effort": "none"}).output[0].content[0]
        self.assertEqual("".join(t.token for t in scored.logprobs), scored.text)
        self.assertEqual(events[-1].response.output_text, "42")
        reasoning = "".join(e.delta for e in events if e.type == "response.reasoning_text.delta")
        self.assertEqual(reasoning, whole.output[0].content[0].text)
        cut = self.openai.responses.create(model="tiny", input=SUM, max_output_tokens=16)
        self.assertEqual((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        plain = self.openai.responses.create(model="tiny", input=SUM, reasoning={"effort": "none"})
        self.assertEqual([item.type for item in plain.output], ["message"])

    def test_responses_with_tools(self):
        more = {"model": "tiny", "tools": [{"type": "function", "strict": False, **FUNCTION}, {"type": "web_search"}],
                "reasoning": {"effort": "none"}}
        whole = self.openai.responses.create(input=PRODUCT, **more)
        call = whole.output[-1]
        self.assertEqual((call.type, call.name, call.status), ("function_call", "calculator", "completed"))
        with self.openai.responses.stream(input=PRODUCT, **more) as stream:
            events = list(stream)
            final = stream.get_final_response()
        parts = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
        self.assertEqual("".join(parts), call.arguments)
        self.assertEqual(final.output[-1].arguments, call.arguments)
        items = [{"role": "user", "content": PRODUCT}, *[i.model_dump(exclude_none=True) for i in whole.output],
                 {"type": "function_call_output", "call_id": call.call_id, "output": "233910"}]
        self.assertEqual(self.openai.responses.create(input=items, **more).output_text, "233910")

    def test_refusals(self):
        with self.assertRaises(openai.BadRequestError) as refused:
            self.openai.responses.create(model="tiny", input=SUM, previous_response_id="resp_1")
        self.assertEqual((refused.exception.param, refused.exception.code), ("previous_response_id", "unsupported_parameter"))
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat(SUM, temperature=-1)
        self.assertEqual(refused.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat("a " * 20000)
        self.assertEqual(refused.exception.code, "context_length_exceeded")
        self.assertEqual(self.openai.models.list().data[0].id, "tiny")


class Anthropic(Clients):
    def ask(self, text, **more):
        return self.anthropic.messages.create(model="tiny", max_tokens=2000, messages=[{"role": "user", "content": text}], **more)

    def test_messages(self):
        plain = self.ask(SUM)
        self.assertEqual(([b.type for b in plain.content], plain.content[0].text, plain.stop_reason), (["text"], "42", "end_turn"))
        thinking = {"type": "enabled", "budget_tokens": 1024}
        system = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=abcde;"},
                  {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
        whole = self.ask(SUM, thinking=thinking, system=system)
        self.assertEqual([b.type for b in whole.content], ["thinking", "text"])
        self.assertEqual(whole.content[1].text, "42")
        self.assertTrue(whole.content[0].signature)
        turn = [{"role": "user", "content": SUM}, {"role": "assistant", "content": [b.model_dump() for b in whole.content]},
                {"role": "user", "content": [{"type": "text", "text": "What is 3 + 4?"}]}]
        second = self.anthropic.messages.create(model="tiny", max_tokens=2000, messages=turn, thinking=thinking, system=system)
        self.assertEqual(second.content[-1].text, "7")
        self.assertGreater(second.usage.cache_read_input_tokens, 0)
        count = self.anthropic.messages.count_tokens(model="tiny", messages=turn, thinking=thinking, system=system).input_tokens
        self.assertEqual(count, second.usage.input_tokens + second.usage.cache_read_input_tokens)

    def test_streams(self):
        events = list(self.ask(SUM, thinking={"type": "enabled", "budget_tokens": 1024}, stream=True))
        kinds = [e.type for e in events if e.type != "ping"]
        self.assertEqual(kinds[:2], ["message_start", "content_block_start"])
        self.assertEqual(kinds[-2:], ["message_delta", "message_stop"])
        deltas = [e.delta for e in events if e.type == "content_block_delta"]
        signature = [d.type for d in deltas].index("signature_delta")
        self.assertTrue(all(d.type == "thinking_delta" for d in deltas[:signature]))
        self.assertEqual("".join(d.text for d in deltas[signature + 1:]), "42")
        start, end = events[0].message.usage, events[-2].usage
        self.assertEqual((start.input_tokens, start.cache_read_input_tokens), (end.input_tokens, end.cache_read_input_tokens))
        self.assertEqual(events[-2].delta.stop_reason, "end_turn")
        again = self.ask(SUM, thinking={"type": "enabled", "budget_tokens": 1024}, stream=True)
        self.assertGreater(next(iter(again)).message.usage.cache_read_input_tokens, 0)
        again.close()

    def test_tools(self):
        more = {"tools": [{"name": "calculator", "description": "Computes.", "input_schema": PARAMETERS},
                          {"type": "web_search_20250305", "name": "web_search"}]}
        whole = self.ask(PRODUCT, **more)
        self.assertEqual((whole.stop_reason, whole.content[-1].type), ("tool_use", "tool_use"))
        with self.anthropic.messages.stream(model="tiny", max_tokens=2000, messages=[{"role": "user", "content": PRODUCT}], **more) as stream:
            parts = [e.delta.partial_json for e in stream if e.type == "content_block_delta" and e.delta.type == "input_json_delta"]
            final = stream.get_final_message()
        self.assertEqual(json.loads("".join(parts)), whole.content[-1].input)
        self.assertEqual((final.stop_reason, final.content[-1].input), ("tool_use", whole.content[-1].input))
        turn = [{"role": "user", "content": PRODUCT}, {"role": "assistant", "content": [b.model_dump() for b in whole.content]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": whole.content[-1].id,
                                              "content": [{"type": "text", "text": "233910"}]}]}]
        answer = self.anthropic.messages.create(model="tiny", max_tokens=200, messages=turn, **more)
        self.assertEqual(answer.content[0].text, "233910")

    def test_structured_output(self):
        schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
        form = {"type": "json_schema", "schema": schema}
        for more in ({"output_config": {"format": form, "effort": "low"}}, {"extra_body": {"output_format": form}}):
            self.assertIsInstance(json.loads(self.ask(SUM, **more).content[0].text)["sum"], int)

    def test_thinking_that_is_sent_back_is_not_read_again(self):
        """Of the answer only the last token was never read: it was sampled."""
        thinking = {"type": "enabled", "budget_tokens": 1024}
        first = self.ask(SUM, thinking=thinking)
        turn = [{"role": "user", "content": SUM}, {"role": "assistant", "content": [b.model_dump() for b in first.content]},
                {"role": "user", "content": "What is 3 + 4?"}]
        second = self.anthropic.messages.create(model="tiny", max_tokens=2000, messages=turn, thinking=thinking)
        read = first.usage.input_tokens + first.usage.cache_read_input_tokens + first.usage.output_tokens
        self.assertGreaterEqual(second.usage.cache_read_input_tokens, read - 1)

    def test_models(self):
        self.assertEqual([m.id for m in self.anthropic.models.list()], ["tiny"])
        self.assertEqual(self.anthropic.models.retrieve("tiny").max_input_tokens, 4096)
        with self.assertRaises(anthropic.NotFoundError):
            self.anthropic.models.retrieve("other")

    def test_stops(self):
        self.assertEqual(self.ask(SUM, thinking={"type": "enabled", "budget_tokens": 1024}, extra_body={"max_tokens": 3}).stop_reason, "max_tokens")
        stopped = self.ask(SUM, stop_sequences=["2"])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence, stopped.content[0].text), ("stop_sequence", "2", "4"))

    def test_refusals(self):
        with self.assertRaises(anthropic.BadRequestError) as refused:
            self.ask(SUM, extra_body={"temperature": -1})
        self.assertEqual(refused.exception.body["type"], "error")
        self.assertEqual(refused.exception.body["error"]["type"], "invalid_request_error")


if __name__ == "__main__":
    main()
