#!/usr/bin/env bash
# Everything that needs a GPU, in ten minutes: build, rows against references, compute-sanitizer, roofs and benches.
#   tools/gpu_check.sh [--built] [OUT]     OUT: output folder (default: bench/results)
# --built: build/cuda is used as it is, for a GPU machine without Braid's packages (its libraries: LD_LIBRARY_PATH).
# Writes OUT/<gpu>-<date>.json and OUT/{spmm,spmm-bf16,alcop}-<gpu>.{json,csv,svg}, and prints a short table. Exit code 0 only if
# there was a GPU and everything passed.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1
built=0
[ "${1:-}" != --built ] || { built=1; shift; }
out=${1:-bench/results}
export PATH=$PATH:/usr/local/cuda/bin
say() { printf '\n=== %s\n' "$*"; }
[ $built = 1 ] || command -v nvcc >/dev/null || { echo "gpu_check: no nvcc here; expected the CUDA toolkit"; exit 1; }
nvidia-smi >/dev/null 2>&1 || { echo "gpu_check: no GPU here; nothing was run"; exit 1; }
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0 | tr ' A-Z' '-a-z')
mkdir -p "$out"
result=$out/${gpu#nvidia-}-$(date +%F).json
failed=()

if [ $built = 0 ]; then
  say "build"
  cmake --preset cuda >/dev/null && ninja -C build/cuda --quiet braid cuda_test comm_test || exit 1
fi

say "rows against references"
build/cuda/tests/cuda_test --gtest_output=json:build/cuda/cuda_test.json || failed+=(tests)

say "NCCL's collectives, of one rank"
build/cuda/src/comm/comm_test --gtest_filter='NcclGpu.*' || failed+=(nccl)

say "roofs"
build/cuda/bin/braid info --machine --json >build/cuda/machine.json || failed+=(roofs)

say "benches"
bench() {  # NAME COMMAND...: braid repro COMMAND
  local base=$out/$1-${gpu#nvidia-} name=$1
  shift
  rm -f "$base".{json,csv,svg}
  build/cuda/bin/braid repro "$@" --rounds 9 --csv "$base.csv" --svg "$base.svg" --json >"$base.json" || failed+=("$name")
}
bench spmm spmm --device cuda --widths 1,2,4,8,16,32,64,128,256
bench spmm-bf16 spmm --device cuda --dtype bf16 --widths 8,16,32,64,128,256
bench alcop alcop

say "compute-sanitizer"
if command -v compute-sanitizer >/dev/null; then
  compute-sanitizer --error-exitcode 9 build/cuda/tests/cuda_test --gtest_brief=1 || failed+=(sanitizer)
  # Races in shared memory: where kernels have any, at sizes that take a minute.
  compute-sanitizer --tool racecheck --error-exitcode 9 build/cuda/tests/cuda_test --gtest_brief=1 \
    --gtest_filter='CudaEdges*:CudaGatTest*:CudaGrouped.*Repeats*:CudaSpmmTest.Largest*' || failed+=(races)
else
  echo "SKIPPED: no compute-sanitizer"; failed+=(sanitizer)
fi

python3 - "$result" "${failed[*]:-}" <<'PY'
import json, subprocess, sys
result, failed = sys.argv[1], sys.argv[2].split()
def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError):
        return None
tests, machine = read("build/cuda/cuda_test.json") or {}, read("build/cuda/machine.json") or {}
version = subprocess.run(["build/cuda/bin/braid", "--version"], capture_output=True, text=True).stdout
commit = version.partition("(commit ")[2].partition(",")[0]
row = {"what": "measured by tools/gpu_check.sh", "commit": commit, "gpus": machine.get("gpus", []), "failed": failed,
       "tests": {"run": tests.get("tests", 0), "failures": tests.get("failures", 0)}}
with open(result, "w", encoding="utf-8") as f:
    json.dump(row, f, indent=1)
    f.write("\n")
for gpu in row["gpus"]:
    print(f"{gpu['name']}: copy {gpu['copy_gbs']:.0f} GB/s, BF16 {gpu['bf16_tflops']:.0f} TFLOP/s, FP8 {gpu['fp8_tflops']:.0f} TFLOP/s")
print(f"{row['tests']['run']} tests, {row['tests']['failures']} failures; failed stages: {' '.join(failed) or 'none'}; {result}")
PY
[ ${#failed[@]} -eq 0 ]
