#include "train/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "sys/error.h"
#include "train/recipe_paths.h"

namespace braid::train {
namespace {

bool may_change(const std::string& word) {
  static constexpr std::array kWords = {"out", "steps", "accumulate", "schedule.decay"};
  static constexpr std::array kTables = {"memory.", "eval.", "log.", "checkpoint.", "parallel."};
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end() ||
         std::any_of(kTables.begin(), kTables.end(), [&](const char* table) { return word.starts_with(table); });
}

constexpr const char* kNone = "null";

bool is_of_all(const std::string& content) { return content.starts_with(fmt::format("\"{}", kAllOfFiles)); }

std::string shown(const std::string& value) { return value == kNone ? "not set" : printable(value); }

}  // namespace

Facts manifest_of(const Recipe& recipe, const Facts& facts, const std::filesystem::path& run) {
  Facts manifest;
  for (auto& [word, value] : words_of(with_paths_from(recipe, run))) {
    if (!may_change(word)) manifest.emplace_back(std::move(word), std::move(value));
  }
  manifest.insert(manifest.end(), facts.begin(), facts.end());
  return manifest;
}

std::string manifest_text(const Facts& manifest) {
  std::string text;
  for (const auto& [word, value] : manifest)
    text += fmt::format("{} {}: {}", text.empty() ? "{\n" : ",\n", nlohmann::json(word).dump(), value);
  return text + "\n}\n";
}

std::vector<std::string> differences(const io::Json& stored, const Facts& manifest) {
  std::map<std::string, std::string> there;
  for (auto& [word, value] : words_of(Recipe{})) {
    if (!may_change(word)) there[word] = value;
  }
  for (const auto& [word, value] : stored.raw().items()) there[word] = value.dump();
  std::vector<std::string> list;
  const auto compare = [&](const std::string& word, const std::string& a, const std::string& b) {
    if (a == b) return;
    if (word == kContent && a != kNone && !is_of_all(a) && is_of_all(b)) {
      list.push_back(
          fmt::format("{} is known from a few batches there, as older versions wrote it, and whole here", word));
      return;
    }
    list.push_back(fmt::format("{} is {} there and {} here", word, shown(a), shown(b)));
  };
  for (const auto& [word, value] : manifest) {
    const auto found = there.find(word);
    compare(word, found == there.end() ? kNone : found->second, value);
    if (found != there.end()) there.erase(found);
  }
  for (const auto& [word, value] : there) compare(word, value, kNone);
  return list;
}

}  // namespace braid::train
