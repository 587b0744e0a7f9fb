// GGUF against llama.cpp's own code: values of blocks as gguf-py decodes them, and models as its converter wrote them
// against the folders that they were made from: logits, tokens, prompts and answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "codec/codec.h"
#include "codec/ggml_blocks.h"
#include "codec/ggml_encode.h"
#include "engine/conversation.h"
#include "io/atomic_file.h"
#include "io/gguf.h"
#include "io/gguf_write.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "models/config_file.h"
#include "models/family.h"
#include "models/gguf.h"
#include "models/gguf_export.h"
#include "models/gguf_import.h"
#include "models/random_weights.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/golden.h"
#include "sys/machine.h"
#include "sys/mapped_file.h"

namespace braid {
namespace {

void expect_values(const std::filesystem::path& path, int64_t types_min) {
  const io::Safetensors file(path);
  int64_t types = 0;
  for (const GgmlTypeRow& row : ggml_types()) {
    const std::string name = row.name;
    const View *raw = file.find(name + ".raw"), *values = file.find(name + ".values");
    if (!raw || !values) continue;  // F32, F16 and BF16
    ++types;
    ASSERT_EQ(raw->dim(1), row.bytes) << name;
    ASSERT_EQ(values->dim(1), row.values) << name;
    std::vector<float> got(static_cast<size_t>(values->count()), 99.0f);
    decode_ggml(row.type, raw->data, got);
    EXPECT_EQ(std::memcmp(got.data(), values->data, got.size() * sizeof(float)), 0) << name;
  }
  EXPECT_GE(types, types_min);
}

TEST(GgmlBlocks, AreBitIdenticalToGgufPy) {
  expect_values(support::data("ggml_blocks.safetensors"), 23);
  if (const std::string fixtures = support::fixtures(); !fixtures.empty())
    expect_values(std::filesystem::path(fixtures) / "gguf/blocks.safetensors", 23);
}

void expect_encoded(const std::filesystem::path& path, int64_t types_min) {
  const io::Safetensors file(path);
  int64_t types = 0;
  for (const GgmlTypeRow& row : ggml_types()) {
    const std::string name = row.name;
    const View *source = file.find(name + ".source"), *want = file.find(name + ".encoded");
    if (!source || !encodes(row.type)) continue;
    ++types;
    const int64_t blocks = source->dim(0), values = source->dim(1), bytes = want->dim(1);
    ASSERT_EQ(bytes, values / row.values * row.bytes) << name;
    std::vector<std::byte> got(static_cast<size_t>(want->bytes()), std::byte{99});
    encode_ggml(row.type, {source->as<float>(), static_cast<size_t>(source->count())}, got.data());
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < blocks; ++i) {
      if (std::memcmp(got.data() + i * bytes, want->data + i * bytes, static_cast<size_t>(bytes)) == 0) continue;
      if (wrong++ == 0) first = i;
    }
    EXPECT_EQ(wrong, 0) << name << ", of " << blocks << " blocks, first " << first;
  }
  EXPECT_GE(types, types_min);
}

TEST(GgmlEncode, MatchesGgmlAndGgufPyByteForByte) {
  expect_encoded(support::data("ggml_encoded.safetensors"), 13);
  if (const std::string fixtures = support::fixtures(); !fixtures.empty())
    expect_encoded(std::filesystem::path(fixtures) / "gguf/blocks.safetensors", 6);
}

// Values that a type can represent round-trip, so encoding twice changes nothing.
TEST(GgmlEncode, BlocksOfOneScaleRoundTrip) {
  const io::Safetensors file(support::data("ggml_encoded.safetensors"));
  for (const GgmlType type : {GgmlType::f16, GgmlType::bf16, GgmlType::q8_0, GgmlType::q4_0, GgmlType::q5_0}) {
    const GgmlTypeRow& row = *ggml_type(static_cast<uint32_t>(type));
    const View& blocks = *file.find(std::string(row.name) + ".encoded");
    std::vector<float> once(static_cast<size_t>(blocks.bytes() / row.bytes * row.values)), twice(once.size());
    decode_ggml(type, blocks.data, once);
    std::vector<std::byte> again(static_cast<size_t>(blocks.bytes()));
    encode_ggml(type, once, again.data());
    decode_ggml(type, again.data(), twice);
    EXPECT_EQ(once, twice) << row.name;
  }
}

// Numbers so small that their scale has no inverse are zeros, not undefined.
TEST(GgmlEncode, TinyNumbersAreZeros) {
  const std::vector<float> tiny(256, 1e-40f);
  for (const GgmlTypeRow& row : ggml_types()) {
    if (!encodes(row.type) || row.type == GgmlType::f32 || row.type == GgmlType::bf16) continue;
    std::vector<std::byte> blocks(static_cast<size_t>(256 / row.values * row.bytes));
    encode_ggml(row.type, tiny, blocks.data());
    std::vector<float> got(256, 99.0f);
    decode_ggml(row.type, blocks.data(), got);
    for (const float v : got) ASSERT_NEAR(v, 0, 1e-30) << row.name;
  }
}

constexpr auto kContinue = [](int64_t) { return true; };
constexpr const char* kFolders[] = {"llama", "deci", "qwen3moe", "nemotron_h_moe"};  // of tests/data/gguf
const std::filesystem::path kData = support::data();

std::vector<float> logits_of(const std::filesystem::path& path, const std::vector<int32_t>& ids) {
  const auto runner = open_folder(path, {.numerics = Numerics::serving(DType::f32), .threads = 1});
  return prefill(*runner, 0, ids).logits;
}

class GgufFolder : public testing::TestWithParam<const char*> {
 protected:
  const std::filesystem::path folder_ = kData / "gguf" / GetParam(), file_ = folder_ / "model.gguf";
};

// Nothing is quantised: the values are the folder's, in another order and under other names. They stay the same when a
// folder is written from the file.
TEST_P(GgufFolder, HasTheLogitsOfItsFolder) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 70; ++i) ids.push_back((i * 37 + 5) % 490);  // beyond the first period that RoPE stretches
  const std::vector<float> want = logits_of(folder_, ids);
  ASSERT_EQ(want.size(), ids.size() * 512);
  EXPECT_LE(worst(logits_of(file_, ids), want), 1e-4);
  const support::Folder place;
  for (const DType type : {DType::bf16, DType::f32}) {
    const auto again = place.path() / name_of(type);
    ASSERT_TRUE(models::write_folder(io::Gguf(file_), again, {.type = type, .threads = 2}, kContinue));
    EXPECT_LE(worst(logits_of(again, ids), want), 1e-4) << name_of(type);
  }
}

