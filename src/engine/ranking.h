// Candidates from best to worst, sorted only as far as requested: a draw seldom looks past the first few of a
// vocabulary. Each batch holds the best of the rest, so that any prefix equals that of a full sort.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace braid::engine {

struct Candidate {
  float logit;
  int32_t id;
  float p = 0;
};

inline bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

class Ranking {
 public:
  explicit Ranking(std::vector<Candidate> list) : list_(std::move(list)) {}

  size_t size() const { return list_.size(); }
  const Candidate& at(size_t i) {
    while (i >= sorted_) extend();
    return list_[i];
  }
  size_t sorted() const { return sorted_; }  // so far, from the best

 private:
  void extend() {
    constexpr size_t kFirst = 64;
    const size_t end = std::min(list_.size(), std::max(kFirst, 4 * sorted_));
    const auto from = list_.begin() + static_cast<std::ptrdiff_t>(sorted_),
               to = list_.begin() + static_cast<std::ptrdiff_t>(end);
    if (to != list_.end()) std::nth_element(from, to, list_.end(), better);
    std::sort(from, to, better);
    sorted_ = end;
  }

  std::vector<Candidate> list_;
  size_t sorted_ = 0;
};

}  // namespace braid::engine
