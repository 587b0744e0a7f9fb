// Products by cuBLASLt, and the roofs that are measured with them.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "core/device/gpu.h"
#include "core/device/gpu_impl.cuh"
#include "core/device/gpu_watch.cuh"
#include "core/philox.h"
#include "sys/check.h"

namespace braid {
namespace {

constexpr int kCandidates = 8, kRuns = 5;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f8_e4m3:
      return CUDA_R_8F_E4M3;
    default:
      CHECK(false, "{}", name_of(dtype));
      return CUDA_R_32F;
  }
}

// cuBLASLt is column-major: a row-major [rows, cols] is its [cols, rows].
class Layout {
 public:
  Layout(DType dtype, int64_t rows, int64_t cols, int64_t stride) {
    cuda_check(cublasLtMatrixLayoutCreate(&layout_, type_of(dtype), static_cast<uint64_t>(cols),
                                          static_cast<uint64_t>(rows), stride),
               "no layout");
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  operator cublasLtMatrixLayout_t() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// Bytes, a power of two up to the widest load, that divide the address: an algorithm may read in pieces as wide.
uint32_t alignment_of(const std::byte* data) {
  constexpr uintptr_t kWidest = 16;
  const auto address = reinterpret_cast<uintptr_t>(data) | kWidest;
  return static_cast<uint32_t>(address & (~address + 1));
}

// y^T = w x^T.
struct LtProduct {
  const View& x;
  const View& w;
  const MutView& y;
  GpuRuntime::Impl& gpu;
  cublasLtMatmulDesc_t what = nullptr;
  Layout lx, lw, ly;

  LtProduct(GpuRuntime::Impl& impl, const View& x_, const View& w_, const MutView& y_)
      : x(x_),
        w(w_),
        y(y_),
        gpu(impl),
        lx(x.dtype, x.dim(0), x.dim(1), x.strides[0]),
        lw(w.dtype, w.dim(0), w.dim(1), w.strides[0]),
        ly(y.dtype, y.dim(0), y.dim(1), y.strides[0]) {
    cuda_check(cublasLtMatmulDescCreate(&what, CUBLAS_COMPUTE_32F, CUDA_R_32F), "no product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cuda_check(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
               "no product");
  }
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;
  ~LtProduct() {
    if (what) cublasLtMatmulDescDestroy(what);
  }

  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm) const {
    const float one = 1, zero = 0;
    return cublasLtMatmul(gpu.blas, what, &one, w.data, lw, x.data, lx, &zero, y.data, ly, y.data, ly, &algorithm,
                          gpu.workspace, static_cast<size_t>(GpuRuntime::Impl::kWorkspace), gpu.stream);
  }

  std::vector<cublasLtMatmulAlgo_t> candidates() const {
    cublasLtMatmulPreference_t preference = nullptr;
    cuda_check(cublasLtMatmulPreferenceCreate(&preference), "no preference");
    const auto bytes = static_cast<size_t>(GpuRuntime::Impl::kWorkspace);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
    for (const auto& [what_of, data] : {std::pair<cublasLtMatmulPreferenceAttributes_t, const std::byte*>{
                                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, w.data},
                                        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, x.data},
                                        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, y.data},
                                        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, y.data}}) {
      const uint32_t least = alignment_of(data);
      cublasLtMatmulPreferenceSetAttribute(preference, what_of, &least, sizeof(least));
    }
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found;
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(gpu.blas, what, lw, lx, ly, ly, preference, kCandidates, found.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    cuda_check(status, "cuBLASLt has no algorithm for this product");
    std::vector<cublasLtMatmulAlgo_t> list;
    for (int i = 0; i < count; ++i) {
      if (found[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
        list.push_back(found[static_cast<size_t>(i)].algo);
    }
    if (list.empty()) fail_environment("GPU", {.what = "cuBLASLt has no algorithm for this product"});
    return list;
  }
};

cublasLtMatmulAlgo_t fastest(const LtProduct& product) {
  const std::vector<cublasLtMatmulAlgo_t> list = product.candidates();
  if (product.gpu.recording || list.size() == 1) return list[0];
  GpuWatch watch(product.gpu.stream);
  size_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < list.size(); ++i) {
    if (product.run(list[i]) != CUBLAS_STATUS_SUCCESS) continue;  // the first run loads the kernel
    watch.begin();
    for (int r = 0; r < kRuns; ++r) cuda_check(product.run(list[i]), "a product failed");
    if (const float ms = watch.end(); ms < least) {
      least = ms;
      best = i;
    }
  }
  return list[best];
}