TEST_P(GgufFolder, EndsWhereItsFolderEnds) {
  const auto ends = [](const std::filesystem::path& path) {
    const std::vector<int64_t> eos = models::load_config(io::find_model(path.string())).eos;
    return std::set<int64_t>(eos.begin(), eos.end());
  };
  EXPECT_EQ(ends(file_), ends(folder_));
  EXPECT_FALSE(ends(file_).empty());
}

TEST_P(GgufFolder, RendersLikeItsFolder) {
  const nlohmann::ordered_json variables = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                            {"add_generation_prompt", true},
                                            {"enable_thinking", false}};
  const auto file = text::ChatTemplate::load(file_), folder = text::ChatTemplate::load(folder_);
  EXPECT_EQ(file.render(variables, {}), folder.render(variables, {}));
}

// Difficult strings, including those of the tokenizers in tests/data.
std::vector<std::string> strings() {
  std::set<std::string> all = {"HelloWorld's camelCase don'T 12345 x=2;\r\n\r\n//  a", "<|im_start|>user\nhi<|im_end|>",
                               "e\u0301<think>1</think> 2026-11-22"};
  for (const auto& folder : std::filesystem::directory_iterator(kData / "tokenizers")) {
    std::ifstream file(folder.path() / "golden.json");
    for (const nlohmann::json& golden : nlohmann::json::parse(file)) all.insert(golden["text"].get<std::string>());
  }
  return {all.begin(), all.end()};
}

// The number of strings in which two tokenizers differ.
int64_t differences(const text::Tokenizer& a, const text::Tokenizer& b) {
  const std::vector<std::string> all = strings();
  return std::ranges::count_if(all, [&](const std::string& text) {
    const std::vector<int32_t> ids = a.encode(text, false);
    return ids != b.encode(text, false) || a.encode(text, true) != b.encode(text, true) ||
           a.decode(ids, true) != b.decode(ids, true);
  });
}

