// A training step allocates nothing once it is planned, and neither do the passes of generated tokens: malloc and mmap
// of the whole process are counted here while ragged batches go forward, backward and through the optimiser, and while
// answers step.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "core/step_plan.h"
#include "core/tape.h"
#include "data/loader.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "io/safetensors_write.h"
#include "io/token_file.h"
#include "models/load.h"
#include "models/master_weights.h"
#include "nn/precision.h"
#include "support/data.h"
#include "support/golden.h"
#include "train/language.h"
#include "train/optimizer.h"
#include "train/running_mean.h"
#include "train/spike.h"
#include "train/trainer.h"

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BRAID_COUNTS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BRAID_COUNTS 0
#endif
#endif
#ifndef BRAID_COUNTS
#define BRAID_COUNTS 1
#endif

#if BRAID_COUNTS
// These override the C library's for every library of the process; operator new calls them, too.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  ++allocations;
  return __libc_realloc(old, bytes);
}
void* memalign(size_t align, size_t bytes) {
  ++allocations;
  return __libc_memalign(align, bytes);
}
void* aligned_alloc(size_t align, size_t bytes) {
  ++allocations;
  return __libc_memalign(align, bytes);
}
int posix_memalign(void** out, size_t align, size_t bytes) {
  ++allocations;
  *out = __libc_memalign(align, bytes);
  return *out ? 0 : ENOMEM;
}
void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  ++allocations;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}
#endif

namespace braid {
namespace {

// The most tokens of a step, packed as few sequences or as many.
constexpr int64_t kTokens = 200, kLength = 90, kSequences = 10;

// Steps over packed documents.
class Trained {
 public:
  Trained(const std::filesystem::path& folder, DType products, const std::string& recompute, const char* recipe)
      : masters_(products),
        model_(masters_.load(io::find_model(folder.string()))),
        precision_(recipe, model_->params(), 1),
        optimizer_(recipe_, masters_, model_->params(), {{{0, masters_.size()}}}) {
    for (int64_t i = 0; i < kTokens; ++i) ids_.push_back(static_cast<int32_t>((i * 7 + 3) % model_->config().vocab));
    seqs_.seqs.reserve(kSequences);  // the batch belongs to the caller
    SeqMap packings[2];
    for (int64_t at = 0; at < kTokens; at += kLength) packings[0].add(std::min(kLength, kTokens - at));
    for (int64_t at = 0; at < kTokens; at += kTokens / kSequences) packings[1].add(kTokens / kSequences);
    plan_ =
        plan_step(parse_recompute(recompute), ctx_, 2, [&](Ctx& ctx, int packing) { forward(ctx, packings[packing]); });
    tape_.drop = [this](Cost, size_t node) { return plan_.drops(node); };
    ctx_.tape = &tape_;
  }
  const StepPlan& plan() const { return plan_; }
  const Arena& arena() const { return arena_; }

  void step(std::initializer_list<int64_t> lengths) {
    seqs_.seqs.clear();
    for (const int64_t len : lengths) seqs_.add(len);
    masters_.zero_grads(ctx_.threads);
    arena_.begin_pass(plan_.arena);
    forward(ctx_, seqs_);
    tape_.backward(ctx_);
    tape_.clear();
    arena_.end_pass();
    masters_.sum_uses(ctx_.threads);
    optimizer_.step(ctx_, ++number_, 1e-3, std::sqrt(optimizer_.squared_norm(ctx_)));
  }

 private:
  void forward(Ctx& ctx, const SeqMap& seqs) {
    nn::StateView state;
    nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::training(masters_.products())};
    run.precision = &precision_;
    const Tensor ids(ctx.arena, DType::i32, {seqs.tokens()}), targets(ctx.arena, DType::i32, {seqs.tokens()});
    std::copy_n(ids_.begin(), seqs.tokens(), ids.mut().as<int32_t>());
    std::copy_n(ids_.begin(), seqs.tokens(), targets.mut().as<int32_t>());
    models::Model::LossSums sums;
    model_->loss(run, ids, targets,
                 {.main_weight = 0.01, .mtp_weight = {model_->mtp_steps() > 0 ? 0.003 : 0.0}, .z = 1e-4f}, sums);
  }

