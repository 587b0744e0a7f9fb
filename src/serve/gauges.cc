#include "serve/gauges.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/memory.h"

namespace braid::serve {
namespace {

struct Gauge {
  const char *group, *key;  // in JSON
  const char *name, *type;  // for Prometheus
  const char* help;
  int64_t value;
};

std::vector<Gauge> gauges_of(const Counters& c) {
  const engine::MemoryUse& m = c.memory;
  return {
      {"requests", "running", "vllm:num_requests_running", "gauge", "Requests that are being answered.", c.running},
      {"requests", "waiting", "vllm:num_requests_waiting", "gauge", "Requests that wait for a sequence.", c.waiting},
      {"requests", "total", "braid:requests_total", "counter", "Requests accepted.", c.requests},
      {"tokens", "prompt", "vllm:prompt_tokens_total", "counter",
       "Prompt tokens of requests that are over, read or cached.", c.prompt_tokens},
      {"tokens", "cached", "braid:cached_tokens_total", "counter",
       "Prompt tokens whose state was kept from earlier requests.", c.cached_tokens},
      {"tokens", "generated", "vllm:generation_tokens_total", "counter", "Tokens generated.", c.generated_tokens},
      {"tokens", "drafted", "vllm:spec_decode_num_draft_tokens_total", "counter", "Tokens drafted and verified.",
       c.drafted_tokens},
      {"tokens", "accepted", "vllm:spec_decode_num_accepted_tokens_total", "counter",
       "Of them, those that the answers contain.", c.accepted_tokens},
      {"cache", "lookups", "braid:cache_lookups_total", "counter",
       "Requests whose prompts were looked up in the cache.", m.lookups},
      {"cache", "hits", "braid:cache_hits_total", "counter", "Requests that continued from a cached prefix.", m.hits},
      {"cache", "looked_up_tokens", "vllm:prefix_cache_queries_total", "counter",
       "Prompt tokens that were looked up in the cache.", m.looked_up_tokens},
      {"cache", "hit_tokens", "vllm:prefix_cache_hits_total", "counter", "Of them, those that were found.",
       m.hit_tokens},
      {"cache", "failed_copies", "braid:cache_failed_copies_total", "counter",
       "States that could not be stored for later prompts; the answers went on.", m.failed_copies},
      {"cache", "snapshots", "braid:cache_snapshots", "gauge", "Positions that prompts can continue from.",
       m.snapshots},
      {"cache", "tokens", "braid:cache_tokens", "gauge", "Tokens in the tree of cached prefixes.", m.cached_tokens},
      {"memory", "bytes", "braid:memory_bytes", "gauge", "Bytes in use for sequences and cached prefixes.", m.bytes},
      {"memory", "limit_bytes", "braid:memory_limit_bytes", "gauge",
       "What --memory allows, without the part of a draft model.", m.bytes_max},
      {"memory", "pages", "braid:pages_in_use", "gauge", "Pages of keys and values in use.", m.pages},
      {"memory", "pages_free", "braid:pages_free", "gauge",
       "Pages that are not in use; the limit of bytes may come first.", m.pages_free},
      {"memory", "pages_leaked", "braid:pages_leaked", "gauge", "References to pages without an owner; a bug unless 0.",
       m.pages_leaked},
      {"memory", "state_slots", "braid:state_slots_in_use", "gauge", "Recurrent states of sequences and snapshots.",
       m.slots},
      {"memory", "grammar_bytes", "braid:grammar_bytes", "gauge", "Bytes of the compiled constraints of answers.",
       c.grammar_bytes},
      {"memory", "draft_index_bytes", "braid:draft_index_bytes", "gauge",
       "Of braid:memory_bytes: n-grams of running answers, for drafts.", m.index_bytes},
      {"memory", "draft_bytes", "braid:draft_memory_bytes", "gauge", "Bytes in use for sequences of the draft model.",
       m.draft_bytes},
      {"memory", "draft_limit_bytes", "braid:draft_memory_limit_bytes", "gauge", "What they may take of --memory.",
       m.draft_bytes_max},
      {"memory", "draft_weight_bytes", "braid:draft_weight_bytes", "gauge",
       "Weights of the draft model, which count as --memory too.", m.draft_weight_bytes},
      {"memory", "resident_bytes", "process_resident_memory_bytes", "gauge",
       "Memory in use, that of mapped weights included.", sys::memory_resident()},
  };
}

// As a label's value.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char ch : text) {
    if (ch == '\\' || ch == '"') out += '\\';
    if (ch == '\n')
      out += "\\n";
    else
      out += ch;
  }
  return out;
}

