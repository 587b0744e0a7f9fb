#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/error_of.h"
#include "support/folder.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_fixture.h"

namespace braid::text {
namespace {

using support::error_of;

struct Damage {
  const char* what;
  const char* path;   // JSON pointer
  const char* value;  // the new value; nullptr removes
  const char* said;   // part of the message
};

const Damage kDamages[] = {
    {"no merges", "/model/merges", nullptr, "no merges"},
    {"empty merges", "/model/merges", "[]", "no merges"},
    {"merges of another kind", "/model/merges", "{}", "no merges"},
    {"unknown token in a merge", "/model/merges/0", R"(["a", "zz"])", "names a token that the vocabulary lacks"},
    {"merge whose result is no token", "/model/merges/0", R"(["a", "a"])", "names a token that the vocabulary lacks"},
    {"merge of one token", "/model/merges/0", R"("ab")", "not two tokens"},
    {"merge of three tokens", "/model/merges/0", R"(["a", "b", "c"])", "']' expected"},
    {"merge with an empty half", "/model/merges/0", R"(["", "ab"])", "empty half"},
    {"merge of numbers", "/model/merges/0", "[1, 2]", "'\"' expected"},
    {"no vocabulary", "/model/vocab", nullptr, "no vocabulary"},
    {"empty vocabulary", "/model/vocab", "{}", "vocabulary is empty"},
    {"huge id", "/model/vocab/a", "4000000000", "out of range"},
    {"negative id", "/model/vocab/a", "-1", "out of range"},
    {"fraction as id", "/model/vocab/a", "1.5", "integer expected"},
    {"text as id", "/model/vocab/a", R"("x")", "integer expected"},
    {"id given twice", "/model/vocab/a", "98", "given twice"},
    {"another model", "/model/type", R"("Unigram")", "BPE"},
    {"subword prefix", "/model/continuing_subword_prefix", R"("##")", "not supported"},
    {"unknown unknown token", "/model/unk_token", R"("<none>")", "unknown token is not in the vocabulary"},
    {"unknown pre-tokenizer", "/pre_tokenizer/type", R"("Magic")", "pre_tokenizer.type is not supported"},
    {"bad pattern", "/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"})",
     "bad regular expression"},
    {"bad behavior", "/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Maybe"})",
     "is unknown"},
    {"pattern of nothing", "/pre_tokenizer", R"({"type": "Split", "pattern": 5, "behavior": "Isolated"})", "pattern"},
    {"step after ByteLevel", "/pre_tokenizer",
     R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})", "after ByteLevel"},
    {"unknown normalizer", "/normalizer", R"({"type": "Magic"})", "normalizer.type is not supported"},
    {"unknown decoder", "/decoder", R"({"type": "Magic"})", "decoder.type is not supported"},
    {"unknown post-processor", "/post_processor", R"({"type": "Magic"})", "post_processor.type is not supported"},
    {"added token against the vocabulary", "/added_tokens", R"([{"id": 7, "content": "ab"}])",
     "contradicts the vocabulary"},
    {"added token on a taken id", "/added_tokens", R"([{"id": 7, "content": "new"}])", "contradicts the vocabulary"},
    {"added tokens of one id", "/added_tokens", R"([{"id": 900, "content": "x1"}, {"id": 900, "content": "x2"}])",
     "given twice"},
    {"added token without content", "/added_tokens", R"([{"id": 900}])", "content is missing"},
};

TEST(TokenizerHostile, DamageGivesOneClearLine) {
  for (const Damage& damage : kDamages) {
    nlohmann::json document = byte_level_document({{"a", "b"}});
    const nlohmann::json::json_pointer path(damage.path);
    if (damage.value) {
      document[path] = nlohmann::json::parse(damage.value);
    } else {
      document[path.parent_pointer()].erase(path.back());
    }
    const std::string error = error_of([&] { tokenizer_of(document); });
    EXPECT_NE(error.find(damage.said), std::string::npos) << damage.what << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << damage.what;
    EXPECT_TRUE(error.starts_with("[test]")) << error;
  }
}

TEST(TokenizerHostile, BrokenDocuments) {
  const std::string good = byte_level_document({{"a", "b"}}).dump();
  EXPECT_EQ(error_of([&] { Tokenizer::parse(good, "test"); }), "");
  for (size_t size = 0; size < good.size(); size += size < 300 ? 1 : 97) {
    EXPECT_TRUE(error_of([&] { Tokenizer::parse(good.substr(0, size), "test"); }).starts_with("[test]")) << size;
  }
  for (const std::string& text :
       {std::string(100'000, '['), std::string(100'000, '{'), "{\"model\":" + std::string(100'000, '['), good + "x",
        std::string("null"), std::string("{\"a\": \"\\ud800\"}"), std::string("\xff")}) {
    EXPECT_TRUE(error_of([&] { Tokenizer::parse(text, "test"); }).starts_with("[test]")) << text.substr(0, 20);
  }
}

TEST(TokenizerHostile, MissingFile) {
  EXPECT_NE(error_of([] { Tokenizer::load("no_such_folder"); }).find("no_such_folder"), std::string::npos);
}

class TokenizerConfigTest : public support::FolderTest {};

TEST_F(TokenizerConfigTest, NoFilesNoFields) {
  const TokenizerConfig config = TokenizerConfig::load(folder_);
  EXPECT_FALSE(config.bos_token || config.chat_template);
}

TEST_F(TokenizerConfigTest, TokensAndTemplates) {
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null,
      "add_bos_token": true, "model_max_length": 1000000000000000019884624838656,
      "chat_template": [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]})");
  TokenizerConfig config = TokenizerConfig::load(folder_);
  EXPECT_EQ(config.bos_token, "<s>");
  EXPECT_EQ(config.eos_token, "</s>");
  EXPECT_EQ(config.pad_token, std::nullopt);
  EXPECT_EQ(config.chat_template, "A");
  ASSERT_EQ(config.named_templates.size(), 2u);
  EXPECT_EQ(config.named_templates[1].source, "B");
  write("chat_template.jinja", "C");
  EXPECT_EQ(TokenizerConfig::load(folder_).chat_template, "C");
}

TEST_F(TokenizerConfigTest, WrongKinds) {
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_NE(error_of([&] { TokenizerConfig::load(folder_); }).find("chat_template"), std::string::npos);
}

}  // namespace
}  // namespace braid::text
