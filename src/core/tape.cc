#include "core/tape.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sys/parallel.h"

namespace braid {
namespace {

constexpr size_t kChunk = size_t{1} << 16;

// to = a + b, elementwise; `to` may be one of them.
void sum(int threads, const View& a, const View& b, const MutView& to) {
  CHECK(a.contiguous() && b.contiguous() && a.count() == b.count(), "gradients {} and {}", to_string(a.shape),
        to_string(b.shape));
  const auto *x = a.as<float>(), *y = b.as<float>();
  auto* z = to.as<float>();
  sys::parallel_for(threads, a.count(), int64_t{1} << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) z[i] = x[i] + y[i];
  });
}

}  // namespace

void* Tape::take(size_t bytes) {
  const size_t need = (bytes + alignof(std::max_align_t) - 1) / alignof(std::max_align_t) * alignof(std::max_align_t);
  CHECK(need <= kChunk, "a closure of {} bytes", bytes);
  if (chunk_ < chunks_.size() && used_ + need > kChunk) ++chunk_, used_ = 0;
  if (chunk_ == chunks_.size()) chunks_.push_back(std::make_unique<std::byte[]>(kChunk));
  used_ += need;
  return chunks_[chunk_].get() + used_ - need;
}

int Tape::number(const Tensor& tensor) {
  Arena::Slot* slot = tensor.slot_;
  if (slot->value < 0) {
    slot->value = static_cast<int>(values_.size());
    values_.push_back({.ref = tensor});
  }
  return slot->value;
}

Tape::Range Tape::list(std::initializer_list<Tensor> tensors) {
  const size_t begin = lists_.size();
  for (const Tensor& t : tensors) {
    if (t) lists_.push_back(number(t));
  }
  return {begin, lists_.size()};
}

void Tape::append(Ctx& ctx, const char* name, const Uses& uses, const Closures& closures) {
  const auto index = static_cast<int>(nodes_.size());
  nodes_.push_back({.name = name, .dropped = !uses.once && drops_next(name), .once = uses.once});
  closures_.push_back(closures);
  const Links links{.in = list(uses.in), .out = list(uses.out), .saved = list(uses.saved), .seed = uses.once};
  links_.push_back(links);
  for (const int v : values(links.out)) {
    values_[static_cast<size_t>(v)].producer = index;
    nodes_.back().bytes += values_[static_cast<size_t>(v)].ref.slot_->bytes;
  }
  for (const int v : values(links.saved)) {
    Value& value = values_[static_cast<size_t>(v)];
    ++value.readers;
    if (value.producer < 0 || !nodes_[static_cast<size_t>(value.producer)].dropped) value.kept = hold(v);
  }
  // A replay starts from values that nobody computes: those stay.
  for (const int v : values(links.in)) {
    Value& value = values_[static_cast<size_t>(v)];
    if (value.producer < 0 && nodes_.back().dropped) value.kept = hold(v);
  }
  const double before = ctx.counts.flops;
  closures.forward(closures.object, ctx);
  nodes_.back().flops = ctx.counts.flops - before;
}

const Tape::Value* Tape::find(const Ref& ref) const {
  if (!ref.slot_ || ref.slot_->value < 0) return nullptr;
  return &values_[static_cast<size_t>(ref.slot_->value)];
}

// A handle to bytes that are there.
Tensor Tape::hold(const Value* value) {
  CHECK(value, "a value that no tape knows");
  const Ref& ref = value->ref;
  Tensor t;
  t.slot_ = ref.slot_;
  t.view_ = ref.mut();
  ++t.slot_->refs;
  return t;
}

