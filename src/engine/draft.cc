#include "engine/draft.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

namespace braid::engine {
namespace {

constexpr size_t kMatches = 8, kOutside = 8, kReader = 9;
constexpr double kExpectedOfMatch[] = {0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}, kExpectedOutside = 0.5,
                 kExpectedOfReader = 0.7;
constexpr double kWeight = 4;  // of what is known of all answers, in trials of one

size_t kind_of_match(int64_t tokens) {
  if (tokens < 6) return static_cast<size_t>(std::max<int64_t>(tokens, 2) - 2);  // 2, 3, 4, 5
  return std::min(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(tokens + 2))), size_t{7});
}

double expected_rate(size_t kind) {
  return kind < kMatches ? kExpectedOfMatch[kind] : kind == kOutside ? kExpectedOutside : kExpectedOfReader;
}

constexpr int64_t kReaderIdle = 64;     // passes without a draft of the reader, after which it stops reading an answer
constexpr int64_t kReaderRetry = 16;    // answers until it reads one again
constexpr int64_t kReaderUnread = 128;  // tokens that it reads at once where it need not read them sooner

}  // namespace

Drafter::Drafter(Runner& runner, DraftOptions options) : runner_(runner), options_(std::move(options)), block_(runner) {
  CHECK(options_.tokens_max >= 0 && options_.tokens_max <= kDraftMax, "{} drafts", options_.tokens_max);
  CHECK(!options_.mtp || has_prediction_block(runner.config()), "a model without a prediction block");
  CHECK(options_.mtp + (options_.model != nullptr) + (options_.loop_steps > 0) <= 1, "drafts of several readers");
  if (options_.model) model_.emplace(*options_.model), model_bytes_ = weight_bytes(options_.model->model());
  if (options_.loop_steps > 0) loop_.emplace(runner, options_.loop_steps);
}

AnswerDrafts Drafter::begin(int64_t cached, int64_t tokens_max) {
  AnswerDrafts out;
  const bool has_reader = options_.mtp || model_ || loop_;
  if (!has_reader || reader_rest_ > 0) {
    reader_rest_ -= has_reader ? 1 : 0;
    if (has_reader && reader_rest_ == 0) {  // and it starts anew
      std::fill(rates_.begin() + kReader, rates_.end(), Rate{});
      reader_seconds_ = 0;
    }
    return out;
  }
  if (options_.mtp) out.mtp = MtpState{.read = cached};
  if (model_) out.model = model_->begin(tokens_max);
  out.loop = loop_.has_value();
  return out;
}

void Drafter::end(AnswerDrafts& a) {
  a.mtp.reset();
  if (a.model) model_->end(*a.model);
  a.model.reset();
  a.loop = false;
}

void Drafter::read(AnswerDrafts& a, const Tensor& x, int64_t first, int64_t count) {
  if (a.mtp) block_.note(*a.mtp, x, first, count);
}

double Drafter::odds_of(const AnswerDrafts& a, size_t kind) const {
  return a.rates[kind].value(rates_[kind].value(expected_rate(kind), kWeight), kWeight);
}

// By n-grams or by the reader, whichever has the likelier first token; the guesses of the reader are made only if
// wanted.
Offer Drafter::offer(const Wanted& wanted) {
  AnswerDrafts& a = *wanted.answer;
  a.guess.clear();
  a.kinds.clear();
  const int64_t most = std::min(options_.tokens_max, wanted.tokens_max);
  if (most == 0) return {};
  if (options_.source) {
    a.guess = options_.source(wanted.picker->text(), most);
    a.kinds.assign(a.guess.size(), kOutside);
  } else if (options_.ngram && std::ssize(wanted.picker->text()) <= a.index_tokens) {
    const NgramIndex::Match match = a.index.find(wanted.picker->text());
    a.guess = NgramIndex::continuation(wanted.picker->text(), match, most);
    for (int64_t i = 0; i < std::ssize(a.guess); ++i) a.kinds.push_back(kind_of_match(match.tokens + i));
  }
  Offer out;
  const std::span<const int32_t> text = wanted.picker->text();
  const bool ready =
      a.mtp || a.loop || (a.model && unread(a, text) <= model_->chunk() && model_->fits(std::ssize(text) + most));
  if (ready && (a.guess.empty() || odds_of(a, a.kinds[0]) < odds_of(a, kReader))) {
    a.guess.clear();
    a.kinds.clear();
    for (int64_t i = 0; i < most; ++i) a.kinds.push_back(kReader + static_cast<size_t>(i));
    out.token_seconds = reader_seconds_;
  }
  double all = 1;
  for (const size_t kind : a.kinds) out.odds.push_back(all *= odds_of(a, kind));
  return out;
}

