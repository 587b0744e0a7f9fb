// The statistics of stochastic rounding: every element rounds up with probability equal to its distance from below,
// independently of the others. Draws over many seeds are tested against the binomial law by sums of known deviation,
// each within kSigmas of its mean; and the same sums are shown to detect noise that is shifted, narrowed or shared.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

#include "core/op_sweep.h"
#include "kernels/quantize/quantize_ref.h"
#include "kernels/quantize/quantize_rows.h"

namespace braid {
namespace {

constexpr int64_t kRows = 48, kCols = 144;  // edges of tiles and of Philox blocks included
constexpr int64_t kSeeds = 128;
constexpr double kSigmas = 5;  // of some 300 sums: exceeded by chance once in 6,000 choices of the seeds below

// What is rounded: the distance of each element from below in steps of its grid, and where it goes.
struct Problem {
  OperandSpec spec{};
  std::vector<float> values{}, low{}, step{}, scale{};  // low, step: in units of the block's scale
  std::vector<double> up{};                             // the probability; 0 where the value is exact

  explicit Problem(const OperandSpec& s) : spec(s), values(kRows * kCols) {
    for (size_t i = 0; i < values.size(); i += 4) {
      const auto n = normal4({.seed = 11}, i);
      for (size_t j = 0; j < 4; ++j) values[i + j] = n[j];
    }
    const auto mixed = quantize_ref({.hadamard = spec.hadamard}, kRows, kCols, values, {});
    float matrix_amax = 0;
    for (const float v : mixed) matrix_amax = std::max(matrix_amax, std::fabs(v));
    const ElementRef element = element_ref(spec.encoding);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kCols; ++c) {
        scale.push_back(scale_ref(spec.encoding, block_amax(mixed, r, c), matrix_amax));
        const float a = std::fabs(mixed[at(r, c)]) / scale.back();
        step.push_back(element.step(a));
        low.push_back(std::floor(a / step.back()) * step.back());
        const double f = static_cast<double>(a / step.back() - low.back() / step.back());
        up.push_back(a < element.largest && f > 0.02 && f < 0.98 ? f : 0);
      }
    }
  }
  static size_t at(int64_t r, int64_t c) { return static_cast<size_t>(r * kCols + c); }

  std::vector<bool> draw(const Noise& noise) const {
    std::vector<float> q(values.size());
    quantize(2, spec, view_of(values.data(), {kRows, kCols}), mut_view_of(q.data(), {kRows, kCols}), noise);
    std::vector<bool> went(values.size());
    for (size_t i = 0; i < q.size(); ++i) {
      if (up[i] == 0) continue;
      const float code = std::fabs(q[i]) / scale[i], above = (code - low[i]) / step[i];
      EXPECT_TRUE(std::fabs(above) < 1e-5f || std::fabs(above - 1) < 1e-5f) << "neither neighbour of element " << i;
      went[i] = above > 0.5f;
    }
    return went;
  }
  // Like the reference, but with a different kind of noise.
  std::vector<bool> draw(const std::function<float(int64_t row, int64_t col)>& noise) const {
    std::vector<bool> went(values.size());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kCols; ++c) went[at(r, c)] = up[at(r, c)] + static_cast<double>(noise(r, c)) >= 1;
    }
    return went;
  }

 private:
  float block_amax(const std::vector<float>& mixed, int64_t row, int64_t col) const {
    const int64_t block = spec.encoding == Encoding::nvfp4                                       ? 16
                          : spec.encoding == Encoding::mxfp8 || spec.encoding == Encoding::mxfp4 ? 32
                                                                                                 : 128;
    const bool tall = spec.scaling == Scaling::along_rows;
    const int64_t begin = (tall ? row : col) / block * block;
    float amax = 0;
    for (int64_t i = begin; i < std::min(begin + block, tall ? kRows : kCols); ++i)
      amax = std::max(amax, std::fabs(mixed[tall ? at(i, col) : at(row, i)]));
    return amax;
  }
};

