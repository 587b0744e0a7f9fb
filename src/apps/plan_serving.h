// The part of braid plan layout that is about answers (layout/serving.h).
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "layout/serving.h"

namespace braid::apps {

// What the plans of training and of answers say first, in JSON and in words, of the machine.
nlohmann::ordered_json head_of(const std::string& model, const layout::Machine& machine, int64_t ranks, int64_t batch);
std::string machine_text(const layout::Machine& machine);

// Prints the first `top` layouts; gives what the process returns. Error when none fits, after the nearest.
int plan_serving(const std::string& name, const layout::Model& model, const layout::Machine& machine,
                 const layout::Answers& task, int64_t top, bool json);

}  // namespace braid::apps
