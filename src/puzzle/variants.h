// What may stand in the place of each block of a model (Puzzle, arXiv 2411.19146, section 2): the block with fewer
// units along its axes (prune/axes.h), attention whose key heads are merged, a plain linear map, or nothing. Every
// block is a site of its own, so that attention and feed-forward of a layer are chosen independently.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/json.h"
#include "models/config.h"

namespace braid::puzzle {

constexpr int64_t kVariantsOfSite = 256;

enum class Change : uint8_t {
  whole,
  cut,
  merged,  // fewer key heads, each the mean of neighbours; all query heads stay (arXiv 2305.13245, section 2.1)
  linear,
  none,
};

struct Variant {
  Change change = Change::whole;
  models::BlockSpec block{};  // of `none` that of the whole
  std::string name = "whole";
};

struct Site {
  size_t layer = 0, part = 0;       // of the model
  std::vector<Variant> variants{};  // the whole first
  const models::BlockSpec& whole() const { return variants[0].block; }
};

// The sizes to try, by words of the user: axes ("ffn", "experts", ...), "kv_heads", and kinds of blocks ("attention",
// "mamba", "moe").
struct Lists {
  struct Entry {
    std::vector<double> sizes{};  // up to 1: a share; above: a number of units
    bool linear = false, none = false;
  };
  std::map<std::string, Entry> of{};
  std::set<int64_t> keep{};  // layers that stay as they are
  bool asked = false;        // by the user: what the model cannot have is an error then
};

// {"ffn": [0.75, 0.5, "linear", "none"], "kv_groups": [0.5], "attention": ["none"], "keep": [0]}. Error for other words
// and sizes.
Lists read_lists(const io::Json& json);
Lists default_lists(const models::Config& config);

// In order. Error for a family whose config cannot say that layers differ, and for variants that it cannot have.
std::vector<Site> sites_of(const models::Config& config, const Lists& lists);

// Whether the model is written as Llama-Nemotron, whose layers have two parts; else as Nemotron-H.
bool has_two_parts(const models::Config& config);

// The sizes of a block, to tell apart what takes different times: "E 16/2 x 192, ...".
std::string shape_of(const models::BlockSpec& block);

}  // namespace braid::puzzle
