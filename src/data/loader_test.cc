#include "data/loader.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data/read_text.h"
#include "io/safetensors_write.h"
#include "io/token_file.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "text/bpe_trainer.h"
#include "text/template.h"
#include "text/tokenizer.h"

namespace braid::data {
namespace {

using support::error_of;

class LoaderTest : public support::FolderTest {
 protected:
  // batches[s][b][t] = 100 s + 10 b + t
  std::filesystem::path ids_file(int64_t steps, int64_t batch, int64_t width) const {
    std::vector<int64_t> ids;
    for (int64_t s = 0; s < steps; ++s) {
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t t = 0; t < width; ++t) ids.push_back(100 * s + 10 * b + t);
      }
    }
    io::SafetensorsWriter writer(folder_ / "ids.safetensors", {{"batches", DType::i64, {steps, batch, width}}});
    writer.write("batches", view_of(ids.data(), {steps, batch, width}));
    writer.finish();
    return folder_ / "ids.safetensors";
  }
};

TEST_F(LoaderTest, IdsHoldNothingOut) {
  const auto path = ids_file(3, 2, 9);
  for (const bool held_out : {false, true}) {
    const DataSpec spec{.kind = "ids", .path = path, .validation = held_out ? 0 : 0.5, .held_out = held_out};
    EXPECT_NE(error_of([&] { open(spec, {.vocabulary = 1000}); }).find("none is held out; try eval.data"),
              std::string::npos);
  }
}

TEST_F(LoaderTest, IdsComeInTheirOrder) {
  const std::string path = ids_file(3, 2, 5);
  const Loader loader = open({.kind = "ids", .path = path}, {.vocabulary = 1000});
  EXPECT_EQ(loader.rows(), 2);
  EXPECT_EQ(loader.length(), 4);
  EXPECT_EQ(loader.steps_per_epoch(), 3);
  const Batch batch = loader.batch(1);
  EXPECT_EQ(batch.ids, (std::vector<int32_t>{100, 101, 102, 103, 110, 111, 112, 113}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{101, 102, 103, 104, 111, 112, 113, 114}));
  EXPECT_EQ(batch.rows, (std::vector<int64_t>{0, 4, 8}));
  ASSERT_EQ(batch.seqs.seqs.size(), 2u);
  EXPECT_EQ(batch.seqs.seqs[1].start, 4);
  EXPECT_EQ(batch.seqs.seqs[1].sample_id, 12);
  EXPECT_EQ(batch.trained, 8);
  EXPECT_EQ(loader.batch(4).ids, batch.ids);  // and again from the first
}

