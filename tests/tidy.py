#!/usr/bin/env python3
"""Checks the sources for rules that a compiler does not check (CONTRIBUTING.md lists them).

usage: tidy.py [ROOT]

Prints one line per violation, `path:line: what`, and exits with 1 if there are any. Each check is a function that
yields (path, line, text); tests/tidy_test.py feeds every one of them a violation.
"""
import json
import os
import re
import sys
import xml.etree.ElementTree
from functools import cached_property
from pathlib import Path

LINES_MAX = {".cu": 1200, ".md": 2000}  # 800 for the rest
LINES_MAX_TABLE_ROW = 250  # a subcommand, a model family
FUNCTION_MAX = 70
KERNEL_MAX = 150  # a kernel body may be longer where splitting it would cost registers
KERNEL_FILE = re.compile(r"_avx(2|512)\.cc$|_amx-inl\.h$|_cpu\.cc$|\.cu$")
ISA_FILE = re.compile(r"_avx(2|512)\.cc$|_amx\.cc$|_amx-inl\.h$")
CUDA_HEADER = re.compile(r'#include\s*[<"](cuda(?!_fixture)|cublas|cusparse|cudnn|nccl|cub/|thrust/|cooperative_groups)')
CONTAINER = re.compile(r"std::(vector|string|map|set|deque|list|unordered_\w+|function|optional|variant)\b|"
                       r"#include <(vector|string|map|set|deque|list|unordered_\w+|functional|optional|variant)>")
# A question about the text of a name. Parameters answer it by their role, layer and part (core/param.h).
ASKS_A_NAME = re.compile(r"\b(name|stack)\)?(\.|->)(contains|find|starts_with|ends_with|compare)\(")
# The modules that read parameters, and their files where the names are of something else.
PARAMETER_MODULES = re.compile(r"src/(core|nn|gnn|models|engine|plan|quant|eval|prune|train|layout|puzzle)/")
OTHER_NAMES = {
    "src/gnn/network.cc": "tensors of PyTorch Geometric's files",
    "src/models/adapter_file.cc": "tensors of PEFT's file",
    "src/models/adapter_sites.cc": "modules, as users of PEFT spell them",
    "src/models/folder_config.cc": "tensors of a folder, of which versions of transformers spell some differently",
    "src/models/gguf.cc": "tensors of a GGUF file",
    "src/models/gguf_config.cc": "tensors of a GGUF file",
    "src/models/gguf_names.cc": "tensors of a GGUF file",
    "src/models/load.cc": "tensors of a folder",
    "src/models/quantize.cc": "tensors of a folder: codes, scales and shapes",
    "src/models/storage.cc": "tensors of a folder: codes, scales and shapes",
    "src/train/checkpoint.cc": "files of a checkpoint, and the tensors of one",
    "src/train/rollout.cc": "metrics",
}
# Absolute paths of one machine, and markers of unfinished work.
FORBIDDEN = re.compile(r"(?<![\w.$}*-])/(home|root|work|Users)/\w|\b(FIXME|XXX|HACK)\b")
UNFINISHED = re.compile(r"\bTODO\b(?!\(#\d+\))")


