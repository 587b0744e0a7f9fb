#include "quant/feedback.h"

#include <algorithm>
#include <numeric>

#include "kernels/linear/linear.h"
#include "sys/check.h"
#include "sys/parallel.h"

namespace braid::quant {
namespace {

std::vector<int64_t> by_mean_input(std::span<const double> gram, int64_t cols, int64_t block) {
  std::vector<double> mean(static_cast<size_t>(cols / block));
  for (int64_t c = 0; c < cols; ++c) mean[static_cast<size_t>(c / block)] += gram[static_cast<size_t>(c * cols + c)];
  std::vector<int64_t> order(mean.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return mean[static_cast<size_t>(a)] > mean[static_cast<size_t>(b)]; });
  return order;
}

// The columns of the matrix in that order of blocks.
std::vector<int64_t> columns_of(const std::vector<int64_t>& order, int64_t block) {
  std::vector<int64_t> columns;
  for (const int64_t b : order) {
    for (int64_t i = 0; i < block; ++i) columns.push_back(b * block + i);
  }
  return columns;
}

// m = L D L^T in place for a symmetric positive m [n, n]: L below the diagonal, D on it. Panels of columns, then what
// they take from the rest of the matrix, whose rows are shared out.
void factor_in_place(std::vector<double>& m, int64_t n, int threads) {
  constexpr int64_t kPanel = 32;
  const auto at = [n](int64_t r, int64_t c) { return static_cast<size_t>(r * n + c); };
  std::vector<double> scaled;  // D L^T of the panel, [panel, rest]
  for (int64_t begin = 0; begin < n; begin += kPanel) {
    const int64_t end = std::min(n, begin + kPanel), rest = n - end;
    for (int64_t k = begin; k < end; ++k) {
      for (int64_t r = k + 1; r < n; ++r) m[at(r, k)] /= m[at(k, k)];
      for (int64_t r = k + 1; r < n; ++r) {
        const double factor = m[at(r, k)] * m[at(k, k)];
        for (int64_t c = k + 1; c < std::min(end, r + 1); ++c) m[at(r, c)] -= factor * m[at(c, k)];
      }
    }
    scaled.resize(static_cast<size_t>((end - begin) * rest));
    for (int64_t k = begin; k < end; ++k) {
      double* row = scaled.data() + (k - begin) * rest;
      for (int64_t c = 0; c < rest; ++c) row[c] = m[at(end + c, k)] * m[at(k, k)];
    }
    sys::parallel_for(threads, rest, 8, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        double* to = m.data() + at(end + r, end);
        for (int64_t k = begin; k < end; ++k) {
          const double factor = m[at(end + r, k)];
          const double* from = scaled.data() + (k - begin) * rest;
          for (int64_t c = 0; c <= r; ++c) to[c] -= factor * from[c];
        }
      }
    });
  }
}

// Rows of a matrix on their way to codes, in the order of the feedback.
class Rows {
 public:
  Rows(std::span<const float> values, const BlockCoder& coder, const Feedback& feedback,
       const std::vector<int64_t>& columns, float largest)
      : values_(values), coder_(coder), feedback_(feedback), columns_(columns), largest_(largest) {}

