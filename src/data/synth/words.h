// Common words of three to eight letters: for word puzzles and off-topic questions.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "data/synth/draw.h"

namespace braid::synth {

std::span<const std::string_view> words();

// Syllables that make no word, `least` to `most` letters: a vocabulary cuts them as it cuts words, so that the spelling
// of its pieces is learnt from more than the words there are.
std::string invented_word(Draw& draw, int64_t least, int64_t most);

}  // namespace braid::synth
