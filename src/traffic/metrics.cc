#include "traffic/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "sys/error.h"

namespace braid::traffic {
namespace {

using nlohmann::ordered_json;

constexpr size_t kErrorsMax = 5;

double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

// The largest number of tokens in any second that begins with one.
double best_second(std::span<const Sample> samples) {
  std::vector<std::pair<double, double>> all;  // arrivals, and tokens
  for (const Sample& s : samples) {
    if (!s.error.empty()) continue;
    const bool sized = s.sizes.size() == s.arrivals.size();
    const auto size = [&](size_t i) { return sized ? static_cast<double>(s.sizes[i]) : 1.0; };
    double bytes = 0;
    for (size_t i = 0; i < s.arrivals.size(); ++i) bytes += size(i);
    for (size_t i = 0; i < s.arrivals.size(); ++i)
      all.emplace_back(s.arrivals[i], static_cast<double>(s.output_tokens) * size(i) / bytes);
  }
  std::ranges::sort(all);
  double best = 0, tokens = 0;
  for (size_t i = 0, first = 0; i < all.size(); ++i) {
    tokens += all[i].second;
    for (; all[i].first - all[first].first > 1; ++first) tokens -= all[first].second;
    best = std::max(best, tokens);
  }
  return best;
}

int64_t most_at_once(std::span<const Sample> samples) {
  std::vector<std::pair<double, int64_t>> changes;
  for (const Sample& s : samples) {
    if (s.ended <= s.sent) continue;
    changes.emplace_back(s.sent, 1);
    changes.emplace_back(s.ended, -1);
  }
  std::ranges::sort(changes);
  int64_t now = 0, most = 0;
  for (const auto& change : changes) most = std::max(most, now += change.second);
  return most;
}

}  // namespace

Summary summary_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double v : values) mean += v / n;
  for (const double v : values) squares += (v - mean) * (v - mean) / n;
  return {mean, percentile(values, 0.5), std::sqrt(squares), percentile(values, 0.99)};
}

Report report_of(std::span<const Sample> samples, const std::map<std::string, double>& goals) {
  Report out;
  std::vector<double> ttft, tpot, itl, e2el;
  double first = INFINITY, last = 0;
  for (const Sample& s : samples) {
    if (!s.error.empty()) {
      ++out.failed;
      if (out.errors.size() < kErrorsMax && std::ranges::find(out.errors, s.error) == out.errors.end())
        out.errors.push_back(s.error);
      continue;
    }
    ++out.completed;
    first = std::min(first, s.sent);
    last = std::max(last, s.ended);
    out.input_tokens += s.prompt_tokens;
    out.cached_tokens += s.cached_tokens;
    out.output_tokens += s.output_tokens;
    std::map<std::string, double> took = {{"e2el", 1e3 * (s.ended - s.sent)}};
    if (!s.arrivals.empty()) took["ttft"] = 1e3 * (s.arrivals.front() - s.sent);
    if (s.output_tokens > 1 && s.arrivals.size() > 1)
      took["tpot"] = 1e3 * (s.arrivals.back() - s.arrivals.front()) / static_cast<double>(s.output_tokens - 1);
    for (size_t i = 1; i < s.arrivals.size(); ++i) itl.push_back(1e3 * (s.arrivals[i] - s.arrivals[i - 1]));
    for (auto& [name, list] : {std::pair{"ttft", &ttft}, {"tpot", &tpot}, {"e2el", &e2el}}) {
      if (took.contains(name)) list->push_back(took[name]);
    }
    out.good += std::ranges::all_of(
        goals, [&](const auto& goal) { return !took.contains(goal.first) || took[goal.first] <= goal.second; });
  }
  out.seconds = out.completed > 0 ? last - first : 0;
  out.output_peak = std::max(best_second(samples), per_second(static_cast<double>(out.output_tokens), out.seconds));
  out.running_peak = most_at_once(samples);
  out.ttft = summary_of(std::move(ttft));
  out.tpot = summary_of(std::move(tpot));
  out.itl = summary_of(std::move(itl));
  out.e2el = summary_of(std::move(e2el));
  return out;
}