  void encode(int64_t begin, int64_t end, models::Encoded& out, std::span<double> error, std::span<double> square) {
    const int64_t cols = feedback_.cols, n = end - begin;
    wanted_.resize(static_cast<size_t>(n * cols));
    scales_.resize(static_cast<size_t>(n * (cols / feedback_.block)));
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < cols; ++i) wanted_[static_cast<size_t>(r * cols + i)] = original(begin + r, i);
      square[static_cast<size_t>(r)] = error[static_cast<size_t>(r)] = 0;
    }
    for (int64_t b = 0; b < cols / feedback_.block; ++b) round_block(b, begin, n, error, square);
    for (int64_t r = 0; r < n; ++r) store(begin, r, out);
  }

 private:
  float original(int64_t row, int64_t i) const {
    return values_[static_cast<size_t>(row * feedback_.cols + columns_[static_cast<size_t>(i)])];
  }

  // One block of every row after the other: U is read once for all of them.
  void round_block(int64_t b, int64_t begin, int64_t n, std::span<double> error, std::span<double> square) {
    const int64_t cols = feedback_.cols, block = feedback_.block, blocks = cols / block, first = b * block;
    const auto wanted = [&](int64_t r) { return wanted_.data() + r * cols; };
    const auto scale = [&](int64_t r) -> uint16_t& {
      return scales_[static_cast<size_t>(r * blocks + feedback_.order[static_cast<size_t>(b)])];
    };
    const std::span<const float> pivots(feedback_.pivots.data() + first, static_cast<size_t>(block));
    for (int64_t r = 0; r < n; ++r) scale(r) = coder_.scale_of(expected(wanted(r), begin + r, first), pivots);
    for (int64_t i = first; i < first + block; ++i) {
      const float* upper = feedback_.upper.data() + i * cols;
      for (int64_t r = 0; r < n; ++r) {
        float* row = wanted(r);
        row[i] = std::clamp(row[i], -largest_, largest_);
        const float value = original(begin + r, i), e = value - coder_.rounded(row[i], scale(r));
        error[static_cast<size_t>(r)] += static_cast<double>(e) * static_cast<double>(e);
        square[static_cast<size_t>(r)] += static_cast<double>(value) * static_cast<double>(value);
        if (e == 0) continue;
        for (int64_t k = i + 1; k < cols; ++k) row[k] += e * upper[k];
      }
    }
  }

  // What the columns of a block are to become if none of them is rounded: each then takes over what those before it
  // take back of earlier errors. Its scale is chosen for these.
  std::span<const float> expected(const float* row, int64_t number, int64_t first) {
    const int64_t block = feedback_.block;
    expected_.assign(row + first, row + first + block);
    for (int64_t i = 0; i < block; ++i) {
      float& value = expected_[static_cast<size_t>(i)];
      const float e = original(number, first + i) - value;
      const float* upper = feedback_.upper.data() + (first + i) * feedback_.cols + first;
      for (int64_t k = i + 1; k < block; ++k) expected_[static_cast<size_t>(k)] += e * upper[k];
      value = std::clamp(value, -largest_, largest_);
    }
    return expected_;
  }

  void store(int64_t begin, int64_t r, models::Encoded& out) {
    const int64_t cols = feedback_.cols, blocks = cols / feedback_.block;
    ordered_.resize(static_cast<size_t>(cols));
    for (int64_t i = 0; i < cols; ++i)
      ordered_[static_cast<size_t>(columns_[static_cast<size_t>(i)])] = wanted_[static_cast<size_t>(r * cols + i)];
    const size_t row = static_cast<size_t>(begin + r);
    coder_.encode_with(
        ordered_, std::span(scales_).subspan(static_cast<size_t>(r * blocks), static_cast<size_t>(blocks)),
        out.codes.data() + row * coder_.code_bytes(cols), out.scales.data() + row * coder_.scale_bytes(cols));
  }

  std::span<const float> values_;
  const BlockCoder& coder_;
  const Feedback& feedback_;
  const std::vector<int64_t>& columns_;
  float largest_;
  std::vector<float> wanted_;              // [rows, cols] in the order of the feedback
  std::vector<float> ordered_, expected_;  // a row in the order of the matrix; a block
  std::vector<uint16_t> scales_;           // [rows, blocks] in the order of the matrix
};

}  // namespace

