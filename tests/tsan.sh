#!/usr/bin/env bash
# The team of threads under TSan: itself, products whose parts it hands out in every way, and the engine above them.
set -euo pipefail
cd "$(dirname "$0")/.."
export TSAN_OPTIONS=halt_on_error=1 BRAID_THREADS=3
programs=(src/sys/sys_test src/kernels/linear/linear_test src/engine/engine_test)
cmake --preset tsan >/dev/null
ninja -C build/tsan --quiet "${programs[@]}"
for program in "${programs[@]}"; do "build/tsan/$program"; done
