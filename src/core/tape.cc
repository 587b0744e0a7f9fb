#include "core/tape.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sys/parallel.h"

namespace braid {
namespace {

constexpr size_t kChunk = size_t{1} << 16;

// to = a + b, elementwise; `to` may be one of them.
void sum(int threads, const View& a, const View& b, const MutView& to) {
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

// The tensor that owns these bytes. If only a part was ever seen its shape is unknown: flat.
Ref Tape::whole_of(const Tensor& tensor) {
  Ref whole = tensor;
  const MutView& view = tensor.view_;
  if (whole.offset_ == 0 && view.contiguous() && view.bytes() == tensor.slot_->asked) return whole;
  whole.offset_ = 0;
  whole.view_ = MutView(tensor.slot_->data, view.dtype, {tensor.slot_->asked / size_of(view.dtype)});
  return whole;
}

int Tape::number(const Tensor& tensor) {
  Arena::Slot* slot = tensor.slot_;
  if (slot->value < 0) {
    slot->value = static_cast<int>(values_.size());
    values_.push_back({.whole = whole_of(tensor)});
  }
  CHECK(find(tensor), "{} is on another tape", to_string(tensor.shape()));
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
  nodes_.push_back({.name = name,
                    .cost = uses.cost,
                    .dropped = uses.again || (!uses.once && drops_next(uses.cost)),
                    .once = uses.once,
                    .again = uses.again});
  closures_.push_back(closures);
  Links links{.in = list(uses.in), .out = list(uses.out), .travels = uses.travels};
  bool needed = false;
  for (const int v : values(links.in)) {
    Value& value = values_[static_cast<size_t>(v)];
    needed = needed || value.needed;
    // A replay starts from values that no node computes: these are retained.
    if (value.producer < 0 && drop) value.kept = hold(v);
  }
  links.weights = closures.weights && uses.trains;
  links.backward = needed || (uses.trains && !closures.weights);
  if (links.backward) links.saved = list(uses.saved);
  if (links.weights) links.saved_weights = list(uses.saved_weights);
  links_.push_back(links);
  for (const int v : values(links.out)) {
    Value& value = values_[static_cast<size_t>(v)];
    value.producer = index;
    value.needed = needed || uses.trains;
  }
  for (const Range range : {links.saved, links.saved_weights}) {
    for (const int v : values(range)) {
      Value& value = values_[static_cast<size_t>(v)];
      ++value.readers;
      if (value.producer < 0 || !nodes_[static_cast<size_t>(value.producer)].dropped) value.kept = hold(v);
    }
  }
  const double before = ctx.counts.flops;
  closures.forward(closures.object, ctx);
  nodes_.back().flops = ctx.counts.flops - before;
}

const Tape::Value* Tape::find(const Ref& ref) const {
  if (!ref.slot_ || ref.slot_->value < 0 || ref.slot_->value >= static_cast<int>(values_.size())) return nullptr;
  const Value* value = &values_[static_cast<size_t>(ref.slot_->value)];
  return value->whole.slot_ == ref.slot_ ? value : nullptr;
}

bool Tape::needs_grad(const Tensor& tensor) const {
  const Value* value = find(tensor);
  return value && value->needed;
}

// A handle to bytes that were not freed.
Tensor Tape::hold(const Value* value) {
  CHECK(value, "a value that is on no tape");
  const Ref& ref = value->whole;
  Tensor t;
  t.slot_ = ref.slot_;
  t.view_ = ref.mut();
  ++t.slot_->refs;
  return t;
}

Tensor Tape::materialise(Ctx& ctx, int value) {
  const Ref& whole = values_[static_cast<size_t>(value)].whole;
  if (whole.slot_->data) return hold(value);
  const int producer = values_[static_cast<size_t>(value)].producer;
  CHECK(producer >= 0, "{} was freed and no node computes it", to_string(whole.shape()));
  CHECK(!nodes_[static_cast<size_t>(producer)].once, "{} must not run again",
        nodes_[static_cast<size_t>(producer)].name);
  const Links links = links_[static_cast<size_t>(producer)];
  const size_t held = stack_.size();
  for (const int v : values(links.in)) {
    Tensor input = materialise(ctx, v);
    stack_.push_back(std::move(input));
  }
  for (const int v : values(links.out)) {
    Arena::Slot* out = values_[static_cast<size_t>(v)].whole.slot_;
    if (!out->data) out->arena->retake(out);
    stack_.push_back(hold(v));
  }
  const Closures& closures = closures_[static_cast<size_t>(producer)];
  closures.forward(closures.object, ctx);
  // Keeps the other outputs too if they will still be read.
  for (const int v : values(links.out)) {
    if (values_[static_cast<size_t>(v)].readers > 0) values_[static_cast<size_t>(v)].kept = hold(v);
  }
  Tensor result = hold(value);
  stack_.resize(held);
  return result;
}

bool Tape::Part::apart(const Part& other) const {
  if (end() <= other.begin || other.end() <= begin) return true;
  if (stride != other.stride) return false;
  const int64_t a = begin % stride, b = other.begin % stride;
  return a + run <= stride && b + other.run <= stride && (a + run <= b || b + other.run <= a);
}

int64_t Tape::Part::next_of(int64_t at) const {
  if (at <= begin) return begin;
  const int64_t i = (at - begin) / stride;
  if (i < count && at < begin + i * stride + run) return at;
  return i + 1 < count ? begin + (i + 1) * stride : -1;
}

Tape::Part Tape::part_of(const Ref& ref) {
  const MutView& v = ref.view_;
  Part part{.begin = ref.offset_ / size_of(v.dtype), .run = 1, .stride = 0, .count = 1};
  for (int i = v.shape.rank - 1; i >= 0; --i) {
    if (v.shape[i] == 1) continue;
    if (part.count == 1 && v.stride(i) == part.run) {
      part.run *= v.shape[i];
    } else if (part.count == 1) {
      part.stride = v.stride(i);
      part.count = v.shape[i];
    } else {
      CHECK(v.stride(i) == part.stride * part.count, "{} is not made of evenly spaced rows", to_string(v.shape));
      part.count *= v.shape[i];
    }
  }
  if (part.count == 1) part.stride = part.run;
  CHECK(part.run > 0 && part.run <= part.stride, "{} is empty or overlaps itself", to_string(v.shape));
  return part;
}

// The part of a gradient that `ref` is of its value.
Tensor Tape::within(const Tensor& whole, const Ref& ref) {
  Tensor part = whole;
  part.view_ = ref.view_;
  part.view_.dtype = DType::f32;
  part.view_.data = whole.view_.data + ref.offset_ / size_of(ref.view_.dtype) * size_of(DType::f32);
  return part;
}

Tensor Tape::grad(const Ref& ref) const {
  const Value* value = find(ref);
  if (!value || !value->grad) return {};
  return ref.view_.count() == value->whole.view_.count() ? value->grad.reshaped(ref.shape()) : within(value->grad, ref);
}

// Whether a part may be written in place in the gradient of its whole, since nothing was written there; it counts as
// written from now on.
bool Tape::reserve(Ctx& ctx, Value& value, const Ref& ref) {
  if (!value.grad) {
    value.grad = Tensor(ctx.arena, DType::f32, value.whole.shape());
    value.own = value.partial = true;
    value.parts = -1;
  }
  if (!value.partial) return false;
  Part part = part_of(ref);
  for (int i = value.parts; i >= 0; i = parts_[static_cast<size_t>(i)].next) {
    if (!part.apart(parts_[static_cast<size_t>(i)])) return false;
  }
  part.next = std::exchange(value.parts, static_cast<int>(parts_.size()));
  parts_.push_back(part);
  return true;
}

// Zeros what no part wrote.
void Tape::complete(const Ctx& ctx, Value& value) {
  if (!std::exchange(value.partial, false)) return;
  const int64_t all = value.grad.view().count();
  int64_t written = 0;
  for (int i = value.parts; i >= 0; i = parts_[static_cast<size_t>(i)].next)
    written += parts_[static_cast<size_t>(i)].run * parts_[static_cast<size_t>(i)].count;
  if (written == all || ctx.dry) return;
  auto* grad = value.grad.mut().as<float>();
  for (int64_t at = 0; at < all;) {
    int64_t next = all, end = all;  // of the next written run
    for (int i = value.parts; i >= 0; i = parts_[static_cast<size_t>(i)].next) {
      const Part& part = parts_[static_cast<size_t>(i)];
      const int64_t begin = part.next_of(at);
      if (begin < 0 || begin >= next) continue;
      next = begin;
      end = begin + part.run - (begin - part.begin) % part.stride;
    }
    std::fill(grad + at, grad + next, 0.0f);
    at = end;
  }
}

// Copies a gradient that is shared.
void Tape::make_sole(Ctx& ctx, Value& value) {
  if (std::exchange(value.own, true) || value.grad.sole()) return;
  const Tensor own(ctx.arena, DType::f32, value.grad.shape());
  if (!ctx.dry) std::memcpy(own.mut().data, value.grad.view().data, static_cast<size_t>(own.view().bytes()));
  value.grad = own;
}

Tensor Tape::make_grad(Ctx& ctx, const Ref& ref) {
  const Value* found = find(ref);
  CHECK(found, "{} is not on the tape", to_string(ref.shape()));
  Value& value = values_[static_cast<size_t>(ref.slot_->value)];
  const bool in_place = value.needed && ref.view_.count() != value.whole.view_.count() && reserve(ctx, value, ref);
  return in_place ? within(value.grad, ref) : Tensor(ctx.arena, DType::f32, ref.shape());
}

void Tape::add_part(Ctx& ctx, Value& value, const Ref& ref, const Tensor& grad) {
  const bool first = reserve(ctx, value, ref);
  if (!first) {
    complete(ctx, value);
    make_sole(ctx, value);
  }
  if (ctx.dry) return;
  const Part part = part_of(ref);
  const auto* from = grad.view().as<float>();
  auto* to = value.grad.mut().as<float>() + part.begin;
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 14) / part.run);
  sys::parallel_for(ctx.threads, part.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t i = 0; i < part.run; ++i) {
        float& g = to[r * part.stride + i];
        g = first ? from[r * part.run + i] : g + from[r * part.run + i];
      }
    }
  });
}

