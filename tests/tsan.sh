#!/usr/bin/env bash
# The team of threads under TSan: regions of many sizes, sleepers, a constant team.
set -euo pipefail
cd "$(dirname "$0")/.."
export TSAN_OPTIONS=halt_on_error=1 BRAID_THREADS=3
programs=(src/sys/sys_test)
cmake --preset tsan >/dev/null
ninja -C build/tsan --quiet "${programs[@]}"
for program in "${programs[@]}"; do "build/tsan/$program"; done
