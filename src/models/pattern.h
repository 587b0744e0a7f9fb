// The letters of a hybrid: M Mamba-2, * attention, - dense feed-forward, E experts (docs/internals/families.md).
// Configs spell the sequence as a string of letters, as a list of names in two vocabularies, or as a list of blocks.
#pragma once
#include <optional>
#include <string>

#include "io/json.h"

namespace braid::models {

// The letters, from a list of block configs if there is one, else from the first key present; nullopt if none is. Error
// for an unknown letter or name, an empty list, or more than 1024 layers.
std::optional<std::string> read_pattern(const io::Json& json, io::Keys keys, const char* blocks_key);

// Those of the layers. layer_types is transformers' other name of layers_block_type.
std::optional<std::string> read_layer_pattern(const io::Json& json);

}  // namespace braid::models
