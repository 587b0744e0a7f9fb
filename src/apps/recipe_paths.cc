#include "apps/recipe_paths.h"

#include <algorithm>
#include <string>
#include <vector>

#include "data/loader.h"

namespace braid::apps {
namespace fs = std::filesystem;
namespace {

constexpr const char* kBundledData = "runs/tiny/data";  // of recipes/tiny.toml

bool leads_somewhere(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none) || fs::exists(path.string() + ".bin", none);  // Megatron's files are named without it
}

// The folder above the recipe in which this path lies; empty: none.
fs::path folder_with(const fs::path& path, const fs::path& recipe) {
  std::error_code none;
  for (fs::path at = fs::absolute(recipe, none).lexically_normal().parent_path();; at = at.parent_path()) {
    if (leads_somewhere(at / path)) return at;
    if (!at.has_relative_path()) return {};
  }
}

[[noreturn]] void refuse(const std::string& path, const std::string& hint) {
  std::error_code none;
  fail(printable(path), {.what = "does not exist in the working folder, where relative paths of a recipe start",
                         .got = printable(fs::current_path(none).string()),
                         .hint = hint});
}

}  // namespace

void refuse_lost_paths(const fs::path& file, const train::Recipe& recipe) {
  const auto is_lost = [](const std::string& path) {
    return !path.empty() && fs::path(path).is_relative() && !leads_somewhere(path);
  };
  std::vector<std::string> data = {recipe.data.path, recipe.eval.data};
  for (const data::BlendPart& part : recipe.data.blend) data.push_back(part.path);
  std::vector<std::string> all = {recipe.init, recipe.tokenizer};
  if (recipe.config && recipe.config->is_string()) all.push_back(recipe.config->as_string());
  std::erase_if(all,
                [](const std::string& name) { return name.find('/') == std::string::npos; });  // of a model or preset
  all.insert(all.end(), data.begin(), data.end());
  for (const std::string& path : all) {
    if (!is_lost(path)) continue;
    if (const fs::path folder = folder_with(path, file); !folder.empty())
      refuse(path, fmt::format("cd {}, or an absolute path", printable(folder.string())));
  }
  for (const std::string& path : data) {
    const bool generated = std::find(data::kKinds.begin(), data::kKinds.end(), path) != data::kKinds.end();
    if (!is_lost(path) || generated) continue;
    refuse(path, fs::path(path).parent_path() == kBundledData
                     ? fmt::format("braid data synth --out {}, which makes the data of recipes/tiny.toml", kBundledData)
                     : "an absolute path");
  }
}

}  // namespace braid::apps
