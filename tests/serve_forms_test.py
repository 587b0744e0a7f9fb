"""Forms of answers under the names that other servers give them, and refusals that name the field that is to blame.

usage: serve_forms_test.py BRAID
"""
import json

from support.program import main
from support.server import ServerCase

SUM = {"role": "user", "content": "What is 17 + 25?"}


class Forms(ServerCase):
    def test_forms_of_other_servers(self):
        schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
        form = {"type": "json_schema", "schema": schema}
        quiet = {"reasoning_effort": "none", "max_tokens": 60}
        texts = [self.server.chat(SUM, **quiet, **more)["choices"][0]["message"]["content"]
                 for more in ({"json_schema": schema}, {"response_format": {"type": "json_object", "schema": schema}},
                              {"response_format": form}, {"json_schema": schema, "grammar": ""})]
        texts += [self.server.ask("/v1/completions", {"prompt": "17 + 25", "max_tokens": 60, "json_schema": schema})["choices"][0]["text"]]
        texts += [self.server.ask("/v1/messages", {"messages": [SUM], "max_tokens": 60, **more})["content"][0]["text"]
                  for more in ({"output_config": {"format": form}}, {"output_format": form})]
        for text in texts:
            self.assertIsInstance(json.loads(text)["sum"], int, texts)

    def test_the_field_that_is_to_blame(self):
        bad = {"type": "string", "unknownWord": "x"}
        def function(name="f", **more):
            return {"type": "function", "function": {"name": name, **more}}
        for more, param, says in (
                ({"grammar": "root ::= \"a\""}, "grammar", "not available"), ({"json_schema": bad}, "json_schema", "unknownWord"),
                ({"response_format": {"type": "json_object", "schema": bad}}, "response_format", "unknownWord"),
                ({"response_format": {"type": "json_schema"}}, "response_format", "schema"), ({"response_format": 5}, "response_format", "type"),
                ({"guided_json": bad}, "guided_json", "unknownWord"), ({"guided_regex": "("}, "guided_regex", ""),
                ({"guided_choice": []}, "guided_choice", "texts"), ({"guided_grammar": "x"}, "guided_grammar", "not available"),
                ({"structured_outputs": {"regex": 5}}, "structured_outputs", "structured_outputs.regex"),
                ({"structured_outputs": 5}, "structured_outputs", "object"), ({"tool_choice": "some"}, "tool_choice", "required"),
                ({"tool_choice": "required"}, "tool_choice", "tools"), ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "true or false"),
                ({"top_logprobs": 2}, "top_logprobs", "logprobs"), ({"functions": []}, "functions", "not available"),
                ({"guided_json": {}, "guided_regex": "a"}, "guided_regex", "more than one"),
                *(({"tools": [tool], "tool_choice": choice}, "tools", says) for choice in ("auto", "none", "required") for tool, says in (
                    (function(""), "name"), (function("a b"), "a b"), (function("a" * 65), "64"), (function(parameters=5), "not an object"),
                    (function(parameters={"type": "array"}), "object")))):
            error = self.server.ask("/v1/chat/completions", {"messages": [SUM], **more}, 400)["error"]
            self.assertEqual(error["param"], param, (more, error))
            self.assertIn(says, error["message"])
        text = {"format": {"type": "json_schema", "name": "n", "schema": bad}}
        error = self.server.ask("/v1/responses", {"input": "a", "text": text}, 400)["error"]
        self.assertEqual(error["param"], "text.format")
        self.assertIn("[text.format]", error["message"])

    def test_messages_say_what_is_wrong(self):
        for more, says in (({"tools": [{"name": "f"}]}, "no 'input_schema'"), ({"tools": [{"name": "f", "input_schema": 5}]}, "not an object"),
                           ({"tools": [{"type": "custom", "input_schema": {}}]}, "'name'"), ({"thinking": True}, "'thinking'"),
                           ({"thinking": {"type": "bogus"}}, "'thinking'"), ({"tool_choice": {"type": "some"}}, "'tool_choice'"),
                           ({"output_config": 5}, "'output_config'"), ({"output_config": {"effort": "huge"}}, "'output_config.effort'"),
                           ({"output_config": {"format": {"type": "xml"}}}, "'output_config.format'"),
                           ({"output_format": {"type": "json_schema"}}, "'output_format'"),
                           ({"output_format": {"type": "json_schema", "schema": {"type": "odd"}}}, "[output_format]")):
            error = self.server.ask("/v1/messages", {"messages": [SUM], "max_tokens": 4, **more}, 400)["error"]
            self.assertIn(says, error["message"])


if __name__ == "__main__":
    main()
