// What the model can say about Braid and itself.
#pragma once
#include <span>
#include <string_view>

namespace braid::synth {

struct Topic {
  std::string_view label;      // "the licence": what the thinking calls it
  std::string_view answer;     // one or two short sentences
  std::string_view phrases;    // what can be asked about, as nouns, separated by "|"; may be empty
  std::string_view questions;  // whole questions without their mark, separated by "|"
};

std::span<const Topic> topics();

// Those of them about models: what layers are and do.
std::span<const Topic> model_topics();

// Greetings, thanks and farewells: no phrases, and nothing around the questions.
std::span<const Topic> courtesies();

}  // namespace braid::synth
