// Gradients of whole models through the tape: against FP64 ones by autograd ($BRAID_FIXTURES/training), and their
// invariants: every parameter receives one, and no bit depends on threads, on what the tape freed and recomputed, on
// when gradients of weights are computed, or, without a low-precision recipe, on how a batch is split into parts.
#include <cstring>
#include <random>
#include <set>

#include "core/tape.h"
#include "models/master_weights.h"
#include "nn/balance.h"
#include "nn/precision.h"
#include "support/data.h"
#include "support/golden.h"

namespace braid {
namespace {

struct Pass {
  std::vector<float> grads;
  double loss = 0, z = 0;
  models::Model::MtpNumbers mtp{};
  nn::RouterWatch routers{};  // what they saw
};

class Training {
 public:
  Training(const std::filesystem::path& folder, DType products, int64_t mtp_steps = 1)
      : masters_(products), model_(masters_.load(io::find_model(folder.string()), mtp_steps)) {}

  struct Options {
    int threads = 2;
    bool drop = false;
    bool defer = false;   // the gradients of weights
    double mtp = 0;       // weight of the prediction block's mean
    bool routers = true;  // with their two losses
    const char* recipe = "none";
    models::DropoutSpec dropout{};
    float z = 0;
  };

  // Every sequence as ids; token t predicts t + 1. `parts`: how many sequences go into each pass.
  Pass gradients(const std::vector<std::vector<int32_t>>& sequences, const std::vector<size_t>& parts,
                 const Options& options) {
    int64_t tokens = 0;
    for (const auto& s : sequences) tokens += std::ssize(s) - 1;
    models::Model::LossSums sums;
    masters_.zero_grads(1);
    nn::RouterWatch routers{.factors = {.sequence = 1e-2f, .z = 1e-3f}};
    const auto params = model_->params();
    const nn::Precision precision(options.recipe, params, 1);
    size_t first = 0;
    for (const size_t n : parts) {
      one_pass({sequences.begin() + static_cast<std::ptrdiff_t>(first),
                sequences.begin() + static_cast<std::ptrdiff_t>(first + n)},
               static_cast<int64_t>(first), tokens, options, routers, precision, sums);
      first += n;
    }
    masters_.sum_uses(options.threads);
    return {.grads = {masters_.grads().begin(), masters_.grads().end()},
            .loss = sums.main,
            .z = sums.z,
            .mtp = sums.mtp,
            .routers = routers};
  }

  // log(1 + e^(a - b)) of the losses of two sequences, and its gradients.
  double pair_loss(const std::vector<std::vector<int32_t>>& pair, std::vector<float>* grads) {
    masters_.zero_grads(1);
    SeqMap seqs;
    std::vector<int32_t> ids, targets;
    for (const auto& s : pair) {
      seqs.add(std::ssize(s) - 1);
      ids.insert(ids.end(), s.begin(), s.end() - 1);
      targets.insert(targets.end(), s.begin() + 1, s.end());
    }
    Ctx ctx{.arena = arena_, .tape = &tape_};
    tape_.drop = {};
    nn::StateView state;
    nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::training(masters_.products())};
    const auto tensor = [&](const auto& values, DType dtype, const Shape& shape) {
      const Tensor t(arena_, dtype, shape);
      std::memcpy(t.mut().data, values.data(), values.size() * 4);
      return t;
    };
    const int64_t n = seqs.tokens();
    const Tensor losses = model_->losses_of(run, tensor(ids, DType::i32, {n}), tensor(targets, DType::i32, {n}));
    double margin = 0;
    for (int64_t t = 0; t < n; ++t) margin += (t < seqs.seqs[1].start ? 0.1 : -0.1) * element(losses.view(), t);
    const Tensor weights(arena_, DType::f32, {n});
    const double slope = 1 / (1 + std::exp(-margin));
    for (int64_t t = 0; t < n; ++t) set_element(weights.mut(), t, (t < seqs.seqs[1].start ? 0.1 : -0.1) * slope);
    tape_.add_grad(ctx, losses, weights);
    tape_.backward(ctx);
    tape_.clear();
    masters_.sum_uses(1);
    grads->assign(masters_.grads().begin(), masters_.grads().end());
    return std::log1p(std::exp(margin));
  }

  models::MasterWeights& masters() { return masters_; }
  models::Model& model() { return *model_; }

