// Whole prompts that are not the model's to answer, in as many forms as its own questions have.
#pragma once
#include <string_view>

namespace braid::synth {

std::string_view other_prompts();  // "|" between

}  // namespace braid::synth
