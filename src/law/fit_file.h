// A fit as a JSON file: what `braid law fit --out` writes and `braid law plan` reads. `law` holds alpha, beta, A, B and
// E; `draws` one such row per resample, with logarithms of A, B and E; a file may have neither draws nor frontier.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "io/json.h"
#include "law/fit.h"

namespace braid::law {

// The fit with its intervals, for people's scripts; `draws` adds what `plan` needs for its own.
nlohmann::ordered_json to_json(const Fit& fit, bool draws);

// Error naming the key where a value is missing or out of range.
Fit fit_from_json(const io::Json& json);

}  // namespace braid::law
