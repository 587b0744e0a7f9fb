// Sources that are generated rather than read, each with its exact entropy: the loss of a perfect model is known, and a
// curve shows how close training came. Token 0 begins a row if the kind needs it.
//   markov   a walk over `states` tokens; from each, `branch` steps of probability 1 : 1/2 : 1/3 ... Every step is a
//            permutation of the states, so all states are equally likely and every target has the chain's entropy rate
//   pcfg     sentences of 2^depth tokens: a symbol becomes two, depth times over, by one of `rules` rules with
//            probabilities 1 : 1/2 : 1/3 ... No two rules of a level give the same pair: a sentence has one derivation
//   modular  a op b = c (mod `modulus`), op one of + - *
//   recall   `pairs` keys with a value each, then keys again, each to be followed by its value
//   hops     a permutation of `states` symbols, a token for each pair of a symbol and its successor in any order, then
//            questions (a number of steps up to `hops`, a symbol), a token each, with the symbol that many steps on:
//            how deep a model must think is a dial
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "data/source.h"

namespace braid::data {

struct GeneratorSpec {
  int64_t states = 0;  // markov, pcfg, hops: symbols; recall: keys, as many values; 0: what the vocabulary has room for
  int64_t branch = 4;
  int64_t depth = 4;
  int64_t rules = 4;
  int64_t modulus = 97;
  int64_t pairs = 16;
  int64_t hops = 8;
};

// `kind` is one of the five. Error, naming the word, when the vocabulary or the row is too small for what is asked.
std::unique_ptr<Source> make_generated(const std::string& kind, const GeneratorSpec& spec, const RowRules& rules,
                                       uint64_t seed);

}  // namespace braid::data
