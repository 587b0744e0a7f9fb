// Models that run a range of layers several times (models/config.h, LoopSpec), against what the paper's code computes:
// logits from given states at several numbers of steps, in one pass, in pieces and token by token. Bounds: 1e-4 to the
// golden values, 5e-5 between the ways.
#include <fmt/format.h>

#include <cstring>
#include <map>

#include "core/tape.h"
#include "engine/scheduler.h"
#include "models/master_weights.h"
#include "nn/observer.h"

#include "support/error_of.h"
#include "support/golden.h"

namespace braid {
namespace {

constexpr double kGoldenBound = 1e-4, kPieceBound = 5e-5;

std::vector<GoldenFolder> folders() {
  std::vector<GoldenFolder> list = {{"own", std::filesystem::path(support::data()) / "huginn"}};
  if (!support::fixtures().empty()) list.push_back({"fixture", std::filesystem::path(support::fixtures()) / "huginn"});
  return list;
}

struct Answer {
  std::vector<int32_t> ids;
  std::vector<int64_t> steps;  // of each
};
Answer answer(engine::Runner& runner, std::vector<int32_t> prompt, int64_t tokens) {
  engine::Scheduler scheduler(runner);
  Answer out;
  const auto note = [&](int32_t) {
    out.steps.push_back(runner.loop_steps());
    return true;
  };
  out.ids = engine::generate(
                scheduler,
                {.prompt = std::move(prompt), .generate = {.tokens_max = tokens, .ignore_eos = true}, .on_token = note})
                .ids;
  return out;
}

class RecurrentDepth : public testing::TestWithParam<GoldenFolder> {
 protected:
  static std::unique_ptr<engine::Runner> open(const engine::LoopOptions& loop, int64_t chunk = 512) {
    return open_folder(GetParam().path, {.numerics = Numerics::serving(DType::f32), .chunk = chunk, .loop = loop});
  }
  engine::LoopOptions loop_of(int p, int64_t steps) const {
    const View states = file_.need(fmt::format("input_states@{}", p));
    return {.steps = steps, .start = {states.as<float>(), states.as<float>() + states.count()}};
  }
  std::vector<int32_t> prompt(int p) const { return token_ids(file_.need(fmt::format("ids@{}", p))); }