void Tape::add_grad(Ctx& ctx, const Ref& ref, const Tensor& grad) {
  const Value* found = find(ref);
  if (!found || !found->needed) return;
  Value& value = values_[static_cast<size_t>(ref.slot_->value)];
  if (value.own && grad.slot_ == value.grad.slot_) return;  // a part, written in place
  CHECK(grad.dtype() == DType::f32 && grad.view().contiguous() && grad.view().count() == ref.view_.count(),
        "gradient {} {} of {}", name_of(grad.dtype()), to_string(grad.shape()), to_string(ref.shape()));
  if (ref.view_.count() != value.whole.view_.count()) return add_part(ctx, value, ref, grad);
  if (!value.grad) {
    value.grad = grad;
    value.own = false;
    return;
  }
  complete(ctx, value);
  const Tensor to = value.own || value.grad.sole() ? value.grad : Tensor(ctx.arena, DType::f32, value.grad.shape());
  if (!ctx.dry) sum(ctx.threads, value.grad.view(), grad.view(), to.mut());
  value.grad = to;
  value.own = true;
}

void Tape::prepare(Ctx& ctx, Range saved) {
  for (const int v : values(saved)) {
    Tensor saved_value = materialise(ctx, v);
    values_[static_cast<size_t>(v)].kept = std::move(saved_value);
  }
}

