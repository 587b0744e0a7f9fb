#include "apps/recipe_paths.h"

#include <filesystem>

#include "train/recipe_paths.h"

namespace braid::apps {
namespace {

constexpr std::string_view kBundledData = "runs/tiny-data/";  // of recipes/tiny.toml

}  // namespace

void refuse_lost_paths(const train::Recipe& recipe) {
  const std::string path = train::lost_path(recipe);
  if (path.empty()) return;
  const bool bundled = path.find(kBundledData) != path.npos;
  const std::string folder = printable(std::filesystem::path(path).parent_path().string());
  fail(printable(path),
       {.what = "does not exist",
        .expected = "a path from the folder of the recipe, or on the command line from the working folder",
        .hint = bundled ? fmt::format("braid data synth --out {} bench/data/tiny-*.jsonl, which makes the data", folder)
                        : ""});
}

}  // namespace braid::apps
