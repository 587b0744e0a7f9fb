// What is held out for the tests of tiny: pairs of numbers and words, by a hash, whatever the task. A problem of a test
// is made of a held-out pair or word, and a turn that mentions one anywhere, thinking and answer included, is not
// trained.
//
// A pair is two numbers that an operator, a comma or words connect: "12 + 345", "345 and 12", "12, 345". Numbers of one
// digit with numbers of up to two are the facts that written steps consist of (7*8=56+0), so they are never held out;
// neither are words of the answers about Braid.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/synth/task.h"

namespace braid::synth {

bool held_out_pair(int64_t a, int64_t b);                 // in any order
bool held_out_word(std::string_view capitals);            // a word of words(), or letters of a puzzle
bool held_out_list(const std::vector<int64_t>& numbers);  // two neighbours are a held-out pair

bool mentions_held_out(const Turn& turn);

}  // namespace braid::synth
