// A saved tree: what it restores, and files that are damaged, cut, of another model, or made by hand.
#include "engine/prefix_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/ref.h"
#include "engine/fingerprint.h"
#include "engine/language_model.h"
#include "engine/prefix_cache.h"
#include "io/checksum.h"
#include "support/data.h"
#include "support/error_of.h"
#include "sys/read.h"

namespace braid::engine {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;

LanguageModel tiny_chat(int64_t memory, bool exact = true, const char* name = "tiny-chat") {
  Numerics numerics = Numerics::serving(DType::f32);
  numerics.exact = exact;
  return {support::data(name), {.numerics = numerics, .context = 256, .sequences = 1, .memory = memory, .threads = 1}};
}

struct Kept {
  Tokens tokens;
  std::vector<float> row{};
};
std::vector<Kept> three() {
  const Tokens a(70, 41), b(130, 42);
  Tokens longer = a;
  longer.insert(longer.end(), 30, 43);
  return {{a}, {b, std::vector<float>(192, 0.5f)}, {longer}};
}

void read(Runner& runner, std::span<const int32_t> tokens) {
  runner.reset(0);
  runner.prefill(0, tokens, [](const Tensor&) {});
}

fs::path written(LanguageModel& model, const char* name) {
  PrefixCache cache(model.runner());
  for (Kept& k : three()) {
    read(model.runner(), k.tokens);
    if (!k.row.empty()) k.row.assign(static_cast<size_t>(model.runner().config().hidden), 0.5f);
    cache.keep(k.tokens, 0, k.row);
  }
  model.runner().reset(0);
  fs::path path = fs::path(testing::TempDir()) / name;
  cache.save(path, fingerprint_of(model));
  return path;
}

TEST(PrefixFile, RestoresEverySnapshotBitForBit) {
  LanguageModel model = tiny_chat(64 << 20);
  const fs::path path = written(model, "restored.cache");
  LanguageModel next = tiny_chat(64 << 20);
  Runner& runner = next.runner();
  PrefixCache cache(runner);
  cache.load(path, fingerprint_of(next));
  cache.check();
  EXPECT_EQ(cache.snapshots(), 3);
  EXPECT_EQ(runner.pool().references(), cache.page_references());
  for (const Kept& k : three()) {
    Tokens more = k.tokens;
    more.push_back(44);
    EXPECT_EQ(cache.resume(more, 0).tokens, std::ssize(k.tokens));
    const auto found = to_doubles(runner.step(0, 44).view());
    read(runner, k.tokens);
    EXPECT_EQ(found, to_doubles(runner.step(0, 44).view()));
    const PrefixCache::Found whole = cache.resume(k.tokens, 0);
    EXPECT_EQ(whole.tokens == std::ssize(k.tokens), !k.row.empty());
    for (const float value : whole.row) EXPECT_EQ(value, 0.5f);
  }
}

// What was used last comes back where there is not room for all, and nothing is above the limit.
TEST(PrefixFile, RestoresWhatThereIsRoomFor) {
  LanguageModel model = tiny_chat(64 << 20);
  const fs::path path = written(model, "room.cache");
  const int64_t context = model.runner().sequence_bytes_of(256);
  LanguageModel next = tiny_chat(context);
  PrefixCache cache(next.runner());
  cache.load(path, fingerprint_of(next));
  cache.check();
  EXPECT_LT(cache.snapshots(), 3);
  EXPECT_LE(next.runner().pool().bytes_in_use(), context);
  EXPECT_EQ(cache.longest(Tokens(200, 41)) + cache.longest(Tokens(200, 42)), 0);
  Tokens last = three()[2].tokens;
  last.push_back(44);
  EXPECT_EQ(cache.longest(last), 100);
}

TEST(PrefixFile, OfAnotherKindOrDamagedIsRefused) {
  LanguageModel model = tiny_chat(64 << 20);
  const fs::path path = written(model, "refused.cache");
  const std::string good = sys::read_file(path);
  const auto refusal = [&](const std::string& bytes, LanguageModel& reader) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    PrefixCache cache(reader.runner());
    const std::string text = support::error_of([&] { cache.load(path, fingerprint_of(reader)); });
    EXPECT_EQ(text.empty() ? 3 : 0, cache.snapshots()) << text;
    EXPECT_EQ(reader.runner().pool().pages_in_use() > 0, text.empty());
    return text;
  };
  EXPECT_EQ(refusal(good, model), "");
  LanguageModel rounded = tiny_chat(64 << 20, false);
  EXPECT_NE(refusal(good, rounded).find("another model or other number formats"), std::string::npos);
  std::string other = good;
  other[8] = 1;
  EXPECT_NE(refusal(other, model).find("another version"), std::string::npos);
  other = good;
  other[3] = 'x';
  EXPECT_NE(refusal(other, model).find("not a file of cached prefixes"), std::string::npos);
  for (const size_t at : {size_t{100}, good.size() / 2, good.size() - 1}) {
    other = good;
    other[at] = static_cast<char>(other[at] ^ 4);
    EXPECT_NE(refusal(other, model).find("damaged"), std::string::npos) << at;
  }
  for (const size_t size :
       {size_t{0}, size_t{7}, size_t{60}, size_t{96}, good.size() / 2, good.size() - 8, good.size() - 1})
    EXPECT_NE(refusal(good.substr(0, size), model), "") << size;
  fs::remove(path);
  PrefixCache cache(model.runner());
  cache.load(path, 0);  // none is an empty one
  EXPECT_EQ(cache.snapshots(), 0);
}