// Any token, any boundary and nothing else, on any number of threads.
TEST_F(LoaderTest, AllThatFilesSayIsContent) {
  const std::vector<int32_t> all(300'000, 7);
  const auto content = [&](const std::string& name, size_t first, size_t changed = 1 << 30, int64_t batch = 2) {
    std::vector<int32_t> ids = all;
    if (changed < ids.size()) ids[changed] = 8;
    io::TokenFileWriter writer(folder_ / name, 50);
    writer.add(std::span(ids).first(first));
    writer.add(std::span(ids).subspan(first));
    writer.finish();
    const Loader loader =
        open({.path = folder_ / name, .batch = batch, .length = 16, .seed = first}, {.vocabulary = 50});
    EXPECT_EQ(loader.content(1), loader.content(3));
    return loader.content(1);
  };
  std::set<uint64_t> seen{content("whole", 1000), content("boundary", 1001)};
  for (const size_t at : {0, 1, 65535, 65536, 150'001, 299'998, 299'999})
    seen.insert(content("changed" + std::to_string(at), 1000, at));
  EXPECT_EQ(seen.size(), 9u);
  EXPECT_EQ(content("again", 1000, 1 << 30, 3), content("whole-again", 1000));
  const auto ids_content = [&](int64_t steps, int64_t batch, int64_t width) {
    return open({.kind = "ids", .path = ids_file(steps, batch, width)}, {.vocabulary = 1000}).content(2);
  };
  EXPECT_NE(ids_content(3, 2, 5), ids_content(2, 3, 5));
  EXPECT_EQ(ids_content(3, 2, 5), ids_content(3, 2, 5));
  EXPECT_EQ(open({.kind = "markov", .batch = 3, .length = 16}, {.vocabulary = 50}).content(2), 0u);
}

TEST_F(LoaderTest, IdsOfAnotherFormAreRefused) {
  const std::string path = ids_file(3, 2, 5);
  const auto error = [&](const DataSpec& spec, int64_t vocabulary) {
    return error_of([&] { open(spec, {.vocabulary = vocabulary}); });
  };
  EXPECT_EQ(error({.kind = "ids", .path = path}, 214), "[" + path +
                                                           "] a token id is outside the vocabulary; got id 214 in "
                                                           "batches[2]; expected 0 to 213, the model's vocabulary");
  EXPECT_EQ(error({.kind = "ids", .path = path, .batch = 4}, 1000),
            "[" + path + "] the batches have a different batch; got 2; expected batch = 4");
  EXPECT_NE(error({.kind = "idz", .path = path}, 1000).find("[data.kind] unknown kind; got idz"), std::string::npos);
}

TEST_F(LoaderTest, ABatchDependsOnSeedAndStepAlone) {
  const DataSpec spec{.kind = "markov", .batch = 3, .length = 16, .seed = 4};
  const Loader a = open(spec, {.vocabulary = 50}), b = open(spec, {.vocabulary = 50});
  const Batch third = a.batch(3);
  for (int64_t step = 0; step < 3; ++step) a.batch(step);
  EXPECT_EQ(b.batch(3).ids, third.ids);
  EXPECT_NE(a.batch(2).ids, third.ids);
  DataSpec other = spec;
  other.seed = 5;
  EXPECT_NE(open(other, {.vocabulary = 50}).batch(3).ids, third.ids);
  other = spec;
  other.held_out = true;
  EXPECT_NE(open(other, {.vocabulary = 50}).batch(3).ids, third.ids);
  EXPECT_EQ(*open(other, {.vocabulary = 50}).entropy_floor(), *a.entropy_floor());  // of the same chain
}

TEST_F(LoaderTest, GoldfishDropsTheSameTokensOfEveryCopy) {
  DataSpec spec{.kind = "markov", .batch = 8, .length = 512, .seed = 4};
  spec.goldfish.k = 4;
  const Loader loader = open(spec, {.vocabulary = 50});
  const Batch batch = loader.batch(0), again = loader.batch(0);
  EXPECT_EQ(batch.targets, again.targets);
  EXPECT_NEAR(static_cast<double>(batch.trained) / (8 * 512), 0.75, 0.03);
  // The hash sees a window: a copy of the passage elsewhere loses the same tokens once the window is full.
  const Goldfish goldfish{.k = 4};
  std::vector<int32_t> passage(batch.ids.begin(), batch.ids.begin() + 100), copy{1, 2, 3};
  copy.insert(copy.end(), passage.begin(), passage.end());
  int64_t dropped = 0;
  for (size_t n = 13; n <= passage.size(); ++n) {
    const bool drops = goldfish.drops(std::span(passage).first(n), 0);
    EXPECT_EQ(drops, goldfish.drops(std::span(copy).first(n + 3), 1));
    dropped += drops;
  }
  EXPECT_GT(dropped, 10);
  // The control leaves out as many, but not of what they say: a copy loses others, and epochs differ.
  spec.goldfish.by_position = true;
  const Loader by_position = open(spec, {.vocabulary = 50});
  EXPECT_NEAR(static_cast<double>(by_position.batch(0).trained) / (8 * 512), 0.75, 0.03);
  const Goldfish control{.k = 4, .by_position = true};
  double same = 0;
  for (int64_t position = 0; position < 400; ++position)
    same += control.drops(passage, position) == control.drops(passage, position + 400) ? 1 : 0;
  EXPECT_NEAR(same, 250, 40);  // (3/4)^2 + (1/4)^2 of 400
  // Zeros are tokens like others, and the first tokens of a document are dropped too.
  const std::vector<int32_t> zeros(40, 0);
  EXPECT_FALSE(goldfish.drops({}, 0));
  std::set<bool> early;
  for (int32_t id = 0; id < 20; ++id) early.insert(goldfish.drops(std::vector<int32_t>{0, id}, 0));
  EXPECT_EQ(early.size(), 2u);
}

// A target is dropped by the hash of the window that ends with it: changing it or the first token of the window counts,
// changing any token before that does not.
TEST_F(LoaderTest, GoldfishHashesItsWindowWithTheTarget) {
  DataSpec spec{.kind = "markov", .batch = 2, .length = 512, .seed = 4};
  spec.goldfish.k = 4;
  const Batch batch = open(spec, {.vocabulary = 50}).batch(0);
  for (const Seq& seq : batch.seqs.seqs) {
    const auto ids = std::span(batch.ids).subspan(static_cast<size_t>(seq.start), static_cast<size_t>(seq.len));
    for (size_t t = 0; t + 1 < ids.size(); ++t) {
      const int32_t target = batch.targets[static_cast<size_t>(seq.start) + t];
      EXPECT_EQ(target, spec.goldfish.drops(ids.first(t + 2), 0) ? kMasked : ids[t + 1]) << t;
    }
  }
  const std::vector<int32_t> tokens(batch.ids.begin(), batch.ids.begin() + 100);
  std::map<int64_t, int64_t> changed;  // decisions changed by another token this far back
  for (size_t end = 20; end <= tokens.size(); ++end) {
    for (const int64_t back : {1, 12, 13, 14}) {
      for (int32_t other = 100; other < 110; ++other) {
        std::vector<int32_t> copy(tokens.begin(), tokens.begin() + static_cast<int64_t>(end));
        copy[end - static_cast<size_t>(back)] = other;
        changed[back] += spec.goldfish.drops(copy, 0) != spec.goldfish.drops(std::span(tokens).first(end), 0);
      }
    }
  }
  for (const int64_t back : {1, 12, 13}) EXPECT_GT(changed[back], 100) << back;
  EXPECT_EQ(changed[14], 0);
}

// Three added tokens and the bytes: <eot> is token 0.
text::Tokenizer byte_tokenizer() {
  text::BpeTrainer trainer({.vocabulary = 259, .added = {{"<eot>"}, {"<|a|>"}, {"<|end|>"}}});
  trainer.add("x", "test");
  return text::Tokenizer::parse(trainer.train().json, "test");
}

class TextTest : public support::FolderTest {
 protected:
  Language language() const {
    return {.tokenizer = &tokenizer_, .chat = &chat_, .end_of_text = 0, .vocabulary = tokenizer_.vocab_size()};
  }
  // The sequences of a batch as text, with trained targets in brackets: the token before a bracket predicts the first
  // one in it.
  std::vector<std::string> shown(const Batch& batch) const {
    std::vector<std::string> out;
    for (const Seq& seq : batch.seqs.seqs) {
      std::string text = tokenizer_.decode(std::span(batch.ids).subspan(static_cast<size_t>(seq.start), 1), false);
      bool inside = false;
      for (int64_t i = seq.start; i < seq.start + seq.len; ++i) {
        const int32_t target = batch.targets[static_cast<size_t>(i)];
        if (const bool trains = target != kMasked; trains != inside) {
          text += trains ? "[" : "]";
          inside = trains;
        }
        const bool last = i + 1 == seq.start + seq.len;
        const int32_t next = target != kMasked ? target : last ? -1 : batch.ids[static_cast<size_t>(i + 1)];
        if (next >= 0) text += tokenizer_.decode(std::vector<int32_t>{next}, false);
      }
      out.push_back(text + (inside ? "]" : ""));
    }
    return out;
  }

  const text::Tokenizer tokenizer_ = byte_tokenizer();
  // An answer's thoughts are dropped once a later question follows, as reasoning templates do.
  const text::ChatTemplate chat_ = text::ChatTemplate::parse(
      "{%- set nl = '\n' -%}{%- for m in messages -%}"
      "{%- if m.role == 'assistant' -%}"
      "<|a|>{% if m.thought and loop.last %}({{ m.thought }}){% endif %}{{ m.content }}<|end|>{{ nl }}"
      "{%- else -%}{{ m.content }}{{ nl }}{%- endif -%}"
      "{%- endfor -%}"
      "{%- if add_generation_prompt %}<|a|>{% endif %}",
      "test");
};

using Strings = std::vector<std::string>;

TEST_F(TextTest, DocumentsAreSequencesOfTheirOwnAndNothingIsLost) {
  write("t/a.txt", "abcde");
  write("t/b/c.md", "fg<eot>hij");
  write("t/none.csv", "zzz");
  const Loader loader = open({.kind = "text", .path = folder_ / "t", .batch = 1, .length = 4}, language());
  EXPECT_EQ(loader.steps_per_epoch(), 4);
  std::multiset<std::string> seen;
  for (int64_t step = 0; step < 4; ++step) {
    for (const std::string& text : shown(loader.batch(step))) seen.insert(text);
  }
  // Rows of four: abcd | e. fg | . hij | . and the full stop is <eot>.
  EXPECT_EQ(seen, (std::multiset<std::string>{"a[bcde]", "e[<eot>]", "f[g<eot>]", "<eot>", "h[ij<eot>]", "<eot>"}));
  EXPECT_EQ(loader.notes().size(), 1u);
  EXPECT_NE(loader.notes()[0].find("3 documents, 13 tokens, 4 rows"), std::string::npos) << loader.notes()[0];
  const Loader one = open({.kind = "text", .path = folder_ / "t" / "a.txt", .batch = 1, .length = 8}, language());
  EXPECT_TRUE(one.notes()[0].ends_with(": 1 document, 6 tokens, 1 row")) << one.notes()[0];
}

TEST_F(TextTest, EveryEpochHasEveryRowOnceInAnotherOrder) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i % 26);
  const std::string path = write("t.txt", text);
  const Loader loader = open({.path = path, .batch = 1, .length = 8, .seed = 3}, language());
  const int64_t n = loader.steps_per_epoch();
  ASSERT_EQ(n, 51);
  std::vector<std::vector<std::vector<int32_t>>> epochs(2);
  for (int64_t step = 0; step < 2 * n; ++step) epochs[static_cast<size_t>(step / n)].push_back(loader.batch(step).ids);
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs) std::ranges::sort(epoch);
  EXPECT_EQ(epochs[0], epochs[1]);
}

