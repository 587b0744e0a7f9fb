#include "serve/answers.h"

#include <algorithm>
#include <utility>

namespace braid::serve {

Answers::Answers(Worker& worker, const std::vector<Asked>& asked, RequestRecord& record)
    : worker_(worker), asked_(asked), record_(record), n_(static_cast<size_t>(asked[0].n)), left_(n_ * asked.size()) {
  replies_.resize(left_);
  over_.resize(left_);
  waits_.resize(left_);
  tokens_.resize(left_);
  others_.resize(asked.size());
  record_.answers = true;
  for (const Asked& a : asked) record_.prompt_tokens += std::ssize(a.work.request.prompt);
  for (size_t prompt = 0; prompt < asked.size(); ++prompt) ready_.push_back(prompt * n_);
  submit_some();
}

Answers::~Answers() {
  for (const auto& reply : replies_) {
    if (reply) reply->cancel();
  }
}

void Answers::submit(size_t answer) {
  Work work = work_of(asked_[answer / n_], static_cast<int64_t>(answer % n_));
  work.request.ordinal = waiting_++;
  waits_[answer] = true;
  replies_[answer] = worker_.submit(std::move(work), bell_);
}

void Answers::submit_some() {
  for (; !ready_.empty() && waiting_ < kWaitingMax; ready_.pop_front()) submit(ready_.front());
}

// For the log. Answers of one prompt beside the first continue from it.
void Answers::note(size_t answer, const Reply::News& news) {
  using std::chrono::milliseconds;
  const auto ms = std::chrono::duration_cast<milliseconds>(RequestRecord::Clock::now() - submitted_).count();
  if (news.admitted && record_.queue_ms < 0) record_.queue_ms = ms;
  if (news.started && record_.first_token_ms < 0) record_.first_token_ms = ms;
  if (news.admitted && answer % n_ == 0) record_.cached_tokens += news.cached_tokens;
  const Outcome& outcome = replies_[answer]->outcome();
  const int64_t tokens = news.done ? std::ssize(outcome.generated.ids) : news.tokens;
  record_.completion_tokens += tokens - std::exchange(tokens_[answer], tokens);
  if (news.done) record_.finish = outcome.error.empty() ? finish_of(outcome, false) : "error";
}

std::vector<Answers::Update> Answers::wait(std::chrono::milliseconds patience) {
  {
    std::unique_lock lock(bell_->mutex);
    bell_->changed.wait_for(lock, patience, [&] {
      return std::ranges::any_of(replies_, [](const auto& reply) { return reply && reply->news(); });
    });
  }
  std::vector<Update> out;
  for (size_t i = 0; i < replies_.size(); ++i) {
    if (!replies_[i] || over_[i]) continue;
    Reply::News news = replies_[i]->take();
    note(i, news);
    if (waits_[i] && (news.admitted || news.done)) {
      waits_[i] = false;
      --waiting_;
    }
    if (i % n_ == 0 && n_ > 1 && (news.started || news.done) && !others_[i / n_]) {
      others_[i / n_] = true;  // before the next prompt, whose state may need the room of this one's
      for (size_t j = i + n_; --j > i;) ready_.push_front(j);
    }
    over_[i] = news.done;
    left_ -= news.done;
    if (!news.silent()) out.push_back({i, std::move(news)});
  }
  submit_some();
  return out;
}

std::vector<const Outcome*> Answers::outcomes() const {
  std::vector<const Outcome*> out;
  for (const auto& reply : replies_) out.push_back(&reply->outcome());
  return out;
}

}  // namespace braid::serve
