#include "engine/batch.h"

#include <algorithm>

#include "engine/sampler.h"
#include "sys/check.h"

namespace braid::engine {
namespace {

struct Stream {
  size_t prompt = 0;
  int64_t slot = 0;
  int32_t next = 0;  // drawn, not read
};

int32_t greedy(const Tensor& logits, int64_t row) {
  const auto width = static_cast<size_t>(logits.dim(1));
  return sample({logits.view().as<float>() + static_cast<size_t>(row) * width, width}, {}, {}, 0);
}

class Batch {
 public:
  Batch(Runner& runner, std::span<const std::vector<int32_t>> prompts, int64_t tokens_max)
      : runner_(runner), prompts_(prompts), tokens_max_(tokens_max), answers_(prompts.size()) {
    for (int64_t slot = runner.options().slots; slot-- > 0;) {
      runner_.reset(slot);
      free_.push_back(slot);
    }
  }

  bool more() const { return waiting_ < prompts_.size() || !streams_.empty(); }
  int64_t done() const { return static_cast<int64_t>(waiting_ - streams_.size()); }
  std::vector<std::vector<int32_t>>& answers() { return answers_; }

  void admit() {
    while (waiting_ < prompts_.size() && !free_.empty()) {
      const std::vector<int32_t>& prompt = prompts_[waiting_];
      Stream s{.prompt = waiting_++, .slot = free_.back()};
      if (prompt.empty() || std::ssize(prompt) >= runner_.options().context || tokens_max_ < 1) continue;
      s.next = greedy(runner_.prefill(s.slot, prompt, [](const Tensor&) {}), 0);
      if (!ends(s)) {
        streams_.push_back(s);
        free_.pop_back();
      }
    }
  }

  // One token of every stream.
  void step() {
    if (streams_.empty()) return;
    std::vector<int32_t> ids;
    SeqMap seqs;
    for (const Stream& s : streams_) {
      ids.push_back(s.next);
      seqs.add(1, runner_.length(s.slot), s.slot);
    }
    const Tensor logits = runner_.logits(runner_.forward(ids, seqs, nn::Phase::step));
    size_t kept = 0;
    for (size_t row = 0; row < streams_.size(); ++row) {
      Stream s = streams_[row];
      s.next = greedy(logits, static_cast<int64_t>(row));
      if (ends(s)) {
        free_.push_back(s.slot);
      } else {
        streams_[kept++] = s;
      }
    }
    streams_.resize(kept);
  }

 private:
  // Takes the drawn token into the answer; true, and the slot is clean, when nothing is to be drawn after it.
  bool ends(const Stream& s) {
    std::vector<int32_t>& answer = answers_[s.prompt];
    const std::vector<int64_t>& eos = runner_.config().eos;
    const bool end = std::find(eos.begin(), eos.end(), s.next) != eos.end();
    if (!end) answer.push_back(s.next);
    const bool over = end || std::ssize(answer) == tokens_max_ || runner_.length(s.slot) == runner_.options().context;
    if (over) runner_.reset(s.slot);
    return over;
  }

  Runner& runner_;
  std::span<const std::vector<int32_t>> prompts_;
  int64_t tokens_max_;
  std::vector<std::vector<int32_t>> answers_;
  std::vector<int64_t> free_;
  std::vector<Stream> streams_;
  size_t waiting_ = 0;  // the next prompt to read
};

}  // namespace

std::vector<std::vector<int32_t>> generate_all(Runner& runner, std::span<const std::vector<int32_t>> prompts,
                                               int64_t tokens_max, const sys::FunctionRef<bool(int64_t)>& progress) {
  Batch batch(runner, prompts, tokens_max);
  do batch.admit(), batch.step();
  while (progress(batch.done()) && batch.more());
  return std::move(batch.answers());
}

}  // namespace braid::engine