std::map<std::string, double> read_goals(const std::string& text) {
  std::map<std::string, double> out;
  for (size_t at = text.find_first_not_of(" ,"); at != text.npos; at = text.find_first_not_of(" ,", at)) {
    const size_t end = std::min(text.find_first_of(" ,", at), text.size()), colon = text.find(':', at);
    const std::string name = text.substr(at, std::min(colon, end) - at);
    double value = 0;
    const bool number =
        colon < end && std::from_chars(text.data() + colon + 1, text.data() + end, value).ptr == text.data() + end;
    if (!number || !(value > 0) || (name != "ttft" && name != "tpot" && name != "e2el"))
      fail("--goodput", {.what = "not a goal",
                         .got = printable(text.substr(at, end - at)),
                         .expected = "ttft:MS, tpot:MS or e2el:MS"});
    out[name] = value;
    at = end;
  }
  return out;
}

ordered_json json_of(const Report& r) {
  ordered_json j = {
      {"duration", r.seconds},
      {"completed", r.completed},
      {"failed", r.failed},
      {"total_input_tokens", r.input_tokens},
      {"total_cached_tokens", r.cached_tokens},
      {"total_output_tokens", r.output_tokens},
      {"request_throughput", per_second(static_cast<double>(r.completed), r.seconds)},
      {"request_goodput", per_second(static_cast<double>(r.good), r.seconds)},
      {"output_throughput", per_second(static_cast<double>(r.output_tokens), r.seconds)},
      {"total_token_throughput", per_second(static_cast<double>(r.input_tokens + r.output_tokens), r.seconds)},
      {"max_output_tokens_per_s", r.output_peak},
      {"max_concurrent_requests", r.running_peak}};
  for (const auto& [name, s] : {std::pair{"ttft", &r.ttft}, {"tpot", &r.tpot}, {"itl", &r.itl}, {"e2el", &r.e2el}}) {
    j[fmt::format("mean_{}_ms", name)] = s->mean;
    j[fmt::format("median_{}_ms", name)] = s->median;
    j[fmt::format("std_{}_ms", name)] = s->deviation;
    j[fmt::format("p99_{}_ms", name)] = s->p99;
  }
  j["errors"] = r.errors;
  return j;
}

std::string table_of(const Report& r, bool goals) {
  std::string out;
  const auto line = [&](const char* name, double value, int digits) {
    out += fmt::format("{:<40} {:.{}f}\n", name, value, digits);
  };
  const auto count = [](int64_t n) { return static_cast<double>(n); };
  out += fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  line("Successful requests:", count(r.completed), 0);
  if (r.failed > 0) line("Failed requests:", count(r.failed), 0);
  line("Benchmark duration (s):", r.seconds, 2);
  line("Total input tokens:", count(r.input_tokens), 0);
  line("  of them cached:", count(r.cached_tokens), 0);
  line("Total generated tokens:", count(r.output_tokens), 0);
  line("Request throughput (req/s):", per_second(count(r.completed), r.seconds), 2);
  if (goals) line("Request goodput (req/s):", per_second(count(r.good), r.seconds), 2);
  line("Output token throughput (tok/s):", per_second(count(r.output_tokens), r.seconds), 2);
  line("Peak output token throughput (tok/s):", r.output_peak, 2);
  line("Peak concurrent requests:", count(r.running_peak), 0);
  line("Total token throughput (tok/s):", per_second(count(r.input_tokens + r.output_tokens), r.seconds), 2);
  const auto block = [&](const char* title, const char* name, const Summary& s) {
    out += fmt::format("{:-^50}\n", title);
    line(fmt::format("Mean {} (ms):", name).c_str(), s.mean, 2);
    line(fmt::format("Median {} (ms):", name).c_str(), s.median, 2);
    line(fmt::format("P99 {} (ms):", name).c_str(), s.p99, 2);
  };
  block("Time to First Token", "TTFT", r.ttft);
  block("Time per Output Token (excl. 1st token)", "TPOT", r.tpot);
  block("Inter-token Latency", "ITL", r.itl);
  block("End-to-end Latency", "E2EL", r.e2el);
  return out + fmt::format("{:=^50}\n", "");
}

}  // namespace braid::traffic
