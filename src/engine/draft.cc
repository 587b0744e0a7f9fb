#include "engine/draft.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

namespace braid::engine {
namespace {

constexpr size_t kMatches = 8, kOutside = 8, kBlock = 9;
constexpr double kExpectedOfMatch[] = {0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}, kExpectedOutside = 0.5,
                 kExpectedOfBlock = 0.7;
constexpr double kWeight = 4;  // of what is known of all answers, in trials of one

size_t kind_of_match(int64_t tokens) {
  if (tokens < 6) return static_cast<size_t>(std::max<int64_t>(tokens, 2) - 2);  // 2, 3, 4, 5
  return std::min(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(tokens + 2))), size_t{7});
}

double expected_rate(size_t kind) {
  return kind < kMatches ? kExpectedOfMatch[kind] : kind == kOutside ? kExpectedOutside : kExpectedOfBlock;
}

constexpr int64_t kBlockIdle = 64;     // passes without a draft of the block, after which it stops reading an answer
constexpr int64_t kBlockRetry = 16;    // answers until it reads one again
constexpr int64_t kBlockUnread = 128;  // tokens that it reads at once where it need not read them sooner

}  // namespace

Drafter::Drafter(Runner& runner, DraftOptions options) : runner_(runner), options_(std::move(options)), block_(runner) {
  CHECK(options_.tokens_max >= 0 && options_.tokens_max <= kDraftMax, "{} drafts", options_.tokens_max);
  CHECK(!options_.mtp || has_prediction_block(runner.config()), "a model without a prediction block");
}

AnswerDrafts Drafter::begin(int64_t cached) {
  AnswerDrafts out;
  if (!options_.mtp || block_rest_ > 0) {
    block_rest_ -= options_.mtp ? 1 : 0;
    if (options_.mtp && block_rest_ == 0) {  // and it starts anew
      std::fill(rates_.begin() + kBlock, rates_.end(), Rate{});
      block_seconds_ = 0;
    }
    return out;
  }
  out.mtp = MtpState{.read = cached};
  return out;
}

void Drafter::read(AnswerDrafts& a, const Tensor& x, int64_t first, int64_t count) {
  if (a.mtp) block_.note(*a.mtp, x, first, count);
}

double Drafter::odds_of(const AnswerDrafts& a, size_t kind) const {
  return a.rates[kind].value(rates_[kind].value(expected_rate(kind), kWeight), kWeight);
}

// By n-grams or by the block, whichever has the likelier first token; the guesses of the block are made only if wanted.
Offer Drafter::offer(const Wanted& wanted) {
  AnswerDrafts& a = *wanted.answer;
  a.guess.clear();
  a.kinds.clear();
  const int64_t most = std::min(options_.tokens_max, wanted.tokens_max);
  if (most == 0) return {};
  if (options_.source) {
    a.guess = options_.source(wanted.text, most);
    a.kinds.assign(a.guess.size(), kOutside);
  } else if (options_.ngram) {
    const NgramIndex::Match match = a.index.find(wanted.text);
    a.guess = NgramIndex::continuation(wanted.text, match, most);
    for (int64_t i = 0; i < std::ssize(a.guess); ++i) a.kinds.push_back(kind_of_match(match.tokens + i));
  }
  Offer out;
  if (a.mtp && (a.guess.empty() || odds_of(a, a.kinds[0]) < odds_of(a, kBlock))) {
    a.guess.clear();
    a.kinds.clear();
    for (int64_t i = 0; i < most; ++i) a.kinds.push_back(kBlock + static_cast<size_t>(i));
    out.token_seconds = block_seconds_;
  }
  double all = 1;
  for (const size_t kind : a.kinds) out.odds.push_back(all *= odds_of(a, kind));
  return out;
}

void Drafter::draft(std::span<const Wanted> answers, int64_t steps, int64_t slots) {
  std::vector<Offer> offers;
  for (const Wanted& wanted : answers) offers.push_back(offer(wanted));
  const auto depths = chooser_.choose(offers, steps, slots, options_.always);
  if (options_.mtp) draft_by_block(answers, depths);
  for (size_t i = 0; i < answers.size(); ++i) {
    AnswerDrafts& a = *answers[i].answer;
    const auto count = std::min(depths[i], std::ssize(a.guess));
    a.tokens.assign(a.guess.begin(), a.guess.begin() + count);
  }
}

void Drafter::draft_by_block(std::span<const Wanted> answers, std::span<const int64_t> depths) {
  std::vector<MtpDrafter::Wanted> wanted;
  std::vector<size_t> whose;
  int64_t tokens = 0;
  bool short_reads = true;  // what follows a step, and not a prompt, which has to be read once
  for (size_t i = 0; i < answers.size(); ++i) {
    AnswerDrafts& a = *answers[i].answer;
    if (!a.mtp) continue;
    const bool offered = !a.kinds.empty() && a.kinds[0] >= kBlock;
    const int64_t drafts = offered ? depths[i] : 0;
    a.mtp_idle = drafts > 0 ? 0 : a.mtp_idle + (offered ? 1 : 0);
    const int64_t unread = a.mtp->unread(runner_.config().hidden);
    if (drafts == 0 && unread < kBlockUnread) continue;
    wanted.push_back({.state = &*a.mtp, .sequence = answers[i].sequence, .text = answers[i].text, .tokens = drafts});
    whose.push_back(i);
    tokens += drafts;
    short_reads = short_reads && unread <= 1 + kDraftMax;
  }
  if (wanted.empty()) return;
  const auto began = std::chrono::steady_clock::now();
  auto guesses = block_.draft(wanted);
  for (size_t i = 0; i < whose.size(); ++i) {
    if (wanted[i].tokens > 0) answers[whose[i]].answer->guess = std::move(guesses[i]);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (tokens == 0 || !short_reads) return;
  const double each = seconds / static_cast<double>(tokens);
  block_seconds_ =
      block_seconds_ == 0 ? each : block_seconds_ + 0.1 * (std::min(each, 2 * block_seconds_) - block_seconds_);
}

void Drafter::drawn(AnswerDrafts& a, std::span<const int32_t> tokens) {
  a.drafted += std::ssize(a.tokens);
  a.accepted += std::ssize(tokens) - 1;
  for (size_t i = 0; i < std::min(tokens.size(), a.guess.size()); ++i) {
    const bool hit = a.guess[i] == tokens[i];
    a.rates[a.kinds[i]].note(hit);
    rates_[a.kinds[i]].note(hit);
    if (!hit) break;
  }
  a.tokens.clear();
  a.guess.clear();
  if (!a.mtp || a.mtp_idle < kBlockIdle) return;
  a.mtp.reset();
  block_rest_ = kBlockRetry;
}

void Drafter::settle(AnswerDrafts& a, int64_t sequence, std::span<const int32_t> text) {
  // After a failed pass the sequence is empty.
  if (!a.mtp || runner_.length(sequence) != a.mtp->read + a.mtp->unread(runner_.config().hidden)) return;
  const MtpDrafter::Wanted all{.state = &*a.mtp, .sequence = sequence, .text = text};
  block_.draft({&all, 1});
}

}  // namespace braid::engine