void Tape::finish(Range saved) {
  for (const int v : values(saved)) {
    Value& value = values_[static_cast<size_t>(v)];
    if (--value.readers == 0 && value.producer >= 0) value.kept = {};
  }
}

void Tape::drop_grads(Range out) {
  for (const int v : values(out)) values_[static_cast<size_t>(v)].grad = {};
}

bool Tape::reads_what_travels(const Links& links) const {
  const std::span<const int> in = values(links.in);
  return std::any_of(in.begin(), in.end(), [this](int v) {
    const int producer = values_[static_cast<size_t>(v)].producer;
    return producer >= 0 && links_[static_cast<size_t>(producer)].travels &&
           links_[static_cast<size_t>(producer)].backward;
  });
}

void Tape::run_weights(Ctx& ctx, std::vector<size_t>& nodes) {
  for (const size_t i : nodes) {
    closures_[i].weights(closures_[i].object, ctx, *this);
    finish(links_[i].saved_weights);
    drop_grads(links_[i].out);
  }
  nodes.clear();
}

void Tape::backward(Ctx& ctx, Weights weights) {
  CHECK(deferred_.empty(), "the gradients of {} weights are still to be computed", deferred_.size());
  Tape* own = std::exchange(ctx.tape, nullptr);
  for (size_t i = nodes_.size(); i-- > 0;) {
    const Links links = links_[i];
    const Closures& closures = closures_[i];
    bool wanted = nodes_[i].once;
    for (const int v : values(links.out)) {
      Value& value = values_[static_cast<size_t>(v)];
      wanted = wanted || value.grad;
      complete(ctx, value);
    }
    const bool deferred = weights == Weights::later, runs_weights = wanted && links.weights,
               later = runs_weights && (deferred || reads_what_travels(links));
    if (runs_weights) {
      prepare(ctx, links.saved_weights);
      if (later) {
        (deferred ? deferred_ : waiting_).push_back(i);
      } else {
        closures.weights(closures.object, ctx, *this);
      }
    }
    if (!later) finish(links.saved_weights);
    if (wanted && links.backward) {
      prepare(ctx, links.saved);
      closures.backward(closures.object, ctx, *this);
    }
    finish(links.saved);
    if (!later) drop_grads(links.out);
    if (links.travels) meanwhile(ctx);
  }
  for (Value& value : values_) {
    if (value.producer < 0) complete(ctx, value);
  }
  ctx.tape = own;
}

void Tape::backward_weights(Ctx& ctx) {
  Tape* own = std::exchange(ctx.tape, nullptr);
  run_weights(ctx, deferred_);
  ctx.tape = own;
}

void Tape::clear() {
  CHECK(deferred_.empty(), "the gradients of {} weights were deferred and never computed", deferred_.size());
  release();
}

void Tape::release() {
  for (const Value& value : values_) value.whole.slot_->value = -1;
  for (const Closures& c : closures_) c.destroy(c.object);
  nodes_.clear();
  closures_.clear();
  links_.clear();
  values_.clear();
  lists_.clear();
  parts_.clear();
  deferred_.clear();
  waiting_.clear();
  chunk_ = used_ = 0;
}

}  // namespace braid
