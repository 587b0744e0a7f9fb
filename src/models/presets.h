// Published shapes by name, so that any of them can be counted, written with random weights and timed without a
// download: `braid info nemotron-3-super-120b-a12b`, `braid new hybrid-1b OUT`. Sources: docs/internals/families.md.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "io/model_path.h"

namespace braid::models {

std::vector<std::string> preset_names();
// The config.json of a preset, as a file would hold it; nullopt for any other name.
std::optional<io::Json> find_preset(std::string_view name);

// As io::find_model, for what needs weights: for the name of a preset, the error says how to get them.
io::ModelPath find_weights(std::string_view argument);

// A config, and the folder of its weights if there is one.
struct ConfigSource {
  std::string name;
  io::Json json;
  std::optional<io::ModelPath> path;
};

// `argument` is what find_model takes, a config.json alone, or the name of a preset (a folder of that name comes
// first).
ConfigSource find_config(std::string_view argument);

}  // namespace braid::models
