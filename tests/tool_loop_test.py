"""An agent's loop on the shipped model: it calls the calculator, the caller works the expression out, the model answers.

usage: tool_loop_test.py BRAID
"""
import ast
import json
import operator
import random

from support.program import Case, main
from support.server import Server

TOOLS = [{"type": "function", "function": {
    "name": "calculator", "description": "Works out an expression.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}]
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
FORMS = ["What is {}?", "Use the calculator: {}", "Calculate {}", "Compute {}."]


def value_of(expression):
    """Of a sum of whole numbers; nothing else is evaluated."""
    def walk(node):
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](walk(node.left), walk(node.right))
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        raise ValueError(expression)
    return walk(ast.parse(expression, mode="eval").body)


ROUNDS = 3


class Chat:
    """The conversation of one question on a surface: `ask` gives the calls of an answer, or none and the text."""
    path = "/v1/chat/completions"

    def __init__(self, server, question):
        self.server, self.turns, self.text = server, [{"role": "user", "content": question}], ""

    def ask(self):
        message = self.server.ask(self.path, {"messages": self.turns, "tools": TOOLS})["choices"][0]["message"]
        return self.take(message)

    def take(self, message):
        self.turns.append(message)
        self.text = message.get("content") or ""
        return [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", [])]

    def tell(self, results):
        self.turns += [{"role": "tool", "tool_call_id": id, "content": result} for id, result in results]


class ChatStream(Chat):
    def ask(self):
        message = {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []}
        events, _ = self.server.events(self.path, {"messages": self.turns, "tools": TOOLS})
        assert events.pop() == "[DONE]"
        for event in events:
            delta = json.loads(event)["choices"][0]["delta"]
            for key in ("content", "reasoning_content"):
                message[key] += delta.get(key) or ""
            for part in delta.get("tool_calls", []):
                if "id" in part:
                    message["tool_calls"].append({"id": part["id"], "type": "function",
                                                  "function": {"name": part["function"]["name"], "arguments": ""}})
                message["tool_calls"][part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        return self.take({key: value for key, value in message.items() if value})


class Messages(Chat):
    path = "/v1/messages"

    def ask(self):
        tool = TOOLS[0]["function"]
        answer = self.server.ask(self.path, {"messages": self.turns, "max_tokens": 1000, "thinking": {"type": "adaptive"}, "tools": [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}]})
        self.turns.append({"role": "assistant", "content": answer["content"]})
        self.text = "".join(b["text"] for b in answer["content"] if b["type"] == "text")
        return [(b["id"], b["name"], b["input"]) for b in answer["content"] if b["type"] == "tool_use"]

    def tell(self, results):
        self.turns.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result} for id, result in results]})


class Responses(Chat):
    path = "/v1/responses"

    def ask(self):
        answer = self.server.ask(self.path, {"input": self.turns, "tools": [{"type": "function", **TOOLS[0]["function"]}]})
        self.turns += answer["output"]
        self.text = "".join(p["text"] for i in answer["output"] if i["type"] == "message" for p in i["content"])
        return [(i["call_id"], i["name"], json.loads(i["arguments"])) for i in answer["output"] if i["type"] == "function_call"]

    def tell(self, results):
        self.turns += [{"type": "function_call_output", "call_id": id, "output": result} for id, result in results]


class ToolLoop(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(model="tiny")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def loop(self, surface, questions):
        """Calls, and right answers, of the questions."""
        draw, right, calls = random.Random(4), 0, 0
        for _ in range(questions):
            a, b = draw.randint(1000, 99999), draw.randint(1000, 99999)
            expression = f"{a} {draw.choice('+-*')} {b}"
            talk = surface(self.server, draw.choice(FORMS).format(expression))
            for _ in range(ROUNDS):
                results = []
                for id, name, arguments in talk.ask():
                    self.assertEqual(name, "calculator")
                    results.append((id, str(value_of(arguments["expression"]))))
                if not results:
                    break
                calls += len(results)
                talk.tell(results)
            right += str(value_of(expression)) in talk.text
        print(f"{surface.__name__}: {calls} calls, {right} of {questions} answered right")
        return calls, right

    def test_calls_are_executed_and_answered(self):
        calls, right = self.loop(Chat, 24)
        self.assertGreaterEqual(calls, 22)
        self.assertGreaterEqual(right, 20)

    def test_the_same_on_the_other_surfaces(self):
        for surface in (ChatStream, Messages, Responses):
            calls, right = self.loop(surface, 12)
            self.assertGreaterEqual(calls, 11, surface)
            self.assertGreaterEqual(right, 10, surface)

    def test_two_calls_in_one_turn(self):
        """Such as agents make: both results are there, whichever comes first."""
        call = lambda id, expression: {"id": id, "type": "function", "function": {
            "name": "calculator", "arguments": json.dumps({"expression": expression})}}
        turns = [{"role": "user", "content": "What is 345 * 678?"},
                 {"role": "assistant", "content": None, "tool_calls": [call("a", "345 * 600"), call("b", "345 * 678")]}]
        results = [{"role": "tool", "tool_call_id": "a", "content": "207000"}, {"role": "tool", "tool_call_id": "b", "content": "233910"}]
        answer = self.server.chat(*turns, *results, tools=TOOLS)["choices"][0]
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertIn("233910", answer["message"]["content"])


if __name__ == "__main__":
    main()
