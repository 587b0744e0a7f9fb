// Common words of three to eight letters: for word puzzles and off-topic questions.
#pragma once
#include <span>
#include <string_view>

namespace braid::synth {

std::span<const std::string_view> words();

}  // namespace braid::synth
