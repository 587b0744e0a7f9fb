#include "apps/train_words.h"

#include <fmt/format.h>

#include <filesystem>

#include "models/adapters.h"
#include "nn/precision.h"
#include "sys/error.h"
#include "train/checkpoint.h"
#include "train/origin.h"

namespace braid::apps {

void tell_language(const train::Recipe& recipe, train::Language& language, std::FILE* words) {
  for (const std::string& note : language.notes()) fmt::print(stderr, "{}\n", note);
  for (const std::string& line : train::idle_words(recipe, language.model()->config()))
    fmt::print(stderr, "{}\n", line);
  if (language.precision()) fmt::print(words, "{}\n", language.precision()->describe());
  if (language.masters().adapters())
    fmt::print(words, "{} parameters train in {} adapters\n", language.masters().trained(),
               language.masters().adapters()->sites().size());
  if (const auto floor = language.entropy_floor()) fmt::print(words, "entropy floor {:.4f}\n", *floor);
}

void tell_resumption(const train::Recipe& recipe, bool any, const std::string& from, int64_t step, std::FILE* words) {
  if (any) {
    for (const std::filesystem::path& path : train::list_incomplete(recipe.out))
      fmt::print(stderr, "{} is incomplete, without its file DONE: passed over\n", printable(path.string()));
  }
  if (!from.empty()) fmt::print(words, "resumes from step {}, {}\n", step, printable(from));
  if (from.empty() && any)
    fmt::print(words, "{} has no complete checkpoint: starts at step 1\n", printable(recipe.out));
}

}  // namespace braid::apps
