// The grid of a sweep: one config at other widths and depths. Width scales hidden_size and with it what is stored as a
// count of heads or channels, so that heads and states keep their sizes; depth repeats the pattern of layers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"

namespace braid::apps {

struct SweepShape {
  int64_t width = 0, depth = 0;  // hidden_size, layers
  std::string name() const;      // "w64-d8"
};

// "32,64x4 128x4,8": parts of widths, an x and depths; every width of a part meets every depth of it. Each shape once,
// in order. Error, naming --grid, for anything else.
std::vector<SweepShape> read_grid(const std::string& text);

// config.json with that width and depth. Error where a count would not be whole, or the layers of the config are not
// a pattern that repeats.
io::Json resized(const io::Json& config, const SweepShape& shape);

// Of which a width is a multiple, so that every count is whole.
int64_t width_step(const io::Json& config);

// hidden_size and the number of layers as the config has them.
int64_t width_of(const io::Json& config);
int64_t depth_of(const io::Json& config);

}  // namespace braid::apps
