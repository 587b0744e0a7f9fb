// Recipes and tables as they should be and as they should not, a folder, and which of its results are held out.
#include "eda/labels.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "eda/eda_fixture.h"
#include "eda/split.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::eda {
namespace {

constexpr const char* kHead = "recipe,ands,levels,area,delay,same,ms\n";

TEST(Labels, RecipesAreWords) {
  const std::vector<Recipe> recipes = parse_recipes("b rwz rsz\nrf rf b\n", "r.txt");
  EXPECT_EQ(recipes, (std::vector<Recipe>{{0, 2, 6}, {3, 3, 0}}));
  EXPECT_EQ(text_of(recipes[0]), "b rwz rsz");
  const auto refused = [](const char* text, const char* says) {
    const std::string error = support::error_of([&] { parse_recipes(text, "r.txt"); });
    EXPECT_NE(error.find(says), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  };
  refused("", "[r.txt] has no recipes");
  refused("b rw\nb\n", "[r.txt:2] a recipe of another length; got 1; expected 2");
  refused("\n", "[r.txt:1] a recipe of another length; got 0");
  refused("b  rw\n", "[r.txt:1] an unknown step");
  refused("b dch\n", "an unknown step; got dch");
  refused("b rw\nb rw\n", "[r.txt:2] a recipe for the second time");
}

TEST(Labels, TablesAreSound) {
  const std::vector<Outcome> outcomes =
      parse_outcomes(std::string(kHead) + "0,9,3,20.5,4,0,120\n1,9,3,20.5,4,0,110\n2,8,3,19,4.5,2,50\n", "t.csv", 3);
  EXPECT_EQ(outcomes[1].same, 0);
  EXPECT_EQ(outcomes[2].values, (std::array<double, kTargetCount>{8, 3, 19, 4.5}));
  EXPECT_EQ(outcomes[0].seconds, 0.12);
  const auto refused = [](const std::string& rows, const char* says) {
    const std::string error = support::error_of([&] { parse_outcomes(rows, "t.csv", 2); });
    EXPECT_NE(error.find(says), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  };
  const std::string head = kHead, first = "0,9,3,20.5,4,0,120\n";
  refused("", "another header");
  refused(head + first, "ends early; got 1 rows; expected 2");
  refused(head + first + "1,9,3,20.5,4,0\n", "[t.csv:3] wrong number of fields");
  refused(head + first + "1,9,3,nan,4,0,1\n", "[t.csv:3] field 4 is wrong; got nan");
  refused(head + first + "1,9,3,1e99,4,0,1\n", "field 4");
  refused(head + first + "1,9,3,0,4,1,1\n", "not above 0");
  refused(head + first + "2,9,3,20,4,1,1\n", "not the next recipe; got 2; expected 1");
  refused(head + first + "1,9,3,20,4,2,1\n", "not before it");
  refused(head + first + "1,9,3,20,4,0.5,1\n", "not before it");
  refused(head + first + "1,9,3,20,4,0,1\n", "differs from the recipe");
  refused(head + first + "1,9,3,20,4,1,1\n2,9,3,20,4,2,1\n", "not the next recipe; got 2; expected the end");
}

TEST(Labels, AFolderHasDesignsByName) {
  const support::Folder folder;
  EXPECT_NE(support::error_of([&] { read_labels(folder.path()); }).find("recipes.txt"), std::string::npos);
  folder.write("recipes.txt", "b rw\nrf b\n");
  EXPECT_NE(support::error_of([&] { read_labels(folder.path()); }).find("has no designs"), std::string::npos);
  for (const char* name : {"z-1", "a-2"}) {
    folder.write(std::string(name) + ".csv", std::string(kHead) + "0,1,1,2,1,0,5\n1,1,1,2,1,0,5\n");
    folder.write(std::string(name) + ".aig", "aag 3 2 0 1 1\n2\n4\n6\n6 2 5\n");
  }
  const Labels labels = read_labels(folder.path());
  ASSERT_EQ(labels.designs.size(), 2u);
  EXPECT_EQ(labels.designs[0].name, "a-2");
  EXPECT_EQ(labels.designs[1].nodes.in.rows, 5);
  folder.write("z-1.aig", "aig 3");
  EXPECT_NE(support::error_of([&] { read_labels(folder.path()); }).find("z-1.aig"), std::string::npos);
}

std::vector<std::pair<std::string, graph::Aig>> ten_families() {
  std::vector<std::pair<std::string, graph::Aig>> designs;
  for (int64_t i = 0; i < 20; ++i)
    designs.emplace_back(fmt::format("f{}-{}", i / 2, i % 2), small_circuit(3 + i, i % 2 == 0));
  return designs;
}

TEST(Split, HeldOutByKeyAlone) {
  const auto zero = [](size_t, const Recipe&, size_t) { return 1.0; };
  const Labels all = small_labels(60, 5, ten_families(), zero);
  auto few = ten_families();
  few.erase(few.begin() + 4, few.begin() + 9);
  const Labels some = small_labels(60, 5, few, zero);
  std::vector<int> times(all.designs.size()), recipe_times(all.recipes.size());
  for (int64_t fold = 0; fold < kFolds; ++fold) {
    Split split;
    if (!support::error_of([&] { split = split_labels(all, fold); }).empty()) continue;
    std::map<std::string, uint8_t> held;
    std::map<std::string_view, std::set<uint8_t>> families;
    for (size_t d = 0; d < all.designs.size(); ++d) {
      held[all.designs[d].name] = split.held_designs[d];
      families[family_of(all.designs[d].name)].insert(split.held_designs[d]);
      times[d] += split.held_designs[d];
    }
    for (const auto& [name, sides] : families) EXPECT_EQ(sides.size(), 1u) << name;
    for (size_t r = 0; r < all.recipes.size(); ++r) recipe_times[r] += split.held_recipes[r];
    Split other;
    if (!support::error_of([&] { other = split_labels(some, fold); }).empty()) continue;
    for (size_t d = 0; d < some.designs.size(); ++d) EXPECT_EQ(other.held_designs[d], held[some.designs[d].name]);
    EXPECT_EQ(other.held_recipes, split.held_recipes);
  }
  for (const int n : times) EXPECT_LE(n, 1);
  for (const int n : recipe_times) EXPECT_LE(n, 1);
  EXPECT_EQ(family_of("mac-8"), "mac");
  EXPECT_EQ(family_of("plain"), "plain");
}

// Recipes i and i + 20 and i + 40 are one netlist of every design.
TEST(Split, NoNetlistIsTrainedOnAndHeldOut) {
  Labels labels = small_labels(60, 5, ten_families(), [](size_t, const Recipe&, size_t) { return 2.0; });
  for (Design& d : labels.designs) {
    for (size_t r = 20; r < 60; ++r) d.outcomes[r].same = static_cast<int32_t>(r % 20);
  }
  int64_t folds = 0;
  for (int64_t fold = 0; fold < kFolds; ++fold) {
    Split split;
    if (!support::error_of([&] { split = split_labels(labels, fold); }).empty()) continue;
    ++folds;
    EXPECT_EQ(split.samples.size(), 20 * labels.designs.size());
    for (const Sample& s : split.samples) {
      const auto d = static_cast<size_t>(s.design);
      const auto netlist = static_cast<size_t>(labels.designs[d].outcomes[static_cast<size_t>(s.recipe)].same);
      bool trained = false;
      for (size_t r = netlist; r < 60; r += 20) trained = trained || split.held_recipes[r] == 0;
      const bool held = split.held_designs[d] != 0;
      const Part want = held ? (trained ? Part::designs : Part::both) : (trained ? Part::trained : Part::recipes);
      EXPECT_EQ(s.part, want);
      EXPECT_EQ(split.held_recipes[static_cast<size_t>(s.recipe)] != 0, !trained);
    }
  }
  EXPECT_GT(folds, 0);
}

TEST(Split, OneDesignIsRefused) {
  const Labels labels =
      small_labels(60, 5, {{"a-1", small_circuit(3, true)}}, [](size_t, const Recipe&, size_t) { return 1.0; });
  EXPECT_NE(support::error_of([&] { split_labels(labels, 0); }).find("none or all"), std::string::npos);
}

}  // namespace
}  // namespace braid::eda
