"""What every stored result says of its run: the program and its commit, the day, the machine, and what speaks against it.

A result comes from a commit only where the tree had no changes and the program was built from it; `caveats` names what
differs, and is there only if something does.
"""
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACHINE = ("cpu", "cores", "memory_gib", "class", "threads", "bf16_unit", "int8_unit")
# Flags that decide how fast a peer is on a CPU, as they begin in CMakeCache.txt.
PEER_FLAGS = re.compile(r"CMAKE_BUILD_TYPE$|CMAKE_C(XX)?_FLAGS(_RELEASE)?$|GGML_(NATIVE|CPU|AVX|AMX|SSE42|FMA|F16C|BMI2|BLAS|OPENMP|LLAMAFILE|LTO)")


def output_of(command, **more):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def version_of(program):
    """The line of `braid --version` that names the commit."""
    return output_of([program, "--version"]).splitlines()[0]


def measured_machine(program):
    """All that `braid info --machine` says; it measures the roofs."""
    return json.loads(output_of([program, "info", "--machine", "--json"]))


def machine_of(measured):
    return {name: measured[name] for name in MACHINE}


def caveats_of(version, root=ROOT):
    """Why a result of the program with this version is not one of the commit that stands in `root`."""
    def git(*words):
        return output_of(["git", "-C", root, *words], stderr=subprocess.DEVNULL).strip()
    try:
        head = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--", ":/", ":(top,exclude)bench/results")
    except (OSError, subprocess.CalledProcessError):
        return ["the sources are not in a git repository: their commit is not known"]
    caveats = []
    if changed:
        caveats.append(f"the sources have {len(changed.splitlines())} changed or new files that no commit holds")
    built = re.search(r"commit (\w+)", version)
    if not built or not head.startswith(built.group(1)):
        caveats.append(f"the program is of commit {built.group(1) if built else 'unknown'}, the sources are of {head[:12]}")
    return caveats


def about(program, others=(), machine=None):
    """Members of a result: `braid`, `date`, `machine`, and `caveats` where there are any, which are printed as well."""
    versions = [version_of(each) for each in (program, *others)]
    caveats = list(dict.fromkeys(caveat for version in versions for caveat in caveats_of(version)))
    for caveat in caveats:
        print(f"{Path(sys.argv[0]).stem}: {caveat}", file=sys.stderr)
    return {"braid": versions[0], "date": time.strftime("%Y-%m-%d"), "machine": machine_of(machine or measured_machine(program)),
            **({"caveats": caveats} if caveats else {})}


def peer_flags(program):
    """How CMake was asked to build a program, from the CMakeCache.txt of a folder above it; None where there is none."""
    for folder in Path(os.path.realpath(program)).parents:
        cache = folder / "CMakeCache.txt"
        if cache.is_file():
            entries = re.findall(r"^(\w+):(?!INTERNAL|STATIC)\w+=(.*)$", cache.read_text(encoding="utf-8", errors="replace"), re.M)
            return {name: value for name, value in entries if PEER_FLAGS.match(name)}
    return None
