// Which designs and recipes are held out, and which results count. A design or recipe is held out by a hash of its key
// alone, so that more of them move none: a design's key is its family, since sizes of one circuit are alike, a recipe's
// its steps. Recipes that lead a design to one netlist are one sample: of a trained recipe if there is one, so that no
// result that was trained on is held out under another name.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "eda/labels.h"

namespace braid::eda {

// By what of a sample is held out.
enum class Part : uint8_t { trained, recipes, designs, both };
inline constexpr std::array<const char*, 4> kPartNames = {"trained", "unseen recipes", "unseen designs", "both unseen"};

struct Sample {
  int32_t design = 0, recipe = 0;
  Part part = Part::trained;
};

inline constexpr int64_t kFolds = 5;  // one of them is held out

struct Split {
  std::vector<uint8_t> held_designs{}, held_recipes{};  // 1: held out
  std::vector<Sample> samples{};                        // by design, then recipe
  // The part of the samples of each design, recipes of one netlist once.
  std::vector<Sample> of(int32_t design, Part part) const;
};

// "mac" of "mac-8".
std::string_view family_of(std::string_view design);
// From 0 to kFolds - 1.
int64_t fold_of(std::string_view key);
// Error where a side would be empty.
Split split_labels(const Labels& labels, int64_t fold);

}  // namespace braid::eda
