// What `braid bench` measured, in llama-bench's columns and keys, with floor and roofs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/language_model.h"
#include "plan/floor.h"
#include "sys/roofs.h"

namespace braid::apps {

struct BenchRow {
  int64_t prompt = 0, generate = 0, depth = 0, sequences = 1;
  sys::Roofs roofs{};
  double floor_seconds = 0;
  bool on_bytes = false;
  double sent_bytes = 0;  // by all ranks together, for each token
  std::vector<int64_t> samples_ns{};

  std::string test() const;  // "pp512", "tg128 @ d8192", "tg32 x4"
  double tokens() const;     // of all sequences
  double median_ns() const;
};

class BenchReport {
 public:
  BenchReport(const std::string& form, engine::LanguageModel& model);
  void add(const BenchRow& row);
  void finish();  // md: the table; json: the array; jsonl: nothing more
  // The sum of one pass, tensor by tensor, and what a context of `depth` tokens takes (bench_explain.cc).
  void explain(const std::vector<plan::Work>& work, int64_t depth) const;

 private:
  std::string json_of(const BenchRow& row) const;
  std::string ranks_line() const;
  std::string form_;
  engine::LanguageModel& model_;
  int64_t bytes_ = 0, params_ = 0;
  std::vector<BenchRow> rows_;
};

// Whether products of this model take activations of 8 bits here: asked for, with weights in codes, on a CPU with dots
// of bytes (AVX2) and no tiles, and not in the steps of a single sequence, which take 16.
bool on_bytes(engine::Runner& runner, bool step);
plan::Rates rates_of(const sys::Roofs& r, const Numerics& numerics, bool on_bytes);

std::string roofs_line(const sys::Roofs& r);

// Every op with its rows, best first: name, numerics, device, built or not. Returns the exit code.
int print_ops();
std::vector<std::string_view> op_names();

}  // namespace braid::apps
