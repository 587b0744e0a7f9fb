// The tape: what a forward pass did, so that it can be walked back. A node holds two closures over the names (Ref) of
// its values: `forward` runs the op, and runs it again where its results were given back; `backward` turns the
// gradients of its outputs into those of its inputs. Without a tape in the Ctx a taped op is a plain call.
//
// Memory: a value stays when a backward will read it (`saved`), and goes with its last handle otherwise. A policy may
// have the outputs of chosen nodes go as well: they are computed again, from what stayed, just before they are read,
// by the same op on the same bytes. Gradients are FP32; where a value is used twice they are summed here.
// After the first pass over a graph nothing is allocated: closures and lists lie in buffers that are kept.
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "core/ctx.h"
#include "core/tensor.h"

namespace braid {

class Tape {
 public:
  struct Uses {
    std::initializer_list<Tensor> in, out;
    std::initializer_list<Tensor> saved{};  // those of `in` and `out` that backward reads
    bool once =
        false;  // a loss, which makes its gradients as it goes: it must not run again, and backward begins there
  };
  struct Node {
    const char* name = nullptr;
    double flops = 0;
    int64_t bytes = 0;  // of its outputs
    bool dropped = false;
    bool once = false;
  };

  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape() { clear(); }

  // Whether the outputs of the node that comes at this place are given back after the forward pass.
  std::function<bool(const char* name, size_t index)> drop{};

  // Whether those of the node that comes next are.
  bool drops_next(const char* name) const { return drop && drop(name, nodes_.size()); }

  // Runs forward(ctx) and remembers both.
  template <class Forward, class Backward>
  void record(Ctx& ctx, const char* name, const Uses& uses, Forward forward, Backward backward) {
    struct Both {
      Forward forward;
      Backward backward;
    };
    auto* both = ::new (take(sizeof(Both))) Both{std::move(forward), std::move(backward)};
    const Closures closures{.object = both,
                            .forward = [](void* o, Ctx& c) { static_cast<Both*>(o)->forward(c); },
                            .backward = [](void* o, Ctx& c, Tape& t) { static_cast<Both*>(o)->backward(c, t); },
                            .destroy = [](void* o) { static_cast<Both*>(o)->~Both(); }};
    append(ctx, name, uses, closures);
  }

  // The gradient of `value` in its shape, or an empty Tensor when nothing downstream used it.
  Tensor grad(const Ref& value) const;
  // Memory for the gradient of `value`, to be overwritten and then given to add_grad. For a part of a recorded value it
  // lies inside the gradient of the whole; parts do not overlap, and together they are the whole.
  Tensor make_grad(Ctx& ctx, const Ref& value);
  // Adds to the gradient of `value`. `grad` may be shared: it is not written through.
  void add_grad(Ctx& ctx, const Ref& value, const Tensor& grad);

  // The bytes of a value that a backward reads, as a handle.
  Tensor handle(const Ref& value) const { return hold(find(value)); }

  // Walks the nodes back: from the gradients given so far, and from the losses that made theirs themselves. Gradients
  // of what no node computed stay until clear(), which must come before the next pass.
  void backward(Ctx& ctx);
  void clear();

  // The graph, for whoever plans over it (core/step_plan.h): nodes in the order they ran, values by number.
  const std::vector<Node>& nodes() const { return nodes_; }
  std::span<const int> inputs(size_t node) const { return values(links_[node].in); }
  std::span<const int> outputs(size_t node) const { return values(links_[node].out); }
  int producer(int value) const { return values_[static_cast<size_t>(value)].producer; }  // -1: nobody
  int readers(int value) const { return values_[static_cast<size_t>(value)].readers; }
  int64_t bytes(int value) const { return values_[static_cast<size_t>(value)].ref.slot_->bytes; }

 private:
  struct Closures {
    void* object;
    void (*forward)(void*, Ctx&);
    void (*backward)(void*, Ctx&, Tape&);
    void (*destroy)(void*);
  };
  struct Range {
    size_t begin = 0, end = 0;
  };
  struct Links {
    Range in{}, out{}, saved{};  // places in lists_
    bool seed = false;
  };
  struct Value {
    Ref ref{};
    Tensor kept{}, grad{};
    int producer = -1;
    int readers = 0;  // backwards that will still read it
  };

  void* take(size_t bytes);
  void append(Ctx& ctx, const char* name, const Uses& uses, const Closures& closures);
  Range list(std::initializer_list<Tensor> tensors);
  std::span<const int> values(Range range) const { return {lists_.data() + range.begin, range.end - range.begin}; }
  int number(const Tensor& tensor);
  const Value* find(const Ref& ref) const;
  static Tensor hold(const Value* value);
  Tensor hold(int value) const { return hold(&values_[static_cast<size_t>(value)]); }
  Tensor materialise(Ctx& ctx, int value);

  std::vector<Node> nodes_;
  std::vector<Closures> closures_;
  std::vector<Links> links_;
  std::vector<Value> values_;
  std::vector<int> lists_;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t chunk_ = 0, used_ = 0;
};

// An op as blocks call it.
template <class Forward, class Backward>
void taped(Ctx& ctx, const char* name, const Tape::Uses& uses, Forward forward, Backward backward) {
  if (!ctx.tape) return forward(ctx);
  ctx.tape->record(ctx, name, uses, std::move(forward), std::move(backward));
}

}  // namespace braid