  Arena arena_;
  Tape tape_;
  Ctx ctx_{.arena = arena_};
  models::MasterWeights masters_;
  std::unique_ptr<models::Model> model_;
  nn::Precision precision_;
  train::OptimizerRecipe recipe_;
  train::Optimizer optimizer_;
  SeqMap seqs_;
  std::vector<int32_t> ids_;
  StepPlan plan_;
  int64_t number_ = 0;
};

TEST(Allocation, AStepAllocatesNothingOnceItIsPlanned) {
  if (!BRAID_COUNTS) GTEST_SKIP() << "a sanitizer has its own malloc";
  const std::filesystem::path data(support::data());
  const int64_t none = allocations;
  void* (*volatile take)(size_t) = &std::malloc;
  std::free(take(1));
  ASSERT_GT(allocations, none) << "nothing is counted";
  struct Arm {
    const char *folder, *recompute, *recipe;
  };
  for (const auto& [folder, recompute, recipe] :
       {Arm{"hf/nemotron-h-latent-mtp", "none", "none"}, Arm{"hf/nemotron-h-latent-mtp", "full", "none"},
        Arm{"hf/nemotron-h-legacy", "selective", "none"}, Arm{"hf/gpt2", "selective", "none"},
        Arm{"hf/nemotron-h-latent-mtp", "none", "nvfp4"}, Arm{"hf/nemotron-h-legacy", "full", "nvfp4"},
        Arm{"hf/gpt2", "selective", "fp8"}}) {
    for (const DType products : {DType::f32, DType::bf16}) {
      Trained trained(data / folder, products, recompute, recipe);
      trained.step({90, 70, 40});  // closures, lists and teams are allocated
      const int64_t before = allocations, mapped = trained.arena().bytes_mapped(), made = trained.plan().arena.made;
      trained.step({90, 61, 3});
      trained.step({20, 20, 20, 20, 20, 20, 20, 20, 20, 20});
      trained.step({90, 70, 40});
      EXPECT_EQ(allocations - before, 0) << folder << " " << name_of(products) << " " << recompute << " " << recipe;
      EXPECT_EQ(trained.plan().arena.outgrown, 0) << folder << " " << recompute;
      EXPECT_EQ(trained.plan().arena.made, made);
      EXPECT_EQ(trained.arena().bytes_mapped(), mapped);
      // The plan's mapping, and one for memory outside of passes.
      EXPECT_LE(mapped, trained.plan().arena.bytes + (int64_t{64} << 20) + 4096);
    }
  }
}

// Steps of the loop itself, from drawing the batch to the averaged weights, in parts: nothing but the list of
// what is logged, and its line of loss.csv.
TEST(Allocation, AStepOfTheTrainerAllocatesItsLog) {
  if (!BRAID_COUNTS) GTEST_SKIP() << "a sanitizer has its own malloc";
  const support::Folder holder;
  const auto init = std::filesystem::path(support::data()) / "hf/nemotron-h-latent-mtp";
  train::Recipe recipe;
  recipe.init = init.string();
  recipe.out = (holder.path() / "out").string();
  recipe.steps = 12;
  recipe.batch = 6;
  recipe.accumulate = 2;
  recipe.length = 40;
  recipe.data.kind = "markov";
  recipe.ema_decay = 0.9;
  recipe.spike.window = 4;
  recipe.log.jsonl.clear();
  recipe.log.every = 100;
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  train::Language language(recipe, ctx);
  train::Trainer trainer(recipe, language, ctx);
  std::array<int64_t, 13> at{};
  EXPECT_EQ(trainer.train({.progress = [&](int64_t done) { at[static_cast<size_t>(done)] = allocations; }}),
            train::Outcome::finished);
  for (size_t step = 4; step < at.size(); ++step) EXPECT_LE(at[step] - at[step - 1], 6) << step;
}

// Greedy steps of one sequence and of three together, across pages, once the first ones have sized the lists.
TEST(Allocation, AStepOfAnAnswerAllocatesNothing) {
  if (!BRAID_COUNTS) GTEST_SKIP() << "a sanitizer has its own malloc";
  const std::filesystem::path data(support::data());
  for (const char* folder : {"tiny-chat", "hf/nemotron-h-latent-mtp", "hf/nemotron-h-legacy", "hf/nemotron-nas",
                             "hf/nemotron-h-modelopt-nvfp4", "hf/gpt2"}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      engine::Runner runner(models::load_model(io::find_model((data / folder).string())),
                            {.numerics = Numerics::serving(type), .context = 128, .sequences = 3, .threads = 2});
      std::array<engine::Piece, 3> pieces;
      for (int64_t s = 0; s < 3; ++s) pieces[static_cast<size_t>(s)] = {.sequence = s, .tokens = 5 + s};
      const std::vector<int32_t> prompt(18, 7);
      runner.forward(prompt, pieces);
      for (engine::Piece& piece : pieces) piece = {.sequence = piece.sequence, .tokens = 1, .phase = Phase::step};
      const std::array<int32_t, 3> ids = {9, 11, 13};
      const auto step = [&](int64_t sequences) {
        const auto n = static_cast<size_t>(sequences);
        const Tensor x = runner.forward(std::span(ids).first(n), std::span(pieces).first(n));
        const Tensor logits = runner.logits(x, sequences == 1 ? Phase::step : Phase::prefill);
        EXPECT_GE(engine::sample({logits.view().as<float>(), static_cast<size_t>(logits.dim(1))}, {}, {}, 0, 0), 0);
      };
      for (const int64_t sequences : {3, 1}) step(sequences);
      const int64_t before = allocations;
      for (int i = 0; i < 70; ++i) step(i % 2 == 0 ? 3 : 1);
      EXPECT_EQ(allocations - before, 0) << folder << " " << name_of(type);
    }
  }
}

