// What the runner promises besides equal bits, which tests/row_contract_test.cc checks on whole models.
#include "engine/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/ref.h"
#include "engine/language_model.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::engine {
namespace {

const std::string kModel = support::data("tiny-chat");

Piece step_of(int64_t tokens, bool tentative = false) {
  return {.tokens = tokens, .phase = Phase::step, .tentative = tentative};
}

// Far more sequences than memory holds: the error says how much their states need.
std::string needed(const RunnerOptions& options) {
  const std::string text = support::error_of([&] { LanguageModel model(kModel, options); });
  const size_t at = text.find("expected ");
  return at == std::string::npos ? "nothing was refused" : text.substr(at, text.find(" GiB", at) - at);
}

TEST(Runner, CountsWhatExactAndSpareSlotsTake) {
  LanguageModel model(kModel, {.context = 64, .threads = 1});
  const auto gib = [&](bool exact, int64_t slots, int64_t sequences) {
    const SequenceBytes bytes = sequence_bytes(model.runner().model().state_shapes(), {.kv = DType::bf16}, exact);
    const auto need = static_cast<double>(slots) * static_cast<double>(bytes.fixed) +
                      64 * static_cast<double>(sequences) * static_cast<double>(bytes.per_token);
    return fmt::format("expected {:.1f}", need / (1 << 30));
  };
  constexpr int64_t kMany = int64_t{1} << 28;
  EXPECT_EQ(needed({.context = 64, .sequences = kMany}), gib(false, kMany, kMany));
  const Numerics exact = Numerics::serving(DType::bf16, true);
  EXPECT_EQ(needed({.numerics = exact, .context = 64, .sequences = kMany}), gib(true, kMany, kMany));
  EXPECT_EQ(needed({.numerics = exact, .context = 64, .spare_slots = kMany}), gib(true, kMany + 1, 1));
  EXPECT_NE(gib(false, kMany, kMany), gib(true, kMany, kMany));
}

TEST(Runner, ATentativeStepCanBeForgotten) {
  LanguageModel model(kModel, {.context = 64, .spare_slots = 8, .threads = 1});
  Runner& runner = model.runner();
  const std::vector<int32_t> ids = {5, 6, 7, 8, 9};
  runner.prefill(0, ids, [](const Tensor&) {});
  const Piece guess = step_of(5, true);
  runner.forward(ids, {&guess, 1});
  EXPECT_EQ(runner.length(0), 5);
  EXPECT_EQ(runner.spare_slots(), 7);
  runner.reset(0);
  EXPECT_EQ(runner.length(0), 0);
  EXPECT_EQ(runner.spare_slots(), 8);
  runner.forward(ids, {&guess, 1});
  runner.keep(0, 5);
  EXPECT_EQ(runner.length(0), 5);
  EXPECT_EQ(runner.spare_slots(), 8);
}

// The logits after a prompt and three steps, of the sequence itself or of its fork.
std::vector<double> logits_after_steps(const Numerics& numerics, bool forked, const std::string& path = kModel) {
  const std::vector<int32_t> ids = {5, 6, 7, 8, 9, 10, 11, 12}, more = {13, 14, 15};
  LanguageModel model(path, {.numerics = numerics, .context = 64, .sequences = 2, .threads = 1});
  Runner& runner = model.runner();
  runner.prefill(0, ids, [](const Tensor&) {});
  if (forked) {
    runner.fork(0, 1);
    runner.step(0, 5);
  }
  Tensor last;
  for (const int32_t id : more) last = runner.step(forked ? 1 : 0, id);
  return to_doubles(last.view());
}

// Caches of fewer bits: logits close to FP32's but not equal, the same in every run and in a fork.
void expect_near_f32(const Numerics& numerics, double bound, const char* what) {
  const std::vector<double> want = logits_after_steps(Numerics::serving(DType::f32), false),
                            got = logits_after_steps(numerics, false);
  double size = 0, far = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    size = std::max(size, std::abs(want[i]));
    far = std::max(far, std::abs(got[i] - want[i]));
  }
  EXPECT_LE(far, bound * size) << what;
  EXPECT_GT(far, 0) << what;
  EXPECT_EQ(logits_after_steps(numerics, false), got) << what;
  EXPECT_EQ(logits_after_steps(numerics, true), got) << what;
}

