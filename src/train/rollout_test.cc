// Policies trained on answers that the run generates, on models/tiny: what the engine records is what training
// computes, to the bit; a resumed run continues with the same answers; groups, masks and failures are counted.
#include "train/rollout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "io/model_path.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "sys/interrupt.h"
#include "train/checkpoint.h"
#include "train/language.h"
#include "train/ranks_fixture.h"
#include "train/trainer.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

class RolloutTest : public support::FolderTest {
 protected:
  RolloutTest() {
    recipe_.init = "tiny";
    recipe_.out = (folder_ / "out").string();
    recipe_.exact = true;
    recipe_.steps = 3;
    recipe_.length = 96;
    recipe_.optimizer.lr = 1e-3;
    recipe_.policy.advantage = "leave-one-out";
    recipe_.rollout.environments = {"addition", "sorting"};
    recipe_.rollout.prompts = 3;
    recipe_.rollout.answers = 4;
    recipe_.rollout.tokens = 12;
  }

  struct Run {
    std::vector<float> values{};
    std::vector<std::map<std::string, double>> metrics{};
    std::vector<double> losses{};
  };
  // From the beginning, or from a checkpoint.
  Run train(const fs::path& from = {}) {
    Arena arena;
    Ctx ctx{.arena = arena, .threads = 2};
    Language language(recipe_, ctx);
    Trainer trainer(recipe_, language, ctx);
    if (!from.empty()) trainer.resume(from);
    Run run;
    trainer.train({.step = [&](const StepLog& log) {
      std::map<std::string, double>& metrics = run.metrics.emplace_back();
      for (const auto& [name, value] : log.metrics) metrics[name] = value;
      metrics["norm"] = log.grad_norm;
      run.losses.push_back(log.loss);
    }});
    const auto values = language.masters().values();
    run.values.assign(values.begin(), values.end());
    return run;
  }

  std::vector<nlohmann::json> lines() const {
    std::ifstream file(fs::path(recipe_.out) / "rollouts.jsonl");
    std::vector<nlohmann::json> list;
    for (std::string line; std::getline(file, line);) list.push_back(nlohmann::json::parse(line));
    return list;
  }
  std::string refusal() {
    return support::error_of([&] { train(); });
  }

  Recipe recipe_;
};

// Answers that are sampled at temperature 1 in batches, from prompts that are read once a group, have the
// log-probabilities that training computes for them before its update; also through adapters. Without `exact` they
// are close.
TEST_F(RolloutTest, TheEngineRecordsWhatTrainingComputes) {
  for (const char* dtype : {"f32", "bf16"}) {
    recipe_.dtype = dtype;
    for (const bool exact : {true, false}) {
      recipe_.exact = exact;
      recipe_.out = (folder_ / (std::string(dtype) + (exact ? "-exact" : ""))).string();
      for (const auto& metrics : train().metrics) {
        const double mismatch = metrics.at("mismatch");
        EXPECT_EQ(mismatch == 0, exact) << dtype << mismatch;
        EXPECT_LT(mismatch, 0.02) << dtype;
        EXPECT_EQ(metrics.at("mismatch_kl") == 0, exact);
        EXPECT_EQ(metrics.at("ratio") == 1, exact);
        EXPECT_GT(metrics.at("entropy"), 0);
      }
    }
  }
  recipe_.exact = true;
  recipe_.lora.rank = 2;
  recipe_.lora.targets = {"in_proj", "q_proj"};
  recipe_.out = (folder_ / "lora").string();
  for (const auto& metrics : train().metrics) EXPECT_EQ(metrics.at("mismatch"), 0);
}