// The states of a loop of layers depend on how many steps ran, how many of their keys and values are kept, and from
// where.
TEST(PrefixFile, AFingerprintIsOfTheLoop) {
  const auto with = [](LoopOptions loop) {
    LanguageModel model(support::data("tiny-chat"), {.context = 256, .threads = 1, .loop = std::move(loop)});
    return fingerprint_of(model);
  };
  const std::vector<LoopOptions> all = {
      {},          {.steps = 2},         {.states = 2},      {.start = {1}},    {.start = {2}}, {.zero = true},
      {.seed = 1}, {.warm_start = true}, {.exit = Exit::kl}, {.threshold = 0.5}};
  std::set<uint64_t> different;
  for (const LoopOptions& loop : all) different.insert(with(loop));
  EXPECT_EQ(different.size(), all.size());
  EXPECT_TRUE(different.contains(with({})));
}

// Other weights, of the same shapes.
TEST(PrefixFile, AFingerprintIsOfTheWeights) {
  LanguageModel a = tiny_chat(64 << 20), b = tiny_chat(64 << 20), rounded = tiny_chat(64 << 20, false);
  EXPECT_EQ(fingerprint_of(a), fingerprint_of(b));
  EXPECT_NE(fingerprint_of(a), fingerprint_of(rounded));
  const fs::path folder = fs::path(testing::TempDir()) / "other-weights";
  fs::remove_all(folder);
  fs::copy(support::data("tiny-chat"), folder);
  const fs::path file = folder / "model.safetensors";
  fs::permissions(file, fs::perms::owner_write, fs::perm_options::add);
  std::string bytes = sys::read_file(file);
  for (size_t i = bytes.size() / 2; i < bytes.size() / 2 + 65536; i += 2) bytes[i] = static_cast<char>(bytes[i] ^ 1);
  std::ofstream(file, std::ios::binary).write(bytes.data(), std::ssize(bytes));
  LanguageModel other(folder.string(), {.numerics = a.runner().options().numerics, .context = 256, .threads = 1});
  EXPECT_NE(fingerprint_of(a), fingerprint_of(other));
}

// A file as a program could write it: two edges, two pages, a snapshot, its row.
struct ByHand {
  PrefixFileHeader header{.page_tokens = kPageTokens,
                          .fingerprint = 7,
                          .page_bytes = 16,
                          .slot_bytes = 8,
                          .width = 2,
                          .nodes = 2,
                          .tokens = 70,
                          .references = 3,
                          .rows = 1,
                          .pages = 2,
                          .slots = 1};
  std::vector<PrefixFileNode> nodes = {{.parent = -1, .tokens = 65, .references = 2},
                                       {.parent = 0, .tokens = 5, .references = 1, .used = 9, .slot = 0, .row = 0}};
  std::vector<int32_t> tokens = Tokens(70, 1), references = {0, 1, 1};