 private:
  void one_pass(const std::vector<std::vector<int32_t>>& sequences, int64_t first, int64_t tokens,
                const Options& options, nn::RouterWatch& routers, const nn::Precision& precision,
                models::Model::LossSums& sums) {
    SeqMap seqs;
    for (const auto& s : sequences) seqs.add(std::ssize(s) - 1, 0, 0, first++);
    Ctx ctx{.arena = arena_, .threads = options.threads, .tape = &tape_};
    tape_.drop = [&](Cost cost, size_t) { return options.drop && cost != Cost::stream; };
    nn::StateView state;
    nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::training(masters_.products())};
    if (options.routers) run.routers = &routers;
    run.precision = &precision;
    const nn::Draws draws{.seed = 5, .step = 3};
    if (options.dropout.embedding + options.dropout.residual > 0) run.draws = &draws;
    model_->dropout = options.dropout;
    const Tensor ids(arena_, DType::i32, {seqs.tokens()}), targets(arena_, DType::i32, {seqs.tokens()});
    auto *id = ids.mut().as<int32_t>(), *target = targets.mut().as<int32_t>();
    for (const auto& s : sequences) {
      id = std::copy(s.begin(), s.end() - 1, id);
      target = std::copy(s.begin() + 1, s.end(), target);
    }
    const auto scale = 1.0 / static_cast<double>(tokens);
    models::Model::LossOptions weights{.main_weight = scale, .z = options.z};
    weights.mtp_weight.fill(options.mtp * scale);
    model_->loss(run, ids, targets, weights, sums);
    tape_.backward(ctx, options.defer ? Weights::later : Weights::now);
    tape_.backward_weights(ctx);
    tape_.clear();
  }

  Arena arena_;
  Tape tape_;
  models::MasterWeights masters_;
  std::unique_ptr<models::Model> model_;
};

std::vector<std::vector<int32_t>> some_sequences(int64_t vocab, std::initializer_list<int> lengths) {
  std::mt19937 random(3);
  std::vector<std::vector<int32_t>> list;
  for (const int n : lengths) {
    for (auto& s = list.emplace_back(); std::ssize(s) < n;)
      s.push_back(static_cast<int32_t>(static_cast<int64_t>(random()) % vocab));
  }
  return list;
}

// Names the tensors whose gradients differ in a bit, and the loss if it does.
std::string differing(const models::MasterWeights& masters, const Pass& a, const Pass& b) {
  std::string names = a.loss == b.loss && a.mtp == b.mtp ? "" : "the loss ";
  for (const models::MasterTensor& t : masters.tensors()) {
    const auto at = static_cast<size_t>(t.offset), bytes = static_cast<size_t>(t.count()) * sizeof(float);
    if (std::memcmp(&a.grads[at], &b.grads[at], bytes) != 0) names += t.name + " ";
  }
  return names;
}

std::vector<GoldenFolder> trainable_folders() {
  std::vector<GoldenFolder> list = all_folders();
  std::erase_if(list, [](const GoldenFolder& f) {  // quantised weights cannot be masters
    return std::filesystem::exists(f.path / "hf_quant_config.json");
  });
  return list;
}

class Gradient : public testing::TestWithParam<GoldenFolder> {};

// Of the routed experts, exactly those that a token chose.
TEST_P(Gradient, EveryParameterReceivesOne) {
  Training training(GetParam().path, DType::f32);
  const auto sequences = some_sequences(training.model().config().vocab, {96, 90, 60});
  const Pass pass = training.gradients(sequences, {3}, {.mtp = training.model().mtp_steps() > 0 ? 0.3 : 0});
  std::set<int64_t> tensors;
  for (const Param* p : training.model().params()) {
    tensors.insert(p->tensor);
    if (p->role == ParamRole::router_bias) continue;  // it only selects
    const bool routed = p->expert >= 0;
    const bool wanted = !routed || pass.routers.layers.at(p->layer).load.at(static_cast<size_t>(p->expert)) > 0;
    const auto begin = pass.grads.begin() + p->offset;
    const bool received =
        std::any_of(begin, begin + p->value.rows * p->value.cols, [](float g) { return std::isfinite(g) && g != 0; });
    EXPECT_EQ(received, wanted) << p->name;
  }
  EXPECT_EQ(tensors.size(), training.masters().tensors().size());
}