  io::Safetensors file_{GetParam().path / "golden.safetensors"};
};

TEST_P(RecurrentDepth, LogitsAtEveryNumberOfSteps) {
  for (const int p : {0, 1}) {
    for (const int64_t steps : {1, 4, 9}) {
      SCOPED_TRACE(fmt::format("prompt {}, {} steps", p, steps));
      const View& want = file_.need(fmt::format("logits.{}@{}", steps, p));
      EXPECT_LE(worst(prefill(*open(loop_of(p, steps)), 0, prompt(p)).logits, want), kGoldenBound);
      EXPECT_LE(worst(step_through(*open(loop_of(p, steps)), 0, prompt(p)).logits, want), kGoldenBound);
    }
  }
}

// Random states belong to positions, so that a cut changes none.
TEST_P(RecurrentDepth, PiecesAgree) {
  const auto ids = prompt(0);
  const engine::LoopOptions loop{.steps = 5, .seed = 7};
  const Pass whole = prefill(*open(loop), 0, ids);
  EXPECT_LE(worst(prefill(*open(loop, 7), 0, ids).logits, whole.logits), kPieceBound);
  EXPECT_LE(worst(step_through(*open(loop), 0, ids).logits, whole.logits), kPieceBound);
}

TEST_P(RecurrentDepth, GreedyContinuation) {
  // The fixture has one answer, at 4 steps; the small copy one at 20 (tools/oracle/recurrent_depth_golden.py).
  const View* steps = file_.find("greedy.steps");
  const auto runner = open({.steps = steps ? steps->as<int64_t>()[0] : 4, .zero = true});
  const View& want = file_.need("greedy");
  EXPECT_EQ(answer(*runner, token_ids(file_.need("greedy_prompt")), want.count()).ids, token_ids(want));
}

// Every way to leave steps out or to share what they keep, as the paper's code does it.
TEST(RecurrentDepthOptions, AnswersAreThoseOfThePapersCode) {
  const auto folder = std::filesystem::path(support::data()) / "huginn";
  const io::Safetensors file(folder / "golden.safetensors");
  const std::pair<const char*, engine::LoopOptions> cases[] = {
      {"warm", {.warm_start = true}},
      {"shared", {.states = 2}},
      {"kl", {.exit = engine::Exit::kl, .threshold = 2e-3}},
      {"latent", {.exit = engine::Exit::latent, .threshold = 0.08}},
      {"entropy", {.exit = engine::Exit::entropy, .threshold = 2e-3}},
      {"argmax", {.exit = engine::Exit::argmax}},
  };
  for (auto [name, loop] : cases) {
    SCOPED_TRACE(name);
    const View &ids = file.need(name), &steps = file.need(fmt::format("{}.steps", name));
    loop.steps = steps.as<int64_t>()[0];  // the prompt takes all
    loop.zero = true;
    const auto runner = open_folder(folder, {.numerics = Numerics::serving(DType::f32), .loop = loop});
    const Answer got = answer(*runner, token_ids(file.need("greedy_prompt")), ids.count());
    EXPECT_EQ(got.ids, token_ids(ids));
    EXPECT_EQ(got.steps, std::vector<int64_t>(steps.as<int64_t>(), steps.as<int64_t>() + steps.count()));
  }
}

TEST_P(RecurrentDepth, DefaultsAreTheModels) {
  const auto ids = prompt(1);
  const auto runner = open({});
  const models::LoopSpec& spec = *runner->config().loop;
  EXPECT_EQ(runner->options().loop.steps, spec.steps);
  EXPECT_EQ(runner->options().loop.states, spec.steps);
  const Pass pass = prefill(*runner, 0, ids);
  EXPECT_EQ(worst(pass.logits, prefill(*open({.steps = spec.steps}), 0, ids).logits), 0);
  EXPECT_GT(worst(pass.logits, prefill(*open({.seed = 1}), 0, ids).logits), 0);
  EXPECT_GT(worst(pass.logits, prefill(*open({.zero = true}), 0, ids).logits), 0);
  EXPECT_GT(worst(pass.logits, prefill(*open({.steps = spec.steps + 1}), 0, ids).logits), 0);
}

// Drafts of fewer steps change no token, greedy or sampled, whether they are right or not.
TEST_P(RecurrentDepth, DraftsOfFewerStepsChangeNoToken) {
  constexpr int64_t kTokens = 40;
  for (const double temperature : {0.0, 0.7}) {
    const auto text = [&](const engine::DraftOptions& drafts) {
      const auto runner = open_folder(
          GetParam().path, {.numerics = Numerics::serving(DType::f32), .spare_slots = 1, .loop = {.steps = 8}});
      engine::Scheduler scheduler(*runner, drafts);
      return engine::generate(scheduler, {.prompt = prompt(1),
                                          .generate = {.tokens_max = kTokens,
                                                       .sampling = {.temperature = temperature, .seed = 3},
                                                       .ignore_eos = true}});
    };
    const engine::Generated plain = text({});
    int64_t drafted = 0, accepted = 0;
    for (const int64_t steps : {1, 2, 7}) {
      const engine::Generated out = text({.loop_steps = steps, .tokens_max = 5, .always = true});
      EXPECT_EQ(out.ids, plain.ids) << steps;
      drafted += out.timings.drafted_tokens, accepted += out.timings.accepted_tokens;
    }
    EXPECT_GT(accepted, 0);
    EXPECT_GT(drafted, accepted);
  }
}

TEST(RecurrentDepthOptions, DraftsNeedFewerStepsOfALoop) {
  const auto refused = [](const char* folder, int64_t steps) {
    return support::error_of([&] {
      const auto runner = open_folder(std::filesystem::path(support::data()) / folder,
                                      {.numerics = Numerics::serving(DType::f32), .loop = {.steps = 8}});
      engine::LoopDrafter(*runner, steps);
    });
  };
  EXPECT_EQ(refused("huginn", 7), "");
  EXPECT_NE(refused("huginn", 8).find("8 of 8"), std::string::npos);
  EXPECT_NE(refused("hf/gpt2", 1).find("no recurrent depth"), std::string::npos);
}

// Gradients of the last steps alone, the input's through each of them, against autograd through the paper's code. In
// FP32 as that is: a bound relative to the largest gradient of a tensor.
TEST(RecurrentDepthOptions, GradientsAreThoseOfTheLastSteps) {
  constexpr int64_t kUntrained = 3, kTrained = 2, kEvery = 7;  // as tools/oracle/recurrent_depth_golden.py has them
  constexpr double kBound = 2e-4;
  const auto folder = std::filesystem::path(support::data()) / "huginn";
  const io::Safetensors file(folder / "golden.safetensors");
  models::MasterWeights masters(DType::f32);
  const auto model = masters.load(io::find_model(folder.string()));
  const std::vector<int32_t> text = token_ids(file.need("ids@0"));
  const int64_t n = std::ssize(text) - 1, width = model->config().hidden;
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena};
  const SeqMap seqs = SeqMap::one(n);
  nn::StateView none;
  nn::Run run{.ctx = ctx, .seqs = seqs, .state = none, .numerics = Numerics::training(DType::f32)};
  const Tensor ids(arena, DType::i32, {n}), targets(arena, DType::i32, {n}), start(arena, DType::f32, {n, width});
  std::copy(text.begin(), text.end() - 1, ids.mut().as<int32_t>());
  std::copy(text.begin() + 1, text.end(), targets.mut().as<int32_t>());
  std::memcpy(start.mut().data, file.need("input_states@0").data, static_cast<size_t>(start.view().bytes()));
  nn::Loop loop{.steps = kUntrained, .start = start};
  run.loop = &loop;
  const Tensor before = model->loop_state(run, ids, kUntrained);
  loop = {.steps = kUntrained + kTrained, .first = kUntrained, .start = before};
  ctx.tape = &tape;
  models::Model::LossSums sums;
  model->loss(run, ids, targets, {.main_weight = 1.0 / static_cast<double>(n)}, sums);
  tape.backward(ctx);
  tape.clear();
  masters.sum_uses(1);
  EXPECT_NEAR(sums.main / static_cast<double>(n), element(file.need("loss"), 0), 1e-5);
  for (const models::MasterTensor& tensor : masters.tensors()) {
    const View& want = file.need("grad." + tensor.name);
    double most = 0, off = 0;
    for (int64_t i = 0; i < want.count(); ++i) {
      const double got = masters.grads()[static_cast<size_t>(tensor.offset + i * kEvery)];
      most = std::max(most, std::abs(element(want, i)));
      off = std::max(off, std::abs(got - element(want, i)));
    }
    EXPECT_GT(most, 0) << tensor.name;
    EXPECT_LE(off, kBound * most) << tensor.name;
  }
}

// Products in every step of the loop know which one it is: dropout and stochastic rounding draw by that.
TEST(RecurrentDepthOptions, EveryUseOfAWeightHasItsNumber) {
  models::MasterWeights masters(DType::f32);
  const auto model = masters.load(io::find_model((std::filesystem::path(support::data()) / "huginn").string()));
  struct Uses final : nn::Observer {
    const nn::Run* run = nullptr;
    std::map<std::string, std::vector<uint32_t>> of{};
    void product(const Param& w, const View&, const View&) override { of[w.name].push_back(run->use); }
    void norm(const Param&, const View&, const View&, const View&) override {}
    void experts(Ctx&, const nn::ExpertsSeen&) override {}
  } uses;
  Arena arena;
  Ctx ctx{.arena = arena};
  const SeqMap seqs = SeqMap::one(4);
  nn::StateView none;
  nn::Run run{.ctx = ctx, .seqs = seqs, .state = none, .observer = &uses};
  uses.run = &run;
  const Tensor ids(arena, DType::i32, {4}), start(arena, DType::f32, {4, model->config().hidden});
  std::fill_n(ids.mut().as<int32_t>(), 4, 3);
  fill(start.mut(), 0.5);
  const nn::Loop loop{.steps = 3, .start = start};
  run.loop = &loop;
  (void)model->forward(run, ids);
  const std::vector<uint32_t> once = {0}, thrice = {0, 1, 2};
  size_t repeated = 0;
  for (const auto& [name, list] : uses.of) {
    EXPECT_TRUE(list == once || list == thrice) << name;
    repeated += list == thrice ? 1 : 0;
  }
  EXPECT_GT(repeated, 1u);
  EXPECT_LT(repeated, uses.of.size());
}

INSTANTIATE_TEST_SUITE_P(Folders, RecurrentDepth, testing::ValuesIn(folders()), label_of);

}  // namespace
}  // namespace braid