TEST(Runner, KeysAndValuesOfOneByte) {
  for (const auto& [dtype, bound] : {std::pair{DType::f8_e4m3, 0.1}, {DType::i8, 0.02}}) {
    Numerics numerics = Numerics::serving(DType::f32);
    numerics.kv = dtype;
    expect_near_f32(numerics, bound, name_of(dtype));
  }
}

// The model with keys and values 2^-12 times as large, below what FP8 holds, and queries and output products 2^12
// times: all else is as it was, bit for bit. The files say by which factor a cache divides, under one of the names in
// use.
struct SmallKeys {
  const char *key = "k_proj.k_scale", *value = "v_proj.v_scale";
  double factor = 0x1p-12;
  int64_t heads = 0;  // 0: one number, else one for each head
  std::string quantisation{};
};
std::string with_small_keys(const support::Folder& folder, const SmallKeys& options) {
  std::filesystem::copy(kModel, folder.path(), std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder.path() / "model.safetensors");
  if (!options.quantisation.empty()) folder.write("hf_quant_config.json", options.quantisation);
  const io::Safetensors from(std::filesystem::path(kModel) / "model.safetensors");
  std::vector<io::TensorSpec> specs;
  const Shape shape = options.heads > 0 ? Shape{options.heads} : Shape{};
  for (const io::StoredTensor& tensor : from.tensors()) {
    specs.push_back({tensor.name, tensor.view.dtype, tensor.view.shape});
    const size_t end = tensor.name.find("k_proj.weight");
    if (end == std::string::npos || options.factor == 1) continue;
    for (const char* name : {options.key, options.value})
      specs.push_back({tensor.name.substr(0, end) + name, DType::f32, shape});
  }
  io::SafetensorsWriter to(folder.path() / "model.safetensors", specs);
  for (const io::TensorSpec& spec : to.order()) {
    std::vector<std::byte> bytes(static_cast<size_t>(spec.bytes()));
    const MutView values(bytes.data(), spec.dtype, spec.shape);
    const View* stored = from.find(spec.name);
    const auto named = [&](const char* part) { return spec.name.find(part) != std::string::npos; };
    const double by = named("k_proj.weight") || named("v_proj.weight")   ? 0x1p-12
                      : named("q_proj.weight") || named("o_proj.weight") ? 0x1p12
                                                                         : 1;
    for (int64_t i = 0; i < values.count(); ++i)
      set_element(values, i, stored ? by * element(*stored, i) : options.factor / static_cast<double>(i + 1));
    to.write(spec.name, bytes);
  }
  to.finish();
  return folder.path().string();
}

TEST(Runner, Fp8CachesUseTheFactorsOfTheCheckpoint) {
  Numerics fp8 = Numerics::serving(DType::f32);
  fp8.kv = DType::f8_e4m3;
  const std::vector<double> want = logits_after_steps(fp8, false), exact = logits_after_steps({}, false);
  const auto of = [](const SmallKeys& options, const Numerics& numerics) {
    const support::Folder folder;
    return logits_after_steps(numerics, false, with_small_keys(folder, options));
  };
  EXPECT_EQ(of({}, fp8), want);
  EXPECT_EQ(of({.key = "k_scale", .value = "v_scale"}, fp8), want);
  EXPECT_EQ(of({.heads = 2}, fp8), want);   // the larger of two
  EXPECT_EQ(of({}, {}), exact);             // caches of other types do not read them
  EXPECT_NE(of({.factor = 1}, fp8), want);  // without factors all keys and values would be zero
  const support::Folder folder;
  const std::string path = with_small_keys(folder, {.factor = -1});
  const std::string error = support::error_of([&] { LanguageModel model(path, {.context = 64}); });
  EXPECT_NE(error.find("k_scale is damaged"), std::string::npos) << error;
}