TEST_P(Gradient, NothingButTheNumbersChangesABit) {
  struct Numbers {
    DType products;
    const char* recipe;
  };
  for (const Numbers& n : {Numbers{DType::f32, "none"}, {DType::bf16, "none"}, {DType::bf16, "nvfp4"}}) {
    Training training(GetParam().path, n.products, 2);
    const auto sequences = some_sequences(training.model().config().vocab, {37, 2, 70, 19});
    const Training::Options usual{.mtp = training.model().mtp_steps() > 0 ? 0.3 : 0, .recipe = n.recipe};
    const Pass whole = training.gradients(sequences, {4}, usual);
    EXPECT_TRUE(std::isfinite(whole.loss));
    const auto same = [&](const std::vector<size_t>& parts, const Training::Options& options, const char* what) {
      EXPECT_EQ("", differing(training.masters(), whole, training.gradients(sequences, parts, options)))
          << what << ", " << n.recipe;
    };
    // With a low-precision recipe each part of a batch has its own scale (nn/precision.h).
    const bool cuts = std::strcmp(n.recipe, "none") == 0;
    if (cuts) same({1, 1, 1, 1}, usual, "one sequence at a time");
    if (cuts) same({3, 1}, usual, "two parts");
    Training::Options other = usual;
    other.threads = 1;
    same({4}, other, "one thread");
    other = usual;
    other.drop = true;
    same({4}, other, "recomputed");
    other.defer = true;
    same(cuts ? std::vector<size_t>{3, 1} : std::vector<size_t>{4}, other, "recomputed, gradients of weights later");
    other.drop = false;
    same({4}, other, "gradients of weights later");
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, Gradient, testing::ValuesIn(trainable_folders()), label_of);

// Two steps of the prediction block: the first is the same as alone, and the slope of the total loss along its gradient
// is the gradient's length.
TEST(GradientSlope, OfTwoStepsOfPredictionIsTheSlope) {
  const auto folder = std::filesystem::path(support::data()) / "hf" / "nemotron-h-latent-mtp";
  Training one(folder, DType::f32), two(folder, DType::f32, 2);
  const auto sequences = some_sequences(one.model().config().vocab, {33, 2, 20});
  const Training::Options options{.mtp = 1, .routers = false};
  const Pass single = one.gradients(sequences, {3}, options), both = two.gradients(sequences, {3}, options);
  EXPECT_EQ(both.mtp[0], single.mtp[0]);
  EXPECT_GT(both.mtp[1], 0);
  EXPECT_EQ(single.mtp[1], 0);
  double length = 0;
  for (const float g : both.grads) length += static_cast<double>(g) * static_cast<double>(g);
  double loss[2];  // so close that no token changes its experts
  const float step = static_cast<float>(1e-4 / std::sqrt(length));
  const std::vector<float> weights(two.masters().values().begin(), two.masters().values().end());
  for (const int side : {0, 1}) {
    const std::span<float> values = two.masters().values();
    for (size_t i = 0; i < values.size(); ++i) values[i] = weights[i] + (side ? step : -step) * both.grads[i];
    two.masters().round(1);
    const Pass there = two.gradients(sequences, {3}, options);
    loss[side] = (there.loss + there.mtp[0] + there.mtp[1]) / (32 + 1 + 19);
  }
  EXPECT_NEAR((loss[1] - loss[0]) / (2 * static_cast<double>(step)), length, 0.01 * length);
}

// Moves the weights along `grads` both ways, and expects the slope of `loss` to be the length of `grads`.
template <class Loss>
void expect_slope(Training& training, const std::vector<float>& grads, Loss&& loss) {
  double length = 0;
  for (const float g : grads) length += static_cast<double>(g) * static_cast<double>(g);
  ASSERT_GT(length, 0);
  const std::span<float> values = training.masters().values();
  const std::vector<float> weights(values.begin(), values.end());
  const auto step = static_cast<float>(1e-3 / std::sqrt(length));
  double at[2];
  for (const int side : {0, 1}) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = weights[i] + (side ? step : -step) * grads[i];
    at[side] = loss();
  }
  std::copy(weights.begin(), weights.end(), values.begin());
  EXPECT_NEAR((at[1] - at[0]) / (2 * static_cast<double>(step)), length, 0.01 * length);
}

// The squared log-sum-exp of a token's logits, which has weight 0 in the other tests.
TEST(GradientSlope, OfTheZLossIsTheSlope) {
  for (const char* name : {"gpt2", "nemotron-h-legacy"}) {
    Training training(std::filesystem::path(support::data()) / "hf" / name, DType::f32);
    const auto sequences = some_sequences(training.model().config().vocab, {23, 31});
    const Training::Options options{.routers = false, .z = 0.5f};
    const Pass with = training.gradients(sequences, {2}, options);
    EXPECT_EQ(with.loss, training.gradients(sequences, {2}, {.routers = false}).loss) << "it is not part of the loss";
    expect_slope(training, with.grads, [&] {
      const Pass there = training.gradients(sequences, {2}, options);
      return (there.loss + 0.5 * there.z) / (22 + 30);
    });
  }
}

// What is dropped depends on the seed, the step and the sequence, not on parts, threads or recomputation; and the
// gradient is that of the loss with the same values dropped.
TEST(GradientDropout, DropsTheSameValuesHoweverAStepIsComputed) {
  Training training(std::filesystem::path(support::data()) / "hf" / "gpt2", DType::f32);
  const auto sequences = some_sequences(training.model().config().vocab, {37, 2, 40, 19});
  const Training::Options usual{.dropout = {.embedding = 0.2f, .residual = 0.2f}};
  const Pass none = training.gradients(sequences, {4}, {}), whole = training.gradients(sequences, {4}, usual);
  EXPECT_NE(none.loss, whole.loss);
  // Each rate alone drops something, and not what the other does.
  const double embedding = training.gradients(sequences, {4}, {.dropout = {.embedding = 0.2f}}).loss,
               residual = training.gradients(sequences, {4}, {.dropout = {.residual = 0.2f}}).loss;
  EXPECT_EQ((std::set<double>{none.loss, whole.loss, embedding, residual}).size(), 4U);
  Training::Options other = usual;
  other.threads = 1;
  other.drop = true;
  EXPECT_EQ("", differing(training.masters(), whole, training.gradients(sequences, {1, 2, 1}, other)));
  expect_slope(training, whole.grads,
               [&] { return training.gradients(sequences, {4}, usual).loss / (36 + 1 + 39 + 18); });
}

