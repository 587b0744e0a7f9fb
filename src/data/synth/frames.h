// What people say around a question or a thing that they ask about. On-topic and off-topic questions use the same
// frames, so that only their words tell them apart.
#pragma once
#include <string>
#include <string_view>

#include "data/synth/draw.h"

namespace braid::synth {

// "Tell me about routing." of "routing".
std::string framed(Draw& draw, std::string_view thing);

// "Quick question: who are you?" of "Who are you?", which keeps its form.
std::string opened(Draw& draw, std::string sentence);

// As people type: now and then all lower case, a word left out, no mark at the end.
std::string typed(Draw& draw, std::string text);

}  // namespace braid::synth
