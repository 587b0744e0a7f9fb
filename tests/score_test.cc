// With Numerics::exact the log-probabilities of a token are bit-identical in the forward pass of training, in prefill
// through caches cut anywhere, and in steps of one token in a batch, including those recorded while an answer was
// sampled. On every folder with golden values, recurrent depth included, and on the model that ships with Braid.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/tape.h"
#include "engine/loop.h"
#include "engine/sampler.h"
#include "engine/score.h"
#include "support/data.h"
#include "support/golden.h"

namespace braid {
namespace {

using engine::ScoreItem;
using engine::ScorePath;
using Found = std::vector<std::vector<float>>;

std::vector<GoldenFolder> folders() {
  std::vector<GoldenFolder> list = all_folders();
  list.push_back({"huginn", std::filesystem::path(support::data()) / "huginn"});
  list.push_back({"tiny_chat", std::filesystem::path(support::data()) / "tiny-chat"});
  if (const std::filesystem::path tiny = support::shipped_tiny(); std::filesystem::exists(tiny / "config.json"))
    list.push_back({"shipped_tiny", tiny});
  return list;
}

constexpr int64_t kLength = 150;

std::vector<int32_t> ids_for(const std::filesystem::path& folder, int64_t vocab) {
  const auto golden = folder / "golden.safetensors";
  std::vector<int32_t> ids;
  if (std::filesystem::exists(golden)) ids = token_ids(io::Safetensors(golden).need("ids@0"));
  for (int64_t i = std::ssize(ids); i < kLength; ++i) ids.push_back(static_cast<int32_t>((17 + 7919 * i) % vocab));
  return ids;
}

class Score : public testing::TestWithParam<std::tuple<GoldenFolder, DType>> {
 protected:
  static constexpr int64_t kSequences = 4;

  std::unique_ptr<engine::Runner> open(int64_t chunk = 512, bool exact = true, int threads = 2) const {
    auto runner = open_folder(folder(), {.numerics = Numerics::serving(dtype(), exact),
                                         .context = length(),
                                         .sequences = kSequences,
                                         .chunk = chunk,
                                         .threads = threads});
    runner->ctx().poison = true;  // whatever is read before it is written becomes NaN
    return runner;
  }
  const std::filesystem::path& folder() const { return std::get<0>(GetParam()).path; }
  DType dtype() const { return std::get<1>(GetParam()); }
  // Of the longest sequence: fewer tokens where the model has fewer positions, and then everything is as much shorter.
  int64_t length() const {
    const int64_t limit = models::load_config(io::find_model(folder().string())).positions_limit();
    return limit > 0 ? std::min(kLength, limit) : kLength;
  }

  // Sequences of different lengths, around the chunks of scans and the pages of caches; one is scored from its middle
  // on.
  std::vector<ScoreItem> items(engine::Runner& runner) const {
    const std::vector<int32_t> ids = ids_for(folder(), runner.config().vocab);
    const int64_t most = length();
    const auto at = [most](int64_t n) { return n * most / kLength; };
    std::vector<ScoreItem> list(kSequences);
    list[0].ids = {ids.begin(), ids.begin() + most};
    list[1].ids = {ids.begin(), ids.begin() + at(37)};
    list[2] = {.ids = {ids.begin() + at(20), ids.begin() + most - 1}, .first = at(64)};
    list[3].ids = {ids.rbegin(), ids.rbegin() + at(66)};
    return list;
  }
};

void expect_same_bits(const Found& got, const Found& want, const std::string& how) {
  ASSERT_EQ(got.size(), want.size()) << how;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size()) << how << ", sequence " << i;
    ASSERT_FALSE(got[i].empty()) << how << ", sequence " << i;
    EXPECT_EQ(std::memcmp(got[i].data(), want[i].data(), got[i].size() * sizeof(float)), 0)
        << how << ", sequence " << i << ": off by up to " << worst(got[i], want[i]);
  }
}

Found one_by_one(engine::Runner& runner, const std::vector<ScoreItem>& items, ScorePath path) {
  Found found;
  for (const ScoreItem& item : items) found.push_back(engine::score(runner, {&item, 1}, path)[0]);
  return found;
}

TEST_P(Score, TrainingPrefillAndStepsAreTheSameBits) {
  const auto runner = open(), pieces = open(7), alone = open(64, true, 1);
  const std::vector<ScoreItem> list = items(*runner);
  const Found want = one_by_one(*alone, list, ScorePath::train);
  expect_same_bits(engine::score(*runner, list, ScorePath::train), want, "a batch of training");
  expect_same_bits(engine::score(*runner, list, ScorePath::prefill), want, "prefill together");
  expect_same_bits(engine::score(*pieces, list, ScorePath::prefill), want, "prefill in pieces of 7");
  expect_same_bits(one_by_one(*alone, list, ScorePath::prefill), want, "prefill in pieces of 64, alone");
  expect_same_bits(engine::score(*runner, list, ScorePath::step), want, "steps together");
  expect_same_bits(one_by_one(*alone, {list[1]}, ScorePath::step), {want[1]}, "steps alone");
}