// Batches of every kind of source, once the first ones have sized the buffers.
TEST(Allocation, ABatchAllocatesNothing) {
  if (!BRAID_COUNTS) GTEST_SKIP() << "a sanitizer has its own malloc";
  const support::Folder holder;
  const std::filesystem::path& folder = holder.path();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 5 * 3 * 17; ++i) ids.push_back(i * i % 29);
  io::SafetensorsWriter stored(folder / "ids.safetensors", {{"batches", DType::i64, {5, 3, 17}}});
  stored.write("batches", view_of(ids.data(), {5, 3, 17}));
  stored.finish();
  io::TokenFileWriter indexed(folder / "indexed", 64);
  std::ofstream text(folder / "text.txt"), talks(folder / "talks.jsonl");
  for (int document = 1; document < 40; ++document) {
    indexed.add(std::vector<int32_t>(static_cast<size_t>(1 + document * 7 % 23), document));
    for (int word = 0; word < document; ++word)
      text << "one or two words " << word << (word % 9 ? "" : "<|endoftext|>");
    talks << R"({"messages": [{"role": "user", "content": "say )" << document
          << R"("}, {"role": "assistant", "content": "it is )" << document * 11 << R"("}]})"
          << "\n";
  }
  indexed.finish();
  text.close();
  talks.close();
  const auto chat = std::filesystem::path(support::data()) / "tiny-chat";
  const int64_t vocabulary = models::load_config(io::find_model(chat.string())).vocab;
  for (const char* kind : {"markov", "pcfg", "modular", "recall", "ids", "indexed", "text", "jsonl"}) {
    const std::string name = kind;
    data::DataSpec spec{.kind = name, .batch = 3, .length = 256, .seed = 2};
    if (name == "ids") spec.length = 16;
    if (name == "ids") spec.path = folder / "ids.safetensors";
    if (name == "indexed") spec.path = folder / "indexed";
    if (name == "text") spec.path = folder / "text.txt";
    if (name == "jsonl") spec.path = folder / "talks.jsonl";
    spec.generator.modulus = 7;
    spec.goldfish.k = 3;
    const data::Loader loader = data::open(spec, chat, vocabulary);
    data::Batch batch;
    for (const int64_t step : {0, 1, 2}) loader.batch(step, batch);
    const int64_t before = allocations;
    for (int64_t step = 3; step < 40; ++step) loader.batch(step, batch);
    EXPECT_EQ(allocations - before, 0) << kind;
    EXPECT_GT(batch.trained, 0) << kind;
  }
}

TEST(Allocation, ARunningMeanAllocatesNothing) {
  if (!BRAID_COUNTS) GTEST_SKIP() << "a sanitizer has its own malloc";
  std::vector<float> values(100000, 1.0f);
  train::RunningMean mean(0.9, values, {{0, std::ssize(values)}});
  std::vector<double> losses;
  train::SpikeWindow window(16, losses);
  mean.follow(1, values, 2);
  window.push(1);
  const int64_t before = allocations;
  for (int64_t n = 2; n < 40; ++n) {
    mean.follow(n, values, 2);
    mean.exchange(values, 2);
    mean.exchange(values, 2);
    window.push(static_cast<double>(n));
    EXPECT_GE(window.z_score(100), 0);
  }
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace braid
