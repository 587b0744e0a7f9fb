// Drafts change nothing but speed: the same tokens and log-probabilities, whatever was drafted and by whom. The
// runner's promise behind it, steps that can be undone without a trace, is tested in tests/row_contract_test.cc.
#include "engine/draft.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "engine/language_model.h"
#include "engine/scheduler.h"
#include "support/data.h"
#include "support/folder.h"
#include "support/other_weights.h"

namespace braid::engine {
namespace {

// The longest of the latest 16 earlier occurrences of the last pair, by comparing every position.
NgramIndex::Match searched(const std::vector<int32_t>& text) {
  NgramIndex::Match best;
  const int64_t end = std::ssize(text);
  const auto at = [&](int64_t i) { return text[static_cast<size_t>(i)]; };
  int seen = 0;
  for (int64_t i = end - 1; i >= 2 && seen < 16; --i) {
    int64_t n = 0;
    while (n < i && n < NgramIndex::kLongest && at(i - 1 - n) == at(end - 1 - n)) ++n;
    if (n < 2) continue;
    ++seen;
    if (n > best.tokens) best = {n, i};
  }
  return best;
}

TEST(Draft, TheLongestEarlierOccurrenceIsFound) {
  std::mt19937 random(1);
  for (const int letters : {2, 4, 30}) {
    NgramIndex index;
    std::vector<int32_t> text;
    for (int i = 0; i < 400; ++i) {
      text.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(letters)));
      if (random() % 3 == 0) continue;  // several tokens at once
      const NgramIndex::Match want = searched(text), got = index.find(text);
      ASSERT_EQ(got.tokens, want.tokens) << i;
      ASSERT_EQ(got.next, want.next) << i;
    }
  }
}

TEST(Draft, AContinuationRepeatsItself) {
  const std::vector<int32_t> text = {9, 1, 2, 3, 1, 2};
  NgramIndex index;
  const NgramIndex::Match match = index.find(text);
  EXPECT_EQ(match.tokens, 2);
  EXPECT_EQ(NgramIndex::continuation(text, match, 7), (std::vector<int32_t>{3, 1, 2, 3, 1, 2, 3}));
  EXPECT_TRUE(NgramIndex::continuation(text, {}, 7).empty());
  EXPECT_EQ(NgramIndex().find(std::vector<int32_t>{1}).tokens, 0);
}

