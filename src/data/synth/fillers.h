// Words for the templates of questions off topic.
#pragma once
#include <span>
#include <string_view>

namespace braid::synth {

struct Filler {
  std::string_view name;   // "place": what "{place}" stands for
  std::string_view words;  // separated by "|"
};

std::span<const Filler> fillers();

}  // namespace braid::synth
