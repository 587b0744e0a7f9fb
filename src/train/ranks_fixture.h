// Runs of a recipe on ranks of this process.
#pragma once
#include <filesystem>
#include <vector>

#include "comm/inproc.h"
#include "train/language.h"
#include "train/mesh.h"
#include "train/trainer.h"

namespace braid::train {

struct RanksRun {
  std::vector<StepLog> logs{};  // of the first rank
  std::vector<float> values{};  // of the masters at the end, on the last rank
  std::vector<int64_t> sent{};  // bytes, by rank
};

// From the beginning, or from a checkpoint; a thread a rank. What the recipe logs is what `logs` has.
inline RanksRun train_on_ranks(const Recipe& recipe, int ranks, const std::filesystem::path& from = {}) {
  RanksRun run;
  run.sent.resize(static_cast<size_t>(ranks));
  comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) {
    check_mesh(recipe, ranks);
    Mesh mesh(recipe, world);
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 1};
    Language language(recipe, ctx, &mesh);
    Trainer trainer(recipe, language, ctx, &mesh);
    if (!from.empty()) trainer.resume(from);
    trainer.train({.step = [&](const StepLog& log) {
      if (world.rank() == 0) run.logs.push_back(log);
    }});
    run.sent[static_cast<size_t>(world.rank())] = mesh.bytes_sent();
    const auto values = language.masters().values();
    if (world.rank() == ranks - 1) run.values.assign(values.begin(), values.end());
  });
  return run;
}

}  // namespace braid::train
