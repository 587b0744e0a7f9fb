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


class ToolLoop(Case):
    def test_calls_are_executed_and_answered(self):
        server = Server(model="tiny")
        self.addCleanup(server.stop)
        draw, right, calls = random.Random(4), 0, 0
        for _ in range(24):
            a, b = draw.randint(1000, 99999), draw.randint(1000, 99999)
            expression = f"{a} {draw.choice('+-*')} {b}"
            messages = [{"role": "user", "content": draw.choice(FORMS).format(expression)}]
            for _ in range(3):  # rounds
                choice = server.chat(*messages, tools=TOOLS)["choices"][0]
                messages.append(choice["message"])
                if choice["finish_reason"] != "tool_calls":
                    break
                for call in choice["message"]["tool_calls"]:
                    calls += 1
                    self.assertEqual(call["function"]["name"], "calculator")
                    result = value_of(json.loads(call["function"]["arguments"])["expression"])
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})
            right += str(value_of(expression)) in (messages[-1].get("content") or "")
        print(f"{calls} calls, {right} of 24 answered right")
        self.assertGreaterEqual(calls, 22)
        self.assertGreaterEqual(right, 20)


if __name__ == "__main__":
    main()
