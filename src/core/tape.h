// The tape records a forward pass for reverse-mode differentiation. A node holds closures over weak references (Ref) to
// its values: `forward` runs the op, and reruns it if its outputs were freed; `backward` computes the gradients of its
// inputs from those of its outputs; `weights`, where separate, computes those of its parameters. Without a tape in the
// Ctx a taped op is a plain call.
//
// What runs: a value needs a gradient if the node that computed it trains a parameter, if an input of that node needs
// one, or if require_grad() was called. A `backward` whose results nobody needs does not run, and its inputs are not
// retained. No other gradient depends on those of weights, so they may be deferred until the backward pass is over.
//
// Memory: a value is retained while a backward will read it (`saved`), and is otherwise freed with its last handle. A
// policy may also drop the outputs of chosen nodes: they are recomputed just before they are read, by the same op on
// the same bytes. Gradients are FP32. Those of a value that is used more than once, whole or in parts, are summed here;
// elements that receive no gradient are zero.
// After the first pass over a graph nothing is allocated: closures and lists live in buffers that are reused.
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

// What it costs to recompute the outputs of a node; planners use it to choose which outputs to free.
enum class Cost : uint8_t {
  expensive,  // matrix products, scan, attention: much arithmetic for each byte
  cheap,      // one pass over memory: norms, activations, convolution, copies
  stream,     // the residual stream at block boundaries: it is retained, and recomputation starts from it
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
    // A loss that computes its gradients in its forward pass: it must not run again, and backward starts there.
    bool once = false;
    bool again = false;  // its outputs are freed after the forward pass and recomputed, whatever the policy says
    // `backward` has ranks sum a gradient and calls meanwhile() before it waits for them.
    bool travels = false;
  };
  struct Node {
    const char* name = nullptr;
    double flops = 0;
    Cost cost = Cost::expensive;
    bool dropped = false;
    bool once = false;
    bool again = false;
  };

  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape() { release(); }

  // Whether the outputs of the node at this index are freed after the forward pass.
  std::function<bool(Cost cost, size_t index)> drop{};

  // The same for the next node.
  bool drops_next(Cost cost) const { return drop && drop(cost, nodes_.size()); }

  // Runs forward(ctx) and stores all closures. With `weights`, `backward` computes the gradients of inputs only.
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

  // Requests the gradient of a value that no node computes; to be called before the value is used.
  void require_grad(const Tensor& value) { values_[static_cast<size_t>(number(value))].needed = true; }
  // Whether the gradient of `value` is needed.
  bool needs_grad(const Tensor& value) const;

  // The gradient of `value` in its shape; an empty Tensor when nothing downstream used it, or when it is not needed.
  Tensor grad(const Ref& value) const;
  // Memory for the gradient of `value`, to be overwritten and then passed to add_grad. For a part of a value it is
  // inside the gradient of the whole if that part was not written yet.
  Tensor make_grad(Ctx& ctx, const Ref& value);
  // Adds to the gradient of `value`. `grad` may be shared: it is not modified.
  void add_grad(Ctx& ctx, const Ref& value, const Tensor& grad);

  // In the `backward` of a node that travels: computes the gradients of weights of the nodes that read its outputs,
  // which waited for this. Without a call they are computed when it returns.
  void meanwhile(Ctx& ctx) { run_weights(ctx, waiting_); }

  // A handle to a saved value.
  Tensor handle(const Ref& value) const { return hold(find(value)); }

  // Runs the nodes in reverse order, from the gradients added so far and from the losses that computed their own.
  // Gradients of values that no node computed stay until clear(), which must be called before the next pass. Deferred
  // gradients of weights retain their inputs until backward_weights(), which computes them in the same order, so that
  // deferring changes no bit.
  void backward(Ctx& ctx, Weights weights = Weights::now);
  void backward_weights(Ctx& ctx);
  void clear();

  // The graph, for planners (core/step_plan.h): nodes in the order they ran, values by index.
  const std::vector<Node>& nodes() const { return nodes_; }
  std::span<const int> inputs(size_t node) const { return values(links_[node].in); }
  std::span<const int> outputs(size_t node) const { return values(links_[node].out); }
  int producer(int value) const { return values_[static_cast<size_t>(value)].producer; }  // -1: none
  int readers(int value) const { return values_[static_cast<size_t>(value)].readers; }
  int64_t bytes(int value) const { return values_[static_cast<size_t>(value)].whole.slot_->bytes; }

 private:
  struct Closures {
    void* object = nullptr;
    void (*forward)(void*, Ctx&) = nullptr;
    void (*backward)(void*, Ctx&, Tape&) = nullptr;
    void (*weights)(void*, Ctx&, Tape&) = nullptr;  // null: `backward` does both, or no parameter is trained
    void (*destroy)(void*) = nullptr;
  };
  struct Range {
    size_t begin = 0, end = 0;
  };
  struct Links {
    Range in{}, out{}, saved{},
        saved_weights{};                     // indices into lists_; the latter two empty where the closure will not run
    bool backward = false, weights = false;  // whether it will
    bool travels = false;
  };
  // Position of a part inside its whole, in elements: `count` runs of `run` elements, `stride` apart.
  struct Part {
    int64_t begin = 0, run = 0, stride = 0, count = 0;
    int next = -1;  // of the same value

    int64_t end() const { return begin + (count - 1) * stride + run; }
    // True only if it shares no element with `other`.
    bool apart(const Part& other) const;
    // Its first element at or after `at`, -1 if none.
    int64_t next_of(int64_t at) const;
  };
  struct Value {
    Ref whole{};
    Tensor kept{}, grad{};
    int producer = -1;
    int readers = 0;  // backward closures that will still read it
    bool needed = false;
    bool own = false;      // its gradient is not shared with another value
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
  bool reads_what_travels(const Links& links) const;
  void run_weights(Ctx& ctx, std::vector<size_t>& nodes);
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
  std::vector<Tensor> stack_;     // held by replays
  std::vector<size_t> deferred_;  // nodes whose gradients of weights are still to be computed
  std::vector<size_t> waiting_;   // the same, until the gradient of what they read travels
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
