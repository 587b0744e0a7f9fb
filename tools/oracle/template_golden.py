#!/usr/bin/env python3
"""Writes tests/data/templates/golden.json: conversations, and the text that transformers' own Jinja environment renders
for each with every template in that folder, or the kind of failure.

    template_golden.py FOLDER

needs: transformers, jinja2. The templates are the project's own; strftime_now is fixed at noon.
"""
import datetime
import json
import os
import sys

import jinja2
from transformers.utils import chat_template_utils

NOW = datetime.datetime(2026, 1, 15, 12, 0, 0)
WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Of a city <today> & \"tomorrow\".", "parameters": {
        "type": "object", "properties": {"unit": {"type": "string", "enum": ["C", "F"]},
                                         "city": {"type": "string", "description": "as in São Paulo"}},
        "required": ["city"]}}}
ADD = {"type": "function", "function": {"name": "add", "description": "Adds numbers.", "parameters": {
    "type": "object", "properties": {"xs": {"type": "array", "items": {"type": "number"}}}, "required": []}}}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


CASES = {
    "one": {"messages": [message("user", "Hello")]},
    "system": {"messages": [message("system", " Be terse.\n"), message("user", "  Hi\n\nthere ")]},
    "turns": {"messages": [message("user", "1+1?"), message("assistant", "it is two"),
                           message("user", "<b>&\"'é漢🙂")]},
    "thinking off": {"messages": [message("user", "Why?")], "kwargs": {"enable_thinking": False}},
    "thinking on": {"messages": [message("user", "Why?")], "kwargs": {"enable_thinking": True}},
    "thoughts": {"messages": [message("user", "a"), message("assistant", "<think>long</think>\n\nshort"),
                              message("user", "b"), message("assistant", "plain", reasoning_content="inner")]},
    "no prompt": {"messages": [message("user", "a"), message("assistant", "b")], "add_generation_prompt": False},
    "tools": {"messages": [message("user", "Rain?")], "tools": [WEATHER, ADD]},
    "tool round": {"messages": [
        message("system", "Use tools."), message("user", "Rain in Paris, and 1+2.5?"),
        message("assistant", "", tool_calls=[call("weather", {"city": "Paris", "unit": "C"}),
                                             call("add", {"xs": [1, 2.5, -1e-7, 1e22]})]),
        message("tool", "{\"rain\": false}"), message("tool", "3.5"), message("assistant", "No; 3.5"),
        message("user", "Thanks")], "tools": [WEATHER, ADD]},
    "parts": {"messages": [message("user", [{"type": "text", "text": "first"}, {"type": "text", "text": " second"}])]},
    "assistant first": {"messages": [message("assistant", "I go first"), message("assistant", "again")]},
    "unknown role": {"messages": [message("narrator", "Once")]},
    "no content": {"messages": [message("user", None)]},
    "empty": {"messages": []},
}
KINDS = ((jinja2.exceptions.TemplateSyntaxError, "syntax"), (jinja2.exceptions.UndefinedError, "undefined"),
         (jinja2.exceptions.TemplateError, "template"), (Exception, "type"))


def rendered(source, case):
    # The same environment that transformers renders with, except for the clock.
    template = chat_template_utils._compile_jinja_template(source)
    template.globals["strftime_now"] = NOW.strftime
    try:
        return {"text": template.render(bos_token="<s>", eos_token="</s>", messages=case["messages"],
                                        tools=case.get("tools"), documents=None,
                                        add_generation_prompt=case.get("add_generation_prompt", True),
                                        **case.get("kwargs", {}))}
    except Exception as error:
        return {"raises": next(word for kind, word in KINDS if isinstance(error, kind))}


def main():
    folder = sys.argv[1]
    golden = {"bos_token": "<s>", "eos_token": "</s>", "cases": CASES, "templates": {}}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".jinja"):
            continue
        with open(f"{folder}/{name}", encoding="utf-8") as f:
            source = f.read()
        got = {case: rendered(source, given) for case, given in CASES.items()}
        golden["templates"][name] = got
        print(f"{name}: {sum('text' in g for g in got.values())} texts, {sum('raises' in g for g in got.values())} failures")
    with open(f"{folder}/golden.json", "w", encoding="utf-8") as f:
        json.dump(golden, f, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
