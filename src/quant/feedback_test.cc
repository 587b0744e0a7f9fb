// Error feedback, compared with a direct implementation in double, with brute force, and with rounding to the nearest.
#include "quant/feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "models/quant_format.h"

namespace braid::quant {
namespace {

using Doubles = std::vector<double>;

constexpr float kAny = 1e30f;

std::vector<float> normal(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> out(static_cast<size_t>(n));
  for (float& v : out) v = draw(random);
  return out;
}

// Inputs [rows, cols] whose columns depend on each other: x = z A for a random A of rank `rank`.
Doubles correlated_gram(int64_t cols, int64_t rank, uint32_t seed) {
  const int64_t rows = 3 * cols;
  const std::vector<float> z = normal(rows * rank, seed), a = normal(rank * cols, seed + 1);
  Doubles x(static_cast<size_t>(rows * cols)), gram(static_cast<size_t>(cols * cols));
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t k = 0; k < rank; ++k)
        x[static_cast<size_t>(t * cols + c)] += static_cast<double>(z[static_cast<size_t>(t * rank + k)]) *
                                                static_cast<double>(a[static_cast<size_t>(k * cols + c)]);
    }
  }
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < cols; ++i) {
      for (int64_t j = 0; j < cols; ++j)
        gram[static_cast<size_t>(i * cols + j)] +=
            x[static_cast<size_t>(t * cols + i)] * x[static_cast<size_t>(t * cols + j)] / static_cast<double>(rows);
    }
  }
  return gram;
}

std::vector<float> decoded(const models::Encoded& encoded, const BlockCoder& coder, int64_t rows, int64_t cols) {
  std::vector<float> out(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = static_cast<size_t>(r);
    coder.decode(encoded.codes.data() + row * coder.code_bytes(cols),
                 encoded.scales.data() + row * coder.scale_bytes(cols),
                 std::span(out).subspan(row * static_cast<size_t>(cols), static_cast<size_t>(cols)));
  }
  return out;
}

// e G e^T, summed over rows.
double output_error(std::span<const float> w, std::span<const float> q, const Doubles& gram, int64_t cols) {
  double sum = 0;
  for (size_t begin = 0; begin < w.size(); begin += static_cast<size_t>(cols)) {
    for (int64_t i = 0; i < cols; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        const auto a = begin + static_cast<size_t>(i), b = begin + static_cast<size_t>(j);
        sum += static_cast<double>(w[a] - q[a]) * static_cast<double>(w[b] - q[b]) *
               gram[static_cast<size_t>(i * cols + j)];
      }
    }
  }
  return sum;
}

float global_of(QuantFormat format, std::span<const float> w, ScaleSearch search = ScaleSearch::max) {
  float amax = 0;
  for (const float v : w) amax = std::max(amax, std::fabs(v));
  return models::global_scale(format, amax, search);
}

models::Encoded nearest(std::span<const float> w, QuantFormat format, float global, ScaleSearch search, int64_t cols) {
  return models::encode(dense_weight(view_of(w.data(), {std::ssize(w) / cols, cols})), format, global, search, 2);
}

// The inverse by Gauss-Jordan elimination.
Doubles inverse(Doubles m, int64_t n) {
  Doubles out(m.size());
  const auto at = [n](int64_t r, int64_t c) { return static_cast<size_t>(r * n + c); };
  for (int64_t i = 0; i < n; ++i) out[at(i, i)] = 1;
  for (int64_t k = 0; k < n; ++k) {
    const double pivot = m[at(k, k)];
    for (int64_t c = 0; c < n; ++c) m[at(k, c)] /= pivot, out[at(k, c)] /= pivot;
    for (int64_t r = 0; r < n; ++r) {
      const double factor = m[at(r, k)];
      if (r == k || factor == 0) continue;
      for (int64_t c = 0; c < n; ++c) m[at(r, c)] -= factor * m[at(k, c)], out[at(r, c)] -= factor * out[at(k, c)];
    }
  }
  return out;
}

