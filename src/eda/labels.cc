#include "eda/labels.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "sys/error.h"
#include "sys/read.h"

namespace braid::eda {
namespace {
namespace fs = std::filesystem;

constexpr size_t kBytesMax = size_t{64} << 20;
constexpr size_t kStepsMax = 256, kRecipesMax = 100'000;
constexpr std::string_view kHeader = "recipe,ands,levels,area,delay,same,ms";
constexpr size_t kFields = 7;

// The next part of `text` before `separator`, which is taken off.
std::string_view take_part(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

std::string line_name(const std::string& where, int64_t number) { return fmt::format("{}:{}", where, number); }

std::array<double, kFields> numbers_of(std::string_view line, const std::string& where) {
  if (std::count(line.begin(), line.end(), ',') != kFields - 1)
    fail(where, {.what = "wrong number of fields", .expected = std::to_string(kFields)});
  constexpr double kMost = 1e9;  // whole numbers up to it are exact, and I32
  std::array<double, kFields> numbers{};
  for (size_t i = 0; i < kFields; ++i) {
    const std::string_view field = take_part(line, ',');
    const auto [end, status] = std::from_chars(field.data(), field.data() + field.size(), numbers[i]);
    if (status != std::errc() || end != field.data() + field.size() || !(numbers[i] >= 0 && numbers[i] <= kMost))
      fail(where, {.what = fmt::format("field {} is wrong", i + 1),
                   .got = printable(field, 40),
                   .expected = "a number from 0 to 1e9"});
  }
  return numbers;
}

Design read_design(const fs::path& table, int64_t recipes) {
  fs::path circuit = table;
  circuit.replace_extension(".aig");
  return {.name = table.stem().string(),
          .nodes = graph::nodes_of(graph::read_aiger(circuit)),
          .outcomes = parse_outcomes(sys::read_file(table, kBytesMax), printable(table.string()), recipes)};
}

}  // namespace

std::vector<Recipe> parse_recipes(std::string_view text, const std::string& where) {
  std::vector<Recipe> recipes;
  std::set<Recipe> seen;
  for (int64_t number = 1; !text.empty(); ++number) {
    std::string_view line = take_part(text, '\n');
    const std::string here = line_name(where, number);
    Recipe recipe;
    while (!line.empty()) {
      const std::string_view word = take_part(line, ' ');
      const auto found = std::find(kSteps.begin(), kSteps.end(), word);
      if (found == kSteps.end())
        fail(here, {.what = "an unknown step",
                    .got = printable(word, 40),
                    .expected = fmt::format("{}", fmt::join(kSteps, ", "))});
      if (recipe.size() == kStepsMax)
        fail(here, {.what = "too many steps", .expected = fmt::format("at most {}", kStepsMax)});
      recipe.push_back(static_cast<uint8_t>(found - kSteps.begin()));
    }
    if (recipe.empty() || (!recipes.empty() && recipe.size() != recipes[0].size()))
      fail(here, {.what = "a recipe of another length",
                  .got = std::to_string(recipe.size()),
                  .expected = recipes.empty() ? "steps" : std::to_string(recipes[0].size())});
    if (!seen.insert(recipe).second) fail(here, {.what = "a recipe for the second time", .expected = "each once"});
    if (recipes.size() == kRecipesMax)
      fail(here, {.what = "too many recipes", .expected = fmt::format("at most {}", kRecipesMax)});
    recipes.push_back(std::move(recipe));
  }
  if (recipes.empty()) fail(where, {.what = "has no recipes", .expected = "a line of steps each"});
  return recipes;
}

std::vector<Outcome> parse_outcomes(std::string_view text, const std::string& where, int64_t recipes) {
  const std::string_view header = take_part(text, '\n');
  if (header != kHeader)
    fail(where, {.what = "has another header", .got = printable(header, 80), .expected = std::string(kHeader)});
  std::vector<Outcome> outcomes;
  while (!text.empty()) {
    const auto row = std::ssize(outcomes);
    const std::string here = line_name(where, row + 2);
    const std::array<double, kFields> n = numbers_of(take_part(text, '\n'), here);
    if (n[0] != static_cast<double>(row) || row >= recipes)
      fail(here, {.what = "not the next recipe",
                  .got = fmt::format("{:g}", n[0]),
                  .expected = row < recipes ? std::to_string(row) : "the end"});
    Outcome out{.values = {n[1], n[2], n[3], n[4]}, .seconds = n[6] / 1000};
    const auto same = static_cast<int64_t>(n[5]);
    if (*std::min_element(out.values.begin(), out.values.end()) <= 0)
      fail(here, {.what = "a result is not above 0", .got = fmt::format("{:g}", fmt::join(out.values, ", "))});
    if (same > row || static_cast<double>(same) != n[5])
      fail(here, {.what = "the same as a recipe that is not before it", .got = fmt::format("{:g}", n[5])});
    out.same = static_cast<int32_t>(same);
    if (same < row) {
      const Outcome& first = outcomes[static_cast<size_t>(same)];
      if (first.same != out.same || first.values != out.values)
        fail(here, {.what = "differs from the recipe that it says it is the same as", .got = std::to_string(same)});
    }
    outcomes.push_back(out);
  }
  if (std::ssize(outcomes) != recipes)
    fail(where, {.what = "ends early",
                 .got = fmt::format("{} rows", outcomes.size()),
                 .expected = fmt::format("{}, a recipe each", recipes)});
  return outcomes;
}

Labels read_labels(const fs::path& folder) {
  const fs::path recipes = folder / "recipes.txt";
  Labels labels{.recipes = parse_recipes(sys::read_file(recipes, kBytesMax), printable(recipes.string()))};
  std::vector<fs::path> tables;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".csv") tables.push_back(entry.path());
  }
  std::sort(tables.begin(), tables.end());
  for (const fs::path& table : tables) labels.designs.push_back(read_design(table, std::ssize(labels.recipes)));
  if (labels.designs.empty())
    fail(printable(folder.string()),
         {.what = "has no designs", .expected = "NAME.aig and NAME.csv (tools/eda/label.py)"});
  return labels;
}

std::string text_of(const Recipe& recipe) {
  std::string text;
  for (const uint8_t step : recipe) text += (text.empty() ? "" : " ") + std::string(kSteps[step]);
  return text;
}

}  // namespace braid::eda
