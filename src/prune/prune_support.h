// Shared by the tests of this module: rows of data without a corpus, and the logits of a model.
#pragma once
#include <cstdint>
#include <vector>

#include "core/philox.h"
#include "models/model.h"
#include "prune/row_pass.h"

namespace braid::prune {

// `count` rows of random tokens, of different lengths around `length`; one sequence each.
inline std::vector<data::Batch> random_rows(int64_t vocab, int64_t count, int64_t length) {
  std::vector<data::Batch> rows;
  for (int64_t i = 0; i < count; ++i) {
    data::Batch row;
    const int64_t n = length + i % 3;
    for (int64_t t = 0; t < n; ++t) {
      const RandomKey key{.seed = 7, .stream = static_cast<uint32_t>(i)};
      row.ids.push_back(static_cast<int32_t>(philox(key, static_cast<uint64_t>(t))[0] % static_cast<uint32_t>(vocab)));
    }
    row.targets.assign(row.ids.begin() + 1, row.ids.end());
    row.targets.push_back(data::kMasked);
    row.seqs = SeqMap::one(n);
    row.rows = {0, n};
    row.row_ids = {i};
    row.trained = n - 1;
    rows.push_back(std::move(row));
  }
  return rows;
}

inline std::vector<float> logits_of(models::Model& model, const data::Batch& row) {
  Arena arena;
  Ctx ctx{.arena = arena};
  nn::StateView state;
  nn::Run run{.ctx = ctx, .seqs = row.seqs, .state = state, .numerics = Numerics::training(DType::f32)};
  const Tensor logits = model.logits(run, model.forward(run, integers(arena, row.ids)));
  const auto* values = logits.view().as<float>();
  return {values, values + logits.view().count()};
}

// The largest difference, relative to the largest value of `a`.
inline double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::fabs(static_cast<double>(a[i])));
  }
  return a.size() == b.size() ? most / largest : HUGE_VAL;
}

}  // namespace braid::prune