def blank(text):
    """The text with comments and the insides of literals blanked: same length, same lines."""
    def hide(match):
        found = match.group(0)
        if found.startswith(("//", "/*")):
            return re.sub(r"[^\n]", " ", found)
        if found.startswith('R"'):
            return '""' + re.sub(r"[^\n]", " ", found[2:])
        return found[0] + " " * (len(found) - 2) + found[-1]

    pattern = (r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|'
               r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'")
    return re.sub(pattern, hide, text, flags=re.S)


class Source:
    def __init__(self, root, path):
        self.path = path.relative_to(root).as_posix()
        self.name = path.name
        self.suffix = path.suffix
        self.text = path.read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.splitlines()

    @cached_property
    def code(self):
        return blank(self.text)

    @cached_property
    def code_lines(self):
        return self.code.splitlines()

    @cached_property
    def statements(self):
        """(depth kind, first line, last line, head) of every block and namespace-scope statement; see scan()."""
        return list(scan(self.code))

    def is_cpp(self):
        return self.suffix in (".h", ".cc", ".cu", ".cuh")


def scan(code):
    """Walks the braces and yields ("function", first, last, head) and ("variable", line, line, text)."""
    scopes = []  # (kind, first line, head)
    code = re.sub(r"^[ \t]*#[^\n]*(\\\n[^\n]*)*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), code, flags=re.M)
    line, start, head, depth = 1, 1, "", 0
    for ch in code:
        line += ch == "\n"
        depth += (ch == "(") - (ch == ")")
        outside = all(kind == "namespace" for kind, _, _ in scopes)
        if ch == "{":
            scopes.append((kind_of(head, scopes, depth), start, head.strip()))
            head = ""
        elif ch == "}" and scopes:
            kind, first, text = scopes.pop()
            if kind == "function":
                yield kind, first, line, text
            head = text + "{}" if kind == "initialiser" else ""
        elif ch == ";" and depth <= 0:
            if outside and head.strip():
                yield "variable", start, line, " ".join(head.split())
            head = ""
        else:
            if not head.strip() and not ch.isspace():
                start = line
            head += ch


def kind_of(head, scopes, depth):
    text = re.sub(r"^(template\s*<[^{}]*?>\s*)+(requires[^;{}]*?\)\s*)?", "", " ".join(head.split()))
    if scopes and scopes[-1][0] in ("function", "block", "initialiser") or depth > 0:
        return "block"
    if re.match(r'(inline )?namespace\b|extern ""|extern " *"|namespace', text):
        return "namespace"
    if re.match(r"(typedef )?(class|struct|union|enum)\b", text) and not text.endswith(")"):
        return "type"
    if re.search(r"(=|\breturn)$|=[^=()]*$", text) or re.search(r"[\w>\]]$", text) and ("(" not in text or is_member_init(text)):
        return "initialiser"
    return "function"


def is_member_init(text):
    """`Foo(int a) : a_{`: the brace after a constructor's colon begins a member, not the body."""
    return bool(re.search(r"\)\s*(noexcept\s*)?:\s*[^;]*[\w>]$", text)) and not re.search(r"\b(const|noexcept|override|final)$", text)


class Tree:
    def __init__(self, root):
        self.root = Path(root).resolve()
        self.sources = [Source(self.root, path) for path in sorted(self.walk())]
        self.cpp = [s for s in self.sources if s.is_cpp()]

    def walk(self):
        suffixes = {".h", ".cc", ".cu", ".cuh", ".py", ".md", ".cmake", ".sh", ".json", ".jsonl", ".svg"}
        for folder, folders, files in os.walk(self.root):
            folders[:] = [f for f in folders if f not in ("build", ".git", ".cache", "corpus", "data", "models")
                          or folder.endswith("src")]
            for file in files:
                path = Path(folder, file)
                if not path.is_symlink() and (path.suffix in suffixes or file in ("run", "CMakeLists.txt")):
                    yield path

    @cached_property
    def modules(self):
        """folder -> (name, layer, modules it depends on), from the CMakeLists.txt."""
        modules = {}
        for source in self.sources:
            if source.name != "CMakeLists.txt" or not source.path.startswith("src/"):
                continue
            for kind, name, rest in re.findall(r"^\s*add_(module|op)\((\w+)([^)]*)\)", source.text, re.M):
                words, key, found = rest.split(), None, {"DEPS": [], "LAYER": [], "LIBS": []}
                for word in words:
                    if word in found:
                        key = word
                    elif key:
                        found[key].append(word)
                if kind == "op":
                    found["LAYER"], found["DEPS"] = ["4"], ["core", "codec", "math"] + found["DEPS"]
                folder = os.path.dirname(source.path)
                # An op may be declared in its parent: add_op(rms_norm) in src/kernels/CMakeLists.txt.
                nested = f"{folder}/{name}"
                modules[nested if (self.root / nested).is_dir() else folder] = (name, int(found["LAYER"][0]), found["DEPS"])
        return modules

    def module_of(self, path):
        folder = os.path.dirname(path)
        while folder:
            if folder in self.modules:
                return self.modules[folder]
            folder = os.path.dirname(folder)
        return None

    @cached_property
    def reach(self):
        """module name -> every module it may include from: itself and its dependencies, transitively."""
        deps = {name: below for name, _, below in self.modules.values()}
        reach = {}
        for name in deps:
            seen, left = set(), [name]
            while left:
                module = left.pop()
                if module not in seen:
                    seen.add(module)
                    left += deps.get(module, [])
            reach[name] = seen
        return reach


def check_layers(tree):
    for source in tree.cpp:
        module = tree.module_of(source.path)
        if not module:
            continue
        for number, line in enumerate(source.lines, 1):
            match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            target = match and tree.module_of("src/" + match.group(1))
            if not target or target[0] in tree.reach[module[0]]:
                continue
            if target[1] >= module[1]:
                yield source.path, number, f"wrong layer: {module[0]} ({module[1]}) includes {match.group(1)} of {target[0]} ({target[1]})"
            else:
                yield source.path, number, f"{module[0]} includes {match.group(1)}, but {target[0]} is not among its DEPS"


def check_lengths(tree):
    for source in tree.sources:
        if source.suffix in (".json", ".jsonl", ".svg"):
            continue
        limit = LINES_MAX.get(source.suffix, 800)
        if source.path.startswith(("src/apps/", "src/models/families/")):
            limit = LINES_MAX_TABLE_ROW
        if len(source.lines) > limit:
            yield source.path, limit + 1, f"{len(source.lines)} lines; at most {limit}"


def check_functions(tree):
    for source in tree.cpp:
        limit = KERNEL_MAX if KERNEL_FILE.search(source.name) else FUNCTION_MAX
        for kind, first, last, head in source.statements:
            if kind == "function" and last - first + 1 > limit:
                yield source.path, first, f"a function of {last - first + 1} lines; at most {limit}: {head[:60].strip()}"


def check_variables(tree):
    constant = re.compile(r"\b(const|constexpr|constinit|using|typedef|template|extern|friend|static_assert|operator|return|"
                          r"class|struct|enum|union|namespace|concept|requires|goto)\b")
    declaration = re.compile(r"^(?:(?:static|inline|thread_local|volatile) )*[\w:]+(?:<.*>)?[ *&]+\w+(?:\[.*\])*(?: ?=.*| ?\{\}.*)?$")
    for source in tree.cpp:
        if not source.path.startswith("src/"):
            continue
        for kind, first, _, text in source.statements:
            if kind == "variable" and not constant.search(text) and declaration.match(text):
                yield source.path, first, f"a variable at namespace scope that is not const: {text[:60]}"


def check_patterns(tree):
    """Patterns that no single line of C++ may contain."""
    for source in tree.cpp:
        header = source.suffix in (".h", ".cuh")
        for number, line in enumerate(source.code_lines, 1):
            raw = source.lines[number - 1]
            if re.search(r'#\s*pragma\s+omp\b|_Pragma\s*\(', line):
                yield source.path, number, "#pragma omp; expected sys/parallel.h"
            if header and re.match(r"\s*using\s+namespace\b", line):
                yield source.path, number, "using namespace in a header"
            if source.suffix == ".h" and CUDA_HEADER.match(raw.strip()):
                yield source.path, number, "a CUDA header in a host header"
            if ISA_FILE.search(source.name) and CONTAINER.search(line):
                yield source.path, number, "a std container in an ISA file (the linker may choose its code for everyone)"


def check_beginnings(tree):
    stems = {s.path.rsplit(".", 1)[0] for s in tree.cpp if s.suffix == ".h"}
    for source in tree.cpp:
        explained = source.name.endswith("_test.cc") or (source.suffix != ".h" and source.path.rsplit(".", 1)[0] in stems)
        if not explained and not source.text.startswith("//"):
            yield source.path, 1, "the first line does not say what the file is"
        if source.suffix == ".h" and not source.name.endswith("-inl.h") and not re.search(r"^#pragma once$", source.text, re.M):
            yield source.path, 1, "no #pragma once"


def check_words(tree):
    for source in tree.sources:
        if re.match(r"tests/tidy(_test)?\.py$", source.path) or source.suffix in (".json", ".jsonl", ".svg"):
            continue
        for number, line in enumerate(source.lines, 1):
            if UNFINISHED.search(line):
                yield source.path, number, "TODO without the number of an issue, TODO(#12)"
            if match := FORBIDDEN.search(line):
                yield source.path, number, f"forbidden: {match.group(0)}"


def check_links(tree):
    for source in tree.sources:
        if source.suffix != ".md":
            continue
        fenced = False
        for number, line in enumerate(source.lines, 1):
            fenced ^= line.startswith("```")
            for target in [] if fenced else re.findall(r"\]\(([^)#\s]+)[^)]*\)", re.sub(r"`[^`]*`", "", line)):
                if "://" not in target and not target.startswith("mailto:"):
                    if not (tree.root / os.path.dirname(source.path) / target).exists():
                        yield source.path, number, f"dead link: {target}"


def check_map(tree):
    """ARCHITECTURE.md names every module: `sys/`, or the bare name of an op."""
    page = "".join(s.text for s in tree.sources if s.path == "ARCHITECTURE.md")
    for folder, (name, _, _) in tree.modules.items():
        mark = rf"\b{name}\b" if folder.startswith("src/kernels/") else rf"`{name}/"
        if not re.search(mark, page):
            yield "ARCHITECTURE.md", 1, f"the module {name} ({folder}) is not on the map"


def check_names(tree):
    """No word of a parameter's name decides anything above the families that spell it."""
    for source in tree.cpp:
        if not PARAMETER_MODULES.match(source.path) or source.path.startswith("src/models/families/"):
            continue
        if source.name.endswith("_test.cc"):
            continue
        asked = [number for number, line in enumerate(source.code_lines, 1) if ASKS_A_NAME.search(line)]
        if source.path in OTHER_NAMES:
            if not asked:
                yield source.path, 1, "asks no name: it needs no line in OTHER_NAMES of tests/tidy.py"
            continue
        for number in asked:
            yield source.path, number, "asks what a name contains; expected a role, layer or part of ParamInfo (core/param.h)"


def check_results(tree):
    for source in tree.sources:
        if not source.path.startswith(("bench/", "docs/")):
            continue
        try:
            if source.suffix == ".json":
                json.loads(source.text)
            elif source.suffix == ".jsonl":
                for line in source.lines:
                    json.loads(line)
            elif source.suffix == ".svg":
                xml.etree.ElementTree.fromstring(source.text)
        except (ValueError, xml.etree.ElementTree.ParseError) as error:
            yield source.path, 1, f"not valid {source.suffix[1:]}: {error}"


CHECKS = [check_layers, check_lengths, check_functions, check_variables, check_patterns, check_beginnings, check_words,
          check_links, check_map, check_names, check_results]


def main():
    tree = Tree(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    found = [(path, line, text) for check in CHECKS for path, line, text in check(tree)]
    for path, line, text in sorted(found):
        print(f"{path}:{line}: {text}")
    virtuals = sum(len(re.findall(r"\bvirtual\b", s.code)) for s in tree.cpp)
    print(f"{len(tree.sources)} files, {len(tree.modules)} modules, {virtuals} virtual functions, {len(found)} violations")
    sys.exit(1 if found or not tree.modules else 0)


if __name__ == "__main__":
    main()