// Of a text in which no pair of tokens occurs twice, at sizes at which table and positions have just grown.
TEST(Draft, TheIndexTakesNoMoreThanItSays) {
  const auto taken = [] {
    const auto info = mallinfo2();  // zeros under sanitizers
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  std::vector<int32_t> text(40'000);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(i);
  double most = 0;
  const int64_t before = taken();
  if (before == 0) GTEST_SKIP() << "an allocator that counts nothing";
  NgramIndex index;
  for (size_t n = 1000; n <= text.size(); n += 500) {
    (void)index.find(std::span(text).first(n));
    most = std::max(most, static_cast<double>(taken() - before) / static_cast<double>(n));
  }
  EXPECT_GT(most, NgramIndex::kTokenBytes / 4);
  EXPECT_LE(most, NgramIndex::kTokenBytes);
}

// It is part of the budget: promised to an answer with its states, counted while it runs, and freed at its end.
TEST(Draft, TheIndexCountsAsMemory) {
  constexpr int64_t kTokens = 100;
  const auto model_with = [](int64_t memory) {
    return LanguageModel(
        support::data("tiny-chat"),
        {.context = 1024, .sequences = 2, .memory = memory, .spare_slots = 1, .chunk = 64, .threads = 1});
  };
  LanguageModel sizes = model_with(64 << 20);
  const int64_t whole = sizes.runner().sequence_bytes_of(1024), slot = sizes.runner().pool().slot_bytes();
  const auto request = [](std::vector<Generated>& out, int64_t prompt, int64_t tokens) {
    Request r{.prompt = std::vector<int32_t>(static_cast<size_t>(prompt), 40),
              .generate = {.tokens_max = tokens, .ignore_eos = true},
              .on_end = [&out](Generated g, int64_t) { out.push_back(std::move(g)); }};
    for (size_t i = 0; i < r.prompt.size(); ++i) r.prompt[i] += static_cast<int32_t>(i % 50);
    return r;
  };
  std::vector<std::vector<int32_t>> answers;
  for (const bool drafts : {false, true}) {
    LanguageModel model = model_with(64 << 20);
    Scheduler scheduler(model.runner(), {.ngram = drafts, .tokens_max = 3});
    std::vector<Generated> out;
    scheduler.submit(request(out, 300, kTokens));
    int64_t most = 0;
    while (!scheduler.idle()) {
      scheduler.pass();
      const MemoryUse use = scheduler.memory();
      EXPECT_LE(use.bytes, use.bytes_max);
      most = std::max(most, use.index_bytes);
    }
    EXPECT_EQ(most > 300 * NgramIndex::kTokenBytes, drafts);
    EXPECT_LE(most, (300 + kTokens + 8) * NgramIndex::kTokenBytes);
    EXPECT_EQ(scheduler.memory().index_bytes, 0);
    answers.push_back(out.at(0).ids);
  }
  EXPECT_EQ(answers[0], answers[1]);
  // Where the states alone fit, an answer begins without it.
  LanguageModel tight = model_with(whole + slot + 100);
  {
    Scheduler scheduler(tight.runner(), {.ngram = true, .tokens_max = 3});
    std::vector<Generated> out;
    scheduler.submit(request(out, 300, -1));
    for (int i = 0; i < 100 && !scheduler.idle(); ++i) scheduler.pass();
    EXPECT_EQ(scheduler.running(), 1);
    EXPECT_EQ(scheduler.memory().index_bytes, 0);
    scheduler.cancel();
  }
  EXPECT_EQ(tight.runner().pool().bytes_in_use(), 0);
}

// Passes of a machine where a row more costs `slope` of a pass.
struct Machine {
  DepthChooser chooser{};
  double slope = 0;
  int64_t verified = 0, passes = 0;
  std::vector<int64_t> pass(const std::vector<Offer>& offers, int64_t slots = 99) {
    const auto depths = chooser.choose(offers, std::ssize(offers), slots);
    int64_t drafts = 0;
    for (const int64_t d : depths) drafts += d;
    chooser.note(std::ssize(offers), drafts, 0.01 * (1 + slope * static_cast<double>(drafts)));
    verified += drafts;
    ++passes;
    return depths;
  }
};

TEST(Draft, DepthFollowsWhatPays) {
  const std::vector<Offer> likely = {{.odds = {0.9, 0.8, 0.7}}}, unlikely = {{.odds = {0.05, 0.01}}};
  Machine machine{.slope = 0.1};
  using Depths = std::vector<int64_t>;
  EXPECT_EQ(machine.pass(likely), Depths{0});  // what a pass takes is not known yet
  machine.pass(likely);
  EXPECT_EQ(machine.pass(likely), Depths{3});
  EXPECT_EQ(machine.pass(unlikely), Depths{0});
  machine.slope = 2;  // now every row costs two passes
  for (int i = 0; i < 40; ++i) machine.pass(likely);
  machine.verified = 0;
  for (int i = 0; i < 1000; ++i) machine.pass(likely);
  EXPECT_GT(machine.verified, 0);   // it tries again,
  EXPECT_LT(machine.verified, 40);  // but rarely
  machine.slope = 0.1;
  machine.verified = 0;
  for (int i = 0; i < 1000; ++i) machine.pass(likely);
  EXPECT_GT(machine.verified, 1000);
}

// Where a draft costs a tenth of a pass: 1.16 tokens in 1.1 of the time are 5% more a second, 1.22 are 11% more.
TEST(Draft, ASmallGainIsNotWorthADraft) {
  for (const auto& [odds, drafts] : {std::pair(0.16, 0), std::pair(0.22, 1)}) {
    Machine machine{.slope = 0.1};
    const std::vector<Offer> likely = {{.odds = {0.9}}}, offers = {{.odds = {odds}}};
    for (int i = 0; i < 4; ++i) machine.pass(likely);  // measures both kinds of passes
    EXPECT_EQ(machine.pass(offers), std::vector<int64_t>{drafts}) << odds;
  }
}

TEST(Draft, DepthsGoToTheLikeliestDrafts) {
  Machine machine{.slope = 0.05};
  const std::vector<Offer> offers = {{.odds = {0.9, 0.8}}, {}, {.odds = {0.3, 0.01}}};
  for (int i = 0; i < 2; ++i) machine.pass(offers);
  using Depths = std::vector<int64_t>;
  machine.pass(offers);  // measures that drafts cost less than was expected
  EXPECT_EQ(machine.pass(offers), (Depths{2, 0, 1}));
  EXPECT_EQ(machine.pass(offers, 2), (Depths{2, 0, 1}));
  EXPECT_EQ(machine.pass(offers, 1), (Depths{2, 0, 0}));
  EXPECT_EQ(machine.pass(offers, 0), (Depths{0, 0, 0}));
  EXPECT_EQ(machine.chooser.choose(offers, 3, 99, true), (Depths{2, 0, 2}));
  EXPECT_EQ(machine.chooser.choose(offers, 3, 1, true), (Depths{2, 0, 0}));
}

// Drafts that cost much to make have to be likelier.
TEST(Draft, MakingADraftCosts) {
  Machine machine{.slope = 0.1};
  std::vector<Offer> offers = {{.odds = {0.5, 0.3}}};
  for (int i = 0; i < 2; ++i) machine.pass(offers);
  EXPECT_EQ(machine.pass(offers), (std::vector<int64_t>{2}));
  offers[0].token_seconds = 0.01;
  EXPECT_EQ(machine.pass(offers), (std::vector<int64_t>{0}));
}

LanguageModel drafting_model(int64_t sequences, int64_t spare, bool exact = false, int64_t memory = 0) {
  Numerics numerics = Numerics::serving(DType::f32);
  numerics.exact = exact;
  return {support::data("tiny-chat"),
          {.numerics = numerics,
           .context = 256,
           .sequences = sequences,
           .memory = memory,
           .spare_slots = spare,
           .chunk = 16,
           .threads = 1}};
}

std::vector<Generated> answers_with(Runner& runner, const std::vector<Request>& requests, DraftOptions drafts) {
  std::vector<Generated> out(requests.size());
  Scheduler scheduler(runner, std::move(drafts));
  const int64_t spare = runner.spare_slots();
  for (size_t i = 0; i < requests.size(); ++i) {
    Request request = requests[i];
    request.on_end = [&out, i](Generated generated, int64_t) { out[i] = std::move(generated); };
    scheduler.submit(std::move(request));
  }
  while (!scheduler.idle()) scheduler.pass();
  EXPECT_EQ(runner.spare_slots(), spare);
  return out;
}

// The right continuation of known texts, but for one token of every `wrong`.
std::function<std::vector<int32_t>(std::span<const int32_t>, int64_t)> foreseen(std::vector<std::vector<int32_t>> texts,
                                                                                size_t wrong) {
  return [texts = std::move(texts), wrong](std::span<const int32_t> text, int64_t most) {
    std::vector<int32_t> out;
    for (const auto& known : texts) {
      if (known.size() <= text.size() || !std::equal(text.begin(), text.end(), known.begin())) continue;
      for (size_t i = text.size(); i < known.size() && std::ssize(out) < most; ++i)
        out.push_back(i % wrong == 0 ? (known[i] + 1) % 640 : known[i]);
      break;
    }
    return out;
  };
}

void expect_same(const std::vector<Generated>& got, const std::vector<Generated>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].ids, want[i].ids) << what << " " << i;
    EXPECT_EQ(got[i].finish, want[i].finish) << what << " " << i;
    ASSERT_EQ(got[i].logprobs.size(), want[i].logprobs.size()) << what << " " << i;
    for (size_t t = 0; t < want[i].logprobs.size(); ++t) {
      for (size_t j = 0; j < want[i].logprobs[t].size(); ++j) {
        ASSERT_EQ(got[i].logprobs[t][j].logprob, want[i].logprobs[t][j].logprob) << what << " " << i << " " << t;
        ASSERT_EQ(got[i].logprobs[t][j].id, want[i].logprobs[t][j].id) << what << " " << i << " " << t;
      }
    }
  }
}