TEST(Runner, TheCacheIsFp8WhereTheCheckpointSaysSo) {
  const auto cache = [](const std::string& quantisation, const Numerics& numerics) {
    const support::Folder folder;
    LanguageModel model(with_small_keys(folder, {.quantisation = quantisation}),
                        {.numerics = numerics, .context = 64, .threads = 1});
    return model.runner().options().numerics.caches().kv;
  };
  const Numerics automatic = Numerics::serving(DType::bf16);
  Numerics chosen = automatic;
  chosen.kv = DType::i8;
  const std::string fp8 = R"({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})";
  EXPECT_EQ(cache(fp8, automatic), DType::f8_e4m3);
  EXPECT_EQ(cache(fp8, chosen), DType::i8);
  EXPECT_EQ(cache(fp8, Numerics::serving(DType::bf16, true)), DType::bf16);  // --exact keeps what training has
  EXPECT_EQ(cache(fp8, Numerics::serving(DType::f32)), DType::f32);          // as --dtype f32 asks for
  EXPECT_EQ(
      cache(R"({"quantization": {"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": false}}})", automatic),
      DType::f8_e4m3);
  for (const char* other : {R"({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": null}})",
                            R"({"quantization": {"kv_cache_quant_algo": "NVFP4"}})",
                            R"({"quantization": {"kv_cache_scheme": {"num_bits": 8, "type": "int"}}})"})
    EXPECT_EQ(cache(other, automatic), DType::bf16) << other;
}

TEST(Runner, StatesOfFewerBits) {
  for (const auto& [dtype, bound] : {std::pair{DType::bf16, 0.05}, {DType::f16, 0.01}, {DType::i8, 0.1}}) {
    Numerics numerics = Numerics::serving(DType::f32);
    numerics.ssm = dtype;
    expect_near_f32(numerics, bound, name_of(dtype));
  }
}

TEST(RunnerDeath, MisuseIsABug) {
  LanguageModel model(kModel, {.context = 64, .sequences = 2, .spare_slots = 2, .threads = 1});
  Runner& runner = model.runner();
  const std::vector<int32_t> ids = {5, 6};
  const std::vector<Piece> twice = {step_of(1), step_of(1)};
  EXPECT_DEATH(runner.forward(ids, twice), "sequence 0 twice in a pass");
  const Piece guess = step_of(2, true), outside{.sequence = 2, .tokens = 2};
  EXPECT_DEATH(runner.forward(ids, {&outside, 1}), "sequence 2 of 2");
  runner.forward(ids, {&guess, 1});
  EXPECT_DEATH(runner.forward(ids, {&guess, 1}), "sequence 0 waits for `keep`");
  EXPECT_DEATH(runner.fork(0, 1), "a fork of sequence 0");
  EXPECT_DEATH(runner.keep(0, 3), "3 tokens of a tentative step of 2");
  runner.keep(0, 2);
  ASSERT_TRUE(runner.mark(0));
  ASSERT_TRUE(runner.mark(1));
  EXPECT_DEATH(runner.forward(ids, {&guess, 1}), "no free slot for a tentative step of sequence 0");
}

