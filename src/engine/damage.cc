#include "engine/damage.h"

#include <atomic>
#include <cmath>
#include <vector>

#include "codec/codec.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::engine {
namespace {

// Of its first row that is not finite; -1: none.
int64_t damaged_row(const Weight& w, int threads) {
  std::atomic<int64_t> first = w.rows;
  sys::parallel_for(threads, w.rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(w.cols));
    for (int64_t r = begin; r < end; ++r) {
      decode_row(w, r, 0, w.cols, values.data());
      bool finite = true;
      for (const float v : values) finite = finite && std::isfinite(v * w.global);
      if (finite) continue;
      for (int64_t seen = first; r < seen && !first.compare_exchange_weak(seen, r);) continue;
      return;
    }
  });
  return first < w.rows ? first.load() : -1;
}

}  // namespace

std::optional<Damage> find_damage(models::Model& model, int threads) {
  for (const Param* p : model.params()) {
    if (const int64_t row = damaged_row(p->value, threads); row >= 0)
      return Damage{.tensor = p->name, .format = name_of(p->value.spec), .row = row};
  }
  return std::nullopt;
}

void fail_if_damaged(Runner& runner) { DamageCheck().fail_if_damaged(runner); }

void DamageCheck::fail_if_damaged(Runner& runner) {
  if (!searched_) found_ = find_damage(runner.model(), runner.ctx().threads);
  searched_ = true;
  if (!found_) return;
  fail(printable(found_->tensor),
       {.what = "a weight is damaged",
        .got = fmt::format("a value that is not finite in row {}, {}", found_->row, found_->format),
        .expected = "finite values",
        .hint = "another copy of the file"});
}

}  // namespace braid::engine