void Drafter::draft(std::span<const Wanted> answers, int64_t steps, int64_t slots) {
  std::vector<Offer> offers;
  for (const Wanted& wanted : answers) offers.push_back(offer(wanted));
  const auto depths = chooser_.choose(offers, steps, slots, options_.always);
  if (options_.mtp || model_ || loop_) draft_by_reader(answers, depths);
  for (size_t i = 0; i < answers.size(); ++i) {
    AnswerDrafts& a = *answers[i].answer;
    const auto count = std::min(depths[i], std::ssize(a.guess));
    a.tokens.assign(a.guess.begin(), a.guess.begin() + count);
  }
}

int64_t Drafter::unread(const AnswerDrafts& a, std::span<const int32_t> text) const {
  if (a.loop) return 0;  // drafts begin with reading the text's last token
  return a.mtp ? a.mtp->unread(runner_.config().hidden) : model_->unread(*a.model, text);
}

std::vector<std::vector<int32_t>> Drafter::guesses_of(std::span<const Wanted> reading,
                                                      std::span<const int64_t> tokens) {
  if (loop_) {
    std::vector<LoopDrafter::Wanted> wanted;
    for (size_t i = 0; i < reading.size(); ++i)
      wanted.push_back({.sequence = reading[i].sequence, .picker = reading[i].picker, .tokens = tokens[i]});
    return loop_->draft(wanted);
  }
  if (model_) {
    std::vector<ModelDrafter::Wanted> wanted;
    for (size_t i = 0; i < reading.size(); ++i)
      wanted.push_back({.state = &*reading[i].answer->model, .picker = reading[i].picker, .tokens = tokens[i]});
    return model_->draft(wanted);
  }
  std::vector<MtpDrafter::Wanted> wanted;
  for (size_t i = 0; i < reading.size(); ++i)
    wanted.push_back({.state = &*reading[i].answer->mtp,
                      .sequence = reading[i].sequence,
                      .text = reading[i].picker->text(),
                      .tokens = tokens[i]});
  return block_.draft(wanted);
}

void Drafter::draft_by_reader(std::span<const Wanted> answers, std::span<const int64_t> depths) {
  std::vector<Wanted> reading;
  std::vector<int64_t> tokens;
  int64_t drafts = 0;
  bool short_reads = true;  // what follows a step, and not a prompt, which has to be read once
  for (size_t i = 0; i < answers.size(); ++i) {
    AnswerDrafts& a = *answers[i].answer;
    const std::span<const int32_t> text = answers[i].picker->text();
    if (a.model && !model_->fits(std::ssize(text))) end(a);
    if (!a.read_along()) continue;
    const bool offered = !a.kinds.empty() && a.kinds[0] >= kReader;
    const int64_t own = offered ? depths[i] : 0;
    a.idle = own > 0 ? 0 : a.idle + (offered ? 1 : 0);
    const int64_t rows = unread(a, text);
    if (own == 0 && rows < kReaderUnread) continue;
    reading.push_back(answers[i]);
    tokens.push_back(own);
    drafts += own;
    short_reads = short_reads && rows <= 1 + kDraftMax;
  }
  if (reading.empty()) return;
  const auto began = std::chrono::steady_clock::now();
  auto guesses = guesses_of(reading, tokens);
  for (size_t i = 0; i < reading.size(); ++i) {
    if (tokens[i] > 0) reading[i].answer->guess = std::move(guesses[i]);
  }
  const double seconds =
      runner_.agreed(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  if (drafts == 0 || !short_reads) return;
  const double each = seconds / static_cast<double>(drafts);
  reader_seconds_ =
      reader_seconds_ == 0 ? each : reader_seconds_ + 0.1 * (std::min(each, 2 * reader_seconds_) - reader_seconds_);
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
  if (!a.read_along() || a.idle < kReaderIdle) return;
  end(a);
  reader_rest_ = kReaderRetry;
}

void Drafter::settle(AnswerDrafts& a, int64_t sequence, std::span<const int32_t> text) {
  // After a failed pass the sequence is empty.
  if (!a.mtp || runner_.length(sequence) != a.mtp->read + a.mtp->unread(runner_.config().hidden)) return;
  const MtpDrafter::Wanted all{.state = &*a.mtp, .sequence = sequence, .text = text};
  block_.draft({&all, 1});
}

}  // namespace braid::engine
