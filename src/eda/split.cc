#include "eda/split.h"

#include <algorithm>

#include "sys/error.h"

namespace braid::eda {

std::string_view family_of(std::string_view design) { return design.substr(0, design.rfind('-')); }

int64_t fold_of(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash ^= hash >> 32;  // its low bits are those of few characters
  return static_cast<int64_t>(hash % static_cast<uint64_t>(kFolds));
}

std::vector<Sample> Split::of(int32_t design, Part part) const {
  std::vector<Sample> list;
  for (const Sample& s : samples) {
    if (s.design == design && s.part == part) list.push_back(s);
  }
  return list;
}

Split split_labels(const Labels& labels, int64_t fold) {
  Split split;
  for (const Design& d : labels.designs) split.held_designs.push_back(fold_of(family_of(d.name)) == fold ? 1 : 0);
  for (const Recipe& r : labels.recipes) split.held_recipes.push_back(fold_of(text_of(r)) == fold ? 1 : 0);
  const auto one_sided = [](const std::vector<uint8_t>& held) {
    return std::find(held.begin(), held.end(), held[0] == 0 ? 1 : 0) == held.end();
  };
  if (one_sided(split.held_designs) || one_sided(split.held_recipes))
    fail("split", {.what = fmt::format("fold {} holds out none or all of the designs or recipes", fold),
                   .got = fmt::format("{} designs, {} recipes", labels.designs.size(), labels.recipes.size()),
                   .hint = "more of them"});
  for (size_t d = 0; d < labels.designs.size(); ++d) {
    const std::vector<Outcome>& outcomes = labels.designs[d].outcomes;
    // Of each netlist, by its first recipe, the first that is trained on; else the first.
    std::vector<int32_t> chosen(outcomes.size(), -1);
    for (size_t r = 0; r < outcomes.size(); ++r) {
      int32_t& first = chosen[static_cast<size_t>(outcomes[r].same)];
      const auto held = [&](int32_t recipe) { return split.held_recipes[static_cast<size_t>(recipe)] != 0; };
      if (first < 0 || (held(first) && !held(static_cast<int32_t>(r)))) first = static_cast<int32_t>(r);
    }
    std::erase(chosen, -1);
    std::sort(chosen.begin(), chosen.end());
    for (const int32_t recipe : chosen) {
      const int part = (split.held_designs[d] != 0 ? 2 : 0) + (split.held_recipes[static_cast<size_t>(recipe)] != 0);
      split.samples.push_back({.design = static_cast<int32_t>(d), .recipe = recipe, .part = static_cast<Part>(part)});
    }
  }
  return split;
}

}  // namespace braid::eda
