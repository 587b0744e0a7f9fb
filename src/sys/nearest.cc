#include "sys/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace braid::sys {

std::string nearest(std::string_view text, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, text.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    // Levenshtein's distance, one row at a time.
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < text.size(); ++i) {
      size_t corner = std::exchange(row[0], i + 1);
      for (size_t j = 0; j < candidate.size(); ++j) {
        const size_t change = corner + (text[i] == candidate[j] ? 0 : 1);
        corner = row[j + 1];
        row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
      }
    }
    const size_t distance = text.size() > 2 && candidate.starts_with(text) ? 1 : row.back();
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace braid::sys