struct Drafts {
  int64_t drafted = 0, accepted = 0;
};
Drafts drafts_of(const std::vector<Generated>& all) {
  Drafts out;
  for (const Generated& g : all) {
    out.drafted += g.timings.drafted_tokens;
    out.accepted += g.timings.accepted_tokens;
  }
  return out;
}

std::vector<Request> requests_of(LanguageModel& model, const GenerateOptions& options) {
  std::vector<Request> requests;
  for (const char* text : {"What is 17 + 25?", "Hi", "Reverse the word stone. Reverse the word stone. Reverse the", "9",
                           "<think>\n1 2 3 1 2 3 1 2", "What is 3 - 1? What is 3 - 1? What is 3 - 1? What"})
    requests.push_back({.prompt = model.tokenizer().encode(text, false), .generate = options});
  requests.push_back({.prompt = std::vector<int32_t>(250, 40), .generate = options});  // up to the end of the context
  return requests;
}

std::vector<std::vector<int32_t>> whole_texts(const std::vector<Request>& requests, const std::vector<Generated>& got) {
  std::vector<std::vector<int32_t>> texts;
  for (size_t i = 0; i < requests.size(); ++i) {
    texts.push_back(requests[i].prompt);
    texts.back().insert(texts.back().end(), got[i].ids.begin(), got[i].ids.end());
    texts.back().insert(texts.back().end(), {2, 11, 40, 41, 42});  // drafts past the end
  }
  return texts;
}

