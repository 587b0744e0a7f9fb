// The row contract of whole models, bit for bit: what a token gets depends on its sequence and the weights alone, never
// on batch mates, their order or slots, threads or load. With --exact it does not depend on how the sequence was cut
// into passes either: pieces of any length, or one token at a time.
#include <atomic>
#include <cstring>
#include <thread>
#include <tuple>

#include "golden.h"

namespace braid {
namespace {

// How many tokens a sequence gets in one pass, several sequences at a time: {sequence, tokens}.
using Cut = std::vector<std::pair<size_t, int64_t>>;

// A runner that reads several sequences, each in its own slot, and keeps what it computed for each.
class Reader {
 public:
  Reader(const std::filesystem::path& folder, const engine::RunnerOptions& options)
      : runner_(open_folder(folder, options)) {
    runner_->ctx().poison = true;  // whatever is read before it is written becomes NaN
    const auto ids = token_ids(io::Safetensors(folder / "golden.safetensors").need("ids@0"));
    for (size_t s = 0; s < kSequences; ++s) {
      auto& own = ids_.emplace_back(ids);
      std::rotate(own.begin(), own.begin() + static_cast<int64_t>(29 * s), own.end());
    }
    logits_.resize(kSequences);
  }

  void pass(const Cut& cut, nn::Phase phase) {
    SeqMap seqs;
    std::vector<int32_t> flat;
    for (const auto& [s, tokens] : cut) {
      const int64_t begin = runner_->length(kSlots[s]);
      seqs.add(tokens, begin, kSlots[s]);
      const auto first = ids_[s].begin() + begin;
      flat.insert(flat.end(), first, first + tokens);
    }
    const Tensor all = runner_->logits(runner_->forward(flat, seqs, phase));
    for (size_t i = 0; i < cut.size(); ++i) {
      const float* values = all.view().as<float>(seqs.seqs[i].start);
      auto& own = logits_[cut[i].first];
      own.insert(own.end(), values, values + cut[i].second * all.dim(1));
    }
  }
  // The passes of `cuts` that concern one sequence, alone.
  void alone(size_t sequence, const std::vector<Cut>& cuts, nn::Phase phase) {
    for (const Cut& cut : cuts) {
      for (const auto& piece : cut) {
        if (piece.first == sequence) pass({piece}, phase);
      }
    }
  }
  void one_by_one(size_t sequence, int64_t tokens, nn::Phase phase) {
    for (int64_t i = 0; i < tokens; ++i) pass({{sequence, 1}}, phase);
  }

  std::span<const float> logits(size_t sequence) const { return logits_[sequence]; }
  States states(size_t sequence) { return states_of(*runner_, kSlots[sequence]); }

  static constexpr size_t kSequences = 5;
  static constexpr int64_t kSlots[kSequences] = {3, 0, 5, 1, 2};

