#include "models/adapters.h"

#include <utility>

#include "codec/codec.h"
#include "kernels/add/add.h"
#include "kernels/linear/linear.h"
#include "sys/error.h"

namespace braid::models {
namespace {

DType stored_type(const Weight& w) {
  return w.spec.format == Format::f32 ? DType::f32 : w.spec.format == Format::f16 ? DType::f16 : DType::bf16;
}

// B_e [out, r] of a stack's B [out, r count], in F32.
Tensor columns_of(Arena& arena, const AdapterSite& site, int64_t e) {
  const Weight& b = site.adapter.b.value;
  const Tensor part(arena, DType::f32, {site.out, site.rank}), row(arena, DType::f32, {b.cols});
  const auto* from = row.view().as<float>();
  for (int64_t o = 0; o < site.out; ++o) {
    decode_row(b, o, 0, b.cols, row.mut().as<float>());
    for (int64_t j = 0; j < site.rank; ++j) part.mut().as<float>(o)[j] = from[j * site.count + e];
  }
  return part;
}

Tensor decoded(Arena& arena, const Weight& w) {
  const Tensor values(arena, DType::f32, {w.rows, w.cols});
  for (int64_t r = 0; r < w.rows; ++r) {
    auto* row = values.mut().as<float>(r);
    decode_row(w, r, 0, w.cols, row);
    for (int64_t c = 0; c < w.cols; ++c) row[c] *= w.global;
  }
  return values;
}

}  // namespace

// Returns the parameters of the files, with adapters attached or replaced by working copies.
class AdapterSource final : public nn::ParamSource {
 public:
  AdapterSource(Adapters& adapters, nn::ParamSource& files) : adapters_(adapters), files_(files) {}

  bool has(const std::string& name) const override { return files_.has(name); }
  float cache_factor(const std::string& name) const override { return files_.cache_factor(name); }

 protected:
  Param first(const nn::ParamRequest& r) override {
    Param p = files_.get(r);
    if (const auto found = adapters_.by_tensor_.find(r.name); found != adapters_.by_tensor_.end())
      p.adapter = found->second;
    if (const auto found = adapters_.copies_.find(r.name); found != adapters_.copies_.end()) {
      p.value = dense_weight(found->second.value);
      if (!found->second.grads.empty()) p.grad = mut_view_of(found->second.grads[0].data(), found->second.value.shape);
    }
    return p;
  }
  Param again(const nn::ParamRequest& r, const Param& p) override {
    Param other = p;
    if (!p.grad) return other;
    Adapters::Copy& copy = adapters_.copies_.at(r.name);
    auto& grad = copy.grads.emplace_back(static_cast<size_t>(copy.value.count()));
    other.grad = mut_view_of(grad.data(), copy.value.shape);
    return other;
  }

