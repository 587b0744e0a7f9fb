#include "text/gguf_vocabulary_write.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "io/gguf.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "text/tokenizer.h"

namespace braid::text {
namespace {

const std::filesystem::path kData = support::data();
class GgufVocabularyWriteTest : public support::FolderTest {};

template <class Kind>
const Kind* find(const GgufVocabulary& vocabulary, const std::string& key) {
  for (const auto& field : vocabulary.fields) {
    if (field.first == key) return std::get_if<Kind>(&field.second);
  }
  return nullptr;
}

// As written by llama.cpp's own converter, except for the pre-tokenizer, which was given to it.
TEST_F(GgufVocabularyWriteTest, TinyChatHasItsTokensKindsAndMerges) {
  const GgufVocabulary v = gguf_vocabulary(kData / "tiny-chat", {.size = 642, .bos = 1, .ends = {2, 11}});
  EXPECT_EQ(*find<std::string>(v, "tokenizer.ggml.model"), "gpt2");
  const auto& tokens = *find<std::vector<std::string>>(v, "tokenizer.ggml.tokens");
  const auto& kinds = *find<std::vector<int32_t>>(v, "tokenizer.ggml.token_type");
  ASSERT_EQ(tokens.size(), 642u);
  ASSERT_EQ(kinds.size(), 642u);
  EXPECT_EQ(tokens[11], "<|im_end|>");
  EXPECT_EQ(kinds[11], 3);
  EXPECT_EQ(tokens[18], "!");
  EXPECT_EQ(kinds[18], 1);
  EXPECT_EQ(tokens[641], "[PAD641]");  // a row without a token
  EXPECT_EQ(kinds[641], 5);
  const auto& merges = *find<std::vector<std::string>>(v, "tokenizer.ggml.merges");
  ASSERT_EQ(merges.size(), 366u);
  EXPECT_EQ(merges[0], "< |");
  EXPECT_EQ(*find<uint32_t>(v, "tokenizer.ggml.bos_token_id"), 1u);
  EXPECT_EQ(*find<uint32_t>(v, "tokenizer.ggml.eos_token_id"), 11u);  // the tokenizer's, then the other end
  EXPECT_EQ(*find<uint32_t>(v, "tokenizer.ggml.eot_token_id"), 2u);
  EXPECT_EQ(*find<bool>(v, "tokenizer.ggml.add_bos_token"), false);
  EXPECT_TRUE(find<std::string>(v, "tokenizer.chat_template"));
  EXPECT_EQ(find<std::string>(v, "tokenizer.huggingface.json")->substr(0, 1), "{");
  EXPECT_EQ(v.notes.size(), 1u);  // its splitting has no name in llama.cpp
}

TEST_F(GgufVocabularyWriteTest, SplittingsHaveTheirNames) {
  const std::pair<const char*, const char*> cases[] = {
      {"tekken", "tekken"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"gpt2", "gpt-2"}};
  for (const auto& [folder, name] : cases) {
    auto path = kData / "tokenizers" / folder;
    if (!std::filesystem::exists(path)) path = std::filesystem::path(support::fixtures()) / "tokenizers" / folder;
    if (!std::filesystem::exists(path)) continue;
    const GgufVocabulary v = gguf_vocabulary(path, {.size = 4096});
    ASSERT_TRUE(find<std::string>(v, "tokenizer.ggml.pre")) << folder;
    EXPECT_EQ(*find<std::string>(v, "tokenizer.ggml.pre"), name);
    EXPECT_TRUE(v.notes.empty()) << v.notes[0];
  }
}

// Merges become scores, and scores merges again: the ids stay the same without the tokenizer.json.
TEST_F(GgufVocabularyWriteTest, SentencePieceGoesThroughScores) {
  int found = 0;
  for (const char* name : {"spm-metaspace", "spm-prepend", "spm-legacy"}) {
    auto path = kData / "tokenizers" / name;
    if (!std::filesystem::exists(path)) path = std::filesystem::path(support::fixtures()) / "tokenizers" / name;
    if (!std::filesystem::exists(path)) continue;
    ++found;
    const Tokenizer original = Tokenizer::load(path);
    GgufVocabulary v = gguf_vocabulary(path, {.size = 4096, .bos = 1});
    const bool metaspace = std::string(name) == "spm-metaspace";
    EXPECT_EQ(v.notes.size(), metaspace ? 1u : 0u);  // about spaces at the start
    EXPECT_EQ(*find<std::string>(v, "tokenizer.ggml.model"), "llama");
    EXPECT_EQ(find<std::vector<float>>(v, "tokenizer.ggml.scores")->size(), 4096u);
    EXPECT_EQ(std::ranges::count(*find<std::vector<int32_t>>(v, "tokenizer.ggml.token_type"), 6), 256);  // bytes
    std::erase_if(v.fields, [](const auto& field) { return field.first == "tokenizer.huggingface.json"; });
    io::GgufWriter(folder_ / "x.gguf", v.fields, {}).finish();
    const Tokenizer again = Tokenizer::load(folder_ / "x.gguf");
    for (const char* text :
         {"Hello, world!", "  two  spaces and\ttabs\n\nlines ", "naïve café 東京 \xF0\x9F\xA6\x99", "x", " ",
          "the theory of these things is that it is indeed interesting", "</s>in text<s> too", "12345.678"}) {
      if (metaspace && (text[0] == ' ' || text[0] == '<')) continue;
      EXPECT_EQ(again.encode(text, true), original.encode(text, true)) << name << ": " << text;
      EXPECT_EQ(again.decode(original.encode(text, false), false), original.decode(original.encode(text, false), false))
          << text;
    }
  }
  EXPECT_GE(found, 2);
}

TEST_F(GgufVocabularyWriteTest, FoldersWithoutATokenizerRunByIds) {
  const GgufVocabulary v = gguf_vocabulary(folder_, {.size = 8, .bos = 1, .ends = {2, 7, 9}});
  EXPECT_EQ(*find<std::string>(v, "tokenizer.ggml.model"), "no_vocab");
  EXPECT_EQ(*find<uint32_t>(v, "tokenizer.ggml.bos_token_id"), 1u);
  EXPECT_EQ(*find<uint32_t>(v, "tokenizer.ggml.eos_token_id"), 2u);
  EXPECT_EQ(*find<uint32_t>(v, "tokenizer.ggml.eot_token_id"), 7u);
  EXPECT_EQ(find<uint32_t>(v, "tokenizer.ggml.eom_token_id"), nullptr);  // no row
  EXPECT_EQ(v.notes.size(), 1u);
  const std::string error = support::error_of([] { gguf_vocabulary(kData / "tiny-chat", {.size = 639}); });
  EXPECT_NE(error.find("has no row in the embedding; got 639; expected below 639"), std::string::npos) << error;
}

}  // namespace
}  // namespace braid::text
