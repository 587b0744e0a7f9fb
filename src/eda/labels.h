// What logic synthesis made of some circuits: a folder that tools/eda/label.py writes.
//   recipes.txt  a recipe a line: words of kSteps, as many in each
//   NAME.aig     a circuit (graph/aiger.h)
//   NAME.csv     recipe,ands,levels,area,delay,same,ms: of each recipe, in order
// `same` is the first recipe of the same netlist. The files are untrusted: whatever is wrong is an Error.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "graph/aiger.h"

namespace braid::eda {

// abc's balance, rewrite, refactor and resub; z: also where nothing is gained.
inline constexpr std::array<std::string_view, 7> kSteps = {"b", "rw", "rwz", "rf", "rfz", "rs", "rsz"};
using Recipe = std::vector<uint8_t>;  // of kSteps

// What is predicted, in the order of the columns: of the circuit, and after it is mapped to gates. All are better if
// they are lower.
inline constexpr std::array<const char*, 4> kTargets = {"ands", "levels", "area", "delay"};
inline constexpr size_t kTargetCount = kTargets.size();

struct Outcome {
  std::array<double, kTargetCount> values{};
  int32_t same = 0;    // the first recipe with this netlist
  double seconds = 0;  // of the tool
};

struct Design {
  std::string name{};
  graph::AigNodes nodes{};
  std::vector<Outcome> outcomes{};  // of every recipe
};

struct Labels {
  std::vector<Recipe> recipes{};
  std::vector<Design> designs{};  // by name
};

std::vector<Recipe> parse_recipes(std::string_view text, const std::string& where);
std::vector<Outcome> parse_outcomes(std::string_view text, const std::string& where, int64_t recipes);
Labels read_labels(const std::filesystem::path& folder);

// "b rw rsz", as in the file.
std::string text_of(const Recipe& recipe);

}  // namespace braid::eda
