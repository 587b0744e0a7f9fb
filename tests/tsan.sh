#!/usr/bin/env bash
# Runs under TSan: the thread team and its users: every row of every op on teams of 1, 2 and 3 threads, passes of engine
# and tape over whole models, parts of models beside each other, collectives over threads, the trainer, the server, readers
# of text and writers of weights. Prints the seconds of each. Without allocation_test, which counts nothing under a
# sanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
export TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/tests/tsan.supp" BRAID_THREADS=3 BRAID_FIXTURES=''
programs=(sys core comm data nn models train serve row_contract gradient live_model score shard)
for folder in src/kernels/*/; do programs+=("$(basename "$folder")"); done
cmake --preset tsan >/dev/null
ninja -C build/tsan --quiet "${programs[@]/%/_test}"
for name in "${programs[@]}"; do
  begin=$SECONDS options=(--gtest_brief=1)
  [ "$name" != comm ] || options+=(--gtest_filter='*Group*:*InProcess*:Nccl.*')  # the others are processes, or one thread
  [ "$name" != row_contract ] || options+=(--gtest_filter='*Threads*')  # the others use one thread
  "$(find build/tsan/src build/tsan/tests -type f -name "${name}_test")" "${options[@]}"
  echo "$name: $((SECONDS - begin)) s"
done
ninja -C build/tsan --quiet braid
python3 tests/abuse_test.py build/tsan/bin/braid