// Every way to draw, every length, every quality of drafts, any number of slots.
void expect_drafts_change_nothing(bool exact, const std::vector<int64_t>& spare_slots) {
  LanguageModel model = drafting_model(3, 0, exact);
  std::vector<GenerateOptions> ways(4);
  ways[0].tokens_max = 20;
  ways[0].logprobs = 2;
  ways[1].tokens_max = 7;
  ways[1].ignore_eos = true;
  ways[1].logprobs = 0;
  ways[1].budget = model.reasoning_budget(9);
  ways[1].thinking = Thinking::open;
  ways[2].tokens_max = 24;
  ways[2].sampling = {.temperature = 0.7, .top_k = 20, .top_p = 0.9, .min_p = 0.01, .repeat_penalty = 1.1, .seed = 3};
  ways[2].logprobs = 1;
  ways[3].tokens_max = 24;
  ways[3].sampling = {.temperature = 1, .presence_penalty = 0.3, .frequency_penalty = 0.2, .seed = 8};
  ways[3].ignore_eos = true;
  ways[3].logprobs = 0;
  for (size_t way = 0; way < ways.size(); way += exact ? 3 : 1) {
    const std::vector<Request> requests = requests_of(model, ways[way]);
    const std::vector<Generated> want = answers_with(model.runner(), requests, {});
    for (const int64_t spare : spare_slots) {
      LanguageModel spacious = drafting_model(3, spare, exact);
      for (const size_t wrong : {size_t{1}, size_t{3}, size_t{1000}}) {
        const auto got = answers_with(
            spacious.runner(), requests,
            {.tokens_max = kDraftMax, .always = true, .source = foreseen(whole_texts(requests, want), wrong)});
        const std::string what = fmt::format("way {}, {} spare slots, one of {} wrong", way, spare, wrong);
        expect_same(got, want, what);
        const Drafts drafts = drafts_of(got);
        EXPECT_GT(drafts.drafted, 0) << what;
        EXPECT_TRUE(wrong != 1 || drafts.accepted == 0) << what;
        EXPECT_TRUE(wrong != 1000 || drafts.accepted > drafts.drafted / 2) << what;
      }
      const auto got = answers_with(spacious.runner(), requests, {.ngram = true, .tokens_max = 4, .always = true});
      expect_same(got, want, fmt::format("way {}, {} spare slots, n-grams", way, spare));
    }
  }
}