// The loop of optimal brain quantisation as the paper of GPTQ has it (equations 2 and 3): after a column is rounded,
// the others move by -error / [H^-1]_kk * [H^-1]_k:, and H^-1 loses that column. Blocks in the same order.
std::vector<float> by_the_paper(std::span<const float> w, const BlockCoder& coder, const Feedback& order, Doubles gram,
                                double damping) {
  const int64_t cols = order.cols, rows = std::ssize(w) / cols;
  double mean = 0;
  for (int64_t c = 0; c < cols; ++c) mean += gram[static_cast<size_t>(c * cols + c)] / static_cast<double>(cols);
  for (int64_t c = 0; c < cols; ++c) gram[static_cast<size_t>(c * cols + c)] += damping * mean;
  std::vector<float> out(w.size());
  for (int64_t r = 0; r < rows; ++r) {
    Doubles v(w.begin() + r * cols, w.begin() + (r + 1) * cols), h = inverse(gram, cols);
    for (const int64_t b : order.order) {
      std::vector<float> block;
      for (int64_t c = b * order.block; c < (b + 1) * order.block; ++c)
        block.push_back(static_cast<float>(v[static_cast<size_t>(c)]));
      const uint16_t scale = coder.scale_of(block);
      for (int64_t k = b * order.block; k < (b + 1) * order.block; ++k) {
        const auto column = static_cast<size_t>(k);
        const float q = coder.rounded(static_cast<float>(v[column]), scale);
        out[static_cast<size_t>(r * cols + k)] = q;
        const double pivot = h[static_cast<size_t>(k * cols + k)], error = (v[column] - static_cast<double>(q)) / pivot;
        const Doubles row(h.begin() + k * cols, h.begin() + (k + 1) * cols);
        for (int64_t c = 0; c < cols; ++c) v[static_cast<size_t>(c)] -= error * row[static_cast<size_t>(c)];
        for (int64_t i = 0; i < cols; ++i) {
          for (int64_t j = 0; j < cols; ++j)
            h[static_cast<size_t>(i * cols + j)] -= row[static_cast<size_t>(i)] * row[static_cast<size_t>(j)] / pivot;
        }
      }
    }
  }
  return out;
}

struct Case {
  QuantFormat format;
  int64_t cols;
};
class FeedbackOf : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Formats, FeedbackOf,
                         testing::Values(Case{QuantFormat::nvfp4, 48}, Case{QuantFormat::fp8, 58},
                                         Case{QuantFormat::mxfp4, 96}, Case{QuantFormat::int8, 96},
                                         Case{QuantFormat::int4, 96}, Case{QuantFormat::int3, 96}));

TEST_P(FeedbackOf, IsTheLoopOfThePaper) {
  const auto [format, cols] = GetParam();
  constexpr int64_t kRows = 19;
  const std::vector<float> w = normal(kRows * cols, 1);
  const Doubles gram = correlated_gram(cols, cols, 2);
  const BlockCoder coder(format, {global_of(format, w), ScaleSearch::max});
  const Feedback feedback = factor(gram, cols, coder.block(), 0.01, 2);
  const std::vector<float> got = decoded(encode_with_feedback(w, coder, feedback, kAny, 3), coder, kRows, cols),
                           want = by_the_paper(w, coder, feedback, gram, 0.01);
  // FP32 and double round a few values that lie between two codes differently, and what follows them in their rows.
  int64_t rows_apart = 0;
  for (int64_t r = 0; r < kRows; ++r)
    rows_apart += std::equal(want.begin() + r * cols, want.begin() + (r + 1) * cols, got.begin() + r * cols) ? 0 : 1;
  EXPECT_LE(rows_apart, 2);
  EXPECT_NEAR(output_error(w, got, gram, cols), output_error(w, want, gram, cols),
              0.02 * output_error(w, want, gram, cols));
}

