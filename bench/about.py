"""What every stored result records about its run: program and commit, date, machine, and caveats.

A result belongs to a commit only if the tree had no changes and the program was built from it; `caveats` lists what
differs, and is present only if something does.
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
# Prefixes of the CMakeCache.txt entries that decide how fast a peer is on a CPU.
PEER_FLAGS = re.compile(r"CMAKE_BUILD_TYPE$|CMAKE_C(XX)?_FLAGS(_RELEASE)?$|GGML_(NATIVE|CPU|AVX|AMX|SSE42|FMA|F16C|BMI2|BLAS|OPENMP|LLAMAFILE|LTO)")


def output_of(command, **more):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def version_of(program):
    """The line of `braid --version` that names the commit."""
    return output_of([program, "--version"]).splitlines()[0]


def steps_per_second(timings):
    """Tokens per second of `braid run --json`, whose first token comes with the prompt."""
    return 1e3 * (timings["predicted_n"] - 1) / timings["predicted_ms"]


def measured_machine(program):
    """The output of `braid info --machine`, which measures the roofs."""
    return json.loads(output_of([program, "info", "--machine", "--json"]))


def machine_of(measured):
    return {name: measured[name] for name in MACHINE}


def caveats_of(version, root=ROOT):
    """Why a result of this program version does not belong to the commit checked out in `root`."""
    def git(*words):
        return output_of(["git", "-C", root, *words], stderr=subprocess.DEVNULL).strip()
    try:
        head = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--", ":/", ":(top,exclude)bench/results")
    except (OSError, subprocess.CalledProcessError):
        return ["the sources are not in a git repository: their commit is unknown"]
    caveats = []
    if changed:
        caveats.append(f"the sources have {len(changed.splitlines())} changed or new files that are not committed")
    built = re.search(r"commit (\w+)", version)
    if not built or not head.startswith(built.group(1)):
        caveats.append(f"the program was built from commit {built.group(1) if built else 'unknown'}, the sources are at {head[:12]}")
    return caveats


def about(program, others=(), machine=None):
    """Fields of a result: `braid`, `date`, `machine`, and `caveats` if there are any, which are also printed."""
    versions = [version_of(each) for each in (program, *others)]
    caveats = list(dict.fromkeys(caveat for version in versions for caveat in caveats_of(version)))
    for caveat in caveats:
        print(f"{Path(sys.argv[0]).stem}: {caveat}", file=sys.stderr)
    return {"braid": versions[0], "date": time.strftime("%Y-%m-%d"), "machine": machine_of(machine or measured_machine(program)),
            **({"caveats": caveats} if caveats else {})}


def store(path, program, options, **fields):
    """Writes a result: about(), the options that are no paths of this machine, and `fields`."""
    given = {name: value for name, value in vars(options).items() if name not in ("braid", "folder", "out")}
    Path(path).write_text(json.dumps({**about(program), "options": given, **fields}, indent=1) + "\n")


def peer_flags(program):
    """The CMake settings that a program was built with, from the CMakeCache.txt in a parent folder; None if there is none."""
    for folder in Path(os.path.realpath(program)).parents:
        cache = folder / "CMakeCache.txt"
        if cache.is_file():
            entries = re.findall(r"^(\w+):(?!INTERNAL|STATIC)\w+=(.*)$", cache.read_text(encoding="utf-8", errors="replace"), re.M)
            return {name: value for name, value in entries if PEER_FLAGS.match(name)}
    return None
