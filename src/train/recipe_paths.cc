#include "train/recipe_paths.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/loader.h"
#include "io/model_path.h"
#include "models/presets.h"
#include "sys/error.h"
#include "sys/nearest.h"
#include "train/checkpoint.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kBundled = "tiny";  // the model of this name, whatever lies beside the recipe

enum class PathKind { path, name, output };

bool generated(const std::string& path) { return std::ranges::find(data::kKinds, path) != data::kKinds.end(); }

// visit(key, value, kind) for every path that is set.
template <class Visit>
void each_path(Recipe& r, const Visit& visit) {
  const auto one = [&](const char* key, std::string& value, PathKind kind) {
    if (!value.empty()) visit(key, value, kind);
  };
  one("init", r.init, PathKind::name);
  one("tokenizer", r.tokenizer, PathKind::name);
  if (r.config && r.config->is_string()) {
    std::string config = r.config->as_string();
    one("config", config, PathKind::name);
    if (config != r.config->as_string()) r.config = io::Json::parse(nlohmann::json(config).dump(), "config");
  }
  one("distill.teacher", r.distill.teacher, PathKind::name);
  one("distill.cache", r.distill.cache, PathKind::output);
  one("out", r.out, PathKind::output);
  one("data.path", r.data.path, PathKind::path);
  for (data::BlendPart& part : r.data.blend) {
    if (!generated(part.path)) one("data.blend", part.path, PathKind::path);
  }
  one("eval.data", r.eval.data, PathKind::path);
  one("parallel.collectives", r.parallel.collectives, PathKind::path);
  one("graph.path", r.graph.path, PathKind::path);
  one("graph.init", r.graph.init, PathKind::path);
}

// "data={path=...}" sets data.path as well.
bool overridden(std::string_view key, std::span<const std::string> overrides) {
  return std::ranges::any_of(overrides, [&](const std::string& text) {
    const std::string_view word = std::string_view(text).substr(0, text.find('='));
    return word == key || (key.starts_with(word) && key[word.size()] == '.');
  });
}

// A path of the working folder as a name in `out` or, outside of it, absolute.
std::string as_seen_from(const fs::path& out, const fs::path& path) {
  std::error_code none;
  const fs::path absolute = fs::absolute(path, none).lexically_normal();
  const fs::path name = absolute.lexically_proximate((fs::absolute(out, none) / "").lexically_normal().parent_path());
  return (*name.begin() == ".." ? absolute : name).string();
}

}  // namespace

bool leads_somewhere(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none) || fs::exists(path.string() + ".bin", none);
}

namespace {

[[noreturn]] void refuse_recipe(const fs::path& file, const char* what, const std::string& hint) {
  fail(printable(file.string()), {.what = what, .expected = "a recipe, a TOML file", .hint = hint});
}

void refuse_folder(const fs::path& folder) {
  std::error_code none;
  const auto stored = [](const fs::path& checkpoint) { return checkpoint / "training" / "recipe.toml"; };
  if (const auto all = list_checkpoints(folder); !all.empty())
    refuse_recipe(folder, "is the folder of a run, not a recipe", printable(stored(all.back()).string()));
  if (fs::exists(stored(folder), none))
    refuse_recipe(folder, "is a checkpoint, not a recipe", printable(stored(folder).string()));
  if (fs::exists(folder / "config.json", none))
    refuse_recipe(folder, "is a model, not a recipe", fmt::format("init = \"{}\" in one", printable(folder.string())));
  refuse_recipe(folder, "is a folder, not a recipe", "");
}

bool names_a_model(const std::string& name) {
  try {
    io::find_model(name);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The recipe in the folder whose name is nearest.
std::string near_recipe(const fs::path& file) {
  std::vector<std::string> names;
  std::error_code none;
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().filename().string());
  }
  const std::string near = sys::nearest(file.filename().string(), names);
  return near.empty() ? "" : printable((file.parent_path() / near).string());
}

}  // namespace

void check_recipe_file(const fs::path& file) {
  std::error_code none;
  const std::string name = file.string(), shown = printable(name);
  if (fs::is_directory(file, none)) refuse_folder(file);
  if (fs::exists(file, none)) {
    if (io::names_a_file(file) && file.extension() != ".gguf") refuse_recipe(file, "is not a recipe", "");
    return;
  }
  if (models::find_preset(name))
    refuse_recipe(file, "is the name of a shape, not a recipe", fmt::format("config = \"{}\" in one", shown));
  if (!io::names_a_file(file) && names_a_model(name))
    refuse_recipe(file, "is a model, not a recipe", fmt::format("init = \"{}\" in one", shown));
  refuse_recipe(file, "no such file", near_recipe(file));
}

void resolve_paths(Recipe& recipe, const fs::path& folder, std::span<const std::string> overrides) {
  each_path(recipe, [&](const char* key, std::string& value, PathKind kind) {
    if (fs::path(value).is_absolute() || overridden(key, overrides)) return;
    const fs::path found = (folder / value).lexically_normal();
    if (kind != PathKind::name || (value != kBundled && leads_somewhere(found))) value = found.string();
  });
  for (const auto& [key, log] :
       {std::pair("log.jsonl", &recipe.log.jsonl), std::pair("log.tensorboard", &recipe.log.tensorboard)}) {
    if (!log->empty() && overridden(key, overrides)) *log = as_seen_from(recipe.out, *log);
  }
}

Recipe with_absolute_paths(Recipe recipe) {
  each_path(recipe, [](const char*, std::string& value, PathKind kind) {
    std::error_code none;
    if (kind != PathKind::name || (value != kBundled && leads_somewhere(value)))
      value = fs::absolute(value, none).lexically_normal().string();
  });
  return recipe;
}

Recipe with_paths_from(Recipe recipe, const fs::path& run) {
  std::error_code none;
  const fs::path base = (fs::absolute(run, none) / "").lexically_normal().parent_path();
  recipe = with_absolute_paths(std::move(recipe));
  each_path(recipe, [&](const char*, std::string& value, PathKind) {
    if (fs::path(value).is_absolute()) value = fs::path(value).lexically_proximate(base).string();
  });
  return recipe;
}

std::string lost_path(const Recipe& recipe) {
  std::string lost;
  Recipe copy = recipe;
  each_path(copy, [&](const char*, const std::string& value, PathKind kind) {
    const bool a_path = kind == PathKind::path || (kind == PathKind::name && value.find('/') != std::string::npos);
    if (lost.empty() && a_path && !leads_somewhere(value)) lost = value;
  });
  return lost;
}

}  // namespace braid::train