TEST_F(TextTest, TheSplitIsByDocument) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += fmt::format("{{\"text\": \"{:02}\"}}\n", i);
  const std::string path = write("d.jsonl", lines);
  DataSpec spec{.path = path, .batch = 1, .length = 3, .validation = 0.25};
  std::set<std::vector<int32_t>> train, held;
  const Loader a = open(spec, language());
  EXPECT_EQ(a.steps_per_epoch(), 30);
  for (int64_t step = 0; step < 30; ++step) train.insert(a.batch(step).ids);
  spec.held_out = true;
  spec.seed = 9;  // another run holds out the same
  const Loader b = open(spec, language());
  EXPECT_EQ(b.steps_per_epoch(), 10);
  for (int64_t step = 0; step < 10; ++step) held.insert(b.batch(step).ids);
  EXPECT_EQ(train.size(), 30u);
  EXPECT_EQ(held.size(), 10u);
  for (const auto& row : held) EXPECT_FALSE(train.contains(row));
  EXPECT_EQ(b.batch(0).ids, b.batch(10).ids);  // validation keeps its order
}

// A template that drops earlier thoughts makes two examples of a line, and answers to one prompt are a group: what
// training sees of one says much of the others.
TEST_F(TextTest, TheSplitLeavesLinesAndGroupsWhole) {
  std::string talks, rollouts;
  for (int i = 0; i < 24; ++i) {
    const char name = static_cast<char>('a' + i);
    const auto turn = [](const char* role, const std::string& content) {
      nlohmann::json j = {{"role", role}, {"content", content}};
      if (role[0] == 'a') j["thought"] = "hm";
      return j;
    };
    const nlohmann::json messages = {turn("user", std::string(1, name)), turn("assistant", "yo"), turn("user", "b"),
                                     turn("assistant", "k")};
    talks += nlohmann::json{{"messages", messages}}.dump() + "\n";
  }
  for (int i = 0; i < 96; ++i)  // answers of a group do not follow one another
    rollouts +=
        nlohmann::json{
            {"group", i % 24}, {"prompt_ids", {i % 24}}, {"completion_ids", {9}}, {"reward", i}, {"logprobs", {-1}}}
            .dump() +
        "\n";
  rollouts += R"({"prompt_ids": [99], "completion_ids": [9], "logprobs": [-1]})"
              "\n";  // without a group
  for (const bool answers : {false, true}) {
    const std::string path = answers ? write("r.jsonl", rollouts) : write("c.jsonl", talks);
    DataSpec spec{.kind = answers ? "rollouts" : "jsonl",
                  .path = path,
                  .batch = 1,
                  .length = answers ? 0 : 40,
                  .validation = 0.25};
    std::map<int32_t, int> seen[2];  // how many sequences begin with a token, trained and held out
    for (const bool held_out : {false, true}) {
      spec.held_out = held_out;
      const Loader loader = open(spec, language());
      for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
        const Batch batch = loader.batch(step);
        for (const Seq& s : batch.seqs.seqs) ++seen[held_out][batch.ids[static_cast<size_t>(s.start)]];
      }
    }
    EXPECT_EQ(seen[1].size(), 6u) << answers;
    EXPECT_EQ(seen[0].size() + seen[1].size(), answers ? 25u : 24u);
    for (const auto& [token, count] : seen[1]) {
      EXPECT_FALSE(seen[0].contains(token)) << token;
      EXPECT_EQ(count, token == 99 ? 1 : answers ? 4 : 2) << token;
    }
  }
}

