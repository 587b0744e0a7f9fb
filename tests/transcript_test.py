#!/usr/bin/env python3
"""Checks docs/transcript.md: every answer on the page is what the model that ships with Braid says there, greedily. The
conversation of README.md is one, too.

A line that begins with `>>> ` is a message or a /think command; what follows is thinking and answer, as `braid chat`
prints them to a file.

usage: transcript_test.py BRAID DOC [--write]
"""
import json
import sys
import tempfile
from pathlib import Path

from support.program import braid

HEAD = """# A conversation

Twenty turns with `tiny`, word for word, without the lines that count tokens (`--temp 0 --dtype f32`, so that it is the
same each time and on every CPU). Tiny's template keeps earlier thinking. Checked by `tests/transcript_test.py`,
which can also write the answers anew.

"""


def questions(page):
    return [line.removeprefix("    >>> ") for line in page.splitlines() if line.startswith("    >>> ")]


def said(messages, think, folder):
    """What the model answers to these messages: its thinking and its text."""
    file = Path(folder) / "messages.json"
    file.write_text(json.dumps(messages))
    answer = json.loads(braid("run", "tiny", "--messages", file, "--think", think, "--temp", "0",
                              "--dtype", "f32", "--json").stdout)
    return answer["reasoning"].strip("\n"), answer["text"]


def play(asked):
    lines, messages, think = [], [], "on"
    with tempfile.TemporaryDirectory() as folder:
        for question in asked:
            lines.append(f">>> {question}")
            if question.startswith("/think "):
                think = question.split()[1]
                lines.append(f"thinking is {think}")
                continue
            messages.append({"role": "user", "content": question})
            reasoning, text = said(messages, think, folder)
            messages.append({"role": "assistant", "content": text, "reasoning_content": reasoning})
            if reasoning:
                lines += ["<think>", *reasoning.splitlines(), "</think>"]
            lines += text.splitlines()
    return "".join(f"    {line}\n" for line in lines)


def main():
    doc = Path(sys.argv[1])
    asked = questions(doc.read_text())
    assert sum(not line.startswith("/") for line in asked) >= 20, f"{doc} has {len(asked)} messages, not twenty"
    text = HEAD + play(asked)
    if "--write" in sys.argv:
        doc.write_text(text)
    elif doc.read_text() != text:
        wrong = [line for line in text.splitlines() if line not in doc.read_text().splitlines()]
        sys.exit(f"{doc}: the model says something else now: {wrong}\n"
                 f"Write it anew: tests/transcript_test.py BRAID {doc} --write")
    readme = (doc.parent.parent / "README.md").read_text()
    said_there = play(questions(readme))
    if said_there not in readme:
        sys.exit(f"README.md: the model says something else now:\n{said_there}")


main()