// Sums over draws, each in deviations from its mean under the law.
class Judge {
 public:
  explicit Judge(const Problem& problem) : problem_(problem), ups_(problem.up.size()), before_(problem.up.size()) {
    for (const double f : problem.up) variance_ += f * (1 - f);
  }

  void add(const std::vector<bool>& went) {
    std::vector<double> off(went.size());  // in the element's own deviations
    double sum = 0;
    for (size_t i = 0; i < went.size(); ++i) {
      const double f = problem_.up[i];
      if (f == 0) continue;
      const double d = (went[i] ? 1 : 0) - f;
      off[i] = d / std::sqrt(f * (1 - f));
      sum += d;
      ups_[i] += went[i] ? 1 : 0;
      Sum& bin = bins_[static_cast<size_t>(f * kBins)];
      bin.value += d;
      bin.variance += f * (1 - f);
      with_the_last_.add(off[i] * before_[i], before_[i] == 0 ? 0 : 1);
    }
    mean_.add(sum, variance_);
    together_.add(sum * sum / variance_ - 1, 2);
    for (size_t k = 0; k < kLags.size(); ++k) {
      const auto [down, right] = kLags[k];
      for (int64_t r = 0; r + down < kRows; ++r) {
        for (int64_t c = 0; c + right < kCols; ++c) {
          const double product = off[Problem::at(r, c)] * off[Problem::at(r + down, c + right)];
          pairs_[k].add(product, product == 0 ? 0 : 1);
        }
      }
    }
    before_ = std::move(off);
    ++draws_;
  }

  // The largest, with its name.
  std::pair<double, std::string> worst() const {
    std::pair<double, std::string> most{0, ""};
    const auto consider = [&](const Sum& sum, const std::string& name) {
      if (std::fabs(sum.deviations()) > most.first) most = {std::fabs(sum.deviations()), name};
    };
    consider(mean_, "mean");
    for (size_t i = 0; i < kBins; ++i) consider(bins_[i], fmt::format("distances from {}/16 on", i));
    consider(together_, "elements together");
    consider(with_the_last_, "one draw and the next");
    for (size_t k = 0; k < kLags.size(); ++k)
      consider(pairs_[k], fmt::format("neighbours at {}, {}", kLags[k].first, kLags[k].second));
    // The counts of rounding up per element have the variance of a binomial.
    Sum scatter;
    for (size_t i = 0; i < ups_.size(); ++i) {
      const double f = problem_.up[i], variance = static_cast<double>(draws_) * f * (1 - f);
      if (f == 0) continue;
      const double d = static_cast<double>(ups_[i]) - static_cast<double>(draws_) * f;
      scatter.add(d * d / variance - 1, 2 + (1 - 6 * f * (1 - f)) / variance);
    }
    consider(scatter, "scatter of elements over draws");
    return most;
  }

 private:
  struct Sum {
    double value = 0, variance = 0;
    void add(double v, double var) {
      value += v;
      variance += var;
    }
    double deviations() const { return variance > 0 ? value / std::sqrt(variance) : 0; }
  };
  static constexpr size_t kBins = 16;
  static constexpr std::array<std::pair<int64_t, int64_t>, 10> kLags = {
      {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {0, 48}, {0, 64}, {1, 0}, {16, 0}, {1, 1}}};

  const Problem& problem_;
  std::vector<int64_t> ups_;
  std::vector<double> before_;
  double variance_ = 0;
  int64_t draws_ = 0;
  Sum mean_{}, together_{}, with_the_last_{};
  std::array<Sum, kBins> bins_{};
  std::array<Sum, kLags.size()> pairs_{};
};

constexpr OperandSpec kNvfp4{Encoding::nvfp4, Scaling::along_cols, false, true};