// The tokenizer of a file, but with the pre-tokenizer `pre`.
text::Tokenizer with_pre_tokenizer(const std::filesystem::path& path, const char* pre) {
  const io::Gguf file(path);
  const std::vector<std::string>& tokens = *file.strings_of("tokenizer.ggml.tokens");
  std::vector<int32_t> kinds;
  const auto stored = file.ints_of("tokenizer.ggml.token_type", tokens.size());
  for (const int64_t kind : stored.value()) kinds.push_back(static_cast<int32_t>(kind));
  const support::Folder folder;
  io::GgufFields fields = {{"tokenizer.ggml.model", std::string("gpt2")},
                           {"tokenizer.ggml.pre", std::string(pre)},
                           {"tokenizer.ggml.tokens", tokens},
                           {"tokenizer.ggml.token_type", kinds},
                           {"tokenizer.ggml.merges", *file.strings_of("tokenizer.ggml.merges")}};
  for (const char* word : {"bos", "eos"}) {
    if (const auto id = file.int_of(fmt::format("tokenizer.ggml.{}_token_id", word)))
      fields.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", word), static_cast<uint32_t>(*id));
    if (const auto add = file.bool_of(fmt::format("tokenizer.ggml.add_{}_token", word)))
      fields.emplace_back(fmt::format("tokenizer.ggml.add_{}_token", word), *add);
  }
  io::GgufWriter(folder.path() / "x.gguf", fields, {}).finish();
  return text::Tokenizer::load(folder.path() / "x.gguf");
}

TEST_P(GgufFolder, HasTheTokensOfItsFolder) {
  const auto folder = text::Tokenizer::load(folder_), file = text::Tokenizer::load(file_);
  EXPECT_EQ(differences(folder, file), 0);
  EXPECT_EQ(file.is_special(*file.token_to_id("<|im_end|>")), true);
  const std::string own = *io::Gguf(file_).string_of("tokenizer.ggml.pre");
  // Vocabularies this small distinguish most patterns, but not the most similar ones.
  int others = 0;
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "tekken", "gpt-4o", "starcoder", "default"}) {
    const int64_t count = differences(folder, with_pre_tokenizer(file_, pre));
    if (own == pre || (own == "pixtral" && pre == std::string("tekken"))) {
      EXPECT_EQ(count, 0) << pre;
    }
    others += count > 0;
  }
  EXPECT_GE(others, 4);
}

INSTANTIATE_TEST_SUITE_P(Converted, GgufFolder, testing::ValuesIn(kFolders),
                         [](const auto& converted) { return std::string(converted.param); });

// From the fixtures: only A_log, stored as its -exp, is rounded.
TEST(GgufModel, HasTheLogitsOfItsFolder) {
  if (support::fixtures().empty()) GTEST_SKIP() << "BRAID_FIXTURES names no folder";
  const std::filesystem::path fixtures = support::fixtures();
  const std::vector<int32_t> ids = {10, 304, 216, 11, 216, 10, 298, 216, 341, 314, 238, 38, 308};
  const std::vector<float> want = logits_of(fixtures / "tiny-chat", ids),
                           got = logits_of(fixtures / "gguf/tiny-chat-bf16.gguf", ids);
  EXPECT_EQ(want.size(), ids.size() * 640);
  EXPECT_LE(worst(got, want), 1e-4);
}

// From messages to text, with only the file. Quantised weights may change a close choice: llama.cpp, which
// rounds activations too, gives all of these answers; here one of the 22 may differ.
TEST(GgufModel, AnswersAsTransformersDoes) {
  if (support::fixtures().empty()) GTEST_SKIP() << "BRAID_FIXTURES names no folder";
  const std::filesystem::path fixtures = support::fixtures();
  std::ifstream golden_file(fixtures / "tiny-chat/golden.json");
  const auto golden = nlohmann::ordered_json::parse(golden_file);
  const auto folder = text::Tokenizer::load(fixtures / "tiny-chat");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixtures / "gguf")) {
    if (!io::is_gguf(entry.path())) continue;
    SCOPED_TRACE(entry.path().string());
    ++files;
    engine::LanguageModel model(entry.path().string(), {.numerics = Numerics::serving(DType::f32), .threads = 1});
    EXPECT_EQ(differences(folder, model.tokenizer()), 0);
    engine::Scheduler scheduler(model.runner());
    engine::Conversation conversation(model, scheduler);
    int others = 0;
    for (const auto& c : golden) {
      const bool think = c["enable_thinking"];
      EXPECT_EQ(model.render(c["messages"], {.think = think}), c["prompt"]);
      const auto answer = conversation.answer(
          c["messages"], {.generate = {.tokens_max = 96}, .think = think},
          {[](int64_t, int64_t) { return true; }, [](const engine::ReasoningSplitter::Parts&) { return true; }});
      EXPECT_EQ(nlohmann::ordered_json(answer.prompt_ids), c["prompt_ids"]);
      EXPECT_EQ(answer.generated.finish, engine::Finish::stop);
      others += nlohmann::ordered_json(answer.generated.ids) == c["ids"] ? 0 : 1;
    }
    EXPECT_LE(others, entry.path().filename() == "tiny-chat-bf16.gguf" ? 0 : 1);
  }
  EXPECT_GT(files, 0);
}

