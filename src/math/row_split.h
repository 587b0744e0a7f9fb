// Rows of a sparse matrix as tasks of about equal work, for threads. A row counts one plus its entries, as in
// merge-path partitions (Merrill, Garland 2016), but is never cut: where tasks begin changes no result.
#pragma once
#include <algorithm>
#include <cstdint>

#include "sys/parallel.h"

namespace braid {

// The first row of task `task` of `tasks`: the largest r with rowptr[r] + r <= task / tasks of all work.
inline int64_t first_row_of(const int64_t* rowptr, int64_t rows, int64_t task, int64_t tasks) {
  const int64_t total = rows + rowptr[rows];
  const int64_t goal = task == tasks ? total : total / tasks * task + total % tasks * task / tasks;
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t mid = low + (high - low + 1) / 2;
    if (rowptr[mid] + mid <= goal) {
      low = mid;
    } else {
      high = mid - 1;
    }
  }
  return low;
}

// body(begin, end) over all rows, on at most `threads` threads where `operations` are worth them.
template <class Body>
void for_each_row_range(int threads, const int64_t* rowptr, int64_t rows, double operations, Body&& body) {
  constexpr int64_t kTasks = 8;  // a thread, so that one that starts late or has cache misses delays the rest little
  const int team = sys::team_for(threads, operations);
  if (team == 1) return rows > 0 ? body(int64_t{0}, rows) : void();
  const int64_t tasks = kTasks * team;
  sys::parallel_tasks(team, tasks, [&](int64_t task) {
    const int64_t begin = first_row_of(rowptr, rows, task, tasks), end = first_row_of(rowptr, rows, task + 1, tasks);
    if (begin < end) body(begin, end);
  });
}

}  // namespace braid