Tensor Tape::materialise(Ctx& ctx, int value) {
  const int producer = values_[static_cast<size_t>(value)].producer;
  Arena::Slot* slot = values_[static_cast<size_t>(value)].ref.slot_;
  if (slot->data) return hold(value);
  CHECK(producer >= 0, "{} was given back and nobody computes it",
        to_string(values_[static_cast<size_t>(value)].ref.shape()));
  const Links links = links_[static_cast<size_t>(producer)];
  std::array<Tensor, 8> needed, made;
  size_t n = 0, m = 0;
  for (const int v : values(links.in)) needed[n++] = materialise(ctx, v);
  for (const int v : values(links.out)) {
    Arena::Slot* out = values_[static_cast<size_t>(v)].ref.slot_;
    if (!out->data) out->arena->retake(out);
    made[m++] = hold(v);
  }
  const Closures& closures = closures_[static_cast<size_t>(producer)];
  closures.forward(closures.object, ctx);
  // Its other outputs, where they are still to be read, are there now as well.
  for (const int v : values(links.out)) {
    if (values_[static_cast<size_t>(v)].readers > 0) values_[static_cast<size_t>(v)].kept = hold(v);
  }
  return hold(value);
}

Tensor Tape::grad(const Ref& ref) const {
  const Value* value = find(ref);
  if (!value || !value->grad) return {};
  if (ref.view_.count() != value->grad.view_.count()) {
    // A part: the same place in the gradient of the whole.
    Tensor part = value->grad;
    const int64_t at = ref.offset_ / size_of(ref.view_.dtype);
    part.view_ = ref.view_;
    part.view_.dtype = DType::f32;
    part.view_.data = value->grad.view_.data + at * size_of(DType::f32);
    return part;
  }
  return value->grad.reshaped(ref.shape());
}

Tensor Tape::make_grad(Ctx& ctx, const Ref& ref) {
  const Value* found = find(ref);
  CHECK(found, "{} is not on the tape", to_string(ref.shape()));
  if (ref.view_.count() == found->ref.view_.count()) return {ctx.arena, DType::f32, ref.shape()};
  Value& whole = values_[static_cast<size_t>(ref.slot_->value)];
  if (!whole.grad) whole.grad = Tensor(ctx.arena, DType::f32, whole.ref.shape());
  return grad(ref);
}

void Tape::add_grad(Ctx& ctx, const Ref& ref, const Tensor& grad) {
  if (!find(ref)) return;
  Value& value = values_[static_cast<size_t>(ref.slot_->value)];
  if (ref.view_.count() != value.ref.view_.count()) return;  // a part, written in place
  CHECK(grad.dtype() == DType::f32 && grad.view().count() == value.ref.view_.count(), "gradient {} {} of {}",
        name_of(grad.dtype()), to_string(grad.shape()), to_string(value.ref.shape()));
  if (!value.grad) {
    value.grad = grad;
    return;
  }
  const Tensor to = value.grad.sole() ? value.grad : Tensor(ctx.arena, DType::f32, value.grad.shape());
  if (!ctx.dry) sum(ctx.threads, value.grad.view(), grad.view(), to.mut());
  value.grad = to;
}

void Tape::backward(Ctx& ctx) {
  Tape* own = std::exchange(ctx.tape, nullptr);
  for (size_t i = nodes_.size(); i-- > 0;) {
    const Links& links = links_[i];
    const bool wanted = links.seed || std::any_of(values(links.out).begin(), values(links.out).end(), [this](int v) {
                          return static_cast<bool>(values_[static_cast<size_t>(v)].grad);
                        });
    if (wanted) {
      for (const int v : values(links.saved)) values_[static_cast<size_t>(v)].kept = materialise(ctx, v);
      closures_[i].backward(closures_[i].object, ctx, *this);
    }
    for (const int v : values(links.saved)) {
      Value& value = values_[static_cast<size_t>(v)];
      if (--value.readers == 0) value.kept = {};
    }
    for (const int v : values(links.out)) values_[static_cast<size_t>(v)].grad = {};
  }
  ctx.tape = own;
}

void Tape::clear() {
  for (const Value& value : values_) value.ref.slot_->value = -1;
  for (const Closures& c : closures_) c.destroy(c.object);
  nodes_.clear();
  closures_.clear();
  links_.clear();
  values_.clear();
  lists_.clear();
  chunk_ = used_ = 0;
}

}  // namespace braid