// Documents of a plain text begin as those of lines do, wherever they were cut.
TEST_F(TextTest, EveryDocumentOfATextBeginsWithBos) {
  text::BpeTrainer trainer({.vocabulary = 259, .added = {{"<eot>"}, {"<s>"}, {"<|end|>"}}});
  trainer.add("x", "test");
  nlohmann::json json = nlohmann::json::parse(trainer.train().json);
  const nlohmann::json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                       own = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {bos, own}},
                            {"pair", {bos, own}},
                            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}};
  const text::Tokenizer tokenizer = text::Tokenizer::parse(json.dump(), "test");
  ASSERT_EQ(tokenizer.encode("", true), (std::vector<int32_t>{1}));
  Language other = language();
  other.tokenizer = &tokenizer;
  const std::vector<std::string> want = {"<s>ab<eot>", "<s>c<eot>", "<s>d<eot>"};
  const auto documents = [&](const std::string& path) {
    std::vector<std::string> out;
    const auto note = [&](std::span<const int32_t> ids, std::span<const uint8_t>, bool) {
      out.push_back(tokenizer.decode(ids, false));
    };
    path.ends_with("jsonl") ? read_jsonl(path, other, note) : read_text(path, other, note);
    return out;
  };
  EXPECT_EQ(documents(write("t.txt", "ab<eot>c<eot><s>d")), want);  // one brings its own
  EXPECT_EQ(documents(write("l.jsonl", R"({"text": "ab"})"
                                       "\n"
                                       R"({"text": "c<eot>d"})"
                                       "\n")),
            want);
  other.end_of_text = 1;  // which separates already
  EXPECT_EQ(documents(write("t.txt", "a<s>b")), (std::vector<std::string>{"<s>", "a<s>", "b<s>"}));
}

// Beyond an epoch there are rows, so that ranks and parts have theirs, but no targets.
TEST_F(TextTest, ReadOnceNoRowCountsTwice) {
  const std::string path = write("t.txt", std::string(63, 'a')), small = write("s.txt", std::string(15, 'b'));
  DataSpec spec{.path = path, .batch = 3, .length = 8, .once = true};  // 8 rows
  const Loader loader = open(spec, language());
  EXPECT_EQ(loader.rows_per_epoch(), 8);
  spec.once = false;
  const Loader endless = open(spec, language());
  int64_t trained = 0;
  for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) trained += loader.batch(step).trained;
  EXPECT_EQ(trained, 63);  // 64 tokens with <eot>
  for (int64_t step = 0; step < 2; ++step) EXPECT_EQ(loader.batch(step).targets, endless.batch(step).targets);
  const Batch last = loader.batch(2), more = endless.batch(2), beyond = loader.batch(3);
  EXPECT_EQ(std::ssize(last.rows), 4);
  EXPECT_TRUE(std::equal(last.targets.begin(), last.targets.begin() + last.rows[2], more.targets.begin()));
  EXPECT_EQ(std::count(last.targets.begin() + last.rows[2], last.targets.end(), kMasked),
            std::ssize(last.targets) - last.rows[2]);
  EXPECT_EQ(beyond.trained, 0);
  EXPECT_EQ(std::count(beyond.targets.begin(), beyond.targets.end(), kMasked), std::ssize(beyond.targets));
  const Loader blend = open({.blend = {{path, 1}, {small, 1}}, .batch = 4, .length = 8, .once = true}, language());
  EXPECT_EQ(blend.rows_per_epoch(), 16);  // the small one comes again, in its proportion
  EXPECT_EQ(blend.steps_per_epoch(), 4);
  for (int64_t step = 0; step < 4; ++step) EXPECT_GT(blend.batch(step).trained, 20);
  EXPECT_EQ(blend.batch(4).trained, 0);
}

