// What states that were stored between passes belong to: a model, its adapters and its choice of number formats.
#pragma once
#include <cstdint>

namespace braid::engine {

class LanguageModel;

// Of the config, the name, format, shape and a sample of the bytes of every parameter, Numerics, and how a loop
// of layers runs. Two models with
// the same one agree in all that a training step changes: it changes every tensor that it trains, nearly everywhere.
uint64_t fingerprint_of(LanguageModel& model);

}  // namespace braid::engine