TEST(Draft, DraftsChangeNothing) { expect_drafts_change_nothing(false, {1, 3}); }
TEST(Draft, DraftsChangeNothingOfExact) { expect_drafts_change_nothing(true, {2}); }

// A callback that stops in the middle of accepted drafts sees no further token, and none is counted.
TEST(Draft, StopsWithinAcceptedDrafts) {
  LanguageModel model = drafting_model(1, 8);
  std::vector<Request> requests = requests_of(model, {.tokens_max = 30, .ignore_eos = true});
  requests.resize(1);
  const auto want = answers_with(model.runner(), requests, {});
  for (size_t stop = 1; stop < 12; ++stop) {
    std::vector<int32_t> seen;
    requests[0].on_token = [&](int32_t id) {
      seen.push_back(id);
      return seen.size() < stop;
    };
    const auto got =
        answers_with(model.runner(), requests,
                     {.tokens_max = 7, .always = true, .source = foreseen(whole_texts(requests, want), 1000)});
    EXPECT_EQ(seen, std::vector<int32_t>(want[0].ids.begin(), want[0].ids.begin() + static_cast<std::ptrdiff_t>(stop)));
    EXPECT_EQ(got[0].ids, seen);
    EXPECT_EQ(got[0].finish, Finish::cancelled);
  }
}

// A conversation whose turns continue from cached prefixes, one of them the end of an answer that was drafted.
TEST(Draft, CachedPrefixesOfDraftedAnswers) {
  const GenerateOptions options{.tokens_max = 12, .ignore_eos = true, .logprobs = 1};
  LanguageModel plain = drafting_model(1, 0, true), drafting = drafting_model(1, 16, true, 64 << 20);
  Scheduler scheduler(drafting.runner(), {.ngram = true, .tokens_max = 5, .always = true});
  std::vector<int32_t> prompt = plain.tokenizer().encode("1 2 3 4 1 2 3 4 1 2", false);
  int64_t accepted = 0;
  for (int turn = 0; turn < 6; ++turn) {
    Generated got;
    int64_t cached = -1;
    scheduler.submit({.prompt = prompt, .generate = options, .on_end = [&](Generated out, int64_t n) {
                        got = std::move(out);
                        cached = n;
                      }});
    while (!scheduler.idle()) scheduler.pass();
    expect_same({got}, answers_with(plain.runner(), {{.prompt = prompt, .generate = options}}, {}),
                std::to_string(turn));
    accepted += got.timings.accepted_tokens;
    EXPECT_TRUE(turn == 0 || cached > 0) << turn;
    prompt.insert(prompt.end(), got.ids.begin(), got.ids.end());
    for (const int32_t id : plain.tokenizer().encode(" 1 2 3", false)) prompt.push_back(id);
  }
  EXPECT_GT(accepted, 0);
}

// Without --exact the bits of a continuation depend on where its prefix was cut, which drafts must not change.
TEST(Draft, PrefixesAreKeptWhereTheyAreWithoutDrafts) {
  GenerateOptions options;
  options.tokens_max = 60;
  options.ignore_eos = true;
  options.logprobs = 1;
  std::vector<std::vector<Generated>> answers(2);
  std::vector<std::vector<int64_t>> cached(2);
  for (const bool drafting : {false, true}) {
    LanguageModel model = drafting_model(1, 8, false, 64 << 20);
    DraftOptions drafts;
    if (drafting) drafts = {.ngram = true, .tokens_max = 7, .always = true};
    Scheduler scheduler(model.runner(), drafts);
    std::vector<int32_t> prompt = model.tokenizer().encode("1 2 3 4 1 2 3 4 1 2", false);
    for (int turn = 0; turn < 3; ++turn) {
      scheduler.submit({.prompt = prompt, .generate = options, .on_end = [&](Generated out, int64_t n) {
                          answers[drafting].push_back(std::move(out));
                          cached[drafting].push_back(n);
                        }});
      while (!scheduler.idle()) scheduler.pass();
      // The next prompt parts from this answer in its middle.
      const std::vector<int32_t>& ids = answers[drafting].back().ids;
      prompt.insert(prompt.end(), ids.begin(), ids.begin() + 37);
      prompt.push_back(ids[37] == 45 ? 46 : 45);
    }
  }
  EXPECT_EQ(cached[0], cached[1]);
  EXPECT_GT(cached[0][2], cached[0][1]);
  expect_same(answers[1], answers[0], "continuations");
}