// Rewards and log-probabilities in the file say what was logged, and the file can be trained on.
TEST_F(RolloutTest, TheFileOfAnswersIsWhatWasTrained) {
  recipe_.rollout.curriculum = "pass-rate";
  const Run run = train();
  std::map<int64_t, double> reward, rows;
  std::map<std::string, std::vector<double>> groups;
  for (const auto& line : lines()) {
    const int64_t step = line["step"];
    reward[step] += line["reward"].get<double>();
    rows[step] += 1;
    groups[line["group"]].push_back(line["reward"]);
    EXPECT_EQ(line["completion_ids"].size(), line["logprobs"].size());
    EXPECT_EQ(line["finish"] == "length", line["completion_ids"].size() == 12 && line["completion_ids"].back() > 4);
  }
  ASSERT_EQ(rows.size(), 3u);
  for (const auto& [step, n] : rows) {
    EXPECT_EQ(n, 12);
    EXPECT_NEAR(reward[step] / n, run.metrics[static_cast<size_t>(step - 1)].at("reward"), 1e-12);
  }
  EXPECT_EQ(groups.size(), 9u);
  const Recipe generated = recipe_;
  recipe_.rollout.environments.clear();
  recipe_.data.kind = "rollouts";
  recipe_.data.path = (fs::path(generated.out) / "rollouts.jsonl").string();
  recipe_.data.shuffle = false;
  recipe_.batch = 12;
  recipe_.length = 0;
  recipe_.out = (folder_ / "again").string();
  EXPECT_EQ(train().values, run.values);
}

// A run that is stopped and resumed has the bits of one that was not, its answers and pass rates too, also where a
// step's answers were generated before the checkpoint.
TEST_F(RolloutTest, AResumedRunHasTheSameAnswers) {
  recipe_.rollout.curriculum = "pass-rate";
  recipe_.rollout.refill = 1;
  recipe_.checkpoint = {.every = 1, .keep = 9};
  recipe_.steps = 4;
  for (const int64_t ahead : {0, 1}) {
    recipe_.rollout.ahead = ahead;
    recipe_.policy.replay_routes = ahead > 0;  // of answers that are in a checkpoint
    recipe_.out = (folder_ / std::to_string(ahead)).string();
    const Run whole = train();
    const std::vector<nlohmann::json> all = lines();
    const fs::path middle = fs::path(recipe_.out) / "checkpoints" / "step-00000002";
    const Run rest = train(middle);
    EXPECT_EQ(rest.values, whole.values) << ahead;
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end())) << ahead;
    EXPECT_EQ(rest.metrics.back(), whole.metrics.back()) << ahead;
    EXPECT_EQ(lines(), all) << ahead;
    // Answers by the weights before the last update: their ratios move, but not at the first step.
    EXPECT_EQ(whole.metrics.front().at("mismatch"), 0);
    EXPECT_EQ(whole.metrics.back().at("mismatch") > 0, ahead > 0);
  }
}

