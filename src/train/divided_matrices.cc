#include "train/divided_matrices.h"

#include <algorithm>
#include <numeric>

#include "kernels/muon/muon.h"
#include "sys/check.h"

namespace braid::train {
namespace {

// body(elements in the whole, in the part, their number) for consecutive ones.
template <class Body>
void for_each_run(const DividedMatrices::Matrix& m, const Range& held, const Body& body) {
  if (!m.by_cols) return body(held.begin * m.cols, int64_t{0}, held.count * m.cols);
  for (int64_t row = 0; row < m.rows; ++row) body(row * m.cols + held.begin, row * held.count, held.count);
}

void take_part(const DividedMatrices::Matrix& m, const Range& held, const float* whole, float* part) {
  for_each_run(m, held, [&](int64_t from, int64_t to, int64_t n) { std::copy_n(whole + from, n, part + to); });
}

int64_t sum_of(std::span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

}  // namespace

// Experts that are divided apart are whole.
int64_t DividedMatrices::add(const models::MasterTensor& tensor, const Param& p) {
  if (tensor.held.empty() || tensor.of_expert) return -1;
  const bool stack = p.value.rows * p.value.cols != tensor.count();
  CHECK(!stack || p.experts > 0, "{} is a part of a divided tensor", p.name);
  Matrix whole{stack ? tensor.rows / p.experts : tensor.rows, tensor.cols, tensor.by_cols};
  if (whole.by_cols) {
    CHECK(tensor.held.size() == 1, "{}: its columns are not consecutive", p.name);
    return add(std::move(whole), tensor.held[0]);
  }
  // The held range in which the part begins.
  int64_t row = (p.offset - tensor.offset) / tensor.cols;
  auto range = tensor.held.begin();
  while (row >= range->count) row -= (range++)->count;
  CHECK(row + p.value.rows <= range->count, "{}: its rows are not consecutive", p.name);
  const int64_t begin = stack ? (range->begin + row) % whole.rows : range->begin + row;
  return add(std::move(whole), {begin, p.value.rows});
}

int64_t DividedMatrices::add(Matrix whole, const Range& held) {
  const int64_t own[] = {held.begin, held.count};
  std::vector<int64_t> all(2 * static_cast<size_t>(ranks_.size()));
  ranks_.all_gather(view_of(own, {2}), mut_view_of(all.data(), {std::ssize(all)})).wait();
  for (size_t i = 0; i < all.size(); i += 2) whole.held.push_back({all[i], all[i + 1]});
  matrices_.push_back(std::move(whole));
  return std::ssize(matrices_) - 1;
}

Tensor DividedMatrices::whole_of(Ctx& ctx, const Matrix& matrix, const Tensor& parts) const {
  Tensor whole(ctx.arena, DType::f32, {matrix.rows, matrix.cols});
  const float* part = parts.view().as<float>();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    for_each_run(matrix, matrix.held[static_cast<size_t>(rank)], [&](int64_t to, int64_t from, int64_t n) {
      std::copy_n(part + from, n, whole.mut().as<float>() + to);
    });
    part += matrix.count(rank);
  }
  return whole;
}

void DividedMatrices::duplicate(Ctx& ctx, const Matrix& matrix, const MutView& part) {
  std::vector<int64_t> counts;
  counts.reserve(static_cast<size_t>(ranks_.size()));
  for (int rank = 0; rank < ranks_.size(); ++rank) counts.push_back(matrix.count(rank));
  const Tensor parts(ctx.arena, DType::f32, {sum_of(counts)});
  ranks_.all_gather(part, parts.mut(), counts).wait();
  const Tensor whole = whole_of(ctx, matrix, parts);
  run(ctx, Orthogonalize{.x = whole.mut()});
  take_part(matrix, matrix.held[static_cast<size_t>(ranks_.rank())], whole.view().as<float>(), part.as<float>());
}

// Matrix i goes to rank i.
void DividedMatrices::orthogonalize(Ctx& ctx, std::span<const int64_t> numbers, std::span<const MutView> parts) {
  if (duplicate_) return duplicate(ctx, (*this)[numbers[0]], parts[0]);
  const auto ranks = static_cast<size_t>(ranks_.size()), rank = static_cast<size_t>(ranks_.rank());
  std::vector<int64_t> sent(ranks), received(ranks);
  for (size_t i = 0; i < parts.size(); ++i) sent[i] = parts[i].count();
  const Matrix* own = rank < numbers.size() ? &(*this)[numbers[rank]] : nullptr;
  for (size_t i = 0; own && i < ranks; ++i) received[i] = own->count(static_cast<int>(i));
  const Tensor out(ctx.arena, DType::f32, {sum_of(sent)}), in(ctx.arena, DType::f32, {sum_of(received)});
  auto* place = out.mut().as<float>();
  for (const MutView& part : parts) place = std::copy_n(part.as<float>(), part.count(), place);
  ranks_.all_to_all(out.view(), in.mut(), sent, received).wait();
  if (own) {
    const Tensor whole = whole_of(ctx, *own, in);
    run(ctx, Orthogonalize{.x = whole.mut()});
    auto* part = in.mut().as<float>();
    for (size_t i = 0; i < ranks; ++i) {
      take_part(*own, own->held[i], whole.view().as<float>(), part);
      part += received[i];
    }
  }
  ranks_.all_to_all(in.view(), out.mut(), received, sent).wait();
  const auto* place_back = out.view().as<float>();
  for (const MutView& part : parts) {
    std::copy_n(place_back, part.count(), part.as<float>());
    place_back += part.count();
  }
}

}  // namespace braid::train
