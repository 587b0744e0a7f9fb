// The tape: what a forward pass did, so that it can be walked back. A node holds closures over the names (Ref) of its
// values: `forward` runs the op, and runs it again where its results were given back; `backward` turns the gradients of
// its outputs into those of its inputs; `weights`, where the two are separate, into those of its parameters. Without a
// tape in the Ctx a taped op is a plain call.
//
// What runs: a value needs a gradient where a node that computed it trains a parameter, where an input of that node
// needs one, or where require_grad() asked. Backwards that would give only what nobody needs do not run, and what they
// would read is not kept. Gradients of weights are not read on the way back, so they may be put off until it is walked.
//
// Memory: a value stays while a backward will read it (`saved`), and goes with its last handle otherwise. A policy may
// have the outputs of chosen nodes go as well: they are computed again, from what stayed, just before they are read,
// by the same op on the same bytes. Gradients are FP32. Where a value is used more than once, whole or in parts, they
// are summed here; what no use gave a gradient is zero.
// After the first pass over a graph nothing is allocated: closures and lists lie in buffers that are kept.
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/ctx.h"
#include "core/tensor.h"

namespace braid {

// What recomputing the outputs of a node costs; planners choose by it which outputs to free.
enum class Cost : uint8_t {
  expensive,  // matrix products, scan, attention: much arithmetic for each byte
  cheap,      // one pass over memory: norms, activations, convolution, copies
  stream,     // the residual stream at block boundaries: it stays, and recomputation starts from it
};

enum class Weights : uint8_t { now, later };

class Tape {
 public:
  struct Uses {
    std::initializer_list<Tensor> in, out;
    std::initializer_list<Tensor> saved{};          // those of `in` and `out` that `backward` reads
    std::initializer_list<Tensor> saved_weights{};  // those that `weights` reads
    Cost cost = Cost::expensive;
    bool trains = false;  // a parameter with a gradient
    // A loss, which makes its gradients as it goes: it must not run again, and backward begins there.
    bool once = false;
  };
  struct Node {
    const char* name = nullptr;
    double flops = 0;
    Cost cost = Cost::expensive;
    bool dropped = false;
    bool once = false;
  };

  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape() { release(); }

  // Whether the outputs of the node that comes at this place are given back after the forward pass.
  std::function<bool(Cost cost, size_t index)> drop{};

  // Whether those of the node that comes next are.
  bool drops_next(Cost cost) const { return drop && drop(cost, nodes_.size()); }

  // Runs forward(ctx) and remembers all closures. With `weights`, `backward` is for the gradients of data alone.
  template <class Forward, class Backward, class OfWeights = std::nullptr_t>
  void record(Ctx& ctx, const char* name, const Uses& uses, Forward forward, Backward backward,
              OfWeights weights = OfWeights()) {
    struct All {
      Forward forward;
      Backward backward;
      OfWeights weights;
    };
    auto* all = ::new (take(sizeof(All))) All{std::move(forward), std::move(backward), std::move(weights)};
    Closures closures{.object = all,
                      .forward = [](void* o, Ctx& c) { static_cast<All*>(o)->forward(c); },
                      .backward = [](void* o, Ctx& c, Tape& t) { static_cast<All*>(o)->backward(c, t); },
                      .destroy = [](void* o) { static_cast<All*>(o)->~All(); }};
    if constexpr (!std::is_same_v<OfWeights, std::nullptr_t>)
      closures.weights = [](void* o, Ctx& c, Tape& t) { static_cast<All*>(o)->weights(c, t); };
    append(ctx, name, uses, closures);
  }

  // A value that no node computes, and whose gradient is wanted. Before it is used.
  void require_grad(const Tensor& value) { values_[static_cast<size_t>(number(value))].needed = true; }
  // Whether anybody needs the gradient of `value`.
  bool needs_grad(const Tensor& value) const;

  // The gradient of `value` in its shape, or an empty Tensor when nothing downstream used it, or nobody needs it.
  Tensor grad(const Ref& value) const;
  // Memory for the gradient of `value`, to be overwritten and then given to add_grad. For a part of a value it lies
  // inside the gradient of the whole, where nothing was written yet.
  Tensor make_grad(Ctx& ctx, const Ref& value);
  // Adds to the gradient of `value`. `grad` may be shared: it is not written through.
  void add_grad(Ctx& ctx, const Ref& value, const Tensor& grad);

