#include "text/gguf_vocabulary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "io/gguf_write.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "text/template.h"
#include "text/tokenizer_fixture.h"

namespace braid::text {
namespace {

using Words = std::vector<std::string>;
using Numbers = std::vector<int32_t>;

class GgufVocabularyTest : public support::FolderTest {
 protected:
  // Bytes, then " a" (256), "ab" (257), <s> (258), <x> (259, in the vocabulary and in text), and one that is unused.
  GgufVocabularyTest() {
    Words tokens(261);
    const auto bytes = byte_level_document({})["model"]["vocab"];  // outlives the loop
    for (const auto& [token, id] : bytes.items()) tokens[id.get<size_t>()] = token;
    tokens[256] = "Ġa";
    tokens[257] = "ab";
    tokens[258] = "<s>";
    tokens[259] = "<x>";
    tokens[260] = "[PAD260]";
    Numbers kinds(261, 1);
    kinds[258] = 3;
    kinds[259] = 4;
    kinds[260] = 5;
    fields_ = {{"tokenizer.ggml.model", std::string("gpt2")},
               {"tokenizer.ggml.pre", std::string("gpt-2")},
               {"tokenizer.ggml.tokens", tokens},
               {"tokenizer.ggml.token_type", kinds},
               {"tokenizer.ggml.merges", Words{"Ġ a", "a b"}}};
  }

  void set(const std::string& key, io::GgufField value) {
    std::erase_if(fields_, [&](const auto& field) { return field.first == key; });
    fields_.emplace_back(key, std::move(value));
  }
  void erase(const std::string& key) {
    std::erase_if(fields_, [&](const auto& field) { return field.first == key; });
  }
  std::filesystem::path file() const {
    io::GgufWriter(folder_ / "x.gguf", fields_, {}).finish();
    return folder_ / "x.gguf";
  }
  Tokenizer tokenizer() const { return Tokenizer::load(file()); }
  void expect_error(const std::string& what) const {
    const std::string error = support::error_of([&] { tokenizer(); });
    EXPECT_NE(error.find(what), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }

  io::GgufFields fields_;
};

TEST_F(GgufVocabularyTest, TextBecomesIdsAndBack) {
  const Tokenizer t = tokenizer();
  EXPECT_EQ(t.encode("ab a<x>c", true), (Ids{257, 256, 259, 'c'}));
  EXPECT_EQ(t.decode(Ids{257, 256, 259, 258, 260}, true), "ab a<x>");
  EXPECT_TRUE(t.is_special(258));
  EXPECT_FALSE(t.is_special(259));
  EXPECT_FALSE(t.token_to_id("[PAD260]"));
  EXPECT_TRUE(has_tokenizer(file()));
}

TEST_F(GgufVocabularyTest, BosAndEosWhereTheFileSaysSo) {
  set("tokenizer.ggml.bos_token_id", 258u);
  set("tokenizer.ggml.eos_token_id", 259u);
  EXPECT_EQ(tokenizer().encode("b", true), (Ids{'b'}));
  set("tokenizer.ggml.add_bos_token", true);
  set("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(tokenizer().encode("b", true), (Ids{258, 'b', 259}));
  EXPECT_EQ(tokenizer().encode("b", false), (Ids{'b'}));
  erase("tokenizer.ggml.add_bos_token");
  set("tokenizer.ggml.pre", std::string("llama-bpe"));  // adds it unless the file says otherwise
  EXPECT_EQ(tokenizer().encode("b", true), (Ids{258, 'b', 259}));
  set("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(tokenizer().encode("b", true), (Ids{'b', 259}));
}

TEST_F(GgufVocabularyTest, ATokenizerJsonInsideIsTaken) {
  set("tokenizer.huggingface.json", byte_level_document({{"b", "b"}}).dump());
  EXPECT_EQ(tokenizer().encode("bb", true), (Ids{256}));
}

TEST_F(GgufVocabularyTest, WhatCannotBeReadIsNamed) {
  const auto with = [&](const char* key, io::GgufField value, const std::string& what) {
    const io::GgufFields before = fields_;
    set(key, std::move(value));
    expect_error(what);
    fields_ = before;
  };
  with("tokenizer.ggml.model", std::string("bert"), "tokenizer.ggml.model is an unknown kind of tokenizer");
  with("tokenizer.ggml.pre", std::string("jais-2"), "got jais-2; expected one of default, gpt-2, llama-bpe");
  with("tokenizer.ggml.pre", 3u, "tokenizer.ggml.pre has the wrong type");
  with("tokenizer.ggml.token_type", Numbers{1, 2},
       "tokenizer.ggml.token_type has the wrong length; got 2; expected 261");
  with("tokenizer.ggml.tokens", Words(261, "same"), "twice");
  with("tokenizer.ggml.tokens", Words(261, "\xff"), "entry 0 of tokenizer.ggml.tokens is not UTF-8");
  with("tokenizer.ggml.merges", Words{"a b c"}, "a merge is not two tokens");
  with("tokenizer.ggml.merges", Words{"a zz"}, "names a token that the vocabulary lacks");
  with("tokenizer.ggml.add_bos_token", true, "tokenizer.ggml.add_bos_token without tokenizer.ggml.bos_token_id");
  set("tokenizer.ggml.add_bos_token", true);
  with("tokenizer.ggml.bos_token_id", 261u, "tokenizer.ggml.bos_token_id is not a token; got 261; expected below 261");
  erase("tokenizer.ggml.merges");
  expect_error("tokenizer.ggml.merges is missing");
  erase("tokenizer.ggml.tokens");
  expect_error("the file has no tokenizer");
  EXPECT_FALSE(has_tokenizer(file()));
}

TEST_F(GgufVocabularyTest, TemplatesAndTheirTokens) {
  EXPECT_NE(support::error_of([&] { ChatTemplate::load(file()); }).find("the file has no chat template"),
            std::string::npos);
  set("tokenizer.ggml.bos_token_id", 258u);
  set("tokenizer.chat_template", std::string("{{ bos_token }} {{ messages }}"));
  set("tokenizer.chat_templates", Words{"tool_use", "absent"});
  set("tokenizer.chat_template.tool_use", std::string("{{ tools }}"));
  set("tokenizer.chat_template.absent", std::string("\xff"));
  EXPECT_NE(support::error_of([&] {
              ChatTemplate::load(file());
            }).find("tokenizer.chat_template.absent is not a chat template"),
            std::string::npos);
  erase("tokenizer.chat_template.absent");
  const ChatTemplate chat = ChatTemplate::load(file());
  EXPECT_EQ(chat.render({{"messages", 1}}, {}), "<s> 1");
  EXPECT_EQ(chat.render({{"messages", 1}, {"tools", 2}}, {}), "2");
}

}  // namespace
}  // namespace braid::text
