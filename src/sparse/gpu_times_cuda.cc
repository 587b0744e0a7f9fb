// Products on a GPU, timed by events (gpu_times.h).
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "core/device/gpu_impl.cuh"
#include "core/device/gpu_watch.cuh"
#include "core/ref.h"
#include "kernels/spmm/spmm_pack.h"
#include "kernels/spmm/spmm_tiles.h"
#include "sparse/condense.h"
#include "sparse/gpu_times.h"
#include "sparse/race.h"
#include "sys/check.h"

namespace braid::sparse {
namespace {

constexpr int kPasses = 10;  // of a recording

// F32 numbers in BF16.
std::vector<Bf16> rounded(const View& v) {
  std::vector<Bf16> out;
  for (int64_t i = 0; i < v.count(); ++i) out.push_back(to_bf16(v.as<float>()[i]));
  return out;
}

// The tensors of a problem, on the GPU. `library_edge`: of the type of x.
struct OnGpu {
  GpuRuntime& gpu;
  std::vector<std::byte*> taken{};
  MutView rowptr, col, by_degree, x, edge, y, library_edge;
  SpmmTileViews tiles;

  OnGpu(GpuRuntime& runtime, const Problem& p, DType features)
      : gpu(runtime),
        rowptr(copy(p.csr().rowptr_view())),
        col(copy(p.csr().col_view())),
        by_degree(copy(graph::Csr::ids_view(rows_by_degree(p.csr().rowptr_view())))),
        x(copy(p.x().view(), features)),
        edge(copy(p.edge().view())),
        y(copy(p.y().view())),
        library_edge(features == DType::f32 ? edge : copy(p.edge().view(), features)),
        tiles(copy(tile_spmm(p.csr().rowptr_view(), p.csr().col_view()))) {}
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu() {
    for (std::byte* data : taken) gpu.memory().give_back(data);
  }
  MutView copy(const View& host) {
    const MutView device = take(host.dtype, host.shape);
    gpu.upload(host, device);
    return device;
  }
  MutView copy(const View& host, DType dtype) {
    return dtype == DType::f32 ? copy(host) : copy(view_of(rounded(host).data(), host.shape));
  }
  SpmmTileViews copy(const SpmmTiles& host) {
    const SpmmTileViews v = host.views();
    return {.window = copy(v.window),
            .source = copy(v.source),
            .begin = copy(v.begin),
            .cell = copy(v.cell),
            .edge = copy(v.edge)};
  }
  MutView take(DType dtype, const Shape& shape) {
    taken.push_back(gpu.memory().take(shape.count() * size_of(dtype)));
    return {taken.back(), dtype, shape, Device::cuda};
  }
};

// cuSPARSE with what it can prepare.
class Prepared {
 public:
  Prepared(GpuRuntime& gpu, OnGpu& at, const graph::Csr& csr, cusparseSpMMAlg_t algorithm)
      : gpu_(gpu.impl()), algorithm_(algorithm) {
    std::vector<int32_t> narrow(csr.rowptr.begin(), csr.rowptr.end());
    const MutView rowptr = at.copy(view_of(narrow.data(), {std::ssize(narrow)}));
    const int64_t width = at.x.dim(1);
    const cudaDataType type = at.x.dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
    cuda_check(cusparseCreateCsr(&a_, csr.rows, csr.cols, csr.edges(), rowptr.data, at.col.data, at.library_edge.data,
                                 CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, type),
               "no matrix");
    cuda_check(cusparseCreateDnMat(&x_, csr.cols, width, width, at.x.data, type, CUSPARSE_ORDER_ROW), "no matrix");
    cuda_check(cusparseCreateDnMat(&y_, csr.rows, width, width, at.y.data, CUDA_R_32F, CUSPARSE_ORDER_ROW),
               "no matrix");
    size_t bytes = 0;
    cuda_check(cusparseSpMM_bufferSize(gpu_.cusparse(), kPlain, kPlain, &kOne, a_, x_, &kZero, y_, CUDA_R_32F,
                                       algorithm_, &bytes),
               "cuSPARSE has no such product");
    scratch_ = at.take(DType::u8, {std::max<int64_t>(1, static_cast<int64_t>(bytes))}).data;
    cuda_check(cusparseSpMM_preprocess(gpu_.cusparse(), kPlain, kPlain, &kOne, a_, x_, &kZero, y_, CUDA_R_32F,
                                       algorithm_, scratch_),
               "cuSPARSE cannot prepare");
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() {
    if (a_) cusparseDestroySpMat(a_);
    if (x_) cusparseDestroyDnMat(x_);
    if (y_) cusparseDestroyDnMat(y_);
  }
  void run() const {
    cuda_check(
        cusparseSpMM(gpu_.cusparse(), kPlain, kPlain, &kOne, a_, x_, &kZero, y_, CUDA_R_32F, algorithm_, scratch_),
        "cuSPARSE failed");
  }

 private:
  static constexpr float kOne = 1, kZero = 0;
  static constexpr auto kPlain = CUSPARSE_OPERATION_NON_TRANSPOSE;
  GpuRuntime::Impl& gpu_;
  cusparseSpMMAlg_t algorithm_;
  cusparseSpMatDescr_t a_ = nullptr;
  cusparseDnMatDescr_t x_ = nullptr, y_ = nullptr;
  std::byte* scratch_ = nullptr;
};

struct Candidate {
  GpuTime time;
  std::function<void()> pass;
  std::unique_ptr<GpuGraph> recording{};
  std::vector<double> seconds{};
};

// Where rows by degree paid on an H200 (kernels/spmm/README.md): rows of a warp differ, or hubs should begin first; but
// neighbours in number, which may share sources, are torn apart.
bool sorts_rows(const graph::RowStats& stats, int64_t width) {
  return width >= 8 && (stats.spread > 1 || (width <= 64 && stats.spread > 0.1));
}

// Where tiles paid there: from Condensed::kLeastReuse edges per row of x that a tile reads.
bool tiles_pay(const OnGpu& at) {
  const auto edges = static_cast<double>(at.col.dim(0)), reads = static_cast<double>(at.tiles.source.count());
  return at.x.dtype == DType::bf16 && at.x.dim(1) >= 32 && at.x.dim(1) % 8 == 0 &&
         edges >= Condensed::kLeastReuse * reads;
}

std::vector<Candidate> candidates(GpuRuntime& gpu, Ctx& ctx, OnGpu& at, const graph::Csr& csr) {
  std::vector<Candidate> list;
  const graph::RowStats stats = graph::stats_of(csr);
  const SpmmFwd op{.rowptr = at.rowptr,
                   .col = at.col,
                   .x = at.x,
                   .edge = at.edge,
                   .y = at.y,
                   .op = EdgeOp::mul,
                   .tuning = {.longest = stats.most},
                   .tiles = &at.tiles};
  for (const Row<SpmmFwd>& row : SpmmFwd::rows()) {
    if (row.device != Device::cuda) continue;
    std::function<void()> pass;
    if (!refusal(row, op, Device::cuda)) pass = [&ctx, &row, op] { run_row(ctx, op, row); };
    list.push_back(
        {.time = {.name = row.name, .library = row.name == std::string("cusparse")}, .pass = std::move(pass)});
  }
  SpmmFwd sorted = op;
  sorted.by_degree = at.by_degree;
  for (const char* name : {"cuda_sr", "cuda_pr"}) {
    const Row<SpmmFwd>& row = row_named<SpmmFwd>(name);
    std::function<void()> pass;
    if (!refusal(row, sorted, Device::cuda)) pass = [&ctx, &row, sorted] { run_row(ctx, sorted, row); };
    list.push_back({.time = {.name = name + std::string("_by_degree")}, .pass = std::move(pass)});
  }
  for (const auto& [name, algorithm] :
       {std::pair{"cusparse_alg2", CUSPARSE_SPMM_CSR_ALG2}, std::pair{"cusparse_alg3", CUSPARSE_SPMM_CSR_ALG3}}) {
    const auto prepared = std::make_shared<Prepared>(gpu, at, csr, algorithm);
    list.push_back({.time = {.name = name, .library = true}, .pass = [prepared] { prepared->run(); }});
  }
  const std::string taken = tiles_pay(at)                    ? "cuda_tiles"
                            : sorts_rows(stats, at.x.dim(1)) ? "cuda_sr_by_degree"
                                                             : choose(ctx, op).name;
  for (Candidate& c : list) c.time.chosen = c.time.name == taken;
  return list;
}

void check_result(GpuRuntime& gpu, const OnGpu& at, const Problem& p, const std::vector<float>& want,
                  const Candidate& c) {
  const MutView host = p.y().mut();
  std::fill_n(host.as<float>(), host.count(), std::numeric_limits<float>::quiet_NaN());
  gpu.upload(p.y().view(), at.y);
  c.pass();
  gpu.download(at.y, host);
  const float bound = c.time.library && at.x.dtype == DType::bf16 ? 0.2f : 1e-3f;  // values rounded, hubs that cancel
  for (size_t i = 0; i < want.size(); ++i) {
    const float got = host.as<float>()[i];
    CHECK(std::fabs(got - want[i]) <= bound * (1 + std::fabs(want[i])), "{}: element {} is {}, not {}", c.time.name, i,
          got, want[i]);
  }
}

}  // namespace

std::vector<GpuTime> times_on_gpu(Problem& p, DType features, int rounds) {
  GpuRuntime gpu;
  if (features == DType::bf16)
    store(p.x().mut(), to_doubles(view_of(rounded(p.x().view()).data(), p.x().view().shape)));
  p.run(ways()[0])();
  const auto* const y = p.y().view().as<float>();
  const std::vector<float> want(y, y + p.y().view().count());
  OnGpu at(gpu, p, features);
  Arena arena;
  Ctx ctx{.arena = arena, .gpu = &gpu};
  std::vector<Candidate> list = candidates(gpu, ctx, at, p.csr());
  for (Candidate& c : list) {
    if (!c.pass) continue;
    check_result(gpu, at, p, want, c);
    c.recording = std::make_unique<GpuGraph>();
    c.recording->record(gpu, [&] {
      for (int i = 0; i < kPasses; ++i) c.pass();
    });
    c.recording->launch(gpu);  // uploads it
  }
  GpuWatch watch(gpu.impl().stream);
  for (int round = 0; round < rounds; ++round) {
    for (size_t k = 0; k < list.size(); ++k) {
      Candidate& c = list[(k + static_cast<size_t>(round)) % list.size()];
      if (!c.pass) continue;
      watch.begin();
      c.recording->launch(gpu);
      c.seconds.push_back(1e-3 * static_cast<double>(watch.end()) / kPasses);
    }
  }
  std::vector<GpuTime> times;
  for (Candidate& c : list) {
    if (c.pass) c.time.seconds = median(c.seconds);
    times.push_back(c.time);
  }
  return times;
}

}  // namespace braid::sparse
