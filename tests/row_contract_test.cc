// The row contract of whole models, bit for bit: the result of a token depends on its sequence and the weights alone,
// never on batch mates, their order, slots or phases, threads or load. A step that is rolled back leaves no trace, and
// a fork is independent. With --exact it does not depend on how the sequence was split into passes either: pieces of
// any length, or one token at a time.
#include <atomic>
#include <cstring>
#include <thread>
#include <tuple>

#include "support/golden.h"

namespace braid {
namespace {

// How many tokens a sequence gets in one pass, several sequences at a time: {sequence, tokens}.
using Cut = std::vector<std::pair<size_t, int64_t>>;

// A runner that reads several sequences and keeps what it computed for each.
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

  void pass(const Cut& cut, Phase phase) { pass(cut, std::vector<Phase>(cut.size(), phase)); }
  void pass(const Cut& cut, const std::vector<Phase>& phases) {
    std::vector<engine::Piece> pieces;
    std::vector<int32_t> flat;
    for (size_t i = 0; i < cut.size(); ++i) {
      const auto [s, tokens] = cut[i];
      pieces.push_back({.sequence = kIndices[s], .tokens = tokens, .phase = phases[i]});
      const auto first = ids_[s].begin() + runner_->length(kIndices[s]);
      flat.insert(flat.end(), first, first + tokens);
    }
    note(cut, runner_->logits(runner_->forward(flat, pieces)));
  }
  // A step of tokens of which only the first `right` of each sequence are its own; those are kept.
  void guess(const Cut& cut, int64_t right) {
    std::vector<engine::Piece> pieces;
    std::vector<int32_t> flat;
    for (const auto& [s, tokens] : cut) {
      pieces.push_back({.sequence = kIndices[s], .tokens = tokens, .phase = Phase::step, .tentative = true});
      for (int64_t i = 0; i < tokens; ++i) {
        const int32_t id = ids_[s][static_cast<size_t>(runner_->length(kIndices[s]) + i)];
        flat.push_back(i < right ? id : (id + 1 + static_cast<int32_t>(i)) % 90);
      }
    }
    const Tensor all = runner_->logits(runner_->forward(flat, pieces));
    int64_t row = 0;
    for (const auto& [s, tokens] : cut) {
      const int64_t kept = std::min(right, tokens);
      note({{s, kept}}, all.slice(0, row, kept));
      runner_->keep(kIndices[s], kept);
      row += tokens;
    }
  }
  // Sequence `to` becomes a fork of `from`, and continues with its own tokens.
  void fork(size_t from, size_t to) {
    runner_->fork(kIndices[from], kIndices[to]);
    const auto read = runner_->length(kIndices[from]);
    std::copy(ids_[from].begin(), ids_[from].begin() + read, ids_[to].begin());
    logits_[to] = logits_[from];
  }
  // Reads what sequence `s` of another reader has read and will read.
  void follow(size_t s, const Reader& other) { ids_[s] = other.ids_[s]; }
  int64_t length(size_t s) const { return runner_->length(kIndices[s]); }
  int64_t spare_slots() const { return runner_->spare_slots(); }
  // The passes of `cuts` that concern one sequence, alone.
  void alone(size_t sequence, const std::vector<Cut>& cuts, Phase phase) {
    for (const Cut& cut : cuts) {
      for (const auto& piece : cut) {
        if (piece.first == sequence) pass({piece}, phase);
      }
    }
  }
  void one_by_one(size_t sequence, int64_t tokens, Phase phase) {
    for (int64_t i = 0; i < tokens; ++i) pass({{sequence, 1}}, phase);
  }

  std::span<const float> logits(size_t sequence) const { return logits_[sequence]; }
  States states(size_t sequence) { return states_of(*runner_, kIndices[sequence]); }

  static constexpr size_t kSequences = 5;
  static constexpr int64_t kIndices[kSequences] = {3, 0, 5, 1, 2};