  std::vector<std::byte> file() const {
    std::vector<std::byte> out;
    const auto put = [&](std::span<const std::byte> bytes) {
      out.insert(out.end(), bytes.begin(), bytes.end());
      out.resize((out.size() + 7) / 8 * 8);
    };
    put(std::as_bytes(std::span(kPrefixFileMagic)));
    put(std::as_bytes(std::span(&header, 1)));
    put(std::as_bytes(std::span(nodes)));
    put(std::as_bytes(std::span(tokens)));
    put(std::as_bytes(std::span(references)));
    out.resize(out.size() + 8 + 32 + 8);  // rows, pages, slots
    io::Checksum sum;
    sum.update(out);
    const uint64_t value = sum.value();
    put(std::as_bytes(std::span(&value, 1)));
    return out;
  }
  std::string error() const {
    const PrefixFileKind kind{
        .fingerprint = 7, .page_bytes = 16, .slot_bytes = 8, .width = 2, .vocab = 100, .context = 300};
    return support::error_of([&] { (void)parse_prefix_file(file(), kind, "file"); });
  }
};

TEST(PrefixFile, ATreeThatIsNoneIsRefused) {
  EXPECT_EQ(ByHand().error(), "");
  const auto with = [](auto change) {
    ByHand made;
    change(made);
    return made.error();
  };
  const auto says = [](const std::string& error, const char* what) {
    EXPECT_NE(error.find(what), std::string::npos) << what << ": " << error;
  };
  says(with([](ByHand& f) { f.nodes[1].parent = 1; }), "an earlier node");
  says(with([](ByHand& f) { f.nodes[0].parent = -2; }), "an earlier node");
  says(with([](ByHand& f) { f.nodes[1].tokens = 6; }), "not a tree");
  says(with([](ByHand& f) { f.nodes[1].tokens = INT64_MAX; }), "not a tree");
  says(with([](ByHand& f) { f.nodes[1].tokens = 0; }), "not a tree");
  says(with([](ByHand& f) { f.nodes[1].references = 2; }), "not a tree");
  says(with([](ByHand& f) { f.nodes[0].references = 1; }), "wrong pages");
  says(with([](ByHand& f) { f.nodes[1].slot = 1; }), "no such slot");
  says(with([](ByHand& f) { f.nodes[1].slot = -1; }), "no such slot");
  says(with([](ByHand& f) { f.nodes[0].slot = 0; }), "no such slot");
  says(with([](ByHand& f) { f.nodes[1].row = 1; }), "no such row");
  says(with([](ByHand& f) { f.nodes[0].row = 0; }), "no such row");
  says(with([](ByHand& f) { f.references[2] = 2; }), "no such page");
  says(with([](ByHand& f) { f.references[2] = -1; }), "no such page");
  says(with([](ByHand& f) { f.tokens[3] = 100; }), "not a token id");
  says(with([](ByHand& f) { f.nodes[0] = {.parent = -1, .tokens = 65, .references = 2, .used = 9, .slot = 0}; }),
       "two snapshots");
  says(with([](ByHand& f) { f.nodes[1] = {.parent = -1, .tokens = 5, .references = 1, .used = 9, .slot = 0}; }),
       "two edges alike");
  for (int64_t PrefixFileHeader::*count :
       {&PrefixFileHeader::nodes, &PrefixFileHeader::tokens, &PrefixFileHeader::references, &PrefixFileHeader::rows,
        &PrefixFileHeader::pages, &PrefixFileHeader::slots}) {
    for (const int64_t wrong : {int64_t{-1}, int64_t{0}, int64_t{1000}, INT64_MAX, INT64_MIN})
      EXPECT_NE(with([&](ByHand& f) { f.header.*count = wrong; }), "") << wrong;
  }
}

}  // namespace
}  // namespace braid::engine
