// What the server counts, for programs that watch it: in Prometheus' text format, under vLLM's names where it has one,
// and as JSON.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "serve/worker.h"

namespace braid::serve {

// Series of vLLM's names have the label model_name, as its own have.
std::string prometheus_text(const Counters& counters, std::string_view model);
// {"requests": {"running", ...}, "tokens": {...}, "cache": {...}, "memory": {...}}; bytes are bytes.
nlohmann::ordered_json state_json(const Counters& counters);

}  // namespace braid::serve