// ---- folders as files, and back ---------------------------------------------------------------------------------

std::vector<double> values_of(const Param& p) { return decode(p.value); }

class ConvertTest : public support::FolderTest {
 protected:
  std::filesystem::path to_gguf(const std::filesystem::path& model, const models::GgufOptions& options) const {
    const auto path = folder_ / "model.gguf";
    const models::GgufExport file(io::find_model(model.string()), options);
    EXPECT_TRUE(file.write(path, {}, kContinue));
    return path;
  }
  // Five layers that llama.cpp can run, with random weights.
  std::filesystem::path random_nvfp4(models::Spelling spelling) const {
    const auto config = io::Json::read(own("nemotron-h-modelopt-nvfp4") / "config.json");
    const io::Json json = models::first_layers(config, 5);
    const auto model = folder_ / (spelling == models::Spelling::released ? "released" : "transformers") / "model";
    EXPECT_TRUE(models::write_random_weights(models::read_config(json), model, {.format = Format::nvfp4}, kContinue));
    io::write_text_file(model / "config.json", models::config_text(json, spelling));
    return model;
  }
  static std::filesystem::path own(const std::string& name) {
    return std::filesystem::path(support::data()) / "hf" / name;
  }
};

bool exportable(const std::filesystem::path& model) {
  return support::error_of([&] { const models::GgufExport file(io::find_model(model.string()), {}); }).empty();
}
DType stored_type(const std::filesystem::path& model) {
  const auto loaded = models::load_model(io::find_model(model.string()));
  const Weight& head = loaded->params()[0]->value;
  return head.spec.format == Format::f32 ? DType::f32 : DType::bf16;
}

// In the type of the folder nothing is quantised, so that every value round-trips: A_log through -exp and log, which
// loses an ulp in F32 and nothing in BF16.
TEST_F(ConvertTest, AFolderRoundTripsThroughItsFile) {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
  const engine::RunnerOptions options{.numerics = Numerics::serving(DType::f32)};
  const auto logits = [&](const std::filesystem::path& path) {
    return prefill(*open_folder(path, options), 0, ids).logits;
  };
  int64_t folders = 0;
  for (const GoldenFolder& golden : all_folders()) {
    if (!exportable(golden.path)) continue;
    const DType type = stored_type(golden.path);
    const auto model = models::load_model(io::find_model(golden.path.string()));
    if (std::ranges::any_of(model->params(),
                            [](const Param* p) { return p->value.spec.block || p->value.global != 1; }))
      continue;  // quantised
    SCOPED_TRACE(golden.label);
    ++folders;
    const auto file = to_gguf(golden.path, {.type = type == DType::f32 ? GgmlType::f32 : GgmlType::bf16, .threads = 2});
    const auto back = folder_ / golden.label;
    EXPECT_TRUE(models::write_folder(io::Gguf(file), back, {.type = type, .threads = 2}, kContinue));
    const auto returned = models::load_model(io::find_model(back.string()));
    const std::vector<Param*> want = model->params(), got = returned->params();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const auto a = values_of(*want[i]), b = values_of(*got[i]);
      ASSERT_EQ(a.size(), b.size());
      const double tolerance = want[i]->role == ParamRole::a_log && type == DType::f32 ? 5e-7 : 0;
      for (size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], tolerance) << want[i]->name << " " << k;
    }
    const std::vector<float> folder_logits = logits(golden.path);
    EXPECT_LE(worst(logits(file), folder_logits), 1e-4);
    EXPECT_LE(worst(logits(back), folder_logits), 1e-4);
  }
  EXPECT_GE(folders, 1);
}

