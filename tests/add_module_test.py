"""add_module (cmake/BraidModule.cmake) must refuse, at configure time, an edge that does not point to a lower layer.

usage: add_module_test.py CMAKE ROOT
"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CMAKE, ROOT = sys.argv.pop(1), sys.argv.pop(1)
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(edges NONE)
add_library(braid_flags INTERFACE)
include({root}/cmake/BraidModule.cmake)
add_module(sys LAYER 0)
add_module(core LAYER 1 DEPS sys)
add_module(codec LAYER 2 DEPS core)
add_module(math LAYER 3 DEPS core sys)
{line}
"""


class AddModule(unittest.TestCase):
    def configure(self, line):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "CMakeLists.txt").write_text(PROJECT.format(root=ROOT, line=line))
            answer = subprocess.run([CMAKE, "-G", "Ninja", "-S", folder, "-B", f"{folder}/build"], capture_output=True, text=True)
            return answer.returncode, " ".join(answer.stderr.split())

    def test_lower_layers_pass(self):
        self.assertEqual(self.configure("add_op(norm DEPS sys)"), (0, ""))

    def test_wrong_edges_stop_the_configuration(self):
        for line, says in (("add_module(io LAYER 2 DEPS math)", "wrong edge io -> math; got layer 2 -> 3"),
                           ("add_module(log LAYER 0 DEPS core)", "wrong edge log -> core; got layer 0 -> 1"),
                           ("add_module(io LAYER 2 DEPS text)", "io depends on text, which is not a module yet"),
                           ("add_module(io DEPS sys)", "io has no LAYER")):
            status, text = self.configure(line)
            self.assertEqual(status, 1, line)
            self.assertIn(says, text)


if __name__ == "__main__":
    unittest.main()
