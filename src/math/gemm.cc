#include "math/gemm.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>

#include "sys/machine.h"

// Of libgomp, whose team oneDNN takes whichever pool is ours.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int);

namespace braid {
namespace {

// While it lives, oneDNN on this thread makes and runs primitives for one thread: the team is part of what it decides
// on, and so of the bits.
class OneThread {
 public:
  OneThread() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { omp_set_num_threads(threads_); }

 private:
  int threads_;
};

constexpr int64_t kRows = 64, kDepth = 1024;
constexpr int64_t kScratchBytes = int64_t{1} << 20;  // oneDNN repacks a tile of w: 192 x 1024 BF16 or half of F32

constexpr int64_t kSumBytes = kRows * kGemmCols * static_cast<int64_t>(sizeof(float));

struct TileShape {
  DType dtype;
  int64_t cols, depth, x_stride, w_stride;
  bool add;
  auto key() const { return std::tuple(dtype, cols, depth, x_stride, w_stride, add); }
  bool operator<(const TileShape& other) const { return key() < other.key(); }
};

struct Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};
// A thread has its own: streams and primitives hold no state that others need, and nothing is locked.
Library& library() {
  thread_local Library instance;
  return instance;
}

struct Tile {
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul matmul;
};

Tile make_tile(const TileShape& s) {
  using dnnl::memory;
  const auto type = s.dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc x({kRows, s.depth}, type, memory::dims{s.x_stride, 1});
  const memory::desc w({s.depth, s.cols}, type, memory::dims{1, s.w_stride});
  const memory::desc y({kRows, s.cols}, memory::data_type::f32, memory::dims{kGemmCols, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.add) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attributes.set_post_ops(ops);
  }
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, w, y), attributes, library().engine);
  CHECK(static_cast<int64_t>(desc.scratchpad_desc().get_size()) <= kScratchBytes, "scratch {}",
        desc.scratchpad_desc().get_size());
  return {desc, dnnl::matmul(desc)};
}

const Tile& tile_of(const TileShape& s) {
  thread_local std::map<TileShape, Tile> tiles;
  const auto found = tiles.find(s);
  return found != tiles.end() ? found->second : tiles.emplace(s, make_tile(s)).first->second;
}

void run_tile(const TileShape& s, const std::byte* x, const std::byte* w, float* sums, std::byte* scratch) {
  const Tile& tile = tile_of(s);
  const dnnl::engine& engine = library().engine;
  const auto memory_of = [&](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, engine, const_cast<void*>(data));
  };
  tile.matmul.execute(library().stream, {{DNNL_ARG_SRC, memory_of(tile.desc.src_desc(), x)},
                                         {DNNL_ARG_WEIGHTS, memory_of(tile.desc.weights_desc(), w)},
                                         {DNNL_ARG_DST, memory_of(tile.desc.dst_desc(), sums)},
                                         {DNNL_ARG_SCRATCHPAD, memory_of(tile.desc.scratchpad_desc(), scratch)}});
}

void write(const float* sums, float global, const MutView& y) {
  for (int64_t m = 0; m < y.dim(0); ++m, sums += kGemmCols) {
    for (int64_t n = 0; n < y.dim(1); ++n) {
      const float v = sums[n] * global;
      if (y.dtype == DType::bf16) {
        y.as<Bf16>(m)[n] = to_bf16(v);
      } else {
        y.as<float>(m)[n] = v;
      }
    }
  }
}

}  // namespace

const char* gemm_refusal(DType x, Format w) {
  if (x == DType::f32 && w == Format::f32) return nullptr;
  if (x != DType::bf16 || w != Format::bf16) return "only F32 by F32 and BF16 by BF16";
  return sys::machine().avx512 ? nullptr : "oneDNN has no BF16 here";
}

int64_t gemm_workspace(const View& x, const Weight& w) {
  return kSumBytes + kScratchBytes + kRows * w.cols * size_of(x.dtype);
}

void gemm_product(const View& x, const Weight& w, const MutView& y, std::span<std::byte> workspace) {
  const OneThread alone;
  auto* sums = reinterpret_cast<float*>(workspace.data());
  std::byte* scratch = workspace.data() + kSumBytes;
  std::byte* padded = scratch + kScratchBytes;
  const int64_t size = size_of(x.dtype);
  for (int64_t m = 0; m < x.dim(0); m += kRows) {
    const int64_t rows = std::min(kRows, x.dim(0) - m);
    const std::byte* from = x.data + m * x.stride(0) * size;
    int64_t x_stride = x.stride(0);
    if (rows < kRows) {
      x_stride = w.cols;
      std::memset(padded, 0, static_cast<size_t>(kRows * x_stride * size));
      for (int64_t r = 0; r < rows; ++r) {
        std::memcpy(padded + r * x_stride * size, from + r * x.stride(0) * size, static_cast<size_t>(w.cols * size));
      }
      from = padded;
    }
    for (int64_t n = 0; n < w.rows; n += kGemmCols) {
      const int64_t cols = std::min(kGemmCols, w.rows - n);
      for (int64_t k = 0; k < w.cols; k += kDepth) {
        const TileShape shape{.dtype = x.dtype,
                              .cols = cols,
                              .depth = std::min(kDepth, w.cols - k),
                              .x_stride = x_stride,
                              .w_stride = w.codes.stride(0),
                              .add = k > 0};
        run_tile(shape, from + k * size, w.codes.data + (n * w.codes.stride(0) + k) * size, sums, scratch);
      }
      write(sums, w.global, y.slice(0, m, rows).slice(1, n, cols));
    }
  }
}

}  // namespace braid
