"""tests/tidy.py refuses one violation of each kind and passes clean code."""
import tempfile
import unittest
from pathlib import Path

import tidy

CLEAN = {
    "src/sys/CMakeLists.txt": "add_module(sys LAYER 0)\n",
    "src/core/CMakeLists.txt": "add_module(core LAYER 1\n  DEPS sys LIBS fmt::fmt)\n",
    "src/math/CMakeLists.txt": "add_module(math LAYER 2 DEPS core)\n",
    "src/io/CMakeLists.txt": "add_module(io LAYER 2 DEPS sys)\n",
    "src/kernels/CMakeLists.txt": "add_op(norm)\n",
    "src/sys/a.h": "// What it is.\n#pragma once\n",
    "src/core/a.h": "// What it is.\n#pragma once\n#include \"sys/a.h\"\n",
    "src/math/a.h": "// What it is.\n#pragma once\n#include \"core/a.h\"\n#include \"sys/a.h\"\n",
    "src/kernels/norm/norm.cc": "// What it is.\n#include \"math/a.h\"\n#include \"sys/a.h\"\n",
    "src/core/table.cc": """// What it is.
namespace braid {
namespace {
constexpr int kSize = 1'000;
const Row kRows[] = {{"a", [](int x) { return x; }}, {"b", nullptr}};
template <class T>
struct Pair {
  explicit Pair(T t) : a{t}, b_{t} { b_ = t; }
  T a{}, b_ = T{};
  bool operator==(const Pair& other) const { return a == other.a; }
};
}  // namespace
int f(int a, int b = 2);
auto g() -> int { const char* s = R"(int bad; { )"; static_cast<void>(s); return '{'; }
}  // namespace braid
""",
    "ARCHITECTURE.md": "`sys/` `core/` `math/` `io/` norm\n",
    "README.md": "[a](src/sys/a.h) [b](https://example.org) `[c](nowhere)`\n",
    "bench/results/a.json": "{}\n",
}


class Tidy(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**CLEAN, **files}.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            tree = tidy.Tree(folder)
            return [f"{path}:{line}: {text}" for check in tidy.CHECKS for path, line, text in check(tree)]

    def refused(self, name, text, says):
        found = self.run_on({name: text})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(name + ":"), found)
        self.assertIn(says, found[0])

    def test_clean(self):
        self.assertEqual(self.run_on({}), [])

    def test_layers(self):
        head = "// What it is.\n#pragma once\n"
        self.refused("src/core/b.h", head + '#include "math/a.h"\n', "wrong layer: core (1) includes math/a.h of math (2)")
        self.refused("src/io/b.h", head + '#include "math/a.h"\n', "wrong layer")
        self.refused("src/io/b.h", head + '  #  include "core/a.h"\n', "not among its DEPS")
        self.refused("src/sys/deep/er/b.h", head + '#include "core/a.h"\n', "wrong layer")

    def test_lengths(self):
        self.refused("src/core/b.cc", "// x\n" * 801, "801 lines; at most 800")
        self.refused("src/core/b.cu", "// x\n" * 1201, "1201 lines; at most 1200")
        self.refused("src/apps/b.cc", "// x\n" * 251, "251 lines; at most 250")
        self.refused("src/models/families/b.cc", "// x\n" * 251, "251 lines; at most 250")
        self.assertEqual(self.run_on({"src/core/b.cc": "// x\n" * 800, "src/core/b.cu": "// x\n" * 1200}), [])

    def function(self, lines):
        return "// x\nnamespace braid {\nvoid f(int a) {\n" + "  g({1, 2});\n" * (lines - 2) + "}\n}\n"

    def test_functions(self):
        self.refused("src/core/b.cc", self.function(71), "a function of 71 lines; at most 70: void f(int a)")
        self.refused("src/core/b_avx512.cc", self.function(151), "at most 150")
        self.refused("src/core/b.cc", self.function(71).replace("f(int a)", "F::F(int a) : a_{a}, b_(a)"), "71 lines")
        self.assertEqual(self.run_on({"src/core/b.cc": self.function(70), "src/core/b_cpu.cc": self.function(150)}), [])

    def test_variables(self):
        for text in ("int counter = 0;", "static std::vector<int> list;", "std::atomic<int> hits{0};", "thread_local char* p;"):
            self.refused("src/core/b.cc", f"// x\nnamespace braid {{\n{text}\n}}\n", "not const")

    def test_patterns(self):
        self.refused("src/core/b.cc", "// x\n#pragma omp parallel\n", "#pragma omp")
        self.refused("src/core/b.h", "// x\n#pragma once\nusing namespace std;\n", "using namespace")
        self.refused("src/core/b.h", "// x\n#pragma once\n#include <cuda_runtime.h>\n", "CUDA header")
        self.refused("src/core/b_avx512.cc", "// x\nvoid f(std::vector<float>& x);\n", "std container")

    def test_beginnings(self):
        self.refused("src/core/b.cc", "int f();\n", "first line")
        self.refused("src/core/b.h", "#pragma once\n", "first line")
        self.refused("src/core/b.h", "// x\n", "no #pragma once")
        self.assertEqual(self.run_on({"src/core/a.cc": '#include "core/a.h"\n'}), [])

    def test_words(self):
        self.refused("src/core/b.cc", "// TODO: later\n", "TODO without")
        self.refused("cmake/b.cmake", "# HACK\n", "forbidden: HACK")
        self.refused("tools/b.py", "open('/home/someone/x')\n", "forbidden: /home/s")
        self.assertEqual(self.run_on({"src/core/b.cc": "// TODO(#12): later\n"}), [])

    def test_links(self):
        self.refused("docs/b.md", "see [a](../src/sys/gone.h#L3)\n", "dead link: ../src/sys/gone.h")

    def test_map(self):
        self.refused("ARCHITECTURE.md", "`sys/` `core/` `math/` `io/` normal\n", "the module norm (src/kernels")
        self.refused("ARCHITECTURE.md", "`sys/` `core/` `math/` io norm\n", "the module io (src/io)")

    def test_names(self):
        tests = "if (p.name.starts_with(prefix)) f();", "g(!request->name.find(\"q\"));", "h(std::string_view(t.name).ends_with(\"_a\"));"
        for text in (*tests, "if (name.contains(word)) f();"):
            self.refused("src/prune/b.cc", f"// x\nvoid e() {{ {text} }}\n", "asks what a name contains")
        for path in ("src/models/families/b.cc", "src/io/b.cc", "src/prune/b_test.cc", "src/models/storage.cc"):
            self.assertEqual(self.run_on({path: f"// x\nvoid e() {{ {tests[0]} }}\n"}), [])
        self.assertEqual(self.run_on({"src/prune/b.cc": "// p.name.find(x)\nconst auto i = by_name.find(p.name);\n"}), [])
        self.refused("src/models/storage.cc", "// x\n", "needs no line in OTHER_NAMES")

    def test_results(self):
        self.refused("bench/results/b.json", "{,}\n", "not valid json")
        self.refused("bench/results/b.jsonl", "{}\n{\n", "not valid jsonl")
        self.refused("bench/results/b.svg", "<svg><g></svg>\n", "not valid svg")


if __name__ == "__main__":
    unittest.main()
