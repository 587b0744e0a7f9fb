// Ctx: everything a call needs besides its values, passed explicitly. No globals behind it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/arena.h"
#include "sys/env.h"
#include "sys/parallel.h"

namespace braid {

class GpuRuntime;
class Tape;

// What an op was about to do.
struct Choice {
  const char* op;
  const char* row;
};

// What ops report to have done.
struct Counts {
  int64_t ops = 0, bytes = 0;
  double flops = 0;
};

struct Ctx {
  Arena& arena;
  int threads = sys::default_threads();
  Tape* tape = nullptr;             // null: inference, nothing is recorded
  bool poison = sys::env().poison;  // fill outputs with NaN before every op
  bool verbose_dispatch = sys::env().verbose_dispatch;
  std::map<std::string, std::string> forced_rows = sys::env().forced_rows;      // op name -> the only row to use
  std::map<std::string, std::string> preferred_rows = sys::env().profile_rows;  // op name -> the row to try first
  GpuRuntime* gpu = nullptr;  // runs the ops on its memory (core/device/gpu_runtime.h)
  Counts counts{};            // of all ops so far
  // Set: ops are checked, note their row and take their workspace, but touch no memory and compute nothing.
  std::vector<Choice>* dry = nullptr;
};

}  // namespace braid
