// Times of the pipelined main loop's shapes, by events. Before each timed program a kernel spins, so that all launches
// of the program are queued when it starts; programs take turns over copies of their memory that exceed the caches.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "core/device/cuda_check.cuh"
#include "core/device/gpu_groups.h"
#include "core/device/gpu_impl.cuh"
#include "core/device/gpu_watch.cuh"
#include "core/philox.h"
#include "kernels/linear/grouped_gpu.h"
#include "kernels/linear/grouped_launch.cuh"
#include "kernels/linear/grouped_study.h"
#include "sys/check.h"

namespace braid {
namespace {

constexpr int kTrials = 4;  // of the model's ranking, for the tuned op
constexpr int64_t kCopiesMost = 32;
constexpr int64_t kCompared = 256;  // tokens
constexpr int64_t kSpinNs = 40000;

__global__ void spin_kernel(int64_t ns) {
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < static_cast<uint64_t>(ns));
}

// The dense weight [rows, cols], which is zeros before. A block has a group.
__global__ void expand_kernel(PipelineArgs args, int64_t height, int64_t cols, __nv_bfloat16* w) {
  const int64_t group = blockIdx.x, begin = args.begin[group], n = args.begin[group + 1] - begin;
  for (int64_t i = threadIdx.x; i < n * height; i += blockDim.x) {
    const int row = args.row_of[group * height + i % height];
    if (row >= 0) w[row * cols + args.columns[begin + i / height]] = args.values[begin * height + i];
  }
}

// Of a program on a GPU that is busy until all of it is queued.
template <class Program>
double seconds_of(GpuWatch& watch, cudaStream_t stream, const Program& program) {
  spin_kernel<<<1, 1, 0, stream>>>(kSpinNs);
  watch.begin();
  program();
  return 1e-3 * static_cast<double>(watch.end());
}

double median_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

// Programs (given the number of a copy) in rounds whose order turns, after a round that is not timed. Medians.
std::vector<double> medians(GpuRuntime& gpu, const std::vector<std::function<void(int64_t)>>& programs, int64_t copies,
                            int rounds) {
  GpuWatch watch(gpu.impl().stream);
  std::vector<std::vector<double>> seconds(programs.size());
  int64_t copy = 0;
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < programs.size(); ++i) {
      const size_t at = (i + static_cast<size_t>(round + 1)) % programs.size();
      const double s = seconds_of(watch, gpu.impl().stream, [&] { programs[at](copy); });
      if (round >= 0) seconds[at].push_back(s);
      copy = (copy + 1) % copies;
    }
  }
  std::vector<double> out;
  for (std::vector<double>& s : seconds) out.push_back(median_of(std::move(s)));
  return out;
}

GroupedRows draw_groups(const GroupedCase& c) {
  GroupedRows g{.rows = c.rows, .cols = c.cols, .height = c.height, .dtype = DType::bf16};
  const int64_t groups = (c.rows + c.height - 1) / c.height;
  const int64_t keep = kept_columns(c);
  const auto shuffle = [](std::vector<int32_t>& list, int64_t first, uint32_t stream) {
    for (int64_t i = 0; i < first; ++i) {
      const int64_t left = std::ssize(list) - i;
      const int64_t r = philox({.seed = 7, .stream = stream}, static_cast<uint64_t>(i))[0] % left;
      std::swap(list[static_cast<size_t>(i)], list[static_cast<size_t>(i + r)]);
    }
  };
  g.row_of.resize(static_cast<size_t>(c.rows));
  std::iota(g.row_of.begin(), g.row_of.end(), 0);
  shuffle(g.row_of, c.rows, 0);
  g.row_of.resize(static_cast<size_t>(groups * c.height), -1);
  g.begin.push_back(0);
  std::vector<int32_t> columns(static_cast<size_t>(c.cols));
  for (int64_t group = 0; group < groups; ++group) {
    std::iota(columns.begin(), columns.end(), 0);
    if (keep < c.cols) shuffle(columns, keep, static_cast<uint32_t>(1 + group));
    g.columns.insert(g.columns.end(), columns.begin(), columns.begin() + keep);
    std::sort(g.columns.end() - keep, g.columns.end());
    g.begin.push_back(std::ssize(g.columns));
  }
  return g;
}