TEST(QuantizerDraws, FollowTheDistanceFromBelowInEveryFormat) {
  for (const OperandSpec& spec : {kNvfp4,
                                  OperandSpec{Encoding::nvfp4, Scaling::along_rows, true, true},
                                  {Encoding::mxfp4, Scaling::along_cols, false, true},
                                  {Encoding::mxfp8, Scaling::along_rows, false, true},
                                  {Encoding::fp8_e4m3, Scaling::along_cols, false, true},
                                  {Encoding::fp8_e5m2, Scaling::along_cols, false, true}}) {
    const Problem problem(spec);
    Judge judge(problem);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) judge.add(problem.draw({.key = {.seed = seed}}));
    const auto [deviations, name] = judge.worst();
    EXPECT_LT(deviations, kSigmas) << name_of(spec.encoding) << ": " << name;
  }
}

// A seed may differ in any of its bits; streams and rows are as good as seeds.
TEST(QuantizerDraws, DifferWithEveryPartOfTheKey) {
  const Problem problem(kNvfp4);
  const std::function<Noise(uint64_t)> keys[] = {
      [](uint64_t i) { return Noise{.key = {.seed = i << 32}}; },
      [](uint64_t i) { return Noise{.key = {.seed = 5, .stream = static_cast<uint32_t>(i)}}; },
      [](uint64_t i) { return Noise{.key = {.seed = 5}, .row0 = static_cast<int64_t>(i) * kRows}; }};
  for (const auto& key : keys) {
    Judge judge(problem);
    for (uint64_t i = 0; i < kSeeds; ++i) judge.add(problem.draw(key(i)));
    const auto [deviations, name] = judge.worst();
    EXPECT_LT(deviations, kSigmas) << "key " << &key - keys << ": " << name;
  }
}

// The bound has power: each of these is far beyond it.
TEST(QuantizerDraws, TheBoundNoticesWrongNoise) {
  const Problem problem(kNvfp4);
  const auto sound = [](uint64_t seed, int64_t r, int64_t c) { return noise_ref({.key = {.seed = seed}}, r, c); };
  using Kind = std::function<float(uint64_t, int64_t, int64_t)>;
  const auto of = [&](const Kind& noise) {
    Judge judge(problem);
    for (uint64_t seed = 0; seed < kSeeds; ++seed)
      judge.add(problem.draw([&](int64_t r, int64_t c) { return noise(seed, r, c); }));
    return judge.worst();
  };
  EXPECT_LT(of(sound).first, kSigmas);
  const std::pair<const char*, Kind> wrong[] = {
      {"shifted by 1/128", [&](uint64_t s, int64_t r, int64_t c) { return sound(s, r, c) + 0x1p-7f; }},
      {"halved", [&](uint64_t s, int64_t r, int64_t c) { return 0.5f * sound(s, r, c); }},
      {"halved about its mean", [&](uint64_t s, int64_t r, int64_t c) { return 0.25f + 0.5f * sound(s, r, c); }},
      {"narrower by 1/32", [&](uint64_t s, int64_t r, int64_t c) { return (1 + 31 * sound(s, r, c)) / 33; }},
      {"none", [&](uint64_t, int64_t, int64_t) { return 0.5f; }},
      {"of one seed", [&](uint64_t, int64_t r, int64_t c) { return sound(1, r, c); }},
      {"of two seeds in turn", [&](uint64_t s, int64_t r, int64_t c) { return sound(s / 2, r, c); }},
      {"one for a row", [&](uint64_t s, int64_t r, int64_t) { return sound(s, r, 0); }},
      {"one for two columns", [&](uint64_t s, int64_t r, int64_t c) { return sound(s, r, c / 2); }},
      {"one for two tiles of columns", [&](uint64_t s, int64_t r, int64_t c) { return sound(s, r, c % 64); }},
      {"one for two rows", [&](uint64_t s, int64_t r, int64_t c) { return sound(s, r / 2, c); }}};
  for (const auto& [name, noise] : wrong) EXPECT_GT(of(noise).first, 2 * kSigmas) << name;
}

}  // namespace
}  // namespace braid
