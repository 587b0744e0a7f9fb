#include "data/loader.h"

#include <set>

#include "data/data_fixture.h"
#include "io/safetensors_write.h"

namespace braid::data {
namespace {

class LoaderTest : public DataTest {
 protected:
  // batches[s][b][t] = 100 s + 10 b + t
  std::filesystem::path ids_file(int64_t steps, int64_t batch, int64_t width) const {
    std::vector<int64_t> ids;
    for (int64_t s = 0; s < steps; ++s) {
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t t = 0; t < width; ++t) ids.push_back(100 * s + 10 * b + t);
      }
    }
    io::SafetensorsWriter writer(folder_ / "ids.safetensors", {{"batches", DType::i64, {steps, batch, width}}});
    writer.write("batches", view_of(ids.data(), {steps, batch, width}));
    writer.finish();
    return folder_ / "ids.safetensors";
  }
};

TEST_F(LoaderTest, IdsComeInTheirOrder) {
  const std::string path = ids_file(3, 2, 5);
  const Loader loader = open({.kind = "ids", .path = path}, {.vocabulary = 1000});
  EXPECT_EQ(loader.rows(), 2);
  EXPECT_EQ(loader.length(), 4);
  EXPECT_EQ(loader.steps_per_epoch(), 3);
  const Batch batch = loader.batch(1);
  EXPECT_EQ(batch.ids, (std::vector<int32_t>{100, 101, 102, 103, 110, 111, 112, 113}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{101, 102, 103, 104, 111, 112, 113, 114}));
  EXPECT_EQ(batch.rows, (std::vector<int64_t>{0, 4, 8}));
  ASSERT_EQ(batch.seqs.seqs.size(), 2u);
  EXPECT_EQ(batch.seqs.seqs[1].start, 4);
  EXPECT_EQ(batch.seqs.seqs[1].sample_id, 12);
  EXPECT_EQ(batch.trained, 8);
  EXPECT_EQ(loader.batch(4).ids, batch.ids);  // and again from the first
}

TEST_F(LoaderTest, IdsOfAnotherFormAreRefused) {
  const std::string path = ids_file(3, 2, 5);
  const auto error = [&](const DataSpec& spec, int64_t vocabulary) {
    return error_of([&] { open(spec, {.vocabulary = vocabulary}); });
  };
  EXPECT_EQ(error({.kind = "ids", .path = path}, 214), "[" + path +
                                                           "] a token id lies beyond the vocabulary; got id 214 in "
                                                           "batches[2]; expected 0 to 213, the model's vocabulary");
  EXPECT_EQ(error({.kind = "ids", .path = path, .batch = 4}, 1000),
            "[" + path + "] the batches have another batch; got 2; expected batch = 4");
  EXPECT_NE(error({.kind = "idz", .path = path}, 1000).find("[data.kind] unknown kind; got idz"), std::string::npos);
}

TEST_F(LoaderTest, ABatchDependsOnSeedAndStepAlone) {
  const DataSpec spec{.kind = "markov", .batch = 3, .length = 16, .seed = 4};
  const Loader a = open(spec, {.vocabulary = 50}), b = open(spec, {.vocabulary = 50});
  const Batch third = a.batch(3);
  for (int64_t step = 0; step < 3; ++step) a.batch(step);
  EXPECT_EQ(b.batch(3).ids, third.ids);
  EXPECT_NE(a.batch(2).ids, third.ids);
  DataSpec other = spec;
  other.seed = 5;
  EXPECT_NE(open(other, {.vocabulary = 50}).batch(3).ids, third.ids);
  other = spec;
  other.held_out = true;
  EXPECT_NE(open(other, {.vocabulary = 50}).batch(3).ids, third.ids);
  EXPECT_EQ(*open(other, {.vocabulary = 50}).entropy_floor(), *a.entropy_floor());  // of the same chain
}

TEST_F(LoaderTest, GoldfishDropsTheSameTokensOfEveryCopy) {
  DataSpec spec{.kind = "markov", .batch = 8, .length = 512, .seed = 4};
  spec.goldfish.k = 4;
  const Loader loader = open(spec, {.vocabulary = 50});
  const Batch batch = loader.batch(0), again = loader.batch(0);
  EXPECT_EQ(batch.targets, again.targets);
  EXPECT_NEAR(static_cast<double>(batch.trained) / (8 * 512), 0.75, 0.03);
  // The hash sees a window: a copy of the passage at another place loses the same tokens once the window is full.
  const Goldfish goldfish{.k = 4};
  std::vector<int32_t> passage(batch.ids.begin(), batch.ids.begin() + 100), copy{1, 2, 3};
  copy.insert(copy.end(), passage.begin(), passage.end());
  int64_t dropped = 0;
  for (size_t n = 13; n <= passage.size(); ++n) {
    const bool drops = goldfish.drops(std::span(passage).first(n));
    EXPECT_EQ(drops, goldfish.drops(std::span(copy).first(n + 3)));
    dropped += drops;
  }
  EXPECT_GT(dropped, 10);
  // Zeros are tokens like others, and the first tokens of a document are dropped too.
  const std::vector<int32_t> zeros(40, 0);
  EXPECT_FALSE(goldfish.drops({}));
  std::set<bool> early;
  for (int32_t id = 0; id < 20; ++id) early.insert(goldfish.drops(std::vector<int32_t>{0, id}));
  EXPECT_EQ(early.size(), 2u);
}

}  // namespace
}  // namespace braid::data