TEST_P(FeedbackOf, HasLessErrorThanTheNearestOnDependentInputs) {
  const auto [format, cols] = GetParam();
  constexpr int64_t kRows = 24;
  const std::vector<float> w = normal(kRows * cols, 3);
  const float global = global_of(format, w);
  const BlockCoder coder(format, {global, ScaleSearch::max});
  for (const int64_t rank : {cols, cols / 3}) {  // the second: a singular matrix
    const Doubles gram = correlated_gram(cols, rank, 4);
    const Feedback feedback = factor(gram, cols, coder.block(), 0.01, 2);
    const double with = output_error(w, decoded(encode_with_feedback(w, coder, feedback, kAny, 2), coder, kRows, cols),
                                     gram, cols),
                 without = output_error(
                     w, decoded(nearest(w, format, global, ScaleSearch::max, cols), coder, kRows, cols), gram, cols);
    EXPECT_LT(with, 0.8 * without) << rank;
  }
}

TEST_P(FeedbackOf, OfIndependentInputsIsTheNearest) {
  const auto [format, cols] = GetParam();
  const std::vector<float> w = normal(7 * cols, 5);
  Doubles gram(static_cast<size_t>(cols * cols));
  for (int64_t c = 0; c < cols; ++c) gram[static_cast<size_t>(c * cols + c)] = 1 + static_cast<double>(c % 5);
  const float global = global_of(format, w);
  const BlockCoder coder(format, {global, ScaleSearch::max});
  const models::Encoded got = encode_with_feedback(w, coder, factor(gram, cols, coder.block(), 0.01, 2), kAny, 2),
                        want = nearest(w, format, global, ScaleSearch::max, cols);
  EXPECT_EQ(got.codes, want.codes);
  EXPECT_EQ(got.scales, want.scales);
  EXPECT_NEAR(got.error, want.error, 1e-6 * want.square);
  EXPECT_NEAR(got.square, want.square, 1e-6 * want.square);
}

// Values that the format holds exactly stay, whatever the inputs.
TEST_P(FeedbackOf, ChangesNothingThatIsExact) {
  const auto [format, cols] = GetParam();
  const std::vector<float> any = normal(5 * cols, 6);
  const float global = global_of(format, any);
  const BlockCoder coder(format, {global, ScaleSearch::max});
  const std::vector<float> w = decoded(nearest(any, format, global, ScaleSearch::max, cols), coder, 5, cols);
  const std::vector<float> again = decoded(nearest(w, format, global, ScaleSearch::max, cols), coder, 5, cols);
  const Feedback feedback = factor(correlated_gram(cols, cols, 7), cols, coder.block(), 0.01, 2);
  const std::vector<float> got = decoded(encode_with_feedback(w, coder, feedback, kAny, 2), coder, 5, cols);
  int64_t exact = 0;
  for (int64_t r = 0; r < 5; ++r) {
    const auto first = w.begin() + r * cols;
    if (!std::equal(first, first + cols, again.begin() + r * cols)) continue;  // another scale fits the rounded block
    ++exact;
    EXPECT_TRUE(std::equal(first, first + cols, got.begin() + r * cols)) << r;
  }
  EXPECT_GE(exact, 1);
}

TEST(Feedback, DeadColumnsKeepTheirNearestCodesAndDoNotDisturbOthers) {
  constexpr int64_t kCols = 32, kRows = 6;
  Doubles gram = correlated_gram(kCols, kCols, 8);
  for (int64_t i = 0; i < kCols; ++i)
    gram[static_cast<size_t>(5 * kCols + i)] = gram[static_cast<size_t>(i * kCols + 5)] = 0;
  const std::vector<float> w = normal(kRows * kCols, 9);
  const BlockCoder coder(QuantFormat::int4, {1, ScaleSearch::max});
  const Feedback feedback = factor(gram, kCols, 32, 0.01, 1);
  const std::vector<float> got = decoded(encode_with_feedback(w, coder, feedback, kAny, 1), coder, kRows, kCols),
                           plain =
                               decoded(nearest(w, QuantFormat::int4, 1, ScaleSearch::max, kCols), coder, kRows, kCols);
  for (int64_t r = 0; r < kRows; ++r)
    EXPECT_EQ(got[static_cast<size_t>(r * kCols + 5)], plain[static_cast<size_t>(r * kCols + 5)]) << r;
  EXPECT_LT(output_error(w, got, gram, kCols), output_error(w, plain, gram, kCols));
}

