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

// Keys of files, with the facts of all that these say.
constexpr std::pair<std::string_view, std::array<const char*, 2>> kFiles[] = {{"data.path", {kContent}},
                                                                              {"data.blend", {kContent}},
                                                                              {"graph.path", {kEdges, kContent}},
                                                                              {"init", {kModel}},
                                                                              {"distill.teacher", {kTeacher}}};

// Parts of a blend without the folders they lie in.
nlohmann::json without_folders(const std::string& blend) {
  nlohmann::json parts = nlohmann::json::parse(blend);
  for (nlohmann::json& part : parts) {
    if (auto path = part.find("path"); path != part.end() && path->is_string())
      *path = std::filesystem::path(path->get<std::string>()).filename().string();
  }
  return parts;
}

using FactMap = std::map<std::string, std::string>;

// Whether values of a key that differ name the same files, which lie elsewhere now.
bool same_files(const std::string& word, const FactMap& there, const FactMap& here) {
  const auto keys = std::ranges::find(kFiles, word, &std::pair<std::string_view, std::array<const char*, 2>>::first);
  if (keys == std::end(kFiles)) return false;
  for (const char* fact : keys->second) {
    if (!fact) continue;
    const auto a = there.find(fact), b = here.find(fact);
    if (a == there.end() || b == here.end() || a->second != b->second) return false;
    if (word.starts_with("data.") && !is_of_all(a->second)) return false;
  }
  return word != "data.blend" || without_folders(there.at(word)) == without_folders(here.at(word));
}

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
  FactMap there;
  const FactMap here(manifest.begin(), manifest.end());
  for (auto& [word, value] : words_of(Recipe{})) {
    if (!may_change(word)) there[word] = value;
  }
  for (const auto& [word, value] : stored.raw().items()) there[word] = value.dump();
  std::vector<std::string> list;
  const auto compare = [&](const std::string& word, const std::string& a, const std::string& b) {
    if (a == b || same_files(word, there, here)) return;
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
  }
  for (const auto& [word, value] : there) {
    if (!here.contains(word)) compare(word, value, kNone);
  }
  return list;
}

}  // namespace braid::train
