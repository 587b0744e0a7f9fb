#include "data/source.h"

#include "sys/check.h"
#include "sys/error.h"

namespace braid::data {

void RowWriter::add(std::span<const int32_t> tokens, int64_t first, int64_t count, std::span<const uint8_t> trained) {
  const int64_t room = rules_.length - (std::ssize(batch_.ids) - batch_.rows.back());
  CHECK(first >= 0 && count > 0 && first + count <= std::ssize(tokens), "{}+{} of {}", first, count, tokens.size());
  CHECK(count <= room && (trained.empty() || trained.size() == tokens.size()), "{} tokens, room for {}", count, room);
  const int64_t begin = position_ + rules_.length - room;
  batch_.seqs.add(count, 0, 0, begin);
  for (int64_t i = first; i < first + count; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool trains = at + 1 < tokens.size() && (trained.empty() || trained[at + 1] != 0) &&
                        !rules_.goldfish.drops(tokens.first(at + 2), begin + i - first);
    for (const int32_t id : tokens.subspan(at, trains ? 2 : 1)) {
      if (id >= 0 && id < rules_.vocabulary) continue;
      fail(where_, {.what = "a token id is outside the vocabulary",
                    .got = fmt::format("id {}", id),
                    .expected = fmt::format("0 to {}, the model's vocabulary", rules_.vocabulary - 1)});
    }
    batch_.ids.push_back(tokens[at]);
    batch_.targets.push_back(trains ? tokens[at + 1] : kMasked);
    batch_.trained += trains ? 1 : 0;
  }
}

void RowWriter::rate(const Rating& rating, std::span<const float> logprobs) {
  batch_.ratings.push_back(rating);
  if (logprobs.empty()) return;
  size_t next = 0;
  for (size_t t = batch_.logprobs.size(); t < batch_.targets.size(); ++t) {
    const bool trains = batch_.targets[t] != kMasked;
    CHECK(!trains || next < logprobs.size(), "{} log-probabilities", logprobs.size());
    batch_.logprobs.push_back(trains ? logprobs[next++] : 0.0f);
  }
  CHECK(next == logprobs.size(), "{} of {} log-probabilities", next, logprobs.size());
}

}  // namespace braid::data