 private:
  std::unique_ptr<engine::Runner> runner_;
  std::vector<std::vector<int32_t>> ids_;
  std::vector<std::vector<float>> logits_;
};

void expect_same_bits(std::span<const float> got, std::span<const float> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  ASSERT_FALSE(got.empty()) << what;
  if (std::memcmp(got.data(), want.data(), got.size_bytes()) == 0) return;
  size_t first = 0;
  while (std::memcmp(&got[first], &want[first], sizeof(float)) == 0) ++first;
  ADD_FAILURE() << what << ": bits differ from value " << first << " of " << got.size() << " on, by at most "
                << worst(got, want);
}

void expect_same(Reader& got, Reader& want, size_t sequence, const std::string& how) {
  const std::string what = "sequence " + std::to_string(sequence) + " " + how;
  expect_same_bits(got.logits(sequence), want.logits(sequence), what);
  const States states = got.states(sequence);
  for (const auto& [name, values] : want.states(sequence))
    expect_same_bits(states.at(name), values, what + ", " + name);
}

class RowContract : public testing::TestWithParam<std::tuple<GoldenFolder, DType>> {
 protected:
  Reader open(int threads = 1, bool exact = false) const {
    return {std::get<0>(GetParam()).path,
            {.numerics = Numerics::serving(std::get<1>(GetParam()), exact),
             .context = 150,
             .slots = 6,
             .threads = threads}};
  }
};

const std::vector<Cut>& prompts() {
  static const std::vector<Cut> cuts = {
      {{0, 5}, {1, 70}, {2, 1}, {3, 33}, {4, 120}}, {{4, 20}, {2, 40}, {0, 8}}, {{3, 1}, {1, 3}, {2, 2}}};
  return cuts;
}
const std::vector<Cut>& steps() {
  static const std::vector<Cut> cuts = {
      {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}}, {{4, 1}, {3, 1}, {2, 1}, {1, 1}, {0, 1}}, {{2, 1}, {0, 1}}};
  return cuts;
}

TEST_P(RowContract, BatchMatesChangeNothing) {
  Reader together = open();
  for (const Cut& cut : prompts()) together.pass(cut, nn::Phase::prefill);
  for (const Cut& cut : steps()) together.pass(cut, nn::Phase::step);
  for (size_t s = 0; s < Reader::kSequences; ++s) {
    Reader alone = open();
    alone.alone(s, prompts(), nn::Phase::prefill);
    alone.alone(s, steps(), nn::Phase::step);
    expect_same(together, alone, s, "with mates");
  }
}

TEST_P(RowContract, AStepOfSeveralTokensIsAsManySteps) {
  Reader several = open(), single = open();
  const Cut lengths = {{0, 8}, {1, 3}, {2, 1}, {3, 5}, {4, 2}};
  for (Reader* reader : {&several, &single}) reader->pass(prompts()[0], nn::Phase::prefill);
  several.pass(lengths, nn::Phase::step);
  for (const auto& [s, tokens] : lengths) single.one_by_one(s, tokens, nn::Phase::step);
  for (size_t s = 0; s < Reader::kSequences; ++s) expect_same(several, single, s, "in one step");
}

TEST_P(RowContract, ThreadsAndLoadChangeNothing) {
  const auto read = [&](int threads) {
    Reader reader = open(threads);
    for (const Cut& cut : prompts()) reader.pass(cut, nn::Phase::prefill);
    for (const Cut& cut : steps()) reader.pass(cut, nn::Phase::step);
    return reader;
  };
  Reader one = read(1);
  Reader two = read(2);
  std::atomic<bool> stop = false;
  std::jthread busy([&stop] {
    while (!stop.load()) {
    }
  });
  Reader three = read(3);
  stop = true;
  for (size_t s = 0; s < Reader::kSequences; ++s) {
    expect_same(two, one, s, "on two threads");
    expect_same(three, one, s, "on three threads under load");
  }
}

// Chunks of the scan are 64 tokens in most folders: the cuts lie before, on and after its boundaries.
TEST_P(RowContract, ExactlyTheSameHoweverItIsCut) {
  constexpr int64_t kTokens = 150;
  constexpr bool kExact = true;
  Reader whole = open(1, kExact);
  whole.pass({{0, kTokens}}, nn::Phase::prefill);
  const auto compare = [&](const std::vector<int64_t>& lengths, nn::Phase phase, const std::string& how) {
    Reader cut = open(1, kExact);
    for (size_t i = 0, done = 0; done < kTokens; ++i) {
      const int64_t n = std::min(lengths[i % lengths.size()], kTokens - static_cast<int64_t>(done));
      cut.pass({{0, n}}, phase);
      done += static_cast<size_t>(n);
    }
    expect_same(cut, whole, 0, how);
  };
  compare({1}, nn::Phase::step, "step by step");
  compare({1}, nn::Phase::prefill, "in pieces of 1");
  compare({7}, nn::Phase::prefill, "in pieces of 7");
  compare({64}, nn::Phase::prefill, "in pieces of 64");
  compare({63, 2, 64, 21}, nn::Phase::prefill, "in uneven pieces");
  compare({100, 28}, nn::Phase::prefill, "in two pieces over a boundary");
  compare({5, 8, 1}, nn::Phase::step, "in steps of several tokens");
}

TEST_P(RowContract, ExactWithMatesAndThreads) {
  constexpr bool kExact = true;
  Reader together = open(3, kExact);
  for (const Cut& cut : prompts()) together.pass(cut, nn::Phase::prefill);
  for (const Cut& cut : steps()) together.pass(cut, nn::Phase::step);
  for (size_t s = 0; s < Reader::kSequences; ++s) {
    int64_t tokens = 0;
    for (const auto* cuts : {&prompts(), &steps()}) {
      for (const Cut& cut : *cuts) {
        for (const auto& piece : cut) tokens += piece.first == s ? piece.second : 0;
      }
    }
    Reader alone = open(1, kExact);
    alone.pass({{s, tokens}}, nn::Phase::prefill);
    expect_same(together, alone, s, "with mates, against one pass alone");
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, RowContract,
                         testing::Combine(testing::ValuesIn(own_folders()), testing::Values(DType::f32, DType::bf16)),
                         [](const auto& p) {
                           return std::get<0>(p.param).label + (std::get<1>(p.param) == DType::f32 ? "_f32" : "_bf16");
                         });

}  // namespace
}  // namespace braid
