#include "data/batch.h"

#include <algorithm>

namespace braid::data {

void take_rows(const Batch& batch, int64_t begin, int64_t end, Batch& out) {
  out.clear();
  const int64_t first = batch.rows[static_cast<size_t>(begin)], last = batch.rows[static_cast<size_t>(end)];
  out.reserve(end - begin, (last - first + end - begin - 1) / std::max<int64_t>(1, end - begin));
  out.ids.assign(batch.ids.begin() + first, batch.ids.begin() + last);
  out.targets.assign(batch.targets.begin() + first, batch.targets.begin() + last);
  if (!batch.logprobs.empty()) out.logprobs.assign(batch.logprobs.begin() + first, batch.logprobs.begin() + last);
  if (!batch.trainer_logprobs.empty())
    out.trainer_logprobs.assign(batch.trainer_logprobs.begin() + first, batch.trainer_logprobs.begin() + last);
  for (size_t i = 0; i < batch.seqs.seqs.size(); ++i) {
    Seq s = batch.seqs.seqs[i];
    if (s.start < first || s.start >= last) continue;
    s.start -= first;
    out.seqs.seqs.push_back(s);
    if (!batch.ratings.empty()) out.ratings.push_back(batch.ratings[i]);
  }
  for (int64_t row = begin; row < end; ++row) {
    out.rows.push_back(batch.rows[static_cast<size_t>(row) + 1] - first);
    out.row_ids.push_back(batch.row_ids[static_cast<size_t>(row)]);
  }
  out.trained = last - first - std::count(out.targets.begin(), out.targets.end(), kMasked);
}

}  // namespace braid::data
