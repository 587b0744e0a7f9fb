// Ranks that resume read the checkpoint by themselves: what one of them cannot read ends all, before the first step,
// with its number and the file.
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "support/models.h"
#include "train/ranks_fixture.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

class ResumeRanks : public models::FolderTest {
 protected:
  static constexpr int kRanks = 3;

  ResumeRanks() {
    const nlohmann::json config = models::hybrid();
    write(config, tensors_of(config));
    recipe_.init = folder_.string();
    recipe_.out = (folder_ / "out").string();
    recipe_.dtype = "f32";
    recipe_.steps = 2;
    recipe_.batch = 3;
    recipe_.length = 8;
    recipe_.data.kind = "markov";
    recipe_.checkpoint = {.every = 1, .keep = 9};
  }

  // What each rank ends with, where the last one resumes from a folder of its own.
  std::vector<std::string> errors_of(const fs::path& from, const fs::path& of_last) {
    std::vector<std::string> errors(kRanks);
    (void)support::error_of([&] {
      comm::run_in_process(kRanks, {.per_node = kRanks}, [&](comm::Group& world) {
        Mesh mesh(recipe_, world);
        Arena arena;
        Ctx ctx{.arena = arena, .threads = 1};
        Language language(recipe_, ctx, &mesh);
        Trainer trainer(recipe_, language, ctx, &mesh);
        std::string& error = errors[static_cast<size_t>(world.rank())];
        error = support::error_of([&] {
          trainer.resume(world.rank() + 1 == kRanks ? of_last : from);
          trainer.train({});
        });
        if (!error.empty()) throw Error(Fault::bad_input, error);
      });
    });
    return errors;
  }

  Recipe recipe_;
};

TEST_F(ResumeRanks, WhatOneCannotReadEndsAll) {
  for (const int64_t zero : {0, 1}) {
    recipe_.parallel.zero = zero;
    fs::remove_all(recipe_.out);
    recipe_.steps = 2;
    (void)train_on_ranks(recipe_, kRanks);
    recipe_.steps = 3;
    const fs::path from = fs::path(recipe_.out) / "checkpoints" / "step-00000001",
                   other = folder_ / "other" / "step-00000001";
    const auto later = fs::path(recipe_.out) / "checkpoints" / "step-00000002";
    for (const char* file : {"training/state.safetensors", "model.safetensors", "training/state.json", "DONE"}) {
      for (const bool missing : {true, false}) {
        fs::remove_all(other);
        fs::create_directories(other.parent_path());
        fs::copy(from, other, fs::copy_options::recursive);
        const bool done = std::string_view(file) == "DONE";
        missing || done ? (void)fs::remove(other / file)
                        : fs::resize_file(other / file, fs::file_size(other / file) - 3);
        const std::vector<std::string> errors = errors_of(from, other);
        EXPECT_TRUE(errors[0].starts_with("[rank 2: " + other.string())) << errors[0];
        EXPECT_TRUE(done || errors[0].find(fs::path(file).filename().string()) != std::string::npos) << errors[0];
        // The first rank, which reports it, may have ended before others have heard all.
        for (const std::string& error : errors) EXPECT_NE(error.find(errors[0]), std::string::npos) << error;
        EXPECT_TRUE(fs::exists(later)) << "set aside by a run that did not go on";
      }
    }
    for (const std::string& error : errors_of(from, from)) EXPECT_EQ(error, "");
    EXPECT_TRUE(fs::exists(later.parent_path() / "step-00000003"));
  }
}

}  // namespace
}  // namespace braid::train
