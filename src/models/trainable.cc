#include "models/trainable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "math/blocks.h"
#include "models/load.h"
#include "sys/parallel.h"

namespace braid::models {
namespace {

constexpr int64_t kGrain = 1 << 15;

// Copies what another source gives into tensors of their own.
class OwningSource final : public nn::ParamSource {
 public:
  OwningSource(nn::ParamSource& from, Trainable& to, DType operands) : from_(from), to_(to), operands_(operands) {}

  bool has(const std::string& name) const override { return from_.has(name); }

  Param matrix(const std::string& name, int64_t rows, int64_t cols, const char* keys) override {
    const Param p = from_.matrix(name, rows, cols, keys);
    return own({.name = p.name, .shape = {rows, cols}}, p, true);
  }
  Param transposed(const std::string& name, int64_t rows, int64_t cols, const char* keys) override {
    const Param p = from_.transposed(name, rows, cols, keys);
    return own({.name = p.name, .shape = {cols, rows}, .transposed = true}, p, true);
  }
  Param vector(const std::string& name, const Shape& shape, const char* keys, float plus) override {
    const Param p = from_.vector(name, shape, keys, plus);
    return own({.name = p.name, .shape = shape, .plus = plus}, p, false);
  }
  std::vector<Param> stacked(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                             const char* keys) override {
    std::vector<Param> parts = from_.stacked(name, count, rows, cols, keys);
    const std::string& first = parts[0].name;
    TrainTensor t{.name = first.substr(0, first.rfind('[')), .shape = {count, rows, cols}};
    allocate(t, count * rows, cols, true);
    for (int64_t i = 0; i < count; ++i) {
      Param& p = parts[static_cast<size_t>(i)];
      decode(p.value, t.master.mut().slice(0, i * rows, rows));
      p = part(t, p.name, i * rows, rows);
    }
    to_.tensors.push_back(std::move(t));
    return parts;
  }
  Param again(const Param& p) override {
    const auto found =
        std::find_if(to_.tensors.begin(), to_.tensors.end(), [&p](const TrainTensor& t) { return t.name == p.name; });
    CHECK(found != to_.tensors.end(), "{} has no owner", p.name);
    found->grads.emplace_back(*to_.arena, DType::f32, found->master.shape());
    Param other = p;
    other.grad = found->grads.back().mut();
    return other;
  }

 private:
  void allocate(TrainTensor& t, int64_t rows, int64_t cols, bool product) {
    t.master = Tensor(*to_.arena, DType::f32, {rows, cols});
    if (product && operands_ == DType::bf16) t.working = Tensor(*to_.arena, DType::bf16, {rows, cols});
    t.grads.emplace_back(*to_.arena, DType::f32, Shape{rows, cols});
  }
  static void decode(const Weight& from, const MutView& to) {
    for (int64_t r = 0; r < from.rows; ++r) {
      float* row = to.as<float>(r);
      decode_row(from, r, 0, from.cols, row);
      for (int64_t c = 0; c < from.cols; ++c) row[c] *= from.global;
    }
  }
  static Param part(const TrainTensor& t, const std::string& name, int64_t begin, int64_t rows) {
    const View value = t.working ? t.working.view() : t.master.view();
    return {.name = name,
            .value = dense_weight(value.slice(0, begin, rows)),
            .grad = t.grads[0].mut().slice(0, begin, rows)};
  }
  Param own(TrainTensor t, const Param& p, bool product) {
    allocate(t, p.value.rows, p.value.cols, product);
    decode(p.value, t.master.mut());
    Param owned = part(t, p.name, 0, p.value.rows);
    to_.tensors.push_back(std::move(t));
    return owned;
  }

  nn::ParamSource& from_;
  Trainable& to_;
  DType operands_;
};

}  // namespace

void Trainable::zero_grads(int threads) {
  for (const TrainTensor& t : tensors) {
    for (const Tensor& grad : t.grads) {
      auto* values = grad.mut().as<float>();
      sys::parallel_for(threads, grad.view().count(), kGrain,
                        [values](int64_t begin, int64_t end) { std::fill(values + begin, values + end, 0.0f); });
    }
  }
}

void Trainable::sum_uses(int threads) {
  for (const TrainTensor& t : tensors) {
    auto* sum = t.grads[0].mut().as<float>();
    for (size_t use = 1; use < t.grads.size(); ++use) {
      auto* more = t.grads[use].mut().as<float>();
      sys::parallel_for(threads, t.grads[0].view().count(), kGrain, [sum, more](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sum[i] += std::exchange(more[i], 0.0f);
      });
    }
  }
}

void Trainable::refresh(int threads) {
  for (const TrainTensor& t : tensors) {
    if (!t.working) continue;
    const auto* from = t.master.view().as<float>();
    auto* to = t.working.mut().as<Bf16>();
    sys::parallel_for(threads, t.master.view().count(), kGrain, [from, to](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = to_bf16(from[i]);
    });
  }
}

Trainable load_trainable(const io::ModelPath& path, DType operands) {
  Trainable t;
  const StoredParams stored = open_params(path);
  OwningSource source(*stored.source, t, operands);
  t.model = std::make_unique<Model>(load_config(path), source);
  t.refresh(1);
  return t;
}

std::vector<float> as_stored(const TrainTensor& tensor, const View& values, bool is_value) {
  const auto* from = values.as<float>();
  std::vector<float> out(from, from + values.count());
  if (tensor.transposed) {
    const int64_t rows = tensor.shape[1], cols = tensor.shape[0];
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) out[static_cast<size_t>(c * rows + r)] = from[r * cols + c];
    }
  }
  if (is_value && tensor.plus != 0) {
    for (float& v : out) v -= tensor.plus;
  }
  return out;
}

}  // namespace braid::models
