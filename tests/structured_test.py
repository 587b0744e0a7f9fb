"""Answers of a form, over HTTP: of random schemas, also drawn at random from what their masks leave, of schemas as pydantic
writes them, of choices and regular expressions, and calls of tools. Every answer ends with `stop` and is valid for the Python package jsonschema.

usage: structured_test.py BRAID [--schemas N]
"""
import json
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import unittest

from support.program import main
from support.server import CHAT, ServerCase

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMAS = 300
if "--schemas" in sys.argv:
    at = sys.argv.index("--schemas")
    SCHEMAS = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]

TINY = pathlib.Path(__file__).resolve().parent.parent / "models" / "tiny"
QUIET = {"chat_template_kwargs": {"enable_thinking": False}}
PROMPTS = ["What is 17 + 25?", "Reverse the word stone.", "Who are you?", "Sort 3, 1, 2.", "Tell me of a city."]
NAMES = ["name", "id", "a b", "ä", "x/y", "q\"", "count", "tags", "value", "kind"]


class Schemas:
    """Random schemas that have values. Alternatives of a oneOf exclude each other by their types."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.defs = {}

    def whole(self):
        root = self.any(0)
        return {**root, "$defs": self.defs} if self.defs else root

    def any(self, depth):
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "types", "pattern", "format"]
        kinds += ["object", "array", "tuple", "map", "anyOf", "oneOf", "allOf", "ref", "object", "object"] if depth < 4 else []
        return getattr(self, "make_" + self.random.choice(kinds))(depth)

    def chance(self, p):
        return self.random.random() < p

    def make_string(self, depth):
        out = {"type": "string"}
        low = self.random.randrange(4)
        if self.chance(0.4):
            out["minLength"] = low
        if self.chance(0.5):
            out["maxLength"] = low + self.random.randrange(12)
        return out

    def make_integer(self, depth, kind="integer"):
        out = {"type": kind}
        low = self.random.randrange(-1000, 1000)
        if self.chance(0.4):
            out[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.4):
            out[self.random.choice(["maximum", "exclusiveMaximum"])] = low + 40 + self.random.randrange(10**self.random.randrange(1, 6))
        if self.chance(0.3):
            out["multipleOf"] = self.random.choice([2, 3, 7, 10])
        return out

    def make_number(self, depth):
        out = self.make_integer(depth, "number")
        for key in out.keys() & {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}:
            out[key] += self.random.choice([0, 0.5, 0.125, -0.1])
        if "multipleOf" in out:
            out["multipleOf"] = self.random.choice([0.5, 0.25, 5, 0.1, 0.01])
        return out

    def make_boolean(self, depth):
        return {"type": "boolean"}

    def make_null(self, depth):
        return {"type": "null"}

    def make_enum(self, depth):
        values = ["red", "green", "a\"b", "", "ä", 1, 2.5, None, True, [1, "x"], {"k": [None]}]
        return {"enum": self.random.sample(values, self.random.randrange(1, 6))}

    def make_const(self, depth):
        return {"const": self.random.choice(["fixed", 7, None, {"a": 1}])}

    def make_types(self, depth):
        return {"type": self.random.sample(["string", "integer", "null", "boolean"], 2)}

    def make_pattern(self, depth):
        return {"type": "string", "pattern": self.random.choice(
            ["^[A-Z]{3}-\\d{2,4}$", "^(on|off)$", "^\\+?[0-9 ]{5,12}$", "^[^\"x]{2}\\\\?$", "^#[0-9a-f]{6}$", "^\\w+( \\w+)*$"])}

    def make_format(self, depth):
        return {"type": "string", "format": self.random.choice(["date-time", "date", "time", "uuid", "email", "ipv4"])}

    def make_object(self, depth):
        names = self.random.sample(NAMES, self.random.randrange(0, 5))
        out = {"type": "object", "properties": {n: self.any(depth + 1) for n in names}}
        required = [n for n in names if self.chance(0.6)]
        if required:
            out["required"] = required
        if self.chance(0.6):
            out["additionalProperties"] = self.chance(0.2) and self.any(depth + 2)
        return out

    def make_map(self, depth):
        out = {"type": "object", "additionalProperties": self.any(depth + 1)}
        if self.chance(0.5):
            out["maxProperties"] = self.random.randrange(1, 4)
        if self.chance(0.3):
            out["propertyNames"] = {"pattern": "^[a-z]{1,8}$"}
        return out

    def make_array(self, depth):
        out = {"type": "array", "items": self.any(depth + 1)}
        low = self.random.randrange(3)
        if self.chance(0.4):
            out["minItems"] = low
        if self.chance(0.5):
            out["maxItems"] = low + self.random.randrange(4)
        return out

    def make_tuple(self, depth):
        items = [self.any(depth + 1) for _ in range(self.random.randrange(1, 4))]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}

    def make_anyOf(self, depth):
        return {"anyOf": [self.any(depth + 1) for _ in range(self.random.randrange(1, 4))]}

    def make_oneOf(self, depth):
        return {"oneOf": self.random.sample([{"type": "string"}, self.make_integer(depth), {"type": "null"}, self.make_object(depth + 1)], 2)}

    def make_allOf(self, depth):
        first, second = self.make_object(depth + 1), {"properties": {"extra": self.any(depth + 2)}, "required": ["extra"]}
        first.pop("additionalProperties", None)
        return {"allOf": [first, second]}

    def make_ref(self, depth):
        name = f"D{len(self.defs)}"
        self.defs[name] = {}
        tree = {"type": "object", "properties": {"v": self.any(depth + 2), "next": {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"type": "null"}]}},
                "required": ["v"]}
        self.defs[name] = tree if self.chance(0.5) else self.any(depth + 1)
        return {"$ref": f"#/$defs/{name}"}


class WideSchemas(Schemas):
    """And rarer keywords, beside each other."""

    def any(self, depth):
        rare = ["mixed", "formats", "keys", "counted", "set", "sibling", "range", "length_of_pattern", "exclusive", "merged_tuple", "listed", "classes"]
        return getattr(self, "make_" + self.random.choice(rare))(depth) if depth < 4 and self.chance(0.4) else super().any(depth)

    def make_mixed(self, depth):
        """Keywords of several types: each counts for values of its own."""
        out = {**self.make_string(depth), **self.make_integer(depth), **self.make_array(depth), **self.make_object(depth + 1)}
        out["type"] = self.random.sample(["string", "integer", "array", "object", "null"], self.random.randrange(2, 5))
        return out

    def make_formats(self, depth):
        return {"type": "string", "format": self.random.choice(["ipv6", "duration", "hostname", "uri", "date", "time", "email"])}

    def make_keys(self, depth):
        return {"type": "object", "patternProperties": {self.random.choice(["^[a-c]+$", "^x_\\d{1,3}$"]): self.any(depth + 1)},
                "additionalProperties": False}

    def make_counted(self, depth):
        out = self.make_object(depth)
        out["minProperties"] = len(out.get("required", ()))
        return out

    def make_set(self, depth):
        return {"type": "array", "uniqueItems": True, "minItems": self.random.randrange(3),
                "items": {"enum": self.random.sample(["a", "b", 1, None, True, [2], {"k": 1}], 4)}}

    def make_sibling(self, depth):
        """A type beside alternatives that each add to it."""
        return {"type": "object", "properties": {"base": self.any(depth + 1)}, "required": ["base"],
                "anyOf": [{"properties": {f"way{i}": self.any(depth + 2)}, "required": [f"way{i}"]} for i in range(self.random.randrange(1, 4))]}

    def make_range(self, depth):
        low = self.random.choice([-1e6, -0.001, 0, 0.3, 99.5, 12345])
        return {"type": self.random.choice(["number", "integer"]), "minimum": low,
                "exclusiveMaximum": low + self.random.choice([1.5, 10, 1000, 1e7])}

    def make_length_of_pattern(self, depth):
        low = self.random.randrange(1, 4)
        return {"type": "string", "pattern": self.random.choice(["^[a-z]+$", "^[\\w-]+$", "^[0-9ab]*$"]), "minLength": low,
                "maxLength": low + self.random.randrange(6)}

    def make_exclusive(self, depth):
        """Alternatives of one type, some of whose values would satisfy two of them."""
        kinds = [{"type": "object", "properties": {"kind": {"const": kind}, kind: self.any(depth + 2)}} for kind in "abc"]
        one = {"properties": {name: self.any(depth + 2) for name in "abc"}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
        lists = [{"type": "array", "items": {"type": kind}} for kind in ("string", "integer", "null")]
        numbers = [{"type": "integer", "maximum": 3}, {"type": "number", "exclusiveMinimum": 3}, {"enum": [2.5, "x"]}]
        return self.random.choice([{"oneOf": kinds}, one, {"oneOf": lists}, {"oneOf": numbers}])

    def make_merged_tuple(self, depth):
        own, other = [{"type": "integer"}, self.make_types(depth)], [{"minimum": 5}, True, {"type": ["string", "null", "boolean"]}]
        return {"allOf": [{"type": "array", "prefixItems": own[:self.random.randrange(1, 3)], "minItems": self.random.randrange(3)},
                          {"items": {"type": ["integer", "string", "boolean", "null"]}},
                          {"prefixItems": other[:self.random.randrange(1, 4)], "maxItems": self.random.randrange(2, 6)}]}

    def make_listed(self, depth):
        return {"enum": ["a1", "b22", "ä", 1, 2.5, -3, [1], [1, 2], None], "minLength": self.random.randrange(3), "minimum": self.random.randrange(3),
                "pattern": "^[a-z]\\d+$", "minItems": self.random.randrange(3)}

    def make_classes(self, depth):
        return {"type": "string", "pattern": self.random.choice(["^\\S{1,8}$", "^[^\\s]{1,8}$", "^\\W{1,5}\\D{1,5}$", "^[^\\w\\d]{1,5}$", "^[\\W\\d]{1,4}$"])}


class Pairs(WideSchemas):
    """A oneOf of objects, listed objects and arrays, and keys of a pattern, which may overlap. Patterns of strings, multiples,
    and tuples are not compared, and are left out."""

    def pair(self):
        ways = [self.make_way() for _ in range(self.random.choice([2, 2, 3]))]
        beside = self.random.choice([{}, {}, {"type": ["object", "array"]}, {"required": ["x"]}, {"minProperties": 0}])
        return {"oneOf": ways, **beside}

    def make_way(self):
        values = [1, 2, "a", "bb", None, True, {"x": 1}, {"x": "a"}, {"y": 1, "x": 1}, {}, [1], [], 2.5]
        kind = self.random.choice(["object", "object", "object", "listed", "listed", "keys", "keys", "names", "array"])
        if kind == "listed":
            return {"enum": self.random.sample(values, self.random.randrange(1, 4))}
        if kind == "keys":
            out = {"type": "object", "patternProperties": {self.random.choice(["^x", "^[a-y]+$", "y"]): self.plain()}}
            return {**out, "additionalProperties": False} if self.chance(0.4) else out
        if kind == "names":
            return {"type": "object", "additionalProperties": self.plain(), "propertyNames": {"enum": ["x", "y"]}}
        if kind == "array":
            return {"type": "array", "items": self.plain(), "maxItems": self.random.randrange(3)}
        names = self.random.sample("xyzt", self.random.randrange(4))
        out = {"type": "object", "properties": {n: self.plain() for n in names}}
        out["required"] = [n for n in names if self.chance(0.7)] + (["t"] if self.chance(0.1) and "t" not in names else [])
        if self.chance(0.6):
            out["additionalProperties"] = False if self.chance(0.6) else self.plain()
        return out

    def plain(self):
        kinds = [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3}, {"type": "integer", "minimum": 2}, {"type": "integer"},
                 {"type": "number", "maximum": 1.5}, {"type": "null"}, {"const": "a"}, {"enum": [1, "a", {"x": 1}]}, {"type": "boolean"}, False,
                 {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}]
        return self.random.choice(kinds)


# What model_json_schema() writes for models with optional and constrained fields, enums, unions, maps, tuples, Decimals and
# recursion.
PYDANTIC = [
    {"$defs": {"Color": {"enum": ["red", "blue"], "title": "Color", "type": "string"},
               "Item": {"properties": {"sku": {"pattern": "^[A-Z]{2}\\d{3}$", "title": "Sku", "type": "string"},
                                       "price": {"anyOf": [{"type": "number"}, {"pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "type": "string"}], "title": "Price"},
                                       "color": {"$ref": "#/$defs/Color", "default": "red"}},
                        "required": ["sku", "price"], "title": "Item", "type": "object"}},
     "properties": {"id": {"format": "uuid", "title": "Id", "type": "string"},
                    "items": {"items": {"$ref": "#/$defs/Item"}, "minItems": 1, "title": "Items", "type": "array"},
                    "note": {"anyOf": [{"maxLength": 20, "type": "string"}, {"type": "null"}], "default": None, "title": "Note"},
                    "when": {"format": "date-time", "title": "When", "type": "string"},
                    "scores": {"additionalProperties": {"type": "integer"}, "title": "Scores", "type": "object"},
                    "pair": {"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}], "title": "Pair", "type": "array"},
                    "ratio": {"exclusiveMinimum": 0, "maximum": 1, "title": "Ratio", "type": "number"}},
     "required": ["id", "items", "when", "scores", "pair", "ratio"], "title": "Order", "type": "object"},
    {"$defs": {"Cat": {"properties": {"kind": {"const": "cat", "title": "Kind", "type": "string"}, "lives": {"maximum": 9, "minimum": 1, "type": "integer"}},
                       "required": ["kind", "lives"], "type": "object"},
               "Dog": {"properties": {"kind": {"const": "dog", "title": "Kind", "type": "string"}, "name": {"type": "string"}},
                       "required": ["kind", "name"], "type": "object"}},
     "properties": {"pet": {"discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"},
                            "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}], "title": "Pet"}},
     "required": ["pet"], "title": "Owner", "type": "object"},
    {"$defs": {"Node": {"properties": {"value": {"title": "Value", "type": "integer"},
                                       "children": {"default": [], "items": {"$ref": "#/$defs/Node"}, "title": "Children", "type": "array"}},
                        "required": ["value"], "title": "Node", "type": "object"}},
     "$ref": "#/$defs/Node"},
    {"properties": {"a": {"allOf": [{"$ref": "#/$defs/A"}], "description": "as pydantic 2.0 wrote it"}}, "required": ["a"], "type": "object",
     "additionalProperties": False, "$defs": {"A": {"type": "string", "format": "email"}}},
]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"]}}}
CLOCK = {"type": "function", "function": {"name": "clock"}}


class Structured(ServerCase):
    words, model = ("--parallel", 4), "tiny"

    def ask(self, question, tokens=400, **more):
        return self.server.chat({"role": "user", "content": question}, max_tokens=tokens, **more)["choices"][0]

    def check(self, schema, question, **more):
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
        choice = self.ask(question, response_format=form, **{**QUIET, **more})
        text = choice["message"]["content"]
        self.assertEqual(choice["finish_reason"], "stop", (schema, text))
        self.validate(text, schema)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 128 + signal.SIGTERM, f"the server ended with {code}"

    def validate(self, text, schema):
        try:
            jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        except (ValueError, jsonschema.ValidationError) as error:
            self.fail(f"{json.dumps(schema)}\n{text}\n{error}")

    def check_draws(self, seed):
        """Answers to token ids drawn by chance, at temperatures up to one at which all tokens that the mask leaves are
        about equally likely: they reach what the model would never write."""
        chance = random.Random(seed)
        schema = WideSchemas(100000 + seed).whole()
        body = {"prompt": [chance.randrange(self.vocabulary) for _ in range(chance.randrange(1, 30))], "json_schema": schema, "n": 3,
                "temperature": chance.choice([0.5, 1, 2, 10, 100]), "seed": seed, "max_tokens": chance.randrange(20, 150)}
        for choice in self.server.ask("/v1/completions", body)["choices"]:
            if choice["finish_reason"] == "length":  # shorter than the shortest text
                choice, = self.server.ask("/v1/completions", {**body, "n": 1, "max_tokens": 2000})["choices"]
            self.assertEqual(choice["finish_reason"], "stop", (schema, choice))
            self.validate(choice["text"], schema)

    @unittest.skipUnless(jsonschema, "the Python package jsonschema is not installed")
    def test_random_draws_of_random_schemas(self):
        type(self).vocabulary = len(json.loads((TINY / "tokenizer.json").read_text())["model"]["vocab"])
        self.of_all_seeds(self.check_draws, SCHEMAS // 4)

    def check_pair(self, seed):
        """Valid for one alternative alone, or refused: not compared is no reason to write it."""
        schema = Pairs(seed).pair()
        body = {"prompt": "a", "json_schema": schema, "n": 3, "temperature": 8, "seed": seed, "max_tokens": 60}
        connection, answer = self.server.send("POST", "/v1/completions", body, {})
        said = json.loads(answer.read())
        connection.close()
        if answer.status == 400:
            self.assertRegex(said["error"]["message"], "of a oneOf hold|no text satisfies|beside (properties|an enum|propertyNames)|two values")
            return
        self.answered.append(seed)
        for choice in said["choices"]:
            if choice["finish_reason"] == "stop":
                self.validate(choice["text"], schema)

    @unittest.skipUnless(jsonschema, "the Python package jsonschema is not installed")
    def test_random_pairs_of_alternatives(self):
        type(self).answered = []
        self.of_all_seeds(self.check_pair, 2 * SCHEMAS)
        self.assertGreater(len(self.answered), SCHEMAS // 5)

    @unittest.skipUnless(jsonschema, "the Python package jsonschema is not installed")
    def test_random_schemas(self):
        self.of_all_seeds(lambda seed: self.check(Schemas(seed).whole(), PROMPTS[seed % len(PROMPTS)], temperature=(seed % 3) / 2, seed=seed))

    def of_all_seeds(self, check, count=SCHEMAS):
        failures, valid = [], []
        seeds = iter(range(count))

        def work():
            for seed in seeds:  # next() of a range is atomic
                try:
                    check(seed)
                    valid.append(seed)
                except Exception as error:  # pylint: disable=broad-except  # a thread would end of it in silence
                    failures.append(f"seed {seed}: {type(error).__name__}: {error}")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(failures), 0, f"{len(failures)} of {count}\n" + "\n".join(failures[:5]))
        self.assertEqual(sorted(valid), list(range(count)))

    @unittest.skipUnless(jsonschema, "the Python package jsonschema is not installed")
    def test_schemas_of_pydantic(self):
        for schema in PYDANTIC:
            for seed in range(6):
                self.check(schema, PROMPTS[seed % len(PROMPTS)], temperature=seed / 3, seed=seed)

    def test_the_form_begins_after_the_thinking(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        choice = self.ask(PROMPTS[0], guided_json=schema)
        self.assertTrue(choice["message"]["reasoning_content"], choice)
        self.assertIsInstance(json.loads(choice["message"]["content"])["n"], int)
        self.assertEqual(choice["finish_reason"], "stop")
        short = self.ask(PROMPTS[0], guided_json=schema, thinking_token_budget=4)
        self.assertIsInstance(json.loads(short["message"]["content"])["n"], int)

    def test_objects_choices_and_expressions(self):
        for seed in range(8):
            more = {"temperature": 1, "seed": seed, **QUIET}
            self.assertIsInstance(json.loads(self.ask("Hi", response_format={"type": "json_object"}, tokens=80, **more)["message"]["content"]), dict)
            self.assertIn(self.ask("Hi", guided_choice=["yes", "yesterday", "no"], **more)["message"]["content"], ("yes", "yesterday", "no"))
            self.assertRegex(self.ask("Hi", structured_outputs={"regex": "[a-f]+-\\d{3}"}, tokens=30, **more)["message"]["content"], r"\A[a-f]+-\d{3}\Z")
        lines = self.ask("Hi", guided_regex="\n\n[a-z]{3}", tokens=30, **QUIET)["message"]["content"]
        self.assertRegex(lines, r"\A\n\n[a-z]{3}\Z")
        answer = self.server.ask("/v1/completions", {"prompt": "1, 2,", "guided_regex": " \\d(, \\d){3}", "max_tokens": 40})["choices"][0]
        self.assertRegex(answer["text"], r"\A \d(, \d){3}\Z")
        self.assertEqual(answer["finish_reason"], "stop")

    def test_log_probabilities_are_those_before_the_mask(self):
        choice = self.ask("Hi", guided_choice=["zz"], logprobs=True, top_logprobs=2, **QUIET)
        first = choice["logprobs"]["content"][0]
        self.assertLess(first["logprob"], first["top_logprobs"][0]["logprob"])

    def test_tools_that_must_be_called(self):
        for seed in range(6):
            for think in (False, True):
                more = {"tools": [WEATHER, CLOCK], "temperature": seed / 4, "seed": seed, "chat_template_kwargs": {"enable_thinking": think}}
                calls = self.ask("What is 3 + 4?", tool_choice="required", **more)["message"].get("tool_calls", [])
                named = self.ask("What is 3 + 4?", tool_choice={"type": "function", "function": {"name": "weather"}}, **more)
                self.assertEqual([c["function"]["name"] for c in named["message"]["tool_calls"]], ["weather"], named)
                self.assertGreaterEqual(len(calls), 1)
                for call in (*calls, *named["message"]["tool_calls"]):
                    arguments = json.loads(call["function"]["arguments"])
                    if call["function"]["name"] == "weather":
                        self.assertIsInstance(arguments["city"], str)
                        self.assertIn(arguments["days"], range(1, 8))
                    else:
                        self.assertEqual((call["function"]["name"], arguments), ("clock", {}))
                one = self.ask("What is 345 * 678?", parallel_tool_calls=False, **more)["message"]
                self.assertLessEqual(len(one.get("tool_calls", [])), 1)

    @unittest.skipUnless(jsonschema, "the Python package jsonschema is not installed")
    def test_arguments_are_of_their_schemas(self):
        digits = {"type": "string", "pattern": "^[0-9]{3}$"}
        for value, rest in (({"type": "string", "anyOf": [{"format": "date"}, {"format": "ipv4"}]}, {}), ({"$ref": "#/$defs/A"}, {}),
                            ({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}, {}), ({"enum": ["5", "true"]}, {}),
                            ({}, {"allOf": [{"properties": {"d": digits}}]}), ({}, {"$ref": "#/$defs/B"}),
                            ({"anyOf": [{"enum": ["null", "\"a\"", "</parameter>"], "type": "string"}, {"type": "null"}]}, {}),
                            ({"type": "object", "properties": {"z": {"const": "</parameter>"}}, "required": ["z"]}, {}),
                            ({"type": "number", "multipleOf": 0.1, "minimum": 0, "maximum": 2}, {})):
            schema = {"type": "object", **({"properties": {"d": value}} if value else {}), "required": ["d"], **rest,
                      "$defs": {"A": digits, "B": {"properties": {"d": digits}}}}
            for seed in range(3):
                said = self.ask("Call it.", tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}],
                                tool_choice="required", parallel_tool_calls=False, temperature=1.5, seed=seed, **QUIET)
                arguments = json.loads(said["message"]["tool_calls"][0]["function"]["arguments"])
                jsonschema.validate(arguments, schema, jsonschema.Draft202012Validator)

    def test_one_call_at_most_needs_no_schema(self):
        question, odd = "What is 345 * 678?", {"type": "object", "properties": {"expression": {"type": "string"}}, "not": {}}
        tools = [{"type": "function", "function": {"name": "calculator", "parameters": odd}}, CLOCK]
        called = self.ask(question, tools=tools, parallel_tool_calls=False, **QUIET)["message"]
        self.assertEqual([c["function"]["name"] for c in called["tool_calls"]], ["calculator"])
        self.assertIn("expression", json.loads(called["tool_calls"][0]["function"]["arguments"]))
        said = self.server.ask("/v1/messages", {
            "messages": [{"role": "user", "content": question}], "max_tokens": 300, "thinking": {"type": "disabled"},
            "tools": [{"name": "calculator", "input_schema": odd}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}})
        self.assertEqual([part["name"] for part in said["content"] if part["type"] == "tool_use"], ["calculator"])
        tools[0]["function"]["strict"] = True
        body = {"messages": [{"role": "user", "content": question}], "tools": tools, "parallel_tool_calls": False}
        self.assertIn("/not", self.server.ask("/v1/chat/completions", body, 400)["error"]["message"])

    def test_allowed_tools(self):
        question = "What is 345 * 678?"
        tools = [WEATHER, CLOCK, {"type": "function", "function": {"name": "calculator", "parameters": {}}}]
        for mode in ("auto", "required"):
            allowed = {"mode": mode, "tools": [CLOCK, {"type": "web_search"}]}
            for choice in ({"type": "allowed_tools", **allowed}, {"type": "allowed_tools", "allowed_tools": allowed}):
                said = self.ask(question, tools=tools, tool_choice=choice, **QUIET)["message"]
                names = [c["function"]["name"] for c in said.get("tool_calls", [])]
                self.assertLessEqual(set(names), {"clock"})
                self.assertTrue(names or mode == "auto", said)
            flat = [{"type": "function", **t["function"]} for t in tools]
            choice = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "clock"}]}
            said = self.server.ask("/v1/responses", {"input": question, "tools": flat, "tool_choice": choice, "reasoning": {"effort": "none"}})
            self.assertLessEqual({item["name"] for item in said["output"] if item["type"] == "function_call"}, {"clock"})
            self.assertEqual(said["tool_choice"], choice)
        for wrong in ({"mode": "auto"}, {"mode": "some", "tools": [CLOCK]}, {"tools": []}, {"tools": [{"type": "function", "name": "other"}]}):
            body = {"messages": [{"role": "user", "content": "Hi"}], "tools": tools, "tool_choice": {"type": "allowed_tools", **wrong}}
            self.assertEqual(self.server.ask("/v1/chat/completions", body, 400)["error"]["param"], "tool_choice")

    def test_calls_that_are_not_demanded_name_what_was_offered(self):
        question = "What is 345 * 678?"  # the model would call its calculator
        tools = [{"type": "function", "function": {"name": "calculator", "parameters": {"type": "object", "properties": {
            "expression": {"type": "string"}}}}}]
        called = self.ask(question, tools=tools, **QUIET)["message"]
        self.assertEqual([c["function"]["name"] for c in called["tool_calls"]], ["calculator"])
        free = self.ask(question, **QUIET)["message"]["content"]
        for offered in ([WEATHER, CLOCK], [CLOCK], tools):
            names = {t["function"]["name"] for t in offered}
            for more in ({}, {"tool_choice": "auto"}, {"temperature": 1, "seed": 3}):
                calls = self.ask(question, tools=offered, tokens=200, **more, **QUIET)["message"].get("tool_calls", [])
                self.assertLessEqual({c["function"]["name"] for c in calls}, names)
        # Text may be cut anywhere: nothing is reserved for its end.
        for prompt in PROMPTS[:3]:
            whole = self.ask(prompt, tools=[CLOCK], tokens=200, **QUIET)["message"]["content"] or ""
            for tokens in (1, 2):
                cut = self.ask(prompt, tools=[CLOCK], tokens=tokens, **QUIET)
                self.assertEqual(cut["finish_reason"], "length", cut)
                said = (cut["message"]["content"] or "").split("<tool_call>")[0]  # a tag alone stays text
                self.assertTrue(whole.startswith(said), (whole, cut))

    def test_what_is_refused(self):
        for fields, part in (({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"items": {"not": {}}}}}}, "/items/not"),
                             ({"response_format": {"type": "xml"}}, "response_format"),
                             ({"response_format": {"type": "json_schema"}}, "schema"),
                             ({"guided_regex": "(a"}, "regular expression"),
                             ({"guided_choice": []}, "guided_choice"),
                             ({"guided_grammar": "root ::= a"}, "guided_grammar"),
                             ({"guided_json": {}, "guided_regex": "a"}, "more than one"),
                             ({"tool_choice": "required"}, "tool_choice"),
                             ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
                             ({"tools": [CLOCK], "tool_choice": 5}, "tool_choice")):
            body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
            error = self.server.ask("/v1/chat/completions", body, status=400)["error"]
            self.assertEqual(error["type"], "invalid_request_error")
            self.assertIn(part, error["message"])
            self.assertNotRegex(error["message"], re.compile(r"\n"))


# As Meta's templates of Llama 3 ask for calls.
BARE = """{% if tools %}{{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}{% for m in messages %}{{ m.content }}
{% endfor %}"""


class BareCalls(ServerCase):
    """A model whose template asks for calls that are JSON without tags."""

    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.model = shutil.copytree(CHAT, pathlib.Path(cls.kept.name) / "model")
        (pathlib.Path(cls.model) / "chat_template.jinja").write_text(BARE)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.kept.cleanup()

    def test_a_call_that_must_be(self):
        body = {"messages": [{"role": "user", "content": "Ulm?"}], "tools": [WEATHER], "tool_choice": "required", "max_tokens": 300, "logprobs": True}
        for seed in range(4):
            body |= {"seed": seed, "temperature": seed / 3}
            choice = self.server.ask("/v1/chat/completions", body)["choices"][0]
            self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None), choice)
            call, = choice["message"]["tool_calls"]
            self.assertEqual(call["function"]["name"], "weather")
            self.assertIn(json.loads(call["function"]["arguments"])["days"], range(1, 8))
            written = "".join(token["token"] for token in choice["logprobs"]["content"])
            self.assertTrue(written.startswith('{"name": "weather", "parameters": {'), written)
            events = [json.loads(event)["choices"][0] for event in self.server.events("/v1/chat/completions", body)[0][:-1]]
            parts = [part["function"] for event in events for part in event["delta"].get("tool_calls", [])]
            self.assertEqual([part["name"] for part in parts if "name" in part], ["weather"])
            self.assertEqual("".join(part["arguments"] for part in parts), call["function"]["arguments"])

    def test_json_that_is_no_call_stays_text(self):
        body = {"messages": [{"role": "user", "content": "Ulm?"}], "max_tokens": 100, "guided_choice": ['{"name": "other", "parameters": {}}']}
        message = self.server.ask("/v1/chat/completions", body)["choices"][0]["message"]
        self.assertEqual(json.loads(message["content"])["name"], "other")
        self.assertNotIn("tool_calls", message)


if __name__ == "__main__":
    main()
