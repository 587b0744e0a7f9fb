#include "train/nest_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/philox.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "sys/error.h"

namespace braid::train {
namespace {

constexpr size_t kHidden = 32;
constexpr double kLeak = 0.01, kPrior = 3;
constexpr double kDecay = 0.9997, kLeastTau = 0.1, kSoft = 0.996, kLastScale = 10;
constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8;
constexpr uint32_t kWeights = 0x6e727731, kNoise = 0x6e72676e, kHard = 0x6e726864;  // streams

double leaky(double x) { return x > 0 ? x : kLeak * x; }

size_t largest(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

std::vector<double> softmax(std::vector<double> x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - top);
  for (double& v : x) v /= sum;
  return x;
}

std::vector<double> only(size_t index, size_t count) {
  std::vector<double> list(count, 0.0);
  list[index] = 1;
  return list;
}

}  // namespace

NestRouter::NestRouter(std::span<const prune::SoftAxis> axes, std::vector<std::vector<size_t>> starts, uint64_t seed)
    : starts_(std::move(starts)), seed_(seed) {
  size_t end = 0;
  const auto next = [&end](size_t count) { return std::exchange(end, end + count); };
  for (const prune::SoftAxis& axis : axes) {
    Network n{.sizes = axis.sizes.size()};
    n.w1 = next(starts_.size() * kHidden);
    n.b1 = next(kHidden);
    n.w2 = next(n.sizes * kHidden);
    n.b2 = next(n.sizes);
    networks_.push_back(n);
  }
  values_.resize(end);
  first_.resize(end);
  second_.resize(end);
  // Small at first: the prior decides.
  const float last = 0.1f / std::sqrt(static_cast<float>(kHidden));
  for (const Network& n : networks_) {
    const auto fill = [&](size_t begin, size_t stop, float scale) {
      for (size_t i = begin; i < stop; ++i)
        values_[i] = scale * normal4({.seed = seed_, .stream = kWeights}, i / 4)[i % 4];
    };
    fill(n.w1, n.b1, 1);
    fill(n.w2, n.b2, last);
  }
}

std::vector<double> NestRouter::hidden(const Network& of, size_t budget) const {
  std::vector<double> x(kHidden);
  for (size_t h = 0; h < kHidden; ++h)
    x[h] = static_cast<double>(values_[of.w1 + budget * kHidden + h]) + static_cast<double>(values_[of.b1 + h]);
  return x;
}

std::vector<double> NestRouter::logits(size_t axis, size_t budget) const {
  const Network& n = networks_[axis];
  const std::vector<double> x = hidden(n, budget);
  std::vector<double> out(n.sizes);
  for (size_t j = 0; j < n.sizes; ++j) {
    out[j] = static_cast<double>(values_[n.b2 + j]) + (j == starts_[budget][axis] ? kPrior : 0);
    for (size_t h = 0; h < kHidden; ++h) out[j] += static_cast<double>(values_[n.w2 + j * kHidden + h]) * leaky(x[h]);
  }
  return out;
}

prune::Shares NestRouter::draw(size_t budget, int64_t step, int64_t steps) {
  const auto at = static_cast<uint64_t>(step);
  const double passed = static_cast<double>(step), tau = std::max(kLeastTau, std::pow(kDecay, passed));
  scale_ = (1 + (kLastScale - 1) * std::min(1.0, passed / static_cast<double>(steps))) / tau;
  budget_ = budget;
  soft_.clear();
  const auto coin = static_cast<double>(uniform(philox({.seed = seed_, .stream = kHard}, at)[0]));
  const bool hard = coin > std::pow(kSoft, passed);
  prune::Shares shares;
  for (size_t a = 0; a < networks_.size(); ++a) {
    std::vector<double> x = logits(a, budget);
    for (size_t j = 0; j < x.size(); ++j) {
      const auto bits =
          philox({.seed = seed_, .stream = kNoise + static_cast<uint32_t>(a)}, at, static_cast<uint32_t>(j / 4))[j % 4];
      x[j] = scale_ * x[j] - std::log(-std::log(static_cast<double>(uniform(bits)))) / tau;
    }
    soft_.push_back(softmax(std::move(x)));
    shares.push_back(hard ? only(largest(soft_[a]), soft_[a].size()) : soft_[a]);
  }
  return shares;
}

prune::Shares NestRouter::best(size_t budget) const {
  prune::Shares shares;
  for (size_t a = 0; a < networks_.size(); ++a) shares.push_back(only(largest(logits(a, budget)), networks_[a].sizes));
  return shares;
}

void NestRouter::learn(const prune::Shares& slopes, double lr) {
  std::vector<double> grads(values_.size());
  for (size_t a = 0; a < networks_.size(); ++a) {
    const Network& n = networks_[a];
    const std::vector<double> x = hidden(n, budget_);
    std::vector<double> back(kHidden);
    double mean = 0;
    for (size_t j = 0; j < n.sizes; ++j) mean += soft_[a][j] * slopes[a][j];
    for (size_t j = 0; j < n.sizes; ++j) {
      const double slope = scale_ * soft_[a][j] * (slopes[a][j] - mean);
      grads[n.b2 + j] = slope;
      for (size_t h = 0; h < kHidden; ++h) {
        grads[n.w2 + j * kHidden + h] = slope * leaky(x[h]);
        back[h] += slope * static_cast<double>(values_[n.w2 + j * kHidden + h]) * (x[h] > 0 ? 1 : kLeak);
      }
    }
    for (size_t h = 0; h < kHidden; ++h) grads[n.w1 + budget_ * kHidden + h] = grads[n.b1 + h] = back[h];
  }
  ++updates_;
  const double one = 1 - std::pow(kBeta1, static_cast<double>(updates_)),
               two = 1 - std::pow(kBeta2, static_cast<double>(updates_));
  for (size_t i = 0; i < values_.size(); ++i) {
    const double m = kBeta1 * static_cast<double>(first_[i]) + (1 - kBeta1) * grads[i],
                 v = kBeta2 * static_cast<double>(second_[i]) + (1 - kBeta2) * grads[i] * grads[i];
    first_[i] = static_cast<float>(m);
    second_[i] = static_cast<float>(v);
    values_[i] -= static_cast<float>(lr * (m / one) / (std::sqrt(v / two) + kEps));
  }
}

namespace {

constexpr const char* kArrays[] = {"values", "first", "second"};

}  // namespace

void NestRouter::write(const std::filesystem::path& file) const {
  const Shape shape{std::ssize(values_)};
  std::vector<io::TensorSpec> specs = {{"updates", DType::i64, {1}}};  // wider elements come first
  for (const char* name : kArrays) specs.push_back({name, DType::f32, shape});
  io::SafetensorsWriter out(file, std::move(specs));
  out.write("updates", view_of(&updates_, {1}));
  size_t at = 0;
  for (const std::vector<float>* values : {&values_, &first_, &second_})
    out.write(kArrays[at++], view_of(values->data(), shape));
  out.finish();
}

void NestRouter::read(const std::filesystem::path& file) {
  const io::Safetensors in(file);
  size_t at = 0;
  for (std::vector<float>* values : {&values_, &first_, &second_}) {
    const View v = in.need(kArrays[at++]);
    if (v.dtype != DType::f32 || v.count() != std::ssize(values_))
      fail(printable(file.string()), {.what = "is of routers of other sizes",
                                      .got = fmt::format("{} values", v.count()),
                                      .expected = std::to_string(values_.size())});
    std::copy_n(v.as<float>(), values->size(), values->begin());
  }
  const View updates = in.need("updates");
  if (updates.dtype != DType::i64 || updates.count() != 1)
    fail(printable(file.string()), {.what = "has no count of updates", .got = to_string(updates.shape)});
  updates_ = updates.as<int64_t>()[0];
}

}  // namespace braid::train
