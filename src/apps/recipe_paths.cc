#include "apps/recipe_paths.h"

#include <filesystem>
#include <string_view>

#include "train/recipe_paths.h"

namespace braid::apps {
namespace {

constexpr std::string_view kBundledData = "runs/tiny-data/";  // of recipes/tiny.toml

// Is it about that path, or some file? Other errors name a key of the recipe.
bool about_a_file(std::string_view error, const std::string& path) {
  const std::string_view where = error.substr(0, error.find(']'));
  const std::string name = printable(std::filesystem::path(path).filename().string());
  return where.find('/') != where.npos || where == "[\"\"" || error.find(name) != error.npos;
}

}  // namespace

void refuse_lost_paths(const train::Recipe& recipe, const Error& error) {
  const std::string path = train::lost_path(recipe);
  if (path.empty() || !about_a_file(error.what(), path)) return;
  const bool bundled = path.find(kBundledData) != path.npos;
  const std::string folder = printable(std::filesystem::path(path).parent_path().string());
  fail(printable(path),
       {.what = "does not exist",
        .expected = "a path from the folder of the recipe, or on the command line from the working folder",
        .hint = bundled ? fmt::format("braid data synth --out {} bench/data/tiny-*.jsonl, which makes the data", folder)
                        : ""});
}

}  // namespace braid::apps