// Random numbers of magnitude 0.5 to 2, the same million again and again: constants draw less power and run faster.
void fill_random(GpuRuntime& gpu, const MutView& device) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  std::vector<std::byte> piece(static_cast<size_t>(kPiece * size_of(device.dtype)));
  for (int64_t i = 0; i < kPiece; ++i) {
    const uint32_t r = philox({.seed = 1}, static_cast<uint64_t>(i))[0];
    if (device.dtype == DType::bf16) {
      const auto bits = static_cast<uint16_t>((r & 0x80ff) | 0x3f00);
      std::memcpy(&piece[static_cast<size_t>(2 * i)], &bits, 2);
    } else {
      piece[static_cast<size_t>(i)] = static_cast<std::byte>((r & 0x8f) | 0x30);
    }
  }
  for (int64_t at = 0; at < device.bytes(); at += std::ssize(piece)) {
    const Shape bytes{std::min<int64_t>(std::ssize(piece), device.bytes() - at)};
    gpu.upload(View(piece.data(), DType::u8, bytes), MutView(device.data + at, DType::u8, bytes, Device::cuda));
  }
}

// Tera-operations per second of y = x w^T, all sides `n`.
double product_roof(GpuRuntime& gpu, DType in, int64_t n) {
  const auto bytes = n * n * size_of(in);
  std::byte *x = gpu.memory().take(bytes), *w = gpu.memory().take(bytes), *y = gpu.memory().take(2 * n * n);
  cudaStream_t stream = gpu.impl().stream;
  const MutView a(x, in, {n, n}, Device::cuda), b(w, in, {n, n}, Device::cuda);
  fill_random(gpu, a);
  fill_random(gpu, b);
  const MutView c(y, DType::bf16, {n, n}, Device::cuda);
  gpu.product(a, b, c);
  GpuWatch watch(stream);
  watch.begin();
  for (int r = 0; r < kRuns; ++r) gpu.product(a, b, c);
  const double ms = static_cast<double>(watch.end()) / kRuns;
  for (std::byte* p : {x, w, y}) gpu.memory().give_back(p);
  return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / ms / 1e9;
}

double copy_roof(GpuRuntime& gpu, int64_t bytes) {
  std::byte *from = gpu.memory().take(bytes), *to = gpu.memory().take(bytes);
  cudaStream_t stream = gpu.impl().stream;
  double best = 0;
  GpuWatch watch(stream);
  for (int r = 0; r <= kRuns; ++r) {
    watch.begin();
    cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream), "cannot copy");
    const double gbs = 2.0 * static_cast<double>(bytes) / static_cast<double>(watch.end()) / 1e6;
    if (r > 0) best = std::max(best, gbs);
  }
  gpu.memory().give_back(from);
  gpu.memory().give_back(to);
  return best;
}

}  // namespace

void GpuRuntime::product(const View& x, const View& w, const MutView& y) {
  CHECK(x.dtype == w.dtype && x.dim(1) == w.dim(1) && y.dim(0) == x.dim(0) && y.dim(1) == w.dim(0), "{} {} {}",
        to_string(x.shape), to_string(w.shape), to_string(y.shape));
  if (x.dim(0) == 0) return;
  const LtProduct product(*impl_, x, w, y);
  const GpuProductKey key{x.dim(0),
                          w.dim(0),
                          x.dim(1),
                          x.strides[0],
                          w.strides[0],
                          y.strides[0],
                          x.dtype,
                          y.dtype,
                          alignment_of(x.data),
                          alignment_of(w.data),
                          alignment_of(y.data)};
  auto found = impl_->algorithms.find(key);
  if (found == impl_->algorithms.end()) found = impl_->algorithms.emplace(key, fastest(product)).first;
  cuda_check(product.run(found->second), "a product failed");
}

GpuRoofs measure_gpu_roofs(int number) {
  GpuRuntime gpu(number);
  GpuRoofs roofs;
  const std::vector<Gpu> all = gpus();
  const Gpu& own = all.at(static_cast<size_t>(number));
  const int64_t n = own.memory > (int64_t{4} << 30) ? 8192 : 4096;
  roofs.copy_gbs = copy_roof(gpu, std::min<int64_t>(int64_t{1} << 30, own.memory / 8));
  roofs.bf16_tflops = product_roof(gpu, DType::bf16, n);
  if (own.major * 10 + own.minor >= 89) roofs.fp8_tflops = product_roof(gpu, DType::f8_e4m3, n);
  return roofs;
}

}  // namespace braid