// A state that is stored in fewer bits is rounded after every token, replayed or not.
TEST(Runner, KeptTokensLeaveTheStateOfSingleSteps) {
  for (const DType stored : {DType::f32, DType::bf16, DType::f16, DType::i8}) {
    Numerics numerics = Numerics::serving(DType::f32);
    numerics.ssm = stored;
    LanguageModel model(kModel, {.numerics = numerics, .context = 64, .sequences = 3, .spare_slots = 2, .threads = 1});
    Runner& runner = model.runner();
    const std::vector<int32_t> prompt = {5, 6, 7}, guessed = {8, 9, 10, 11};
    for (int64_t kept = 0; kept <= 4; ++kept) {
      for (int64_t sequence = 0; sequence < 3; ++sequence) {
        runner.reset(sequence);
        runner.prefill(sequence, prompt, [](const Tensor&) {});
      }
      std::vector<int32_t> ids;  // two guesses and what another reads between them
      std::vector<Piece> pieces;
      for (const int64_t sequence : {1, 2, 0}) {
        pieces.push_back(step_of(4, sequence != 2));
        pieces.back().sequence = sequence;
        ids.insert(ids.end(), guessed.begin(), guessed.end());
      }
      runner.forward(ids, pieces);
      runner.keep(1, 4 - kept);
      runner.keep(0, kept);
      runner.reset(2);
      runner.prefill(2, prompt, [](const Tensor&) {});
      for (int64_t i = 0; i < kept; ++i) runner.step(2, guessed[static_cast<size_t>(i)]);
      EXPECT_EQ(to_doubles(runner.step(0, 12).view()), to_doubles(runner.step(2, 12).view()))
          << name_of(stored) << " " << kept;
    }
  }
}

// The rest of a sequence repeats its first page, and a step reads all of it.
TEST(Runner, PretendsToHaveRead) {
  LanguageModel model(kModel, {.context = 400, .sequences = 2, .threads = 1});
  Runner& runner = model.runner();
  const std::vector<int32_t> ids(100, 5);
  for (const int64_t sequence : {1, 0}) runner.prefill(sequence, ids, [](const Tensor&) {});
  const Tensor near = runner.step(1, 7);
  runner.pretend(0, 331);
  EXPECT_EQ(runner.length(0), 331);
  const int32_t* pages = runner.state().page_table.as<int32_t>(0);
  int64_t compared = 0;
  for (const nn::BlockState& block : runner.state().blocks) {
    for (const MutView& v : block.by_page()) {
      for (int64_t i = 1; v && i < 6; ++i, ++compared)
        EXPECT_EQ(to_doubles(v.slice(0, pages[i], 1)), to_doubles(v.slice(0, pages[0], 1))) << i;
    }
  }
  EXPECT_GE(compared, 10);
  EXPECT_NE(to_doubles(runner.step(0, 7).view()), to_doubles(near.view()));
  EXPECT_EQ(runner.length(0), 332);
}

// Nemotron-H encodes no positions: measurements may exceed the trained length.
TEST(Runner, AContextBeyondTraining) {
  const std::string refused = support::error_of([&] { LanguageModel model(kModel, {.context = 5000, .threads = 1}); });
  EXPECT_NE(refused.find("at most 4096 (max_position_embeddings)"), std::string::npos) << refused;
  LanguageModel model(kModel, {.context = 5000, .beyond_training = true, .threads = 1});
  EXPECT_EQ(model.runner().options().context, 5000);
  const std::string nas = support::data("hf/nemotron-nas");
  const std::string rotary =
      support::error_of([&] { LanguageModel other(nas, {.context = 1 << 20, .beyond_training = true}); });
  EXPECT_NE(rotary.find("longer than the model allows"), std::string::npos) << rotary;
}

// An error before the pass leaves every sequence as it was.
TEST(Runner, ATooLongSequenceChangesNothing) {
  LanguageModel model(kModel, {.context = 64, .sequences = 2, .spare_slots = 4, .threads = 1});
  Runner& runner = model.runner();
  const std::vector<int32_t> ids(63, 5), next(4, 6);
  runner.prefill(1, ids, [](const Tensor&) {});
  const std::vector<Piece> pieces = {step_of(2, true), {.sequence = 1, .tokens = 2}};
  EXPECT_THROW(runner.forward(next, pieces), Error);
  EXPECT_EQ(runner.length(0), 0);
  EXPECT_EQ(runner.length(1), 63);
  EXPECT_EQ(runner.spare_slots(), 4);
  runner.step(0, 5);
  runner.step(1, 5);
  EXPECT_EQ(runner.length(1), 64);
}

}  // namespace
}  // namespace braid::engine
