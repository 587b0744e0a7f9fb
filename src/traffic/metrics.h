// What a load test measured, in the terms and under the keys of `vllm bench serve`:
//   TTFT  time to first token: from sending a request to its first text
//   TPOT  time per output token after the first: (last text - first text) / (tokens - 1)
//   ITL   inter-token latency: between two pieces of text
//   E2EL  end-to-end latency: from sending a request to the end of its answer
// Milliseconds. An answer of one token has no TPOT.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "traffic/client.h"

namespace braid::traffic {

struct Summary {
  double mean = 0, median = 0, deviation = 0, p99 = 0;
};
// Percentiles are linear between neighbours, as numpy's. All 0 for no values.
Summary summary_of(std::vector<double> values);

struct Report {
  int64_t completed = 0, failed = 0;
  double seconds = 0;  // from the first request to the last answer
  int64_t input_tokens = 0, cached_tokens = 0, output_tokens = 0;
  // Tokens in the best second, or per second of the whole run where that is more. A piece of text has the share of its
  // answer's tokens that it has of the answer's bytes.
  double output_peak = 0;
  int64_t running_peak = 0;
  int64_t good = 0;  // requests that meet every goal; all that completed without goals
  Summary ttft, tpot, itl, e2el;
  std::vector<std::string> errors;  // the first few, each once
};

// `goals`: by "ttft", "tpot", "e2el", the milliseconds that a good request does not exceed.
Report report_of(std::span<const Sample> samples, const std::map<std::string, double>& goals);

// "ttft:500 tpot:50", separated by spaces or commas. Error for another form.
std::map<std::string, double> read_goals(const std::string& text);

nlohmann::ordered_json json_of(const Report& report);
std::string table_of(const Report& report, bool goals);

}  // namespace braid::traffic
