// cuSPARSE as a candidate: a plain product in F32, CSR_ALG2, the algorithm that its documentation names for results in
// rows. It takes no 32-bit columns with 64-bit row pointers, so these are narrowed in every call.
#include "core/device/gpu_impl.cuh"
#include "kernels/spmm/spmm_gpu.cuh"

namespace braid {
namespace {
using namespace gpu;

__global__ void __launch_bounds__(kThreads) narrow(const int64_t* in, int32_t* out, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) out[i] = static_cast<int32_t>(in[i]);
}

struct Descriptors {
  cusparseSpMatDescr_t a = nullptr;
  cusparseDnMatDescr_t x = nullptr, y = nullptr;

  Descriptors(const SpmmFwd& op, int32_t* rowptr) {
    const auto at = [](const auto& v) { return const_cast<std::byte*>(static_cast<const std::byte*>(v.data)); };
    cuda_check(cusparseCreateCsr(&a, op.y.dim(0), op.x.dim(0), op.col.dim(0), rowptr, at(op.col), at(op.edge),
                                 CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F),
               "no matrix");
    cuda_check(
        cusparseCreateDnMat(&x, op.x.dim(0), op.x.dim(1), op.x.strides[0], at(op.x), CUDA_R_32F, CUSPARSE_ORDER_ROW),
        "no matrix");
    cuda_check(
        cusparseCreateDnMat(&y, op.y.dim(0), op.y.dim(1), op.y.strides[0], at(op.y), CUDA_R_32F, CUSPARSE_ORDER_ROW),
        "no matrix");
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    if (a) cusparseDestroySpMat(a);
    if (x) cusparseDestroyDnMat(x);
    if (y) cusparseDestroyDnMat(y);
  }
};

}  // namespace

void spmm_fwd_cusparse(Ctx& ctx, const SpmmFwd& op, std::span<std::byte>) {
  check_spmm(op);
  if (op.y.count() == 0) return;
  GpuRuntime::Impl& gpu = ctx.gpu->impl();
  const int64_t pointers = op.rowptr.dim(0);
  const PoolBlock block(ctx.gpu->memory(), 4 * pointers);
  auto* const rowptr = reinterpret_cast<int32_t*>(block.data());
  narrow<<<blocks_of(pointers), kThreads, 0, gpu.stream>>>(op.rowptr.as<int64_t>(), rowptr, pointers);
  const Descriptors d(op, rowptr);
  const float one = 1, zero = 0;
  size_t bytes = 0;
  constexpr auto kPlain = CUSPARSE_OPERATION_NON_TRANSPOSE;
  cuda_check(cusparseSpMM_bufferSize(gpu.cusparse(), kPlain, kPlain, &one, d.a, d.x, &zero, d.y, CUDA_R_32F,
                                     CUSPARSE_SPMM_CSR_ALG2, &bytes),
             "cuSPARSE has no such product");
  const PoolBlock scratch(ctx.gpu->memory(), static_cast<int64_t>(bytes));
  const cusparseStatus_t status = cusparseSpMM(gpu.cusparse(), kPlain, kPlain, &one, d.a, d.x, &zero, d.y, CUDA_R_32F,
                                               CUSPARSE_SPMM_CSR_ALG2, scratch.data());
  cuda_check(status, "cuSPARSE failed");
}

}  // namespace braid