// The prediction block is the block after the layers under the names that llama.cpp's loader asks for
// (src/models/nemotron-h.cpp), and predicts from the file what it does from the folder.
TEST_F(ConvertTest, ThePredictionBlockIsOneMoreBlock) {
  const auto model = own("nemotron-h-latent-mtp");  // seven layers
  const auto path = to_gguf(model, {.type = GgmlType::bf16, .threads = 2});
  const io::Gguf file(path);
  EXPECT_EQ(file.int_of("nemotron_h_moe.block_count"), 8);
  EXPECT_EQ(file.int_of("nemotron_h_moe.nextn_predict_layers"), 1);
  EXPECT_EQ(file.ints_of("nemotron_h_moe.attention.head_count_kv", 8)->back(), 2);
  EXPECT_EQ(file.ints_of("nemotron_h_moe.feed_forward_length", 8)->back(), 58);
  std::set<std::string> asked, stored;
  for (const char* name : {"nextn.enorm.weight", "nextn.hnorm.weight", "nextn.eh_proj.weight",
                           "nextn.shared_head_norm.weight", "attn_norm.weight", "attn_q.weight", "attn_k.weight",
                           "attn_v.weight", "attn_output.weight", "post_attention_norm.weight", "ffn_gate_inp.weight",
                           "exp_probs_b.bias", "ffn_latent_down.weight", "ffn_latent_up.weight", "ffn_down_exps.weight",
                           "ffn_up_exps.weight", "ffn_down_shexp.weight", "ffn_up_shexp.weight"})
    asked.insert(std::string("blk.7.") + name);
  for (const io::GgufTensor& tensor : file.tensors()) {
    if (tensor.name.starts_with("blk.7.")) stored.insert(tensor.name);
  }
  EXPECT_EQ(stored, asked);
  EXPECT_EQ(file.find("blk.7.nextn.eh_proj.weight")->shape, (Shape{96, 192}));
  // As llama.cpp's converter renames them (conversion/nemotron.py); all five have one shape.
  const io::Safetensors folder(model);
  for (const auto& [name, released] : {std::pair{"nextn.enorm", "0.enorm"},
                                       {"nextn.hnorm", "0.hnorm"},
                                       {"attn_norm", "0.norm"},
                                       {"post_attention_norm", "1.norm"},
                                       {"nextn.shared_head_norm", "1.final_layernorm"}}) {
    std::vector<float> got(96);
    decode_ggml(GgmlType::f32, file.find(fmt::format("blk.7.{}.weight", name))->bytes.data(), got);
    const View want = folder.need(fmt::format("mtp.layers.{}.weight", released));
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(static_cast<double>(got[i]), element(want, static_cast<int64_t>(i))) << name;
  }
  const auto predicted = [](const std::filesystem::path& from) {
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
    const auto runner = open_folder(from, {.numerics = Numerics::serving(DType::f32), .threads = 1});
    const std::vector<float> final = prefill(*runner, 0, ids).final;
    const Tensor hidden(runner->ctx().arena, DType::f32, {std::ssize(ids), runner->config().hidden});
    std::copy(final.begin(), final.end(), hidden.mut().as<float>());
    std::vector<float> logits;
    append(logits, runner->mtp_logits(ids, hidden));
    return logits;
  };
  const std::vector<float> want = predicted(model);
  EXPECT_LE(worst(predicted(path), want), 1e-5);
  EXPECT_GT(want.size(), 0u);
}

// Where llama.cpp's loader has no place for it, the block is left out, and the file says nothing of it.
TEST_F(ConvertTest, APredictionBlockOfAnotherShapeIsLeftOut) {
  std::ifstream stream(own("nemotron-h-latent-mtp") / "config.json");
  const nlohmann::json config = nlohmann::json::parse(stream);
  const auto notes = [&](const char* name, const char* key, const nlohmann::json& value) {
    nlohmann::json changed = config;
    changed[key] = value;
    const auto model = folder_ / name;
    const io::Json json = io::Json::parse(changed.dump(), name);
    EXPECT_TRUE(models::write_random_weights(models::read_config(json), model, {}, kContinue));
    io::write_text_file(model / "config.json", changed.dump());
    const models::GgufExport plan(io::find_model(model.string()), {});
    const io::Gguf file(to_gguf(model, {.threads = 2}));
    EXPECT_FALSE(file.int_of("nemotron_h_moe.nextn_predict_layers"));
    EXPECT_EQ(file.int_of("nemotron_h_moe.block_count"), 7);
    std::filesystem::remove(folder_ / "model.gguf");
    return std::vector<std::string>(plan.notes().begin(), plan.notes().end());
  };
  const std::string says = "the block that predicts further tokens is left out: it has other ";
  EXPECT_EQ(notes("order", "mtp_layers_block_type", {"moe", "attention"}),
            std::vector{says + "layers than attention and experts"});
  EXPECT_EQ(notes("wide", "mtp_block_configs",
                  {{{"block_type", "attention"}}, {{"block_type", "moe"}, {"moe_intermediate_size", 64}}}),
            std::vector{says + "experts than the layers"});
}