// Ranks share the answers of a step, unevenly, and with fewer groups than ranks; all then have the same ones, those of
// one rank, bit for bit. Groups without an advantage are drawn again.
TEST_F(RolloutTest, RanksDivideTheAnswers) {
  recipe_.parallel.exact = true;
  recipe_.log.every = 1;
  recipe_.rollout.ahead = 1;
  recipe_.rollout.prompts = 2;
  recipe_.policy.importance_cap = 5;
  const Run one = train();
  const std::vector<nlohmann::json> answers = lines();
  ASSERT_EQ(one.losses.size(), 3u);
  for (const int ranks : {2, 3}) {
    recipe_.out = (folder_ / std::to_string(ranks)).string();
    const RanksRun many = train_on_ranks(recipe_, ranks);
    ASSERT_EQ(many.logs.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_EQ(many.logs[i].loss, one.losses[i]) << ranks;
    EXPECT_EQ(many.values, one.values) << ranks;
    EXPECT_EQ(lines(), answers) << ranks;
  }
}

// An environment that fails ends the run on all ranks, after a complete checkpoint of the last step, and any number of
// ranks goes on from it.
TEST_F(RolloutTest, AnEnvironmentThatFailsOnRanksEndsAllOfThem) {
  recipe_.log.every = 1;
  recipe_.steps = 2;
  recipe_.checkpoint.every = 100;
  recipe_.rollout.prompts = 2;
  recipe_.rollout.refill = 0;
  for (const auto& [zero, async] : {std::pair(0, false), {1, false}, {1, true}}) {
    const fs::path place = folder_ / fmt::format("{}-{}", zero, async);
    fs::create_directories(place);
    const std::string posed = (place / "posed").string();
    recipe_.rollout.environments = {"command:while read -r l; do case \"$l\" in *problem*) [ -e " + posed +
                                    ".ok ] || [ $(cat " + posed + " 2>/dev/null | wc -l) -lt 2 ] || exit 1; echo >> " +
                                    posed +
                                    "; echo '{\"prompt\": \"hi\"}';; *) n=$((n + 1)); "
                                    "echo \"{\\\"reward\\\": $((n % 2))}\";; esac; done"};
    recipe_.out = (place / "out").string();
    recipe_.parallel.zero = zero;
    recipe_.checkpoint.async = async;
    const std::string error = support::error_of([&] { train_on_ranks(recipe_, 2); });
    EXPECT_NE(error.find("command"), std::string::npos) << error;
    const std::vector<fs::path> saved = list_checkpoints(recipe_.out);
    ASSERT_EQ(saved.size(), 1u) << zero << async;
    std::ofstream(posed + ".ok") << "";
    recipe_.parallel.zero = 0;
    EXPECT_EQ(train_on_ranks(recipe_, 3, saved[0]).logs.size(), 1u);
  }
}

// A signal ends the answers of a step, which has then not begun: drawn again, it is what it would have been.
TEST_F(RolloutTest, ASignalEndsTheAnswers) {
  recipe_.rollout.curriculum = "pass-rate";
  recipe_.rollout.every = 0;
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  Language language(recipe_, ctx);
  std::signal(SIGINT, SIG_DFL);  // ignored where a shell runs the tests in its background
  sys::catch_interrupts();
  const auto drawn = [&](bool interrupted) {
    Rollouts rollouts(recipe_, io::find_model("tiny").folder, language.model()->config().vocab, nullptr);
    rollouts.start(language.model(), {}, 2);
    data::Batch batch;
    if (interrupted) {
      std::raise(SIGINT);
      EXPECT_THROW(rollouts.draw(0, batch), sys::Interrupted);
      sys::clear_interrupt();
    }
    rollouts.draw(0, batch);
    return std::pair(batch.ids, batch.logprobs);
  };
  EXPECT_EQ(drawn(true), drawn(false));
}

// Weights of other formats answer with other probabilities; corrected, ratios are to what training computes.
TEST_F(RolloutTest, QuantisedWeightsAnswerAndAreCorrected) {
  recipe_.steps = 2;
  for (const char* format : {"fp8", "int4"}) {
    recipe_.rollout.format = format;
    for (const double cap : {0.0, 5.0}) {
      recipe_.policy.importance_cap = cap;
      recipe_.out = (folder_ / fmt::format("{}-{}", format, cap)).string();
      for (const auto& metrics : train().metrics) {
        EXPECT_GT(metrics.at("mismatch"), 0) << format;
        EXPECT_LT(metrics.at("mismatch_kl"), 0.3) << format;
        EXPECT_EQ(metrics.at("ratio") == 1, cap > 0) << format;
      }
      EXPECT_FALSE(fs::exists(fs::path(recipe_.out) / ".generator"));
    }
  }
  // At another temperature the recorded probabilities are those of the draw.
  recipe_.rollout.format = "none";
  recipe_.rollout.temperature = 2;
  recipe_.out = (folder_ / "hot").string();
  const Run hot = train();
  EXPECT_GT(hot.metrics[0].at("mismatch"), 1e-3);
  EXPECT_EQ(hot.metrics[0].at("ratio"), 1);
  double sampled = 0, trainer = 0;
  for (const auto& line : lines()) {
    for (const double p : line["logprobs"]) sampled += p;
    for (const double p : line["trainer_logprobs"]) trainer += p;
  }
  EXPECT_GT(sampled, trainer);  // what is drawn is likelier under what it is drawn from
}

// Experts that were chosen by the weights in training are those that they choose: replaying them changes no bit,
// however batches are cut. Those of quantised weights are other ones, and taking them brings the two closer.
TEST_F(RolloutTest, ReplayedExpertsAreTheGenerators) {
  const auto run = [&](bool replays, const char* name) {
    recipe_.policy.replay_routes = replays;
    recipe_.out = (folder_ / fmt::format("{}-{}", name, replays)).string();
    return train();
  };
  recipe_.policy.importance_cap = 5;
  const Run plain = run(false, "exact");
  recipe_.accumulate = 3;
  const Run replayed = run(true, "exact");
  EXPECT_EQ(replayed.values, plain.values);
  EXPECT_EQ(replayed.losses, plain.losses);
  for (const auto& metrics : replayed.metrics) {
    EXPECT_EQ(metrics.at("mismatch"), 0);
    EXPECT_EQ(metrics.at("ratio"), 1);
  }
  recipe_.steps = 1;
  recipe_.rollout.format = "int4";
  const auto own = run(false, "int4").metrics[0], others = run(true, "int4").metrics[0];
  EXPECT_EQ(own.at("entropy"), others.at("entropy"));  // the same answers
  EXPECT_LT(others.at("mismatch_kl"), own.at("mismatch_kl"));
  EXPECT_EQ(others.at("ratio"), 1);  // to the log-probabilities with the same experts
}

// Answers that were cut are in the baseline of their group, but not trained; with all of them cut nothing changes.
TEST_F(RolloutTest, CutAnswersCanBeMasked) {
  recipe_.rollout.tokens = 1;
  recipe_.rollout.mask_cut = true;
  recipe_.rollout.environments = {"exact-length"};
  recipe_.optimizer.weight_decay = 0;
  recipe_.steps = 1;
  const Run run = train();
  EXPECT_EQ(run.metrics[0].at("cut"), 1);
  EXPECT_EQ(run.metrics[0].at("norm"), 0);
  EXPECT_EQ(run.metrics[0].count("reward"), 0u);  // of what is trained
  EXPECT_EQ(run.losses[0], 0);
}

TEST(GroupsTest, ABatchHasTheAnswersWithTheirGroups) {
  StepRollouts step{.step = 2};
  Group group{.prompt = {7, 8}};
  group.answers = {{.ids = {1, 2}, .logprobs = {-0.5f, -0.25f}, .reward = 1},
                   {.ids = {3}, .logprobs = {-1}, .reward = 0, .cut = true},
                   {.ids = {4, 5, 6}, .logprobs = {-2, -3, -4}, .reward = 0.5}};
  step.groups = {group, group};
  step.groups[1].error = "hung";
  data::Batch batch;
  put_batch(step, 9, true, batch);
  const int32_t no = data::kMasked;
  EXPECT_EQ(batch.ids, (std::vector<int32_t>{7, 8, 1, 7, 8, 7, 8, 4, 5, 7, 8, 1, 7, 8, 7, 8, 4, 5}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{no, 1, 2, no, no, no, 4, 5, 6, no, no, no, no, no, no, no, no, no}));
  EXPECT_EQ(batch.logprobs[1], -0.5f);
  EXPECT_EQ(batch.logprobs[8], -4);
  EXPECT_EQ(batch.trained, 5);
  EXPECT_EQ(batch.rows, (std::vector<int64_t>{0, 3, 5, 9, 12, 14, 18}));
  EXPECT_EQ(batch.row_ids, (std::vector<int64_t>{12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(batch.ratings[0], (data::Rating{.reward = 1, .mean = 0.5, .deviation = 0.5, .answers = 3}));
  EXPECT_EQ(batch.ratings[1].reward, 0);
}

StepRollouts two_groups() {
  StepRollouts step{.step = 2, .metrics = {{"a", 0.1, 3}}};
  Group group{.environment = "e", .question = "q", .prompt = {7, 8}};
  group.answers = {{.ids = {1, 2}, .logprobs = {-0.5f, -0.25f}, .routes = {{1, {3, 4}}, {4, {5}}}, .reward = 1},
                   {.ids = {3}, .logprobs = {-1}, .trainer = {-2}, .text = "t", .cut = true}};
  step.groups = {group, group};
  step.groups[1].error = "hung";
  return step;
}

TEST(GroupsTest, StatesAreReadBack) {
  const StepRollouts step = two_groups();
  const support::Folder place;
  const fs::path file = place.path() / "tokens.safetensors";
  TokenArrays tokens, again;
  const std::string text = state_of(step, tokens).dump();
  const io::Json state = io::Json::parse(text, "state");
  write_tokens(tokens, file);
  const StepRollouts back = rollouts_of(state, read_tokens(file), 10);
  EXPECT_EQ(state_of(back, again).dump(), text);
  EXPECT_EQ(back.groups[0].prompt, step.groups[0].prompt);
  for (size_t i = 0; i < 2; ++i) {
    const Sample &got = back.groups[1].answers[i], &wanted = step.groups[1].answers[i];
    EXPECT_EQ(got.ids, wanted.ids);
    EXPECT_EQ(got.logprobs, wanted.logprobs);
    EXPECT_EQ(got.trainer, wanted.trainer);
    EXPECT_EQ(got.routes, wanted.routes);
  }
  EXPECT_NE(support::error_of([&] { rollouts_of(state, tokens, 8); }), "");
  const auto refused = [&](const auto& change) {
    TokenArrays bad = tokens;
    change(bad);
    return support::error_of([&] { rollouts_of(state, bad, 10); });
  };
  EXPECT_NE(refused([](TokenArrays& t) { t.ids.pop_back(); }), "");
  EXPECT_NE(refused([](TokenArrays& t) { t.routes.pop_back(); }), "");
  EXPECT_NE(refused([](TokenArrays& t) { t.trainer.clear(); }), "");
  EXPECT_NE(refused([](TokenArrays& t) { t.logprobs[0] = 1; }), "");
  EXPECT_NE(refused([](TokenArrays& t) { t.logprobs[0] = std::nanf(""); }), "");
  // As checkpoints had it.
  const StepRollouts old = rollouts_of(
      io::Json::parse(R"({"step": 2, "metrics": [], "groups": [{"number": 0, "index": 0, "level": 0, "environment": "e",
        "question": "q", "error": "", "prompt": [7, 8], "answers": [{"ids": [1, 2], "logprobs": [-0.5, -0.25],
        "text": "t", "reward": 1, "cut": false, "trainer": [-1, -2], "routes": [[1, [3, 4]]]}]}]})",
                      "state"),
      {}, 10);
  EXPECT_EQ(old.groups[0].answers[0].ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(old.groups[0].answers[0].trainer, (std::vector<float>{-1, -2}));
  EXPECT_EQ(old.groups[0].answers[0].routes.at(1), (std::vector<int32_t>{3, 4}));
}

// Answers of more tokens than JSON is read with.
TEST(GroupsTest, AStateMayBeLarge) {
  constexpr size_t kTokens = 5 << 20;
  StepRollouts step = two_groups();
  step.groups[0].answers[0].ids.assign(kTokens, 1);
  step.groups[0].answers[0].logprobs.assign(kTokens, -0.125f);
  const support::Folder place;
  TokenArrays tokens;
  const std::string text = state_of(step, tokens).dump();
  write_tokens(tokens, place.path() / "tokens.safetensors");
  const StepRollouts back =
      rollouts_of(io::Json::parse(text, "state"), read_tokens(place.path() / "tokens.safetensors"), 10);
  EXPECT_EQ(back.groups[0].answers[0].logprobs, step.groups[0].answers[0].logprobs);
}

TEST(CurriculumTest, LevelsThatDifferAreDrawnMoreOften) {
  Curriculum curriculum({3, 1}, {1, 3}, true);
  for (int i = 0; i < 60; ++i) {
    curriculum.note({0, 0}, 1);
    curriculum.note({0, 1}, 0.5);
    curriculum.note({0, 2}, 0);
  }
  const auto counts_of = [](const Curriculum& c) {
    std::map<std::pair<size_t, int64_t>, double> counts;
    for (uint64_t i = 0; i < 4000; ++i) {
      synth::Draw draw({.seed = 1}, i);
      const Curriculum::Choice choice = c.draw(draw);
      counts[{choice.environment, choice.level}] += 1.0 / 4000;
    }
    return counts;
  };
  auto counts = counts_of(curriculum);
  EXPECT_NEAR((counts[{1, 0}]), 0.75, 0.03);
  const double middle = 0.25 * (0.25 + 0.02) / (0.25 + 3 * 0.02);  // p (1 - p), and a little
  EXPECT_NEAR((counts[{0, 1}]), middle, 0.03);
  EXPECT_GT((counts[{0, 0}]), 0);
  EXPECT_GT((counts[{0, 2}]), 0);
  Curriculum other({3, 1}, {1, 3}, true);
  other.set(io::Json::parse(curriculum.state().dump(), "state"));
  EXPECT_EQ(counts_of(other), counts);
  Curriculum even({3, 1}, {}, false);
  even.set(io::Json::parse(curriculum.state().dump(), "state"));
  counts = counts_of(even);
  EXPECT_NEAR((counts[{0, 2}]), 0.5 / 3, 0.03);
  EXPECT_NEAR((counts[{1, 0}]), 0.5, 0.03);
}

// Groups of equal rewards are drawn again, as often as the recipe says.
TEST_F(RolloutTest, GroupsWithoutAnAdvantageAreDrawnAgain) {
  const std::string script = "while read -r l; do case \"$l\" in *problem*) echo '{\"prompt\": \"hi\"}';; ";
  recipe_.rollout.environments = {"command:" + script + "*) echo '{\"reward\": 1}';; esac; done"};
  recipe_.rollout.refill = 2;
  recipe_.rollout.answers = 2;
  recipe_.steps = 1;
  const Run alike = train();
  EXPECT_EQ(alike.metrics[0].at("refilled"), 6);
  EXPECT_EQ(alike.metrics[0].at("zero_variance"), 1);
  EXPECT_EQ(alike.metrics[0].at("pass_at_1"), 1);
  EXPECT_EQ(alike.metrics[0].at("norm"), 0);
  EXPECT_EQ(lines().size(), 6u);
  recipe_.rollout.environments = {"command:" + script +
                                  "*) n=$((n + 1)); echo \"{\\\"reward\\\": $((n % 2))}\";; esac; done"};
  recipe_.out = (folder_ / "differ").string();
  const Run differ = train();
  EXPECT_EQ(differ.metrics[0].at("refilled"), 0);
  EXPECT_EQ(differ.metrics[0].at("reward_command"), 0.5);
  EXPECT_GT(differ.metrics[0].at("norm"), 0);
}

// Of right answers the shorter ones earn more, so that a group that is all right still learns; the log has what the
// judge said.
TEST_F(RolloutTest, EffortCostsAShareOfTheReward) {
  const std::string script = "while read -r l; do case \"$l\" in *problem*) echo '{\"prompt\": \"hi\"}';; ";
  recipe_.rollout.environments = {"command:" + script + "*) echo '{\"reward\": 1}';; esac; done"};
  recipe_.rollout.effort_cost = 0.5;
  recipe_.steps = 1;
  const Run run = train();
  EXPECT_EQ(run.metrics[0].at("pass_at_1"), 1);
  EXPECT_EQ(run.metrics[0].at("reward_command"), 1);
  EXPECT_GT(run.metrics[0].at("norm"), 0);
  std::set<size_t> lengths;
  for (const auto& line : lines()) {
    lengths.insert(line["completion_ids"].size());
    EXPECT_NEAR(line["reward"], 1 - 0.5 * static_cast<double>(line["completion_ids"].size()) / 12, 1e-12);
  }
  EXPECT_GT(lengths.size(), 1u);
}

// Prompts of one step ask for thinking or not, by their share, whatever else is drawn.
TEST_F(RolloutTest, AShareOfThePromptsAsksForThinking) {
  recipe_.rollout.prompts = 24;
  recipe_.rollout.answers = 2;
  recipe_.rollout.think = true;
  recipe_.steps = 1;
  const auto thinking = [&](double share) {
    recipe_.rollout.think_share = share;
    recipe_.out = (folder_ / fmt::format("{}", share)).string();
    train();
    std::map<std::string, nlohmann::json> prompts;  // of each group
    for (const auto& line : lines()) prompts[line["group"]] = line["prompt_ids"];
    return prompts;
  };
  const auto all = thinking(1), none = thinking(0), half = thinking(0.5);
  size_t asked = 0;
  for (const auto& [group, prompt] : half) {
    EXPECT_NE(all.at(group), none.at(group));
    EXPECT_TRUE(prompt == all.at(group) || prompt == none.at(group)) << group;
    asked += prompt == all.at(group);
  }
  EXPECT_GT(asked, 5u);
  EXPECT_LT(asked, 19u);
}

// A group whose judge fails is counted and not trained; a judge that always fails ends the run.
TEST_F(RolloutTest, FailedJudgementsAreCountedUntilTheyAreAll) {
  const std::string script = "while read -r l; do case \"$l\" in *problem*) echo '{\"prompt\": \"hi\"}';; ";
  recipe_.rollout.environments = {
      "command:" + script +
      "*) n=$((n + 1)); [ $n = 6 ] && exit 1; echo \"{\\\"reward\\\": $((n % 2))}\";; esac; done"};
  recipe_.steps = 1;
  const Run run = train();
  EXPECT_EQ(run.metrics[0].at("environment_errors"), 1);
  EXPECT_EQ(run.metrics[0].at("reward"), 0.5);  // of the other groups
  int errors = 0;
  for (const auto& line : lines()) errors += line.contains("error") ? 1 : 0;
  EXPECT_EQ(errors, 1);
  recipe_.rollout.environments = {"command:" + script + "*) exit 1;; esac; done"};
  recipe_.rollout.prompts = 20;
  recipe_.out = (folder_ / "broken").string();
  EXPECT_NE(refusal().find("command gave no verdict, 16 times in a row; got the command ended"), std::string::npos)
      << refusal();
  for (const int64_t prompts : {3, 1}) {
    recipe_.rollout.prompts = prompts;
    recipe_.out = (folder_ / fmt::format("idle-{}", prompts)).string();
    EXPECT_NE(refusal().find("no answer of step 1 was judged; got the command ended"), std::string::npos) << refusal();
  }
}

// What is generated after the last step is for a longer run.
TEST_F(RolloutTest, AFailureAfterTheLastStepDoesNotEndTheRun) {
  const std::string count = (folder_ / "count").string();
  recipe_.rollout.environments = {
      "command:while read -r l; do case \"$l\" in *problem*) echo '{\"prompt\": \"hi\"}';; *) echo >> " + count +
      "; n=$(wc -l < " + count + "); [ $n -gt 4 ] && exit 1; echo \"{\\\"reward\\\": $((n % 2))}\";; esac; done"};
  recipe_.rollout.prompts = 1;
  recipe_.rollout.ahead = 1;
  recipe_.steps = 1;
  EXPECT_EQ(train().losses.size(), 1u);
  fs::remove(count);
  recipe_.steps = 2;
  recipe_.out = (folder_ / "longer").string();
  EXPECT_NE(refusal().find("no answer of step 2 was judged"), std::string::npos) << refusal();
}

// A model without a template would read the last message alone.
TEST_F(RolloutTest, ChatsNeedATemplate) {
  const fs::path plain = folder_ / "plain";
  fs::copy(io::find_model("tiny").folder, plain, fs::copy_options::recursive);
  fs::remove(plain / "chat_template.jinja");
  recipe_.init = plain.string();
  recipe_.steps = 1;
  EXPECT_EQ(refusal(), "");
  const std::string says =
      "[rollout.environments] a model without a chat template reads one message without tools; got ";
  recipe_.rollout.environments = {"tool-call"};
  EXPECT_EQ(refusal().find(says + "tool-call with tools"), 0u) << refusal();
  recipe_.rollout.environments = {
      "command:while read -r l; do echo '{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, "
      "{\"role\": \"user\", \"content\": \"b\"}]}'; done"};
  EXPECT_EQ(refusal().find(says + "command with 2 messages"), 0u) << refusal();
}

TEST_F(RolloutTest, WhatDoesNotFitIsRefused) {
  const Recipe good = recipe_;
  const auto refused = [&](const auto& change, const char* says) {
    recipe_ = good;
    change(recipe_);
    EXPECT_NE(refusal().find(says), std::string::npos) << refusal();
  };
  refused([](Recipe& r) { r.policy.advantage = "none"; }, "[policy.advantage] [rollout] trains a policy");
  refused([](Recipe& r) { r.rollout.answers = 1; }, "a group of one answer has nothing to compare it with");
  refused([](Recipe& r) { r.data.kind = "rollouts"; }, "[data.kind] [rollout] generates the data");
  refused([](Recipe& r) { r.data.shuffle = false; }, "[data.shuffle] [rollout] generates the data; got false");
  refused([](Recipe& r) { r.data.validation = 0.1; }, "[data.validation] [rollout] generates the data");
  refused([](Recipe& r) { r.loss.goldfish_k = 4; }, "[loss.goldfish_k] [rollout] trains whole answers");
  refused([](Recipe& r) { r.batch = 5; }, "is not rollout.prompts * rollout.answers; got 5; expected 12");
  refused([](Recipe& r) { r.rollout.temperature = 0.5; }, "need a correction; got 0.5");
  refused([](Recipe& r) { r.rollout.environments = {"adition"}; }, "no such environment; got adition");
  refused([](Recipe& r) { r.rollout.weights = {1}; }, "[rollout.weights] is not one for each environment");
  refused([](Recipe& r) { r.length = 12; }, "has no room for a prompt");
  refused([](Recipe& r) { r.length = 20; }, "a prompt does not fit");
  refused([](Recipe& r) { r.eval.every = 1; }, "holds nothing out");
  refused([](Recipe& r) { r.rollout.format = "bf16", r.dtype = "f32"; }, "is not the type that products read");
}

}  // namespace
}  // namespace braid::train