 private:
  Adapters& adapters_;
  nn::ParamSource& files_;
};

Adapters::Adapters(std::vector<AdapterSite> sites, WeightStore& store, const Options& options)
    : sites_(std::move(sites)) {
  uint32_t number = 0;
  for (AdapterSite& site : sites_) {
    site.adapter.number = number++;
    if (!site.folded) {
      by_tensor_[site.matrices[0].name] = &site.adapter;
      continue;
    }
    for (const SiteMatrix& matrix : site.matrices) {
      Copy& copy = copies_[matrix.name];
      if (copy.value) continue;  // the stack's
      const Shape shape{matrix.rows, matrix.base.value.cols};
      copy.value = store.make(options.dtype.value_or(stored_type(matrix.base.value)), shape);
      if (options.gradients) copy.grads.emplace_back(static_cast<size_t>(shape.count()));
    }
  }
}

std::unique_ptr<Model> Adapters::build(Config config, nn::ParamSource& files) {
  AdapterSource source(*this, files);
  return std::make_unique<Model>(std::move(config), source);
}

std::vector<Param*> Adapters::params() {
  std::vector<Param*> list;
  for (AdapterSite& site : sites_) {
    list.push_back(&site.adapter.a);
    list.push_back(&site.adapter.b);
  }
  return list;
}

View Adapters::working(const std::string& name) const {
  const auto found = copies_.find(name);
  return found == copies_.end() ? View() : View(found->second.value);
}

void Adapters::apply(int threads) {
  Ctx ctx{.arena = arena_, .threads = threads};
  for (const AdapterSite& site : sites_) {
    if (site.folded) apply(site, ctx);
  }
}

void Adapters::apply(const AdapterSite& site, Ctx& ctx) {
  for (int64_t e = 0; e < site.count; ++e) {
    const Tensor b = columns_of(ctx.arena, site, e),
                 a = decoded(ctx.arena, site.adapter.a.value.rows_of(e * site.rank, site.rank));
    int64_t row = 0;
    for (int64_t i = 0; i < site.pieces(); ++i) {
      const SiteMatrix& matrix = site.matrices[static_cast<size_t>(e * site.pieces() + i)];
      const int64_t rows = matrix.base.value.rows;
      const MutView value = copy_of(matrix).value.slice(0, matrix.row, rows);
      const Tensor share(ctx.arena, DType::f32, value.shape), base = decoded(ctx.arena, matrix.base.value);
      run(ctx, LinearBwdData{.dy = b.view().slice(0, row, rows), .w = dense_weight(a.view()), .dx = share.mut()});
      run(ctx, AddFwd{.a = base.view(), .b = share.view(), .y = value, .scale = site.adapter.scale});
      row += rows;
    }
  }
}

void Adapters::gradient_arrays(std::vector<std::span<float>>& arrays) {
  for (auto& [name, copy] : copies_) {
    for (sys::BigVector<float>& grad : copy.grads) arrays.emplace_back(grad);
  }
}

void Adapters::fold_gradients(int threads) {
  Ctx ctx{.arena = arena_, .threads = threads};
  for (AdapterSite& site : sites_) {
    if (site.folded) fold_gradients(site, ctx);
  }
}

// dA_e += scale B_e^T dW_e and dB_e += scale dW_e A_e^T.
void Adapters::fold_gradients(AdapterSite& site, Ctx& ctx) {
  const float scale = site.adapter.scale;
  for (int64_t e = 0; e < site.count; ++e) {
    const Tensor b = columns_of(ctx.arena, site, e), scaled(ctx.arena, DType::f32, b.shape()),
                 a = decoded(ctx.arena, site.adapter.a.value.rows_of(e * site.rank, site.rank));
    run(ctx, AddFwd{.b = b.view(), .y = scaled.mut(), .scale = scale});
    int64_t row = 0;
    for (int64_t i = 0; i < site.pieces(); ++i) {
      const SiteMatrix& matrix = site.matrices[static_cast<size_t>(e * site.pieces() + i)];
      Copy& copy = copy_of(matrix);
      const int64_t rows = matrix.base.value.rows;
      const auto grad = [&](size_t use) {
        return mut_view_of(copy.grads[use].data(), copy.value.shape).slice(0, matrix.row, rows);
      };
      const MutView dw = grad(0);
      for (size_t use = 1; use < copy.grads.size(); ++use) run(ctx, AddFwd{.a = dw, .b = grad(use), .y = dw});
      run(ctx, LinearBwdWeight{.dy = scaled.view().slice(0, row, rows),
                               .x = dw,
                               .dw = site.adapter.a.grad.slice(0, e * site.rank, site.rank)});
      const Tensor db(ctx.arena, DType::f32, {rows, site.rank});
      run(ctx, LinearFwd{.x = dw, .w = dense_weight(a.view()), .y = db.mut()});
      for (int64_t o = 0; o < rows; ++o) {
        for (int64_t j = 0; j < site.rank; ++j)
          site.adapter.b.grad.as<float>(row + o)[j * site.count + e] += scale * db.view().as<float>(o)[j];
      }
      for (size_t use = 0; use < copy.grads.size(); ++use) fill(grad(use), 0);
      row += rows;
    }
  }
}

}  // namespace braid::models
