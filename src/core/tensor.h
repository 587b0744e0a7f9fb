// Tensor: a counted handle to an arena block together with its dtype and shape. Copying shares the bytes; the last
// handle gives the block back, which is the planner's free event.
#pragma once
#include <utility>

#include "core/arena.h"
#include "core/view.h"

namespace braid {

class Tensor {
 public:
  Tensor() = default;
  Tensor(Arena& arena, DType dtype, const Shape& shape) : slot_(arena.take(shape.count() * size_of(dtype))) {
    view_ = MutView(slot_->data, dtype, shape);
  }
  Tensor(const Tensor& other) : slot_(other.slot_), view_(other.view_) {
    if (slot_) ++slot_->refs;
  }
  Tensor(Tensor&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)), view_(std::exchange(other.view_, {})) {}
  Tensor& operator=(Tensor other) noexcept {
    std::swap(slot_, other.slot_);
    std::swap(view_, other.view_);
    return *this;
  }
  ~Tensor() {
    if (slot_ && --slot_->refs == 0) slot_->arena->release(slot_);
  }

  explicit operator bool() const { return slot_ != nullptr; }
  View view() const { return view_; }
  MutView mut() const { return view_; }
  int64_t dim(int i) const { return view_.dim(i); }
  const Shape& shape() const { return view_.shape; }
  DType dtype() const { return view_.dtype; }
  uint64_t id() const { return slot_ ? slot_->id : 0; }

  Tensor reshaped(const Shape& shape) const {
    CHECK(shape.count() == view_.count(), "{} as {}", to_string(view_.shape), to_string(shape));
    Tensor t = *this;
    t.view_ = MutView(view_.data, view_.dtype, shape);
    return t;
  }

 private:
  Arena::Slot* slot_ = nullptr;
  MutView view_{};
};

}  // namespace braid