// The labels of a series: vLLM's have the model's name, as dashboards made for it expect.
std::string labels_of(std::string_view name, std::string_view model) {
  return name.starts_with("vllm:") ? fmt::format("{{model_name=\"{}\"}}", model) : "";
}

template <size_t kBounds>
std::string histogram_text(const char* name, const char* help, const std::string& model, const Histogram<kBounds>& h) {
  std::string out = fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  int64_t count = 0;
  for (size_t i = 0; i < kBounds; ++i) {
    count += h.counts[i];
    out += fmt::format("{}_bucket{{model_name=\"{}\",le=\"{}\"}} {}\n", name, model, h.bounds[i], count);
  }
  count += h.counts[kBounds];
  const std::string labels = labels_of(name, model);
  return out + fmt::format("{0}_bucket{{model_name=\"{3}\",le=\"+Inf\"}} {1}\n{0}_sum{4} {2}\n{0}_count{4} {1}\n", name,
                           count, h.sum, model, labels);
}

// What is not a plain number.
std::string further_text(const Counters& c, const std::string& model) {
  const double used =
      c.memory.bytes_max > 0 ? static_cast<double>(c.memory.bytes) / static_cast<double>(c.memory.bytes_max) : 0;
  constexpr const char* kUsage = "vllm:kv_cache_usage_perc";
  std::string out =
      fmt::format("# HELP {0} Part of --memory that is in use, from 0 to 1.\n# TYPE {0} gauge\n{0}{2} {1}\n", kUsage,
                  used, labels_of(kUsage, model));
  constexpr const char* kSuccess = "vllm:request_success_total";
  out += fmt::format("# HELP {0} Requests that are over, by how they ended.\n# TYPE {0} counter\n", kSuccess);
  const std::pair<const char*, int64_t> ends[] = {{"stop", c.stopped}, {"length", c.cut}, {"abort", c.aborted}};
  for (const auto& [reason, count] : ends)
    out += fmt::format("{}{{model_name=\"{}\",finished_reason=\"{}\"}} {}\n", kSuccess, model, reason, count);
  out += histogram_text("vllm:time_to_first_token_seconds", "From a request to its first token.", model,
                        c.latencies.first_token);
  out += histogram_text("vllm:inter_token_latency_seconds", "Between two tokens of an answer.", model,
                        c.latencies.between);
  out += histogram_text("vllm:request_time_per_output_token_seconds", "Per token after an answer's first, on average.",
                        model, c.latencies.per_token);
  out +=
      histogram_text("vllm:request_queue_time_seconds", "From a request to its first pass.", model, c.latencies.queue);
  out += histogram_text("vllm:request_prefill_time_seconds", "From the first pass to the first token.", model,
                        c.latencies.prefill);
  out +=
      histogram_text("vllm:request_decode_time_seconds", "From the first token to the end.", model, c.latencies.decode);
  return out + histogram_text("vllm:e2e_request_latency_seconds", "From a request to the end of its answer.", model,
                              c.latencies.whole);
}

}  // namespace

std::string prometheus_text(const Counters& counters, std::string_view model) {
  const std::string name = quoted(model);
  std::string out;
  for (const Gauge& g : gauges_of(counters))
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0}{4} {3}\n", g.name, g.help, g.type, g.value,
                       labels_of(g.name, name));
  return out + further_text(counters, name);
}

nlohmann::ordered_json state_json(const Counters& counters) {
  nlohmann::ordered_json out;
  for (const Gauge& g : gauges_of(counters)) out[g.group][g.key] = g.value;
  return out;
}

}  // namespace braid::serve