 private:
  void note(const Cut& cut, const Tensor& all) {
    int64_t row = 0;
    for (const auto& [s, tokens] : cut) {
      const float* values = all.view().as<float>(row);
      logits_[s].insert(logits_[s].end(), values, values + tokens * all.dim(1));
      row += tokens;
    }
  }

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
             .sequences = 6,
             .spare_slots = 40,
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
  for (const Cut& cut : prompts()) together.pass(cut, Phase::prefill);
  for (const Cut& cut : steps()) together.pass(cut, Phase::step);
  for (size_t s = 0; s < Reader::kSequences; ++s) {
    Reader alone = open();
    alone.alone(s, prompts(), Phase::prefill);
    alone.alone(s, steps(), Phase::step);
    expect_same(together, alone, s, "with mates");
  }
}

TEST_P(RowContract, AStepOfSeveralTokensIsAsManySteps) {
  Reader several = open(), single = open();
  const Cut lengths = {{0, 8}, {1, 3}, {2, 1}, {3, 5}, {4, 2}};
  for (Reader* reader : {&several, &single}) reader->pass(prompts()[0], Phase::prefill);
  several.pass(lengths, Phase::step);
  for (const auto& [s, tokens] : lengths) single.one_by_one(s, tokens, Phase::step);
  for (size_t s = 0; s < Reader::kSequences; ++s) expect_same(several, single, s, "in one step");
}

// A runner of one sequence has its own products for steps over quantised weights, of any number of tokens.
TEST_P(RowContract, AStepOfTheOnlySequence) {
  const auto read = [](const std::vector<int64_t>& steps) {
    const auto runner = open_folder(std::get<0>(GetParam()).path,
                                    {.numerics = Numerics::serving(std::get<1>(GetParam())), .context = 150});
    const std::vector<int32_t> ids = {5, 17, 3, 80, 41, 2, 66, 9, 30, 71, 12, 55};
    runner->prefill(0, ids, [](const Tensor&) {});
    std::vector<float> logits;
    for (const int64_t tokens : steps) {
      const engine::Piece piece{.tokens = tokens, .phase = Phase::step};
      const auto part =
          std::span(ids).subspan(static_cast<size_t>(runner->length(0) - std::ssize(ids)), static_cast<size_t>(tokens));
      const Tensor all = runner->logits(runner->forward(part, {&piece, 1}));
      logits.insert(logits.end(), all.view().as<float>(), all.view().as<float>() + tokens * all.dim(1));
    }
    return logits;
  };
  expect_same_bits(read({7, 1, 3}), read(std::vector<int64_t>(11, 1)), "of one sequence");
}

// Prompts are read in the same passes as steps, in any order: each gets the same results as alone.
TEST_P(RowContract, PrefillsAndStepsInOnePass) {
  constexpr Phase p = Phase::prefill, s = Phase::step;
  const std::vector<std::pair<Cut, std::vector<Phase>>> passes = {
      {{{0, 5}, {1, 70}}, {p, p}},
      {{{0, 1}, {2, 33}, {1, 1}, {3, 20}}, {s, p, s, p}},
      {{{2, 1}, {0, 3}, {4, 64}, {3, 40}, {1, 1}}, {s, s, p, p, s}},
      {{{3, 1}, {4, 9}, {2, 8}, {1, 2}}, {s, p, s, p}}};
  for (const bool exact : {false, true}) {
    Reader together = open(2, exact);
    for (const auto& [cut, phases] : passes) together.pass(cut, phases);
    for (size_t sequence = 0; sequence < Reader::kSequences; ++sequence) {
      Reader alone = open(1, exact);
      for (const auto& [cut, phases] : passes) {
        for (size_t i = 0; i < cut.size(); ++i) {
          if (cut[i].first == sequence) alone.pass({cut[i]}, phases[i]);
        }
      }
      expect_same(together, alone, sequence, exact ? "in mixed passes, exact" : "in mixed passes");
    }
  }
}

// Wrong guesses leave no trace, wherever they end: the rest is read as if they had never been made.
TEST_P(RowContract, RolledBackTokensLeaveNoTrace) {
  const Cut lengths = {{0, 8}, {1, 3}, {2, 1}, {4, 7}};
  for (const bool exact : {false, true}) {
    for (int64_t right = 0; right <= 8; right += right == 2 ? 6 : 1) {
      Reader guessing = open(2, exact), plain = open(1, exact);
      for (Reader* reader : {&guessing, &plain}) reader->pass({{0, 60}, {1, 64}, {2, 3}, {4, 59}}, Phase::prefill);
      for (int round = 0; round < 2; ++round) {
        guessing.guess(lengths, right);
        for (const auto& [s, tokens] : lengths) plain.one_by_one(s, std::min(right, tokens), Phase::step);
        guessing.pass({{4, 2}, {0, 1}}, Phase::step);
        for (const Cut& cut : {Cut{{0, 1}}, Cut{{4, 2}}}) plain.pass(cut, Phase::step);
      }
      EXPECT_EQ(guessing.spare_slots(), 40);
      guessing.pass({{1, 9}, {2, 30}}, Phase::prefill);
      plain.pass({{1, 9}, {2, 30}}, Phase::prefill);
      for (const size_t s : {size_t{0}, size_t{1}, size_t{2}, size_t{4}}) {
        expect_same(guessing, plain, s, fmt::format("after {} right guesses{}", right, exact ? ", exact" : ""));
        EXPECT_EQ(guessing.length(s), plain.length(s));
      }
    }
  }
}

// A fork shares the pages of its prefix; both continue with their own tokens, and each is what it would be alone.
TEST_P(RowContract, ForksAreIndependent) {
  for (const bool exact : {false, true}) {
    Reader forked = open(2, exact);
    forked.pass({{0, 70}, {1, 5}}, Phase::prefill);
    forked.fork(0, 3);
    forked.pass({{3, 2}, {0, 1}, {1, 1}}, Phase::step);  // the fork writes the shared page first
    forked.fork(3, 2);
    forked.guess({{3, 4}, {0, 3}}, 1);
    forked.fork(0, 4);
    forked.pass({{0, 20}, {2, 7}, {4, 1}}, Phase::prefill);
    forked.pass({{4, 1}, {3, 1}, {0, 1}, {2, 1}}, Phase::step);
    const auto alone = [&](size_t s, const std::vector<std::pair<int64_t, Phase>>& pieces) {
      Reader reader = open(1, exact);
      reader.follow(s, forked);
      for (const auto& [tokens, phase] : pieces) reader.pass({{s, tokens}}, phase);
      expect_same(forked, reader, s, exact ? "forked, exact" : "forked");
    };
    constexpr Phase p = Phase::prefill, s = Phase::step;
    alone(0, {{70, p}, {1, s}, {1, s}, {20, p}, {1, s}});
    alone(1, {{5, p}, {1, s}});
    alone(2, {{70, p}, {2, s}, {7, p}, {1, s}});
    alone(3, {{70, p}, {2, s}, {1, s}, {1, s}});
    alone(4, {{70, p}, {1, s}, {1, s}, {1, p}, {1, s}});
  }
}

TEST_P(RowContract, ThreadsAndLoadChangeNothing) {
  const auto read = [&](int threads) {
    Reader reader = open(threads);
    for (const Cut& cut : prompts()) reader.pass(cut, Phase::prefill);
    for (const Cut& cut : steps()) reader.pass(cut, Phase::step);
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

// Chunks of the scan are 64 tokens in most folders: the cuts are before, on and after its boundaries.
TEST_P(RowContract, ExactlyTheSameHoweverItIsCut) {
  constexpr int64_t kTokens = 150;
  constexpr bool kExact = true;
  Reader whole = open(1, kExact);
  whole.pass({{0, kTokens}}, Phase::prefill);
  const auto compare = [&](const std::vector<int64_t>& lengths, Phase phase, const std::string& how) {
    Reader cut = open(1, kExact);
    for (size_t i = 0, done = 0; done < kTokens; ++i) {
      const int64_t n = std::min(lengths[i % lengths.size()], kTokens - static_cast<int64_t>(done));
      cut.pass({{0, n}}, phase);
      done += static_cast<size_t>(n);
    }
    expect_same(cut, whole, 0, how);
  };
  compare({1}, Phase::step, "step by step");
  compare({1}, Phase::prefill, "in pieces of 1");
  compare({7}, Phase::prefill, "in pieces of 7");
  compare({64}, Phase::prefill, "in pieces of 64");
  compare({63, 2, 64, 21}, Phase::prefill, "in uneven pieces");
  compare({100, 28}, Phase::prefill, "in two pieces over a boundary");
  compare({5, 8, 1}, Phase::step, "in steps of several tokens");
}

TEST_P(RowContract, ExactWithMatesAndThreads) {
  constexpr bool kExact = true;
  Reader together = open(3, kExact);
  for (const Cut& cut : prompts()) together.pass(cut, Phase::prefill);
  for (const Cut& cut : steps()) together.pass(cut, Phase::step);
  for (size_t s = 0; s < Reader::kSequences; ++s) {
    int64_t tokens = 0;
    for (const auto* cuts : {&prompts(), &steps()}) {
      for (const Cut& cut : *cuts) {
        for (const auto& piece : cut) tokens += piece.first == s ? piece.second : 0;
      }
    }
    Reader alone = open(1, kExact);
    alone.pass({{s, tokens}}, Phase::prefill);
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