// A loss of two sequences, log(1 + e^(a - b)) of their sums: the weight of each token is known only after the losses.
TEST(GradientSlope, OfALossOfPairsIsTheSlope) {
  for (const char* name : {"gpt2", "nemotron-h-legacy"}) {
    Training training(std::filesystem::path(support::data()) / "hf" / name, DType::f32);
    const auto pair = some_sequences(training.model().config().vocab, {23, 31});
    std::vector<float> grads;
    const auto loss = [&] { return training.pair_loss(pair, &grads); };
    loss();
    const std::vector<float> along = grads;
    expect_slope(training, along, loss);
  }
}

// The gradient of a stored tensor in the layout of its file.
std::vector<float> stored_gradient(models::MasterWeights& masters, const models::MasterTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  to_stored(tensor, masters.grads(), false, DType::f32, std::as_writable_bytes(std::span(values)));
  return values;
}

// At selected indices of every tensor, against transformers (tools/oracle/gradient_golden.py).
TEST(GoldenGradient, EqualsTransformersInFp64) {
  for (const char* name : {"gpt2", "nemotron-h-legacy", "nemotron-h-latent-mtp"}) {
    const std::filesystem::path data(support::data());
    const io::Safetensors golden(data / "gradients" / (std::string(name) + ".safetensors"));
    Training training(data / "hf" / name, DType::f32);
    const std::vector<int32_t> ids = token_ids(*golden.find("ids"));
    const Pass pass = training.gradients({ids}, {1}, {.routers = false});
    const double loss = element(*golden.find("loss"), 0);
    EXPECT_NEAR(pass.loss / static_cast<double>(ids.size() - 1), loss, 1e-5 * loss) << name;
    size_t compared = 0;
    for (const models::MasterTensor& t : training.masters().tensors()) {
      const auto want = golden.find(t.name), indices = golden.find(t.name + "@");
      if (!want) continue;  // the prediction block, and biases that no gradient reaches
      const std::vector<float> got = stored_gradient(training.masters(), t);
      double largest = 1e-12, worst = 0;
      for (int64_t i = 0; i < want->count(); ++i) {
        const auto index = static_cast<size_t>(element(*indices, i));
        largest = std::max(largest, std::fabs(element(*want, i)));
        worst = std::max(worst, std::fabs(element(*want, i) - static_cast<double>(got.at(index))));
      }
      EXPECT_LE(worst, 1e-4 * largest) << name << " " << t.name;
      ++compared;
    }
    EXPECT_EQ(2 * compared + 2, golden.tensors().size()) << name;
  }
}

TEST(GoldenGradient, EqualsAutogradInFp64) {
  const std::string fixtures = support::fixtures();
  if (fixtures.empty())
    GTEST_SKIP() << "BRAID_FIXTURES names no folder: only the gradients in tests/data were compared";
  const std::filesystem::path root(fixtures);
  for (const auto& entry : std::filesystem::directory_iterator(root / "training" / "gradients")) {
    const io::Safetensors golden(entry.path());
    Training training(root / "hf" / entry.path().stem(), DType::f32);
    const std::vector<int32_t> ids = token_ids(*golden.find("ids"));
    const auto tokens = static_cast<double>(ids.size() - 1);
    // The prediction block has one target fewer; its mean has weight 0.3.
    const double mtp = training.model().mtp_steps() > 0 ? 0.3 * tokens / (tokens - 1) : 0;
    training.gradients({ids}, {1}, {.mtp = mtp, .routers = false});
    for (const models::MasterTensor& t : training.masters().tensors()) {
      const View want = *golden.find(t.name);
      const std::vector<float> got = stored_gradient(training.masters(), t);
      double largest = 1e-12, worst = 0;
      for (int64_t i = 0; i < t.count(); ++i) {
        largest = std::max(largest, std::fabs(element(want, i)));
        worst = std::max(worst, std::fabs(element(want, i) - static_cast<double>(got[static_cast<size_t>(i)])));
      }
      EXPECT_LE(worst, 1e-4 * largest) << entry.path().stem() << " " << t.name;
    }
  }
}

}  // namespace
}  // namespace braid
