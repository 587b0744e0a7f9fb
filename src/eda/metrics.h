// How well an order of candidates is predicted, where lower values are better.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace braid::eda {

// From 1, those of equal values their mean.
std::vector<double> ranks_of(std::span<const double> values);

// Spearman's coefficient: the correlation of ranks. None where one of both is constant, or of fewer than two values.
std::optional<double> spearman(std::span<const double> a, std::span<const double> b);

// 1 - the squares of the errors over those about the mean; none where the values are constant.
std::optional<double> determination(std::span<const double> predicted, std::span<const double> values);

// What is lost by trying only the k candidates that are predicted to be lowest: the best of their values over the best
// of all, less 1. Values are above 0; equal predictions are tried in order. The same by k candidates drawn at random,
// in the mean over all draws.
double top_regret(std::span<const double> predicted, std::span<const double> values, int64_t k);
double chance_regret(std::span<const double> values, int64_t k);

// Least squares with an intercept and a ridge on the others: rows [n][width] -> width + 1 weights, the intercept last.
std::vector<double> least_squares(const std::vector<std::vector<double>>& rows, std::span<const double> values,
                                  double ridge);

}  // namespace braid::eda
