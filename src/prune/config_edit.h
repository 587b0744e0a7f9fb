// The config.json of the smaller model: the parent's, with other sizes under the keys that its family reads.
#pragma once
#include <span>
#include <string>

#include "io/json.h"
#include "models/config.h"

namespace braid::prune {

// `small` is `resized` of what `json` says, with these layers of it. Error when the family has no way to say it: what
// is read back must be the same tensors.
std::string small_config_text(const io::Json& json, const models::Config& small, std::span<const int64_t> layers);

}  // namespace braid::prune