Feedback factor(std::span<const double> gram, int64_t cols, int64_t block, double damping, int threads) {
  CHECK(cols % block == 0 && std::ssize(gram) == cols * cols, "{} columns in blocks of {}", cols, block);
  Feedback out{.cols = cols, .block = block, .order = by_mean_input(gram, cols, block), .upper = {}, .pivots = {}};
  const std::vector<int64_t> columns = columns_of(out.order, block);
  double mean = 0;
  for (int64_t c = 0; c < cols; ++c) mean += gram[static_cast<size_t>(c * cols + c)] / static_cast<double>(cols);
  CHECK(mean > 0, "inputs that are all zero");
  // The last column first: U D U^T of a matrix is L D L^T of the reversed one.
  std::vector<double> m(gram.size());
  const auto from = [&](int64_t i) { return columns[static_cast<size_t>(cols - 1 - i)]; };
  for (int64_t r = 0; r < cols; ++r) {
    for (int64_t c = 0; c <= r; ++c)
      m[static_cast<size_t>(r * cols + c)] = gram[static_cast<size_t>(from(r) * cols + from(c))];
    m[static_cast<size_t>(r * cols + r)] += damping * mean;
  }
  factor_in_place(m, cols, threads);
  out.upper.resize(gram.size());
  out.pivots.resize(static_cast<size_t>(cols));
  for (int64_t r = 0; r < cols; ++r) {
    const int64_t i = cols - 1 - r;
    out.pivots[static_cast<size_t>(i)] = static_cast<float>(m[static_cast<size_t>(r * cols + r)] / mean);
    for (int64_t c = 0; c < r; ++c)
      out.upper[static_cast<size_t>(i * cols + cols - 1 - c)] =
          static_cast<float>(m[static_cast<size_t>(r * cols + c)]);
  }
  return out;
}

models::Encoded encode_with_feedback(std::span<const float> values, const BlockCoder& coder, const Feedback& feedback,
                                     float largest, int threads) {
  constexpr int64_t kRows = 16;  // of a thread at a time
  const int64_t cols = feedback.cols, rows = std::ssize(values) / cols;
  const std::vector<int64_t> columns = columns_of(feedback.order, feedback.block);
  models::Encoded out{.codes = std::vector<std::byte>(static_cast<size_t>(rows) * coder.code_bytes(cols)),
                      .scales = std::vector<std::byte>(static_cast<size_t>(rows) * coder.scale_bytes(cols))};
  std::vector<double> error(static_cast<size_t>(rows)), square(error.size());
  sys::parallel_for(threads, rows, kRows, [&](int64_t begin, int64_t end) {
    Rows batch(values, coder, feedback, columns, largest);
    for (int64_t r = begin; r < end; r += kRows) {
      const auto n = static_cast<size_t>(std::min(kRows, end - r));
      batch.encode(r, r + static_cast<int64_t>(n), out, std::span(error).subspan(static_cast<size_t>(r), n),
                   std::span(square).subspan(static_cast<size_t>(r), n));
    }
  });
  out.error = std::accumulate(error.begin(), error.end(), 0.0);
  out.square = std::accumulate(square.begin(), square.end(), 0.0);
  return out;
}

std::vector<double> output_errors(Ctx& ctx, std::span<const float> errors, std::span<const float> gram, int64_t cols) {
  constexpr int64_t kRows = 256;
  const int64_t rows = std::ssize(errors) / cols;
  const Weight symmetric = dense_weight(view_of(gram.data(), {cols, cols}));
  std::vector<double> out(static_cast<size_t>(rows));
  for (int64_t begin = 0; begin < rows; begin += kRows) {
    const int64_t n = std::min(kRows, rows - begin);
    const Tensor y(ctx.arena, DType::f32, {n, cols});
    const float* e = errors.data() + begin * cols;
    run(ctx, LinearFwd{.x = view_of(e, {n, cols}), .w = symmetric, .y = y.mut(), .train = true});
    for (int64_t r = 0; r < n; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < cols; ++c)
        sum += static_cast<double>(e[r * cols + c]) * static_cast<double>(y.view().as<float>(r)[c]);
      out[static_cast<size_t>(begin + r)] = std::max(0.0, sum);
    }
  }
  return out;
}

}  // namespace braid::quant
