// Products at the shapes of published models, weights from memory: every variant of this machine, compared with oneDNN
// (Debian's libdnnl-dev, which nothing else of Braid needs) with its own team, weights as files store them and packed
// beforehand. Each line states GFLOP/s, GB/s of weights, and the share of the floor max(bytes / read roof, operations /
// unit roof) with the roofs of the same run. Medians of five; shares of different runs do not compare.
#include <benchmark/benchmark.h>

#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_bench.h"
#include "sys/machine.h"
#include "sys/roofs.h"

namespace braid {
namespace {

struct Problem {
  const char* what;
  int64_t rows, cols, depth;  // of x, of w, and of both
};

constexpr Problem kProblems[] = {
    {"4b_up", 1, 12544, 3136},         {"4b_up", 512, 12544, 3136},      {"4b_down", 1, 3136, 12544},
    {"4b_down", 512, 3136, 12544},     {"4b_in_proj", 512, 17504, 3136}, {"30b_expert", 1, 1856, 2688},
    {"30b_expert", 4, 1856, 2688},     {"30b_expert", 24, 1856, 2688},   {"30b_expert_down", 24, 2688, 1856},
    {"30b_in_proj", 512, 10304, 2688}, {"30b_head", 1, 131072, 2688},
};

constexpr int64_t kFarBytes = int64_t{256} << 20;  // far more than L3 holds

// Weights are copied until they fill that, and used in turn.
struct Values {
  Arena arena;
  Tensor x, w, y;
  int64_t copies;
  Values(const Problem& p, DType type)
      : x(arena, type, {p.rows, p.depth}),
        w(arena, type, {p.cols * copies_of(p, type), p.depth}),
        y(arena, DType::f32, {p.rows, p.cols}),
        copies(copies_of(p, type)) {
    fill_bytes(x.mut());
    fill_bytes(w.mut());
  }
  Weight weight(const Problem& p, int64_t i) const {
    return dense_weight(w.view().slice(0, i % copies * p.cols, p.cols));
  }

 private:
  static int64_t copies_of(const Problem& p, DType type) { return kFarBytes / (p.cols * p.depth * size_of(type)) + 1; }
  // Small normal numbers in either type.
  static void fill_bytes(const MutView& v) {
    sys::parallel_for(sys::default_threads(), v.bytes(), 4096, [&](int64_t begin, int64_t end) {
      std::memset(v.data + begin, 0x3c, static_cast<size_t>(end - begin));
    });
  }
};

void report(benchmark::State& state, const Problem& p, DType type) {
  const double flops = 2.0 * static_cast<double>(p.rows * p.cols) * static_cast<double>(p.depth);
  const auto bytes = static_cast<double>(p.cols * p.depth * size_of(type));
  const sys::Roofs& r = sys::roofs();
  const double unit = type == DType::bf16 && r.bf16_gflops > 0 ? r.bf16_gflops : r.fp32_gflops;
  const double floor = std::max(bytes / r.read_gbs, flops / unit) * 1e-9;
  const auto calls = static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(flops * calls * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GB/s"] = benchmark::Counter(bytes * calls * 1e-9, benchmark::Counter::kIsRate);
  state.counters["floor%"] = benchmark::Counter(100 * floor * calls, benchmark::Counter::kIsRate);
}

void run_row_of(benchmark::State& state, const Problem& p, DType type, const std::string& row) {
  Values v(p, type);
  Ctx ctx{.arena = v.arena};
  ctx.forced_rows[LinearFwd::name] = row;
  int64_t i = 0;
  for (auto _ : state) run(ctx, LinearFwd{.x = v.x.view(), .w = v.weight(p, i++), .y = v.y.mut()});
  report(state, p, type);
}

void run_library(benchmark::State& state, const Problem& p, DType type, bool packed) {
  using dnnl::memory;
  Values v(p, type);
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto dtype = type == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc x({p.rows, p.depth}, dtype, memory::format_tag::ab);
  const memory::desc in_place({p.depth, p.cols}, dtype, memory::format_tag::ba);
  const memory::desc any({p.depth, p.cols}, dtype, memory::format_tag::any);
  const memory::desc y({p.rows, p.cols}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, packed ? any : in_place, y), engine);
  const dnnl::matmul matmul(desc);
  std::vector<memory> weights;
  for (int64_t i = 0; i < v.copies; ++i) {
    memory file(in_place, engine, const_cast<std::byte*>(v.weight(p, i).codes.data));
    if (packed) {
      memory own(desc.weights_desc(), engine);
      dnnl::reorder(file, own).execute(stream, file, own);
      weights.push_back(own);
    } else {
      weights.push_back(file);
    }
  }
  stream.wait();
  memory from(x, engine, v.x.mut().data), to(y, engine, v.y.mut().data);
  size_t i = 0;
  for (auto _ : state) {
    matmul.execute(stream,
                   {{DNNL_ARG_SRC, from}, {DNNL_ARG_WEIGHTS, weights[i++ % weights.size()]}, {DNNL_ARG_DST, to}});
    stream.wait();
  }
  report(state, p, type);
}

void add(const std::string& name, const Problem& p, DType type, const std::string& row) {
  const auto body = [=](benchmark::State& state) {
    if (row == "onednn" || row == "onednn_packed") {
      run_library(state, p, type, row == "onednn_packed");
    } else {
      run_row_of(state, p, type, row);
    }
  };
  // One thread (BRAID_THREADS=1 OMP_NUM_THREADS=1) is timed by its CPU clock, which other processes do not lengthen.
  auto* one = benchmark::RegisterBenchmark(name.c_str(), body);
  if (sys::default_threads() > 1) one->UseRealTime();
  one->Unit(benchmark::kMicrosecond)->MinTime(0.1)->Repetitions(5)->ReportAggregatesOnly();
}

void add_all() {
  for (const Problem& p : kProblems) {
    for (const DType type : {DType::bf16, DType::f32}) {
      std::vector<std::string> rows;
      if (type == DType::f32) {
        rows = {"panel_f32"};
      } else {
        if (sys::machine().amx) rows.emplace_back("tiles");
        if (sys::machine().bf16_dot_fast) rows.emplace_back("panel_dot");
        rows.emplace_back("panel_bf16");
      }
      rows.emplace_back("onednn");
      rows.emplace_back("onednn_packed");
      for (const std::string& row : rows) {
        add(std::string(p.what) + "/" + std::to_string(p.rows) + "/" + name_of(type) + "/" + row, p, type, row);
      }
    }
  }
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  braid::sys::machine();
  braid::add_all();
  braid::add_training_products();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