// All roundings up or down of rows, in the scales that the rows get.
TEST(Feedback, ComesNearTheBestOfAllRoundings) {
  constexpr int64_t kCols = 32, kFree = 8, kRows = 24;  // columns after the first eight have inputs of no weight
  Doubles gram(static_cast<size_t>(kCols * kCols));
  const Doubles part = correlated_gram(kFree, kFree, 10);
  for (int64_t i = 0; i < kFree; ++i) {
    for (int64_t j = 0; j < kFree; ++j)
      gram[static_cast<size_t>(i * kCols + j)] = part[static_cast<size_t>(i * kFree + j)];
  }
  const BlockCoder coder(QuantFormat::int4, {1, ScaleSearch::max});
  const Feedback feedback = factor(gram, kCols, 32, 0.001, 1);
  double with = 0, without = 0, best = 0;
  for (uint32_t seed = 0; seed < kRows; ++seed) {
    const std::vector<float> w = normal(kCols, 20 + seed);
    const std::vector<float> plain =
        decoded(nearest(w, QuantFormat::int4, 1, ScaleSearch::max, kCols), coder, 1, kCols);
    const uint16_t scale = coder.scale_of(w);
    const float step = std::fabs(to_float(Bf16{scale}));
    double least = output_error(w, plain, gram, kCols);
    without += least;
    for (int bits = 0; bits < 1 << kFree; ++bits) {
      std::vector<float> q = plain;
      for (size_t c = 0; c < kFree; ++c) {
        const float other = plain[c] < w[c] ? plain[c] + step : plain[c] - step;
        if (bits >> c & 1) q[c] = coder.rounded(other, scale);
      }
      least = std::min(least, output_error(w, q, gram, kCols));
    }
    best += least;
    with += output_error(w, decoded(encode_with_feedback(w, coder, feedback, kAny, 1), coder, 1, kCols), gram, kCols);
  }
  EXPECT_LT(with - best, 0.5 * (without - best));
}

TEST(Feedback, ASearchOfScalesIsWeighted) {
  constexpr int64_t kCols = 64, kRows = 16;
  const Doubles gram = correlated_gram(kCols, kCols, 12);
  const std::vector<float> w = normal(kRows * kCols, 13);
  for (const QuantFormat format : {QuantFormat::nvfp4, QuantFormat::int3, QuantFormat::mxfp4}) {
    double errors[2];
    for (const ScaleSearch search : {ScaleSearch::max, ScaleSearch::mse}) {
      const BlockCoder coder(format, {global_of(format, w), search});
      const Feedback feedback = factor(gram, kCols, coder.block(), 0.01, 2);
      errors[search == ScaleSearch::mse] =
          output_error(w, decoded(encode_with_feedback(w, coder, feedback, kAny, 2), coder, kRows, kCols), gram, kCols);
    }
    EXPECT_LT(errors[1], errors[0]) << codec_of(format).name;
  }
}

TEST(Feedback, OutputErrorsAreThoseOfTheDefinition) {
  constexpr int64_t kCols = 37, kRows = 300;
  const std::vector<float> e = normal(kRows * kCols, 14), zero(e.size());
  const Doubles gram = correlated_gram(kCols, kCols, 15);
  std::vector<float> narrow(gram.begin(), gram.end());
  Arena arena;
  Ctx ctx{.arena = arena, .threads = 2};
  const std::vector<double> got = output_errors(ctx, e, narrow, kCols);
  ASSERT_EQ(std::ssize(got), kRows);
  double sum = 0;
  for (const double v : got) sum += v;
  EXPECT_NEAR(sum, output_error(e, zero, gram, kCols), 1e-4 * sum);
}

}  // namespace
}  // namespace braid::quant