// Random numbers in (-1, 1), the same million again and again from another place in each call.
class Numbers {
 public:
  Numbers() : piece_(size_t{1} << 20) {
    for (size_t i = 0; i < piece_.size(); ++i) piece_[i] = to_bf16(2 * uniform(philox({.seed = 5}, i)[0]) - 1);
  }
  void fill(Bf16* out, int64_t n) {
    for (int64_t at = 0; at < n;) {
      const auto count = static_cast<size_t>(std::min<int64_t>(n - at, std::ssize(piece_) - std::ssize(piece_) / 8));
      std::copy_n(piece_.begin() + static_cast<int64_t>(offset_), count, out + at);
      at += static_cast<int64_t>(count);
      offset_ = (offset_ + 4097) % (piece_.size() / 8);
    }
  }

 private:
  std::vector<Bf16> piece_;
  size_t offset_ = 0;
};

class Block {
 public:
  Block(GpuRuntime& gpu, const Shape& shape)
      : block_(gpu.memory(), 2 * shape.count()), view_(block_.data(), DType::bf16, shape, Device::cuda) {}
  const MutView& view() const { return view_; }

 private:
  PoolBlock block_;
  MutView view_;
};

// One of several sets of operands.
struct Operands {
  GpuGroups groups;
  Block x, w, y, y_dense;
  LinearGroupedFwd op{};

  Operands(GpuRuntime& gpu, const GroupedCase& c, const GroupedRows& host, const std::vector<Bf16>& numbers)
      : groups(gpu, host),
        x(gpu, {c.tokens, c.cols}),
        w(gpu, {c.rows, c.cols}),
        y(gpu, {c.tokens, c.rows}),
        y_dense(gpu, {c.tokens, c.rows}) {
    gpu.upload(view_of(numbers.data(), {c.tokens, c.cols}), x.view());
    cudaStream_t stream = gpu.impl().stream;
    cuda_check(cudaMemsetAsync(w.view().data, 0, static_cast<size_t>(w.view().bytes()), stream), "no memory");
    const GroupedView& g = groups.view();
    const PipelineArgs args{.row_of = g.row_of.as<int32_t>(),
                            .begin = g.begin.as<int64_t>(),
                            .columns = g.columns.as<int32_t>(),
                            .values = reinterpret_cast<const __nv_bfloat16*>(g.values.data)};
    expand_kernel<<<static_cast<unsigned>(g.groups()), 256, 0, stream>>>(
        args, c.height, c.cols, reinterpret_cast<__nv_bfloat16*>(w.view().data));
    cuda_check(cudaGetLastError(), "a weight cannot be expanded");
    op = {.x = x.view(), .groups = g, .y = y.view()};
  }
};

// Largest |a - b| over the largest |b|, of the first tokens.
double difference(GpuRuntime& gpu, const View& a, const View& b) {
  const int64_t tokens = std::min(kCompared, a.dim(0)), n = tokens * a.dim(1);
  std::vector<Bf16> left(static_cast<size_t>(n)), right(left.size());
  gpu.download(a.slice(0, 0, tokens), mut_view_of(left.data(), {tokens, a.dim(1)}));
  gpu.download(b.slice(0, 0, tokens), mut_view_of(right.data(), {tokens, a.dim(1)}));
  double worst = 0, largest = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    const double r = to_float(right[i]), d = std::fabs(to_float(left[i]) - r);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    largest = std::max(largest, std::fabs(r));
  }
  return worst / largest;
}

std::vector<std::unique_ptr<Operands>> make_copies(GpuRuntime& gpu, const GroupedCase& c, GroupedRows& host,
                                                   Numbers& numbers) {
  int cache = 0;
  cuda_check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, gpu.impl().number), "no size of the cache");
  host.values.resize(static_cast<size_t>(2 * host.height) * host.columns.size());
  std::vector<Bf16> x(static_cast<size_t>(c.tokens * c.cols));
  const int64_t bytes = std::ssize(host.values) + 2 * c.tokens * (c.cols + c.rows);
  const int64_t n = std::clamp<int64_t>(2 * int64_t{cache} / bytes + 2, 2, kCopiesMost);
  std::vector<std::unique_ptr<Operands>> copies;
  for (int64_t i = 0; i < n; ++i) {
    numbers.fill(reinterpret_cast<Bf16*>(host.values.data()), std::ssize(host.values) / 2);
    numbers.fill(x.data(), std::ssize(x));
    copies.push_back(std::make_unique<Operands>(gpu, c, host, x));
  }
  return copies;
}

