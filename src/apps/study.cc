#include "apps/study.h"

#include <filesystem>

#include "io/atomic_file.h"
#include "report/progress.h"
#include "sys/interrupt.h"
#include "train/language.h"

namespace braid::apps {

void begin_study(const std::string& folder) {
  io::check_parent(folder);
  io::check_new_folder(folder);
  std::filesystem::create_directory(folder);
  sys::catch_requests_to_stop();
  sys::end_at_second_interrupt();
}

bool train_for_study(const train::Recipe& recipe, int64_t threads, const std::string& name, train::Watcher watcher) {
  Arena arena;
  Ctx ctx{.arena = arena};
  if (threads > 0) ctx.threads = static_cast<int>(threads);
  train::Language language(recipe, ctx);
  train::Trainer trainer(recipe, language, ctx);
  report::Progress progress(name, recipe.steps);
  watcher.progress = [&](int64_t done) { progress.at(done); };
  return trainer.train(watcher) == train::Outcome::finished;
}

}  // namespace braid::apps