TEST_F(TextTest, ABlendKeepsItsProportions) {
  const std::string a = write("a.txt", std::string(63, 'a')), b = write("b.txt", std::string(639, 'b')),
                    c = write("c.txt", std::string(63, 'c'));
  const Loader loader = open({.blend = {{a, 1}, {b, 5}, {c, 2}}, .batch = 1, .length = 8}, language());
  std::map<int32_t, int64_t> rows;
  for (int64_t step = 0; step < 800; ++step) {
    ++rows[loader.batch(step).ids[0]];
    if (step % 8 != 7) continue;
    for (const auto& [id, weight] : {std::pair{'a', 1}, {'b', 5}, {'c', 2}}) {
      const int32_t token = tokenizer_.encode(std::string(1, id), false)[0];
      EXPECT_NEAR(static_cast<double>(rows[token]), static_cast<double>(step + 1) * weight / 8, 2) << id;
    }
  }
}

// Generated sources by name, without a tokenizer; their alphabets tell the rows apart.
TEST(Blend, MixesGeneratedSources) {
  const DataSpec spec{
      .blend = {{"recall", 1}, {"pcfg", 3}}, .batch = 1, .length = 64, .generator = {.states = 40, .pairs = 8}};
  const Loader loader = open(spec, std::filesystem::path("no folder"), 128);
  int64_t recall = 0;
  for (int64_t step = 0; step < 80; ++step) {
    const Batch batch = loader.batch(step);
    recall += *std::max_element(batch.ids.begin(), batch.ids.end()) > 40;  // values of keys; pcfg ends at 40
  }
  EXPECT_NEAR(static_cast<double>(recall), 20, 2);
  EXPECT_FALSE(loader.entropy_floor());
}

TEST_F(TextTest, OnlyTheAssistantIsTrainedWithItsEndOfTurn) {
  const std::string path = write("c.jsonl",
                                 "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, "
                                 "{\"role\": \"assistant\", \"content\": \"yo\"}, "
                                 "{\"role\": \"user\", \"content\": \"bye\"}, "
                                 "{\"role\": \"assistant\", \"content\": \"ok\"}]}\n");
  const Loader loader = open({.path = path, .batch = 1, .length = 40}, language());
  EXPECT_EQ(shown(loader.batch(0)), (Strings{"hi\n<|a|>[yo<|end|>]\nbye\n<|a|>[ok<|end|>]"}));
}

TEST_F(TextTest, ThoughtsThatATemplateDropsMakeASecondExample) {
  const std::string path = write("c.jsonl",
                                 "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, "
                                 "{\"role\": \"assistant\", \"content\": \"yo\", \"thought\": \"hm\"}, "
                                 "{\"role\": \"user\", \"content\": \"bye\"}, {\"role\": \"assistant\", \"content\": "
                                 "\"ok\", \"thought\": \"so\"}]}\n");
  const Loader loader = open({.path = path, .batch = 1, .length = 40}, language());
  const Strings rows = shown(loader.batch(0));
  EXPECT_EQ(std::multiset<std::string>(rows.begin(), rows.end()),
            (std::multiset<std::string>{"hi\n<|a|>[(hm)yo<|end|>]", "hi\n<|a|>yo<|end|>\nbye\n<|a|>[(so)ok<|end|>]"}));
}

// A template that writes its last message without a line end changes the answer's prompt.
TEST_F(TextTest, AChangedPromptIsFoundByItsOpening) {
  const auto shown_with = [&](const std::string& source) {
    const text::ChatTemplate chat = text::ChatTemplate::parse(source, "test");
    Language other = language();
    other.chat = &chat;
    const std::string path = write("c.jsonl",
                                   "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, "
                                   "{\"role\": \"assistant\", \"content\": \"yo\"}]}\n");
    return shown(open({.path = path, .batch = 1, .length = 40}, other).batch(0));
  };
  const std::string body = "{{ m.content }}{% if not loop.last %};{% endif %}{% endfor %}";
  EXPECT_EQ(shown_with("{% for m in messages %}{% if m.role == 'assistant' %}<|a|>{% endif %}" + body +
                       "{% if add_generation_prompt %}<|a|>{% endif %}"),
            (Strings{"hi;<|a|>[yo]"}));
  EXPECT_NE(error_of([&] {
              shown_with("{% for m in messages %}{% if not loop.last %}!{% endif %}" + body);
            }).find("the template changes the text before message 1"),
            std::string::npos);
}

TEST_F(TextTest, ConversationsShareARowAndLoseWhatDoesNotFit) {
  std::string lines;
  for (const int n : {1, 30, 2, 3}) {
    lines +=
        fmt::format(R"({{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": "{}"}}]}})",
                    std::string(static_cast<size_t>(n), 'x')) +
        "\n";
  }
  lines += "{\"text\": \"plain\"}\n";
  const Loader loader = open({.path = write("c.jsonl", lines), .batch = 1, .length = 14}, language());
  std::multiset<std::string> seen;
  for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const Batch batch = loader.batch(step);
    EXPECT_LE(batch.ids.size(), 14u);
    for (const std::string& text : shown(batch)) seen.insert(text);
  }
  EXPECT_EQ(seen, (std::multiset<std::string>{"q\n<|a|>[x<|end|>]", "q\n<|a|>[xx<|end|>]", "q\n<|a|>[xxx<|end|>]",
                                              "q\n<|a|>[xxxxxxxxxxxx]", "p[lain<eot>]"}));
  EXPECT_EQ(loader.steps_per_epoch(), 3);
  EXPECT_NE(loader.notes()[0].find("1 of 5 conversations truncated at 14 tokens"), std::string::npos);
}

