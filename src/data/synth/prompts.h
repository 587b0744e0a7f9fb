// Whole prompts that are off topic, in as many forms as the on-topic questions.
#pragma once
#include <string_view>

namespace braid::synth {

// Each list is separated by "|".
std::string_view other_prompts();
std::string_view chatter();      // as people type: careless, short, in many languages
std::string_view other_forms();  // with "{place}" and the like (fillers.h) to fill

}  // namespace braid::synth