  // The bytes of a value that a backward reads, as a handle.
  Tensor handle(const Ref& value) const { return hold(find(value)); }

  // Walks the nodes back: from the gradients given so far, and from the losses that made theirs themselves. Gradients
  // of what no node computed stay until clear(), which must come before the next pass. Gradients of weights that are
  // put off keep what they read until backward_weights(), which makes them in the same order: no bit depends on when.
  void backward(Ctx& ctx, Weights weights = Weights::now);
  void backward_weights(Ctx& ctx);
  void clear();

  // The graph, for whoever plans over it (core/step_plan.h): nodes in the order they ran, values by number.
  const std::vector<Node>& nodes() const { return nodes_; }
  std::span<const int> inputs(size_t node) const { return values(links_[node].in); }
  std::span<const int> outputs(size_t node) const { return values(links_[node].out); }
  int producer(int value) const { return values_[static_cast<size_t>(value)].producer; }  // -1: nobody
  int readers(int value) const { return values_[static_cast<size_t>(value)].readers; }
  int64_t bytes(int value) const { return values_[static_cast<size_t>(value)].whole.slot_->bytes; }

 private:
  struct Closures {
    void* object = nullptr;
    void (*forward)(void*, Ctx&) = nullptr;
    void (*backward)(void*, Ctx&, Tape&) = nullptr;
    void (*weights)(void*, Ctx&, Tape&) = nullptr;  // null: `backward` does both, or there are none
    void (*destroy)(void*) = nullptr;
  };
  struct Range {
    size_t begin = 0, end = 0;
  };
  struct Links {
    Range in{}, out{}, saved{},
        saved_weights{};                     // places in lists_; the latter two empty where the closure will not run
    bool backward = false, weights = false;  // whether it will
  };
  // Where a part lies in its whole, in elements: `count` runs, one every `stride`.
  struct Part {
    int64_t begin = 0, run = 0, stride = 0, count = 0;
    int next = -1;  // of the same value

    int64_t end() const { return begin + (count - 1) * stride + run; }
    // Whether it surely shares no element with another.
    bool apart(const Part& other) const;
    // Its first element at or behind `at`, -1 when there is none.
    int64_t next_of(int64_t at) const;
  };
  struct Value {
    Ref whole{};
    Tensor kept{}, grad{};
    int producer = -1;
    int readers = 0;  // backwards that will still read it
    bool needed = false;
    bool own = false;      // its gradient is nobody else's as well
    bool partial = false;  // only the parts in the list from `parts` are written in its gradient
    int parts = -1;
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
  void prepare(Ctx& ctx, Range saved);
  void finish(Range saved);
  void drop_grads(Range out);
  void release();

  static Ref whole_of(const Tensor& tensor);
  static Part part_of(const Ref& ref);
  static Tensor within(const Tensor& whole, const Ref& ref);
  bool reserve(Ctx& ctx, Value& value, const Ref& ref);
  void complete(const Ctx& ctx, Value& value);
  void make_sole(Ctx& ctx, Value& value);
  void add_part(Ctx& ctx, Value& value, const Ref& ref, const Tensor& grad);

  std::vector<Node> nodes_;
  std::vector<Closures> closures_;
  std::vector<Links> links_;
  std::vector<Value> values_;
  std::vector<int> lists_;
  std::vector<Part> parts_;
  std::vector<Tensor> stack_;     // what replays hold
  std::vector<size_t> deferred_;  // nodes whose gradients of weights were put off
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t chunk_ = 0, used_ = 0;
};

// An op as blocks call it.
template <class Forward, class Backward, class OfWeights = std::nullptr_t>
void taped(Ctx& ctx, const char* name, const Tape::Uses& uses, Forward forward, Backward backward,
           OfWeights weights = OfWeights()) {
  if (!ctx.tape) return forward(ctx);
  ctx.tape->record(ctx, name, uses, std::move(forward), std::move(backward), std::move(weights));
}

}  // namespace braid
