// Whole prompts that are off topic, in as many forms as the on-topic questions.
#pragma once
#include <string_view>

namespace braid::synth {

std::string_view other_prompts();  // separated by "|"

}  // namespace braid::synth
