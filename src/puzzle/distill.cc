#include "puzzle/distill.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/tape.h"
#include "kernels/adamw/adamw.h"
#include "puzzle/stream.h"

namespace braid::puzzle {
namespace {

// The parameters of a block in FP32 with gradients and moments.
class MasterSource final : public nn::ParamSource {
 public:
  explicit MasterSource(prune::CutSource& values) : values_(values) {}

  struct Master {
    std::string name{}, stored{};
    DType read = DType::f32;  // as blocks read it
    MutView value{}, grad{}, m{}, v{};
  };
  std::vector<Master>& masters() { return masters_; }

  bool has(const std::string& name) const override { return values_.has(name); }

 protected:
  Param first(const nn::ParamRequest& request) override {
    const View from = values_.cut(request).value.codes;
    const Shape shape{request.rows(), request.cols()};
    Master master{.name = request.name, .stored = values_.stored_name(request), .read = from.dtype};
    master.value = store_.make(DType::f32, shape);
    for (int64_t i = 0; i < from.count(); ++i) set_element(master.value, i, element(from, i));
    Param own = request.param(dense_weight(master.value));
    if (request.role != ParamRole::router_bias) {
      master.grad = own.grad = store_.make(DType::f32, shape);
      master.m = store_.make(DType::f32, shape);
      master.v = store_.make(DType::f32, shape);
    }
    masters_.push_back(std::move(master));
    return own;
  }

 private:
  prune::CutSource& values_;
  WeightStore store_;
  std::vector<Master> masters_;
};

MutView flat(const MutView& v) { return {v.data, v.dtype, {v.count()}}; }

class Distiller {
 public:
  Distiller(Parent& parent, const Site& site, size_t index, const Variant& variant, const Values& first,
            const DistillOptions& options)
      : parent_(parent),
        options_(options),
        index_(static_cast<int64_t>(index)),
        keep_(parent.keep_of(site, variant)),
        cut_(parent.files(), parent.layouts(), keep_, store_),
        source_(cut_) {
    cut_.replace(first.of);
    model_ = std::make_unique<models::Model>(parent.block_config(index, variant), source_);
    ctx_.threads = options.threads;
    ctx_.tape = &tape_;
  }

  void run(std::span<const DistillRow> rows) {
    const auto batches = grouped(rows);
    int64_t tokens = 0;
    for (int64_t step = 1; tokens < options_.tokens; ++step) {
      if (options_.go_on && !options_.go_on()) return;
      const auto& batch = batches[static_cast<size_t>(step - 1) % batches.size()];
      const double done = static_cast<double>(tokens) / static_cast<double>(options_.tokens);
      const double lr = options_.lr * (0.55 + 0.45 * std::cos(std::numbers::pi * done));
      for (const DistillRow* row : batch) tokens += std::ssize(row->row->ids);
      gradients(batch);
      update(step, lr);
    }
  }

  // Rounded as the files hold them, in the types that blocks read.
  Values values(const Values& first) {
    Values out{.store = std::make_shared<WeightStore>()};
    for (const MasterSource::Master& m : source_.masters()) {
      const DType stored = parent_.stored_type(m.stored);
      const MutView rounded = store_.make(stored, m.value.shape), value = out.store->make(m.read, m.value.shape);
      for (int64_t i = 0; i < m.value.count(); ++i) {
        set_element(rounded, i, element(m.value, i));
        set_element(value, i, element(rounded, i));
      }
      const auto known = first.of.find(m.name);
      out.of[m.name] = {.value = value, .like = known == first.of.end() ? "" : known->second.like};
    }
    return out;
  }

 private:
  using Rows = std::vector<const DistillRow*>;

  std::vector<Rows> grouped(std::span<const DistillRow> rows) const {
    std::vector<Rows> batches;
    int64_t tokens = options_.batch_tokens;
    for (const DistillRow& row : rows) {
      if (tokens >= options_.batch_tokens) {
        batches.emplace_back();
        tokens = 0;
      }
      batches.back().push_back(&row);
      tokens += std::ssize(row.row->ids);
    }
    return batches;
  }

  void gradients(const Rows& batch) {
    SeqMap seqs;
    std::vector<float> before, after;
    for (const DistillRow* row : batch) {
      for (const Seq& s : row->row->seqs.seqs) seqs.add(s.len, 0, std::ssize(seqs.seqs));
      before.insert(before.end(), row->before.begin(), row->before.end());
      after.insert(after.end(), row->after.begin(), row->after.end());
    }
    for (MasterSource::Master& m : source_.masters()) {
      if (m.grad) std::fill_n(m.grad.as<float>(), m.grad.count(), 0.0f);
    }
    nn::StateView state;
    nn::Run run{.ctx = ctx_, .seqs = seqs, .state = state, .numerics = Numerics::training(DType::f32)};
    pass(run, matrix(ctx_, before, seqs.tokens()), before, after);
    tape_.backward(ctx_);
    tape_.clear();
  }

  // Forward, and the gradient of the loss at the output.
  void pass(nn::Run& run, const Tensor& x, const std::vector<float>& before, const std::vector<float>& after) {
    const Tensor y = model_->forward(run, {}, x, {index_, 1});
    double whole = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      const double o = static_cast<double>(after[i]) - static_cast<double>(before[i]);
      whole += o * o;
    }
    const Tensor dy(ctx_.arena, DType::f32, y.shape());
    const float* own = y.view().as<float>();
    const double scale = whole > 0 ? 2 / whole : 0;
    for (size_t i = 0; i < after.size(); ++i)
      dy.mut().as<float>()[i] =
          static_cast<float>(scale * (static_cast<double>(own[i]) - static_cast<double>(after[i])));
    tape_.add_grad(ctx_, y, dy);
  }

  void update(int64_t step, double lr) {
    Ctx ctx{.arena = arena_, .threads = options_.threads};
    for (MasterSource::Master& m : source_.masters()) {
      if (!m.grad) continue;
      braid::run(
          ctx,
          AdamwStep{.g = flat(m.grad), .w = flat(m.value), .m = flat(m.m), .v = flat(m.v), .step = step, .lr = lr});
    }
  }

  Parent& parent_;
  const DistillOptions& options_;
  int64_t index_;
  WeightStore store_;
  prune::Keep keep_;
  prune::CutSource cut_;
  MasterSource source_;
  std::unique_ptr<models::Model> model_;
  Arena arena_;
  Tape tape_;
  Ctx ctx_{.arena = arena_};
};

}  // namespace

Values distilled(Parent& parent, const Site& site, size_t index, const Variant& variant, const Values& first,
                 std::span<const DistillRow> rows, const DistillOptions& options) {
  Distiller distiller(parent, site, index, variant, first, options);
  distiller.run(rows);
  return distiller.values(first);
}

}  // namespace braid::puzzle