// Llama-Nemotron with layers of every kind that llama.cpp computes. It does not compute a layer of attention alone.
TEST_F(ConvertTest, LlamaNemotronRoundTripsThroughItsFile) {
  std::ifstream stream(kData / "gguf/deci/config.json");
  nlohmann::json config = nlohmann::json::parse(stream);
  const auto random = [&](const char* name) {
    const auto model = folder_ / name;
    const io::Json json = io::Json::parse(config.dump(), name);
    EXPECT_TRUE(models::write_random_weights(models::read_config(json), model, {}, kContinue));
    io::write_text_file(model / "config.json", config.dump());
    return model;
  };
  const auto alone = random("alone");
  const std::string error =
      support::error_of([&] { const models::GgufExport file(io::find_model(alone.string()), {}); });
  EXPECT_NE(error.find("attention in a layer without a feed-forward"), std::string::npos) << error;
  config["block_configs"][2]["ffn"] = {{"ffn_mult", 0.5}, {"no_op", false}, {"replace_with_linear", false}};
  const auto model = random("model");
  const auto file = to_gguf(model, {.type = GgmlType::bf16, .threads = 2});
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 70; ++i) ids.push_back((i * 37 + 5) % 490);
  const std::vector<float> want = logits_of(model, ids);
  EXPECT_LE(worst(logits_of(file, ids), want), 1e-4);
  EXPECT_TRUE(models::write_folder(io::Gguf(file), folder_ / "back", {.threads = 2}, kContinue));
  EXPECT_LE(worst(logits_of(folder_ / "back", ids), want), 1e-4);
}

TEST_F(ConvertTest, AMatrixThatATypeCannotHoldGetsTheNearestThatCan) {
  const auto model = own("nemotron-h-latent-mtp");
  const models::GgufExport file(io::find_model(model.string()), {.type = GgmlType::q4_k});
  int64_t fell_back = 0;
  for (const models::GgufExport::Tensor& tensor : file.tensors()) {
    const int64_t row = tensor.spec.shape[tensor.spec.shape.rank - 1];
    const auto blocks = [&](GgmlType type) { return row % ggml_type(static_cast<uint32_t>(type))->values == 0; };
    EXPECT_TRUE(blocks(tensor.spec.type)) << tensor.spec.name;
    if (tensor.wanted != GgmlType::q4_k || blocks(GgmlType::q4_k)) continue;
    ++fell_back;
    EXPECT_EQ(tensor.spec.type, blocks(GgmlType::iq4_nl) ? GgmlType::iq4_nl : GgmlType::bf16) << tensor.spec.name;
  }
  EXPECT_GT(fell_back, 0);
  const std::string error = support::error_of([&] {
    const models::GgufExport strict(io::find_model(model.string()), {.type = GgmlType::q4_k, .strict = true});
  });
  EXPECT_NE(error.find("cannot be Q4_K; got rows of "), std::string::npos) << error;
  EXPECT_NE(error.find("expected a multiple of 256"), std::string::npos) << error;
}

// The head of a step multiplies codes, like the layers, if there is one sequence.
TEST_F(ConvertTest, TheHeadOfAStepMultipliesCodes) {
  if (!sys::machine().avx512_vnni) GTEST_SKIP() << "no AVX-512 VNNI on this machine";
  const auto step_logits = [](const std::filesystem::path& file, int64_t sequences) {
    const auto runner =
        open_folder(file, {.numerics = Numerics::serving(DType::bf16), .sequences = sequences, .threads = 1});
    const std::vector<int32_t> ids = {3, 17, 40};
    prefill(*runner, 0, ids);
    const Tensor logits = runner->step(0, 99);
    const auto* values = logits.view().as<float>();
    return std::vector<float>(values, values + logits.dim(1));
  };
  for (const GgmlType head : {GgmlType::bf16, GgmlType::q4_0}) {
    const auto file = to_gguf(own("nemotron-h-latent-mtp"), {.type = GgmlType::bf16, .head = head});
    const std::vector<float> one = step_logits(file, 1), of_two = step_logits(file, 2);
    EXPECT_LE(worst(one, of_two), 0.02);
    EXPECT_EQ(one == of_two, head == GgmlType::bf16);
    std::filesystem::remove(file);
  }
}