TEST_F(TextTest, MistakesAreNamed) {
  std::filesystem::create_directories(folder_ / "empty");
  const auto error = [&](DataSpec spec) {
    spec.batch = 1;
    spec.length = 8;
    return error_of([&] { open(spec, language()); });
  };
  const auto line = [&](const std::string& text) { return error({.path = write("l.jsonl", "\n" + text)}); };
  const std::string text = write("t.txt", "abc");
  EXPECT_EQ(error({.kind = "idz", .path = text}),
            "[data.kind] unknown kind; got idz; expected text, jsonl, indexed, ids, preference, rollouts, markov, "
            "pcfg, modular, recall, hops; try ids");
  EXPECT_EQ(error({.path = folder_ / "empty"}), "[" + (folder_ / "empty").string() +
                                                    "] holds no documents; expected text: a file, or a folder of *.txt "
                                                    "and *.md");
  EXPECT_NE(error({}).find("[data] no path"), std::string::npos);
  EXPECT_NE(error({.path = text, .blend = {{text, 1}}}).find("[data] no path"), std::string::npos);
  EXPECT_NE(error({.path = folder_ / "gone.txt"}).find("cannot open the file"), std::string::npos);
  EXPECT_NE(error({.path = write("bad.txt", "a\xff")}).find("bad.txt] the text is not UTF-8 at byte 1"),
            std::string::npos);
  EXPECT_NE(error({.blend = {{text, -1}}}).find("[data.blend]"), std::string::npos);
  EXPECT_NE(error({.path = text, .validation = 1}).find("[data.validation]"), std::string::npos);
  EXPECT_NE(error({.path = text, .held_out = true}).find("no document is held out; got 0 documents"),
            std::string::npos);
  EXPECT_NE(line("[1]").find("l.jsonl line 2] the line is not a JSON object"), std::string::npos);
  EXPECT_NE(line("{\"text\": a}").find("l.jsonl line 2] is not valid JSON at column 10; got a}"), std::string::npos);
  EXPECT_NE(line("{\"text\":" + std::string(100'000, '[')).find("l.jsonl line 2] is nested deeper than 64 levels"),
            std::string::npos);
  EXPECT_NE(line("{\"txt\": 1}").find("expected a member 'text' or 'messages'"), std::string::npos);
  EXPECT_NE(line("{\"messages\": [{\"role\": 1}]}").find("'messages' is malformed"), std::string::npos);
  EXPECT_NE(line("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}").find("no assistant turn"),
            std::string::npos);
  Language small = language();
  small.vocabulary = 60;
  const Loader loader = open({.path = text, .batch = 1, .length = 8}, small);
  EXPECT_NE(error_of([&] { loader.batch(0); }).find("t.txt] a token id is outside the vocabulary"), std::string::npos);
  EXPECT_NE(error_of([&] { open({.path = text, .batch = 1, .length = 8}, {.vocabulary = 9}); }).find("tokenizer"),
            std::string::npos);
}

TEST_F(TextTest, PairsAreAnswersToOnePrompt) {
  const auto ids = [&](const char* text) { return tokenizer_.encode(text, false); };
  const nlohmann::json chat = {{{"role", "user"}, {"content", "q"}},
                               {{"role", "assistant"}, {"content", "x"}},
                               {{"role", "user"}, {"content", "r"}}};
  const nlohmann::json lines[] = {{{"prompt", "ab"}, {"chosen", "cde"}, {"rejected", "f<eot>"}},
                                  {{"prompt_ids", ids("bc")},
                                   {"chosen_ids", ids("d")},
                                   {"rejected_ids", ids("ef")},
                                   {"chosen_reward", 3},
                                   {"rejected_reward", -1}},
                                  {{"messages", chat},
                                   {"chosen", "yes"},
                                   {"rejected", {{"role", "assistant"}, {"content", "no"}, {"thought", "t"}}}}};
  std::string text;
  for (const nlohmann::json& line : lines) text += line.dump() + "\n";
  const std::string path = write("pairs.jsonl", text);
  const Loader loader = open({.kind = "preference", .path = path, .batch = 3, .shuffle = false}, language());
  const Batch batch = loader.batch(0);
  EXPECT_EQ(shown(batch),
            (Strings{"ab[cde<eot>]", "ab[f<eot>]", "bc[d]", "bc[ef]", "q\n<|a|>x<|end|>\nr\n<|a|>[yes<|end|>]",
                     "q\n<|a|>x<|end|>\nr\n<|a|>[(t)no<|end|>]"}));
  EXPECT_EQ(batch.rows, (std::vector<int64_t>{0, 8, 13,
                                              13 + std::ssize(ids("q\n<|a|>x<|end|>\nr\n<|a|>yes<|end|>")) - 1 +
                                                  std::ssize(ids("q\n<|a|>x<|end|>\nr\n<|a|>(t)no<|end|>")) - 1}));
  EXPECT_EQ(loader.length(), batch.rows[3] - batch.rows[2]);
  EXPECT_EQ(batch.row_ids, (std::vector<int64_t>{0, 1, 2}));
  ASSERT_EQ(batch.ratings.size(), 6u);
  EXPECT_EQ(batch.ratings[0], Rating{});
  EXPECT_EQ(batch.ratings[3], (Rating{.reward = -1, .answers = 2}));
  EXPECT_TRUE(batch.logprobs.empty());
  // The same pairs in another order are known by their ids.
  const Loader shuffled = open({.kind = "preference", .path = path, .batch = 3, .seed = 5}, language());
  for (int64_t step = 0; step < 4; ++step) {
    const Batch other = shuffled.batch(step);
    for (size_t row = 0; row < 3; ++row) {
      const auto which = static_cast<size_t>(other.row_ids[row]);
      const std::vector<int32_t> a(other.ids.begin() + other.rows[row], other.ids.begin() + other.rows[row + 1]),
          b(batch.ids.begin() + batch.rows[which], batch.ids.begin() + batch.rows[which + 1]);
      EXPECT_EQ(a, b);
    }
  }
}

// On one side, whatever stands between them.
TEST_F(TextTest, PairsOfOnePromptAreHeldOutTogether) {
  std::string text;
  for (int64_t i = 0; i < 40; ++i) {
    text += nlohmann::json{{"prompt_ids", {7, i % 20}}, {"chosen_ids", {i % 30}}, {"rejected_ids", {31}}}.dump() + "\n";
  }
  const std::string path = write("pairs.jsonl", text);
  std::map<int32_t, std::set<bool>> sides;
  for (const bool held_out : {false, true}) {
    const Loader loader =
        open({.kind = "preference", .path = path, .batch = 1, .validation = 0.4, .held_out = held_out, .once = true},
             language());
    for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) sides[loader.batch(step).ids[1]].insert(held_out);
  }
  ASSERT_EQ(sides.size(), 20u);
  size_t held = 0;
  for (const auto& [prompt, of] : sides) {
    EXPECT_EQ(of.size(), 1u) << prompt;
    held += of.count(true);
  }
  EXPECT_GT(held, 2u);
  EXPECT_LT(held, 18u);
}

TEST_F(TextTest, RolloutsKnowTheirGroups) {
  std::string text;
  for (const auto& [group, reward] : {std::pair("a", 1.0), {"b", 5.0}, {"a", 2.0}, {"a", 6.0}, {"b", 5.0}}) {
    text += nlohmann::json{{"group", group},
                           {"prompt_ids", {7, 8}},
                           {"completion_ids", {9, 10}},
                           {"reward", reward},
                           {"logprobs", {-0.5, -reward}}}
                .dump() +
            "\n";
  }
  const std::string path = write("r.jsonl", text);
  const Loader loader =
      open({.kind = "rollouts", .path = path, .batch = 5, .shuffle = false, .rated = true}, {.vocabulary = 11});
  const Batch batch = loader.batch(0);
  EXPECT_EQ(batch.ratings[3], (Rating{.reward = 6, .mean = 3, .deviation = std::sqrt(7.0), .answers = 3}));
  EXPECT_EQ(batch.ratings[4], (Rating{.reward = 5, .mean = 5, .deviation = 0, .answers = 2}));
  EXPECT_EQ(std::vector<float>(batch.logprobs.begin() + 9, batch.logprobs.begin() + 12),
            (std::vector<float>{0, -0.5, -6}));
  Batch part;
  take_rows(batch, 3, 5, part);
  EXPECT_EQ(part.ratings, (std::vector<Rating>{batch.ratings[3], batch.ratings[4]}));
  EXPECT_EQ(part.logprobs, std::vector<float>(batch.logprobs.begin() + 9, batch.logprobs.end()));
  EXPECT_EQ(part.row_ids, (std::vector<int64_t>{3, 4}));
}

// Logs of two runs name their groups alike.
TEST_F(TextTest, GroupsOfFilesAreTheirOwn) {
  const auto lines = [&](const std::string& name, int prompt, double reward) {
    std::string text;
    for (int i = 0; i < 2; ++i)
      text += nlohmann::json{{"group", "1.0"},
                             {"prompt_ids", {prompt}},
                             {"completion_ids", {9}},
                             {"reward", reward + i},
                             {"logprobs", {-1}}}
                  .dump() +
              "\n";
    return write(name, text);
  };
  const std::filesystem::path folder = std::filesystem::path(lines("logs/a.jsonl", 7, 0)).parent_path();
  lines("logs/b.jsonl", 8, 4);
  const DataSpec spec{.kind = "rollouts", .path = folder.string(), .batch = 4, .shuffle = false, .rated = true};
  const Batch batch = open(spec, {.vocabulary = 11}).batch(0);
  EXPECT_EQ(batch.ratings[0].mean, 0.5);
  EXPECT_EQ(batch.ratings[3].mean, 4.5);
  EXPECT_EQ(batch.ratings[3].answers, 2);
}

TEST_F(TextTest, MistakesInAnswersAreNamed) {
  const auto error = [&](const char* kind, const std::string& text) {
    DataSpec spec{.kind = kind, .path = write("l.jsonl", "\n" + text), .batch = 1, .rated = true};
    return error_of([&] { open(spec, language()); });
  };
  const auto rollout = [&](const std::string& member, const nlohmann::json& value) {
    nlohmann::json line = {
        {"group", 1}, {"prompt_ids", {7}}, {"completion_ids", {9, 10}}, {"reward", 1}, {"logprobs", {-1, -2}}};
    line[member] = value;
    return error("rollouts", line.dump() + "\n" + line.dump());
  };
  const auto expect = [](const std::string& got, const char* wanted) {
    EXPECT_NE(got.find(wanted), std::string::npos) << got;
    EXPECT_EQ(got.find('\n'), std::string::npos) << got;
  };
  const std::string other =
      R"({"group": 2, "prompt_ids": [7], "completion_ids": [9], "reward": NaN, "logprobs": [-1]})";
  expect(error("rollouts", other), "l.jsonl line 2] reward is out of range; got nan");
  expect(rollout("reward", nullptr), "reward");
  expect(rollout("reward", "high"), "reward is not a number");
  expect(rollout("logprobs", {-1}),
         "logprobs has another length; got a list of 1 entry; expected 2, one for each token of the answer");
  expect(rollout("logprobs", {-1, 1.5}), "logprobs[1] is out of range");
  expect(rollout("completion_ids", {9, 99999}), "completion_ids[1] is out of range; got 99999");
  expect(rollout("completion_ids", nlohmann::json::array()), "completion_ids has no tokens");
  expect(
      error("rollouts", R"({"group": "x", "prompt_ids": [7], "completion_ids": [9], "reward": 1, "logprobs": [-1]})"),
      R"(group "x" has a single answer; expected at least two)");
  expect(error("rollouts", R"({"group": 3, "prompt_ids": [7], "completion_ids": [9], "reward": 1, "logprobs": [-1]}
{"group": 3, "prompt_ids": [8], "completion_ids": [9], "reward": 1, "logprobs": [-1]})"),
         "answers of group 3 have different prompts");
  expect(error("preference", "nonsense"), "l.jsonl line 2");
  expect(error("preference", "[]"), "l.jsonl line 2");
  expect(error("preference", R"({"prompt": "a", "chosen": "b"})"), "chosen_reward");
  const auto unrated = [&](const std::string& text, int64_t length = 0) {
    return error_of([&] {
      open({.kind = "preference", .path = write("l.jsonl", text), .batch = 1, .length = length}, language());
    });
  };
  expect(unrated(R"({"prompt": "a", "chosen": "b"})"), "rejected");
  expect(unrated(R"({"prompt": "a", "chosen": "b", "rejected": "c", "chosen_reward": 1})"),
         "one answer of the pair is rated");
  expect(unrated(R"({"prompt": "a", "chosen": "bcdef", "rejected": "c"})", 5),
         "the prompt and answer of row 0 do not fit; got 6 tokens");
  EXPECT_EQ(unrated(R"({"prompt": "a", "chosen": "bcdef", "rejected": "c"})", 6), "");
  expect(unrated(R"({"messages": 1, "chosen": "b", "rejected": "c"})"), "messages is not a list");
  expect(unrated(R"({"messages": [], "chosen": 1, "rejected": "c"})"), "chosen is not an answer");
  expect(unrated(R"({"messages": [{"role": "user", "content": NaN}], "chosen": "b", "rejected": "c"})"), "NaN");
  expect(unrated(""), "holds no lines");
}

TEST_F(TextTest, IndexedCorporaReadAsTheTextTheyCameFrom) {
  const std::string path = write("t.txt", "abcde<eot>fgh<eot>ijklmnop");
  const Loader text = open({.path = path, .batch = 2, .length = 5}, language());
  io::TokenFileWriter writer(folder_ / "corpus", 259);
  for (const char* document : {"abcde<eot>", "fgh<eot>", "ijklmnop<eot>"})
    writer.add(tokenizer_.encode(document, false));
  writer.finish();
  const Loader indexed = open({.path = folder_ / "corpus", .batch = 2, .length = 5}, {.vocabulary = 259});
  for (int64_t step = 0; step < 6; ++step) {
    EXPECT_EQ(text.batch(step).ids, indexed.batch(step).ids);
    EXPECT_EQ(text.batch(step).targets, indexed.batch(step).targets);
  }
}

// Cutting a passage into rows elsewhere changes nothing: the hash looks back across the cut.
TEST_F(TextTest, GoldfishLooksBackAcrossRows) {
  std::string text;
  for (uint32_t i = 0; i < 300; ++i) text += static_cast<char>('a' + i * i * 2654435761u / 65536 % 26);
  const std::string path = write("t.txt", text);
  const auto dropped = [&](int64_t length) {
    DataSpec spec{.path = path, .batch = 1, .length = length, .validation = 0, .held_out = false};
    spec.goldfish.k = 3;
    const Loader loader = open(spec, language());
    std::map<std::vector<int32_t>, Batch> rows;  // the shuffle is undone by locating each row's text
    std::vector<int32_t> all(301, 0);
    for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
      const Batch batch = loader.batch(step);
      const std::string begin = tokenizer_.decode(batch.ids, false);
      const size_t at = (text + "<eot>").find(begin);
      for (size_t i = 0; i < batch.targets.size(); ++i) all[at + i] = batch.targets[i];
    }
    return all;
  };
  const auto whole = dropped(400);
  EXPECT_EQ(dropped(37), whole);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(whole, kMasked)), 100, 30);
}

}  // namespace
}  // namespace braid::data
