#include "train/objective.h"

#include <algorithm>

#include "sys/check.h"

namespace braid::train {

Sums::Sum& Sums::operator[](std::string_view name) {
  const auto found = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& s) { return s.name == name; });
  return found != sums_.end() ? *found : sums_.emplace_back(Sum{name.data()});
}

double Sums::mean(std::string_view name) const {
  const auto found = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& s) { return s.name == name; });
  return found != sums_.end() ? found->mean() : 0;
}

double Sums::count(std::string_view name) const {
  const auto found = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& s) { return s.name == name; });
  return found != sums_.end() ? found->count : 0;
}

void Objective::run_parts(Ctx& ctx, std::span<const Range> parts, bool backward, Sums& sums) {
  for (const Range& rows : parts) run(ctx, rows.begin, rows.begin + rows.count, backward, sums);
}

void Objective::lay_out(const std::filesystem::path& folder) { CHECK(false, "one rank writes {}", folder.string()); }

}  // namespace braid::train
