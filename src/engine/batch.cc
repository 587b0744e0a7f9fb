#include "engine/batch.h"

#include <algorithm>

#include "engine/sampler.h"
#include "sys/check.h"

namespace braid::engine {
namespace {

struct Stream {
  size_t prompt = 0;
  int64_t sequence = 0;
  int64_t read = 0;  // of the prompt
  int32_t next = 0;  // sampled but not read yet
};

int32_t greedy(const Tensor& logits, int64_t row) {
  const auto width = static_cast<size_t>(logits.dim(1));
  return sample({logits.view().as<float>() + static_cast<size_t>(row) * width, width}, {}, {}, 0);
}

class Batch {
 public:
  Batch(Runner& runner, std::span<const std::vector<int32_t>> prompts, int64_t tokens_max,
        std::vector<ReasoningLimit> limits)
      : runner_(runner),
        prompts_(prompts),
        tokens_max_(tokens_max),
        limits_(std::move(limits)),
        answers_(prompts.size()) {
    limits_.resize(prompts.size());
    for (int64_t sequence = runner.options().sequences; sequence-- > 0;) {
      runner_.reset(sequence);
      free_.push_back(sequence);
    }
  }

  bool more() const { return waiting_ < prompts_.size() || !streams_.empty(); }
  int64_t done() const { return static_cast<int64_t>(waiting_ - streams_.size()); }
  std::vector<std::vector<int32_t>>& answers() { return answers_; }

  // One token of every stream that has read its prompt, and pieces of the other streams' prompts: the pieces that
  // Runner::prefill would cut, so that their bits do not depend on the batch, and at most one full piece in total.
  void pass() {
    admit();
    std::vector<Piece> pieces;
    std::vector<int32_t> ids;
    std::vector<int64_t> last;    // rows to sample from
    std::vector<size_t> drawing;  // their streams
    int64_t budget = runner_.options().chunk;
    for (size_t i = 0; i < streams_.size(); ++i) {
      Stream& s = streams_[i];
      const std::vector<int32_t>& prompt = prompts_[s.prompt];
      const bool step = s.read == std::ssize(prompt);
      const int64_t tokens = step ? 1 : std::min(std::ssize(prompt) - s.read, runner_.options().chunk);
      if (!step && tokens > budget) continue;
      const int32_t* from = step ? &s.next : prompt.data() + s.read;
      ids.insert(ids.end(), from, from + tokens);
      pieces.push_back({.sequence = s.sequence, .tokens = tokens, .phase = step ? Phase::step : Phase::prefill});
      if (!step) {
        budget -= tokens;
        s.read += tokens;
        if (s.read < std::ssize(prompt)) continue;
      }
      last.push_back(std::ssize(ids) - 1);
      drawing.push_back(i);
    }
    if (pieces.empty()) return;
    const Tensor x = runner_.forward(ids, pieces);
    if (!last.empty()) draw(runner_.logits(runner_.rows(x, last), pieces[0].phase), drawing);
  }

 private:
  void admit() {
    while (waiting_ < prompts_.size() && !free_.empty()) {
      const std::vector<int32_t>& prompt = prompts_[waiting_];
      const Stream s{.prompt = waiting_++, .sequence = free_.back()};
      if (prompt.empty() || std::ssize(prompt) >= runner_.options().context || tokens_max_ < 1) continue;
      streams_.push_back(s);
      free_.pop_back();
    }
  }

  void draw(const Tensor& logits, std::span<const size_t> drawing) {
    std::vector<bool> over(streams_.size());
    for (size_t row = 0; row < drawing.size(); ++row) {
      Stream& s = streams_[drawing[row]];
      s.next = limits_[s.prompt].next(greedy(logits, static_cast<int64_t>(row)));
      over[drawing[row]] = ends(s);
      if (over[drawing[row]]) free_.push_back(s.sequence);
    }
    size_t i = 0;
    std::erase_if(streams_, [&](const Stream&) { return over[i++]; });
  }

  // Appends the sampled token to the answer; returns true, with the sequence reset, when the answer is complete.
  bool ends(const Stream& s) {
    std::vector<int32_t>& answer = answers_[s.prompt];
    const std::vector<int64_t>& eos = runner_.config().eos;
    const bool end = std::find(eos.begin(), eos.end(), s.next) != eos.end();
    if (!end) answer.push_back(s.next);
    const bool over =
        end || std::ssize(answer) == tokens_max_ || runner_.length(s.sequence) == runner_.options().context;
    if (over) runner_.reset(s.sequence);
    return over;
  }

  Runner& runner_;
  std::span<const std::vector<int32_t>> prompts_;
  int64_t tokens_max_;
  std::vector<ReasoningLimit> limits_;
  std::vector<std::vector<int32_t>> answers_;
  std::vector<int64_t> free_;
  std::vector<Stream> streams_;
  size_t waiting_ = 0;  // the next prompt to read
};

}  // namespace

std::vector<std::vector<int32_t>> generate_all(Runner& runner, std::span<const std::vector<int32_t>> prompts,
                                               int64_t tokens_max, const sys::FunctionRef<bool(int64_t)>& progress,
                                               std::vector<ReasoningLimit> limits) {
  Batch batch(runner, prompts, tokens_max, std::move(limits));
  do batch.pass();
  while (progress(batch.done()) && batch.more());
  return std::move(batch.answers());
}

}  // namespace braid::engine
