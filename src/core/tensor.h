// Tensor: a reference-counted handle to an arena block, with dtype and shape. Copying shares the bytes; the last handle
// frees the block, which is the planner's free event. Ref: a weak reference, which does not keep the bytes alive.
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
  // The only handle to these bytes, so its owner may write them.
  bool sole() const { return slot_ && slot_->refs == 1; }

  Tensor reshaped(const Shape& shape) const {
    CHECK(shape.count() == view_.count(), "{} as {}", to_string(view_.shape), to_string(shape));
    Tensor t = *this;
    t.view_ = MutView(view_.data, view_.dtype, shape);
    return t;
  }
  // A part of the same bytes.
  Tensor slice(int axis, int64_t begin, int64_t n) const {
    Tensor t = *this;
    t.view_ = view_.slice(axis, begin, n);
    return t;
  }
  Tensor split_last(int64_t a, int64_t b) const {
    Tensor t = *this;
    t.view_ = view_.split_last(a, b);
    return t;
  }

 private:
  friend class Ref;
  friend class Tape;
  Arena::Slot* slot_ = nullptr;
  MutView view_{};
};

// A weak reference to a tensor, which does not keep its bytes alive: what the nodes of a tape hold. The bytes may be
// freed and allocated again at another address; reading them while they are freed is a bug.
class Ref {
 public:
  Ref() = default;
  Ref(const Tensor& t) : slot_(t.slot_), view_(t.view_) {
    if (!slot_) return;
    ++slot_->names;
    offset_ = view_.data - slot_->data;
  }
  Ref(const Ref& other) : slot_(other.slot_), view_(other.view_), offset_(other.offset_) {
    if (slot_) ++slot_->names;
  }
  Ref(Ref&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)), view_(other.view_), offset_(other.offset_) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(slot_, other.slot_);
    std::swap(view_, other.view_);
    std::swap(offset_, other.offset_);
    return *this;
  }
  ~Ref() {
    if (slot_ && --slot_->names == 0) slot_->arena->forget(slot_);
  }

  explicit operator bool() const { return slot_ != nullptr; }
  const Shape& shape() const { return view_.shape; }
  MutView mut() const {
    if (!slot_) return {};
    CHECK(slot_->data, "the bytes of {} were freed", to_string(view_.shape));
    MutView v = view_;
    v.data = slot_->data + offset_;
    return v;
  }
  View view() const { return mut(); }

 private:
  friend class Tape;
  Arena::Slot* slot_ = nullptr;
  MutView view_{};
  int64_t offset_ = 0;
};

}  // namespace braid