// Pairs of tokens drawn with a likely draft for the second, against their probabilities: chi-square over nine cells.
TEST(Draft, DraftedTextsHaveTheProbabilitiesOfTheModel) {
  LanguageModel model = drafting_model(8, 32);
  const std::vector<int32_t> prompt = model.tokenizer().encode("Hi", false);
  const SamplingOptions sampling{.temperature = 1.5, .top_k = 3};
  const auto probabilities = [&](const std::vector<int32_t>& text) {
    model.runner().reset(0);
    const Tensor logits = model.runner().prefill(0, text, [](const Tensor&) {});
    const std::span row(logits.view().as<float>(), static_cast<size_t>(logits.dim(1)));
    const auto best = logprobs_of(row, 0, 3);
    std::map<int32_t, double> p;
    double total = 0;
    for (size_t i = 1; i < best.size(); ++i) total += p[best[i].id] = std::exp(best[i].logprob / sampling.temperature);
    for (auto& [id, value] : p) value /= total;
    return p;
  };
  std::map<std::pair<int32_t, int32_t>, double> expected, found;
  std::map<int32_t, int32_t> draft;  // the likeliest after each
  for (const auto& [first, p] : probabilities(prompt)) {
    std::vector<int32_t> text = prompt;
    text.push_back(first);
    const auto next = probabilities(text);
    draft[first] = std::ranges::max_element(next, {}, &std::pair<const int32_t, double>::second)->first;
    for (const auto& [second, q] : next) expected[{first, second}] = p * q;
  }
  constexpr size_t kTexts = 2000;
  std::vector<Request> requests(kTexts, {.prompt = prompt, .generate = {.tokens_max = 3, .ignore_eos = true}});
  for (size_t i = 0; i < kTexts; ++i) {
    requests[i].generate.sampling = sampling;
    requests[i].generate.sampling.seed = i;
  }
  const support::Folder other;
  support::write_with_other_weights(support::data("tiny-chat"), other, 4);
  RunnerOptions draft_options = model.runner().options();
  const DraftModel second = load_draft_model(other.path().string(), draft_options);
  const DraftOptions by_text{.tokens_max = 1, .always = true, .source = [&](std::span<const int32_t> text, int64_t) {
                               const auto known = draft.find(text.back());
                               return known == draft.end() ? std::vector<int32_t>{} : std::vector{known->second};
                             }};
  const DraftOptions by_model{.model = second.runner.get(), .tokens_max = 1, .always = true};
  for (const DraftOptions& drafts : {by_text, by_model}) {
    const auto got = answers_with(model.runner(), requests, drafts);
    found.clear();
    for (const Generated& g : got) ++found[{g.ids[0], g.ids[1]}];
    double chi_square = 0;
    for (const auto& [pair, p] : expected) {
      const double mean = p * kTexts;
      chi_square += (found[pair] - mean) * (found[pair] - mean) / mean;
    }
    EXPECT_EQ(found.size(), expected.size());
    EXPECT_LT(chi_square, 26.1);  // one of a thousand samples of 8 degrees of freedom
    const Drafts all = drafts_of(got);
    EXPECT_GT(all.accepted, 100);
    EXPECT_LT(all.accepted, all.drafted);
  }
}

}  // namespace
}  // namespace braid::engine
