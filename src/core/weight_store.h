// WeightStore: the one owner of the bytes that Weights view: mapped files, tensors made on loading, working copies of
// adapters, masters in training. A Weight is a view and does not know the owner of its bytes; its model holds the
// store.
#pragma once
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/view.h"
#include "sys/big_vector.h"

namespace braid {

class WeightStore {
 public:
  WeightStore() = default;
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  // Zeros, 64-byte aligned; their address never changes.
  MutView make(DType dtype, const Shape& shape) {
    const int64_t bytes = shape.count() * size_of(dtype), line = static_cast<int64_t>(sizeof(Line));
    auto& lines = made_.emplace_back(static_cast<size_t>((bytes + line - 1) / line));
    return {reinterpret_cast<std::byte*>(lines.data()), dtype, shape};
  }
  // Whether tensors were made, and the end of all of them.
  bool has_made() const { return !made_.empty(); }
  void drop_made() { made_.clear(); }
  // Keeps an owner of other bytes alive, such as a mapped file.
  void keep(std::shared_ptr<const void> owner) { kept_.push_back(std::move(owner)); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::deque<sys::BigVector<Line>> made_;
  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace braid
