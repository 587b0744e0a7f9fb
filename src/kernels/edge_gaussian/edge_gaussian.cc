#include "kernels/edge_gaussian/edge_gaussian.h"

#include <algorithm>
#include <initializer_list>

#include "core/ref.h"
#include "kernels/edge_gaussian/edge_gaussian_ref.h"
#include "kernels/edge_gaussian/edge_gaussian_rows.h"

namespace braid {
namespace {

void fwd_ref(Ctx&, const EdgeGaussianFwd& op, std::span<std::byte>) {
  std::vector<double> w(static_cast<size_t>(op.w.count()));
  edge_gaussian_ref(op.u.dim(1), op.mu.dim(0), to_doubles(op.u), to_doubles(op.mu), to_doubles(op.sigma), w);
  store(op.w, w);
}

template <class Num>
struct Numbers {
  int64_t kernels, dims;
  const Num *dw, *w, *u, *mu, *sigma;
};

// dmu and dsigma of edges [begin, end).
template <class Num>
void sum_edges(const Numbers<Num>& in, int64_t begin, int64_t end, Num* dmu, Num* dsigma) {
  const auto [kernels, dims, dw, w, u, mu, sigma] = in;
  for (int64_t e = begin; e < end; ++e) {
    for (int64_t k = 0; k < kernels; ++k) {
      const Num share = dw[e * kernels + k] * w[e * kernels + k];
      for (int64_t p = 0; p < dims; ++p) {
        const Num s = sigma[k * dims + p], d = u[e * dims + p] - mu[k * dims + p];
        const Num scaled = d / (static_cast<Num>(kGaussianEps) + s * s);
        dmu[k * dims + p] += share * scaled;
        dsigma[k * dims + p] += share * scaled * scaled * s;
      }
    }
  }
}

void bwd_ref(Ctx&, const EdgeGaussianBwd& op, std::span<std::byte>) {
  const std::vector<double> dw = to_doubles(op.dw), w = to_doubles(op.w), u = to_doubles(op.u), mu = to_doubles(op.mu),
                            sigma = to_doubles(op.sigma);
  std::vector<double> dmu(mu.size()), dsigma(mu.size());
  sum_edges<double>({op.mu.dim(0), op.mu.dim(1), dw.data(), w.data(), u.data(), mu.data(), sigma.data()}, 0,
                    op.w.dim(0), dmu.data(), dsigma.data());
  accumulate(op.dmu, dmu);
  accumulate(op.dsigma, dsigma);
}

bool plain(std::initializer_list<View> views) { return std::ranges::all_of(views, &View::contiguous); }

const char* fwd_supports(const EdgeGaussianFwd& op) {
  return plain({op.u, op.mu, op.sigma, op.w}) ? nullptr : "strided";
}

const char* bwd_supports(const EdgeGaussianBwd& op) {
  return plain({op.dw, op.w, op.u, op.mu, op.sigma, op.dmu, op.dsigma}) ? nullptr : "strided";
}

int64_t blocks_of(const EdgeGaussianBwd& op) { return (op.w.dim(0) + kGaussianEdges - 1) / kGaussianEdges; }

}  // namespace

int64_t edge_gaussian_bwd_workspace(const EdgeGaussianBwd& op, int) {
  return blocks_of(op) * 2 * op.mu.count() * static_cast<int64_t>(sizeof(float));
}

void edge_gaussian_bwd_loops(Ctx& ctx, const EdgeGaussianBwd& op, std::span<std::byte> workspace) {
  auto* sums = reinterpret_cast<float*>(workspace.data());
  const int64_t n = op.mu.count(), blocks = blocks_of(op);
  const Numbers<float> in{op.mu.dim(0),     op.mu.dim(1),      op.dw.as<float>(),   op.w.as<float>(),
                          op.u.as<float>(), op.mu.as<float>(), op.sigma.as<float>()};
  std::fill(sums, sums + blocks * 2 * n, 0.0f);
  sys::parallel_tasks(sys::team_for(ctx.threads, op.flops()), blocks, [&](int64_t block) {
    const int64_t first = block * kGaussianEdges, last = std::min(op.w.dim(0), first + kGaussianEdges);
    sum_edges(in, first, last, sums + block * 2 * n, sums + block * 2 * n + n);
  });
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t i = 0; i < n; ++i) {
      op.dmu.as<float>()[i] += sums[block * 2 * n + i];
      op.dsigma.as<float>()[i] += sums[block * 2 * n + n + i];
    }
  }
}

std::span<const Row<EdgeGaussianFwd>> EdgeGaussianFwd::rows() {
  static constexpr Row<EdgeGaussianFwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &fwd_supports, .run = &edge_gaussian_fwd_hwy},
      {.name = "ref", .numerics = "f64", .run = &fwd_ref},
  };
  return kRows;
}

std::span<const Row<EdgeGaussianBwd>> EdgeGaussianBwd::rows() {
  static constexpr Row<EdgeGaussianBwd> kRows[] = {
      {.name = "loops",
       .numerics = "f32",
       .supports = &bwd_supports,
       .workspace = &edge_gaussian_bwd_workspace,
       .run = &edge_gaussian_bwd_loops},
      {.name = "ref", .numerics = "f64", .run = &bwd_ref},
  };
  return kRows;
}

}  // namespace braid
