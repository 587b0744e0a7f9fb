// The part of braid plan layout that is about answers (layout/serving.h).
#pragma once
#include <cstdint>
#include <string>

#include "layout/serving.h"

namespace braid::apps {

// Prints the first `top` layouts; gives what the process returns. Error when none fits, after the nearest.
int plan_serving(const std::string& name, const layout::Model& model, const layout::Machine& machine,
                 const layout::Answers& task, int64_t top, bool json);

}  // namespace braid::apps
