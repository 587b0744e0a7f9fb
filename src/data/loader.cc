#include "data/loader.h"

#include <algorithm>
#include <cmath>

#include "data/shuffle.h"
#include "sys/check.h"

namespace braid::data {
namespace {

constexpr int64_t kHeldOut = int64_t{1} << 40;  // rows of endless sources from here on are for validation

constexpr int kPartShift = 42;  // a row's number in its source is below it

int64_t times(int64_t n, uint64_t share) {
  return static_cast<int64_t>(static_cast<unsigned __int128>(n) * share >> 32);
}

// Tokens without a target, from `first` on.
void mask_from(int64_t first, Batch& batch) {
  for (auto t = static_cast<size_t>(first); t < batch.targets.size(); ++t) {
    batch.trained -= batch.targets[t] == kMasked ? 0 : 1;
    batch.targets[t] = kMasked;
  }
}

}  // namespace

// Row g of the run belongs to the first part whose share of g + 1 rows is a row more than its share of g; later parts
// divide the remaining rows in the same way. So each part gets its numbers 0, 1, ... without gaps, and stays within a
// row or two of its proportion.
void Loader::batch(int64_t step, Batch& out) const {
  CHECK(step >= 0 && step < kHeldOut / rows_, "step {} of {} rows", step, rows_);
  out.clear();
  out.reserve(rows_, rules_.length);
  const int64_t epoch = once_ ? rows_per_epoch() : 0;
  for (int64_t r = 0; r < rows_; ++r) {
    const int64_t position = step * rows_ + r;
    int64_t index = position;
    size_t part = 0;
    for (; part + 1 < parts_.size(); ++part) {
      const int64_t taken = times(index, parts_[part].share);
      if (times(index + 1, parts_[part].share) > taken) {
        index = taken;
        break;
      }
      index -= taken;
    }
    const Source& source = *parts_[part].source;
    if (const int64_t n = source.rows(); n > 0) {
      const uint64_t key = mix(mix(seed_, part), static_cast<uint64_t>(index / n));
      index %= n;
      if (shuffle_ && !held_out_ && !source.in_order()) index = shuffled(index, n, key);
    } else if (held_out_) {
      index += kHeldOut;
    }
    RowWriter writer(out, rules_, parts_[part].where, position * rules_.length);
    source.row(index, writer);
    if (epoch > 0 && position >= epoch) mask_from(out.rows.back(), out);
    out.row_ids.push_back(static_cast<int64_t>(part) << kPartShift | index);
    out.rows.push_back(std::ssize(out.ids));
  }
}

int64_t Loader::rows_per_epoch() const {
  int64_t most = 0;
  double left = 1;  // of all rows
  for (const Part& part : parts_) {
    const double share = left * static_cast<double>(part.share) / static_cast<double>(kWhole);
    left -= share;
    if (part.source->rows() == 0) return 0;
    most = std::max(most, static_cast<int64_t>(std::ceil(static_cast<double>(part.source->rows()) / share)));
  }
  return most;
}

int64_t Loader::steps_per_epoch() const { return (rows_per_epoch() + rows_ - 1) / rows_; }

uint64_t Loader::content(int threads) const {
  uint64_t hash = 0;
  for (const Part& part : parts_) {
    if (const uint64_t own = part.source->content(threads); own != 0) hash = mix(hash, own);
  }
  return hash;
}

std::optional<double> Loader::entropy_floor() const {
  return parts_.size() == 1 ? parts_[0].source->entropy_floor() : std::nullopt;
}

}  // namespace braid::data