GroupedTimes time_case(GpuRuntime& gpu, const GroupedCase& c, int rounds, const GpuLimits& limits, Numbers& numbers) {
  GroupedRows host = draw_groups(c);
  const auto copies = make_copies(gpu, c, host, numbers);
  const LinearGroupedFwd& op = copies[0]->op;
  GroupedTimes t{.of = c, .columns = std::ssize(host.columns)};
  for (size_t i = 0; i < kPipelines.size(); ++i) {
    if (kPipelines[i].height == c.height && blocks_of_unit(kPipelines[i], limits) > 0)
      t.pipelines.push_back(static_cast<int>(i));
  }
  model_pipelines(t, limits);
  const int first = t.pipelines[static_cast<size_t>(t.by_model.at(0))], tuned = tune_pipeline(gpu, op, kTrials);

  // x is transposed in every copy's own scratch before the main loops are timed.
  std::vector<std::unique_ptr<GroupedLaunch>> launches;
  for (const auto& copy : copies) launches.push_back(std::make_unique<GroupedLaunch>(gpu, copy->op));
  std::vector<std::function<void(int64_t)>> programs;
  const auto at = [&](int64_t i) -> const GroupedLaunch& { return *launches[static_cast<size_t>(i)]; };
  programs.emplace_back([&](int64_t i) {
    at(i).transpose_x();
    at(i).transpose_y();
  });
  for (const int pipeline : {first, tuned}) {
    programs.emplace_back([&, pipeline](int64_t i) {
      at(i).transpose_x();
      at(i).main_loop(pipeline);
      at(i).transpose_y();
    });
  }
  programs.emplace_back([&](int64_t i) {
    const Operands& o = *copies[static_cast<size_t>(i)];
    gpu.product(o.x.view(), o.w.view(), o.y_dense.view());
  });
  const size_t fixed = programs.size();
  for (const int pipeline : t.pipelines) programs.emplace_back([&, pipeline](int64_t i) { at(i).main_loop(pipeline); });
  for (const auto& launch : launches) launch->transpose_x();
  const std::vector<double> seconds = medians(gpu, programs, std::ssize(copies), rounds);
  t.transposes = seconds[0];
  t.untuned = seconds[1];
  t.whole = seconds[2];
  t.dense = seconds[3];
  t.seconds.assign(seconds.begin() + static_cast<int64_t>(fixed), seconds.end());
  programs[2](0);
  programs[3](0);
  t.error = difference(gpu, op.y, copies[0]->y_dense.view());
  return t;
}

}  // namespace

int tune_pipeline(GpuRuntime& gpu, const LinearGroupedFwd& op, int most) {
  constexpr int kRounds = 5;
  std::vector<int> list = ranked_pipelines(problem_of(op), limits_of(gpu));
  list.resize(std::min(list.size(), static_cast<size_t>(most)));
  CHECK(!list.empty(), "no pipeline for groups of {} rows", op.groups.height);
  const GroupedLaunch launch(gpu, op);
  launch.transpose_x();
  std::vector<std::function<void(int64_t)>> programs;
  for (const int pipeline : list) programs.emplace_back([&, pipeline](int64_t) { launch.main_loop(pipeline); });
  const std::vector<double> seconds = medians(gpu, programs, 1, kRounds);
  const int best = list[static_cast<size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin())];
  use_pipeline(gpu, op, best);
  return best;
}

std::vector<GroupedTimes> time_grouped(const std::vector<GroupedCase>& cases, int rounds, const GpuRoofs& roofs,
                                       const std::function<void(int64_t)>& progress) {
  GpuRuntime gpu;
  GpuLimits limits = limits_of(gpu);
  limits.memory_gbs = roofs.copy_gbs;
  Numbers numbers;
  std::vector<GroupedTimes> out;
  for (const GroupedCase& c : cases) {
    progress(std::ssize(out));
    out.push_back(time_case(gpu, c, rounds, limits, numbers));
  }
  return out;
}

}  // namespace braid