// The objective itself: Model::loss with a tape is the sum of these numbers.
TEST_P(Score, TheLossOfTrainingIsTheirSum) {
  const auto runner = open();
  const std::vector<int32_t> ids = items(*runner)[0].ids;
  const ScoreItem item{.ids = ids};
  double want = 0;
  const Found found = engine::score(*runner, {&item, 1}, ScorePath::step);
  for (const float p : found[0]) want -= static_cast<double>(p);

  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena, .threads = 2, .tape = &tape};
  const SeqMap seqs = SeqMap::one(std::ssize(ids) - 1);
  nn::StateView none;
  nn::Run run{.ctx = ctx, .seqs = seqs, .state = none, .numerics = Numerics::training(dtype(), true)};
  nn::Loop loop;
  if (const models::Config& config = runner->config(); config.loop) {
    const engine::LoopOptions& options = runner->options().loop;
    loop = {.steps = options.steps, .start = engine::start_states(arena, config, options, seqs)};
    run.loop = &loop;
  }
  const Tensor in(arena, DType::i32, {seqs.tokens()}), targets(arena, DType::i32, {seqs.tokens()});
  std::copy(ids.begin(), ids.end() - 1, in.mut().as<int32_t>());
  std::copy(ids.begin() + 1, ids.end(), targets.mut().as<int32_t>());
  models::Model::LossSums sums;
  runner->model().loss(run, in, targets, {}, sums);
  tape.clear();
  EXPECT_EQ(sums.main, want);
}

// Three answers at temperature 1, sampled side by side. The log-probability of each draw is recorded as it is made.
TEST_P(Score, ASampledAnswerHasTheLogProbabilitiesOfTraining) {
  const int64_t most = length(), draws = 80 * most / kLength;
  const int64_t prompts[] = {5, 64 * most / kLength, 31 * most / kLength};
  const auto runner = open(9), training = open();
  const std::vector<int32_t> ids = ids_for(folder(), runner->config().vocab);
  std::vector<ScoreItem> answers;
  Found noted(std::size(prompts));
  Tensor last[std::size(prompts)];  // the residual stream where the next token is predicted
  for (const int64_t n : prompts) {
    const auto sequence = std::ssize(answers);
    ScoreItem& item = answers.emplace_back();
    item.first = n;
    item.ids.assign(ids.begin() + sequence, ids.begin() + sequence + n);
    runner->prefill(sequence, item.ids, [&](const Tensor& x) {
      const int64_t row = x.dim(0) - 1;
      last[sequence] = runner->rows(x, {&row, 1});
    });
  }
  const engine::SamplingOptions options{.temperature = 1, .seed = 5};
  for (int64_t draw = 0; draw < draws; ++draw) {
    std::vector<engine::Piece> pieces;
    std::vector<int32_t> next;
    for (size_t i = 0; i < answers.size(); ++i) {
      const auto sequence = static_cast<int64_t>(i);
      const Tensor logits = runner->logits(last[i]);
      const std::span row(logits.view().as<float>(), static_cast<size_t>(logits.dim(1)));
      next.push_back(engine::sample(row, options, {}, static_cast<uint64_t>(draw * 3 + sequence)));
      noted[i].push_back(0.0f - *runner->token_losses(last[i], {&next.back(), 1}).view().as<float>());
      answers[i].ids.push_back(next.back());
      pieces.push_back({.sequence = sequence, .tokens = 1, .phase = Phase::step});
    }
    const Tensor x = runner->forward(next, pieces);
    for (int64_t i = 0; i < std::ssize(answers); ++i) last[i] = runner->rows(x, {&i, 1});
  }
  expect_same_bits(engine::score(*training, answers, ScorePath::train), noted, "the training pass");
}

// Without exact, the three use their fastest products and the scan's two forms; in FP32 they differ by rounding only.
TEST_P(Score, WithoutExactTheyAgreeWithinRounding) {
  if (dtype() != DType::f32) GTEST_SKIP() << "BF16 rounds too much for a bound";
  const auto runner = open(512, false);
  const std::vector<ScoreItem> list = items(*runner);
  const Found want = engine::score(*runner, list, ScorePath::train);
  for (const ScorePath path : {ScorePath::prefill, ScorePath::step}) {
    const Found got = engine::score(*runner, list, path);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_LT(worst(got[i], want[i]), 1e-3) << "sequence " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, Score,
                         testing::Combine(testing::ValuesIn(folders()), testing::Values(DType::f32, DType::bf16)),
                         [](const auto& p) {
                           return std::get<0>(p.param).label + (std::get<1>(p.param) == DType::f32 ? "_f32" : "_bf16");
                         });

}  // namespace
}  // namespace braid
