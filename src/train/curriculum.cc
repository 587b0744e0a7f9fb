#include "train/curriculum.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "sys/error.h"

namespace braid::train {
namespace {

constexpr double kFollow = 0.2;     // share of a group in the running mean of its level: some five groups
constexpr double kSeldom = 0.02;    // weight of a level whose answers are all alike; 0.25 is the most
constexpr double kUnits = 1 << 20;  // weights are drawn as whole numbers

size_t drawn(synth::Draw& draw, std::span<const double> weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  std::vector<int64_t> units;
  units.reserve(weights.size());
  for (const double weight : weights) units.push_back(std::llround(weight / largest * kUnits));
  return draw.weighted(units);
}

}  // namespace

Curriculum::Curriculum(const std::vector<int64_t>& levels, std::vector<double> weights, bool by_rate)
    : weights_(std::move(weights)), by_rate_(by_rate) {
  if (weights_.empty()) weights_.assign(levels.size(), 1);
  for (const int64_t n : levels) rates_.emplace_back(static_cast<size_t>(n), 0.5);
}

Curriculum::Choice Curriculum::draw(synth::Draw& draw) const {
  Choice choice{.environment = drawn(draw, weights_)};
  const std::vector<double>& rates = rates_[choice.environment];
  if (!by_rate_) {
    choice.level = draw.below(std::ssize(rates));
    return choice;
  }
  std::vector<double> gain;
  gain.reserve(rates.size());
  for (const double p : rates) gain.push_back(p * (1 - p) + kSeldom);
  choice.level = static_cast<int64_t>(drawn(draw, gain));
  return choice;
}

void Curriculum::note(const Choice& choice, double passed) {
  double& rate = rates_[choice.environment][static_cast<size_t>(choice.level)];
  rate += kFollow * (passed - rate);
}

nlohmann::ordered_json Curriculum::state() const { return rates_; }

void Curriculum::set(const io::Json& state) {
  const std::vector<io::Json> lists = state.items();
  if (lists.size() != rates_.size()) state.refuse("is of other environments", std::to_string(rates_.size()));
  for (size_t i = 0; i < lists.size(); ++i) {
    const std::vector<io::Json> rates = lists[i].items();
    if (rates.size() != rates_[i].size()) lists[i].refuse("has other levels", std::to_string(rates_[i].size()));
    for (size_t j = 0; j < rates.size(); ++j) rates_[i][j] = rates[j].as_number({0, 1});
  }
}

}  // namespace braid::train