// Every type gives the values of its encoder, however threads share the tensor.
TEST_F(ConvertTest, FilesHoldWhatTheEncodersMake) {
  const auto model = own("nemotron-h-latent-mtp");
  for (const GgmlType type : {GgmlType::q8_0, GgmlType::q4_0, GgmlType::iq4_nl, GgmlType::mxfp4}) {
    const models::GgufExport plan(io::find_model(model.string()), {.type = type});
    const io::Gguf file(to_gguf(model, {.type = type, .threads = 2}));
    for (const models::GgufExport::Tensor& tensor : plan.tensors()) {
      const io::GgufTensor* stored = file.find(tensor.spec.name);
      ASSERT_TRUE(stored);
      ASSERT_EQ(stored->type->type, tensor.spec.type);
      if (tensor.spec.type != type) continue;
      std::vector<float> values;
      for (const auto& part : tensor.parts) {
        for (const double v : decode(part.second)) values.push_back(static_cast<float>(v));
      }
      std::vector<std::byte> want(stored->bytes.size());
      encode_ggml(type, values, want.data());
      EXPECT_TRUE(std::ranges::equal(stored->bytes, want)) << tensor.spec.name;
    }
  }
}

// Codes and scales of ModelOpt's NVFP4 are repacked: no value changes.
TEST_F(ConvertTest, Nvfp4OfAFolderKeepsItsValues) {
  const auto model = random_nvfp4(models::Spelling::transformers);
  const models::GgufExport plan(io::find_model(model.string()), {.type = GgmlType::nvfp4});
  const io::Gguf file(to_gguf(model, {.type = GgmlType::nvfp4, .threads = 2}));
  int64_t repacked = 0;
  for (const models::GgufExport::Tensor& tensor : plan.tensors()) {
    if (tensor.parts.empty() || tensor.spec.type != GgmlType::nvfp4) continue;
    if (tensor.parts[0].second.spec.format != Format::nvfp4) continue;
    ++repacked;
    const io::GgufTensor& stored = *file.find(tensor.spec.name);
    const std::vector<float> factors = models::gguf_factors(file, stored);
    ASSERT_EQ(factors.size(), tensor.parts.size());
    std::vector<float> got(static_cast<size_t>(stored.shape.count()));
    decode_ggml(GgmlType::nvfp4, stored.bytes.data(), got);
    size_t i = 0;
    for (size_t part = 0; part < factors.size(); ++part) {
      for (const double want : decode(tensor.parts[part].second)) {
        const double value = static_cast<double>(got[i++]) * static_cast<double>(factors[part]);
        ASSERT_DOUBLE_EQ(value, want) << tensor.spec.name << " " << i - 1;
      }
    }
  }
  EXPECT_GT(repacked, 0);
}

TEST_F(ConvertTest, BothSpellingsOfAConfigGiveTheSameFile) {
  const auto bytes = [&](models::Spelling spelling) {
    const models::GgufExport file(io::find_model(random_nvfp4(spelling).string()), {});
    const auto path = folder_ / "spelling.gguf";
    EXPECT_TRUE(file.write(path, {}, kContinue));
    const sys::MappedFile mapped(path);
    return std::vector<std::byte>(mapped.bytes().begin(), mapped.bytes().end());
  };
  EXPECT_TRUE(bytes(models::Spelling::transformers) == bytes(models::Spelling::released));
}

TEST_F(ConvertTest, WhatLlamaCppCannotRunIsRefused) {
  const std::string error =
      support::error_of([&] { const models::GgufExport file(io::find_model(own("gpt2").string()), {}); });
  EXPECT_NE(error.find("this family cannot be written as GGUF; got gpt2"), std::string::npos) << error;
  const auto legacy = own("nemotron-h-legacy");
  const std::string mixed =
      support::error_of([&] { const models::GgufExport file(io::find_model(legacy.string()), {}); });
  EXPECT_NE(mixed.find("experts in some layers and a dense feed-forward in others"), std::string::npos) << mixed;
}

}  // namespace
}  // namespace braid
