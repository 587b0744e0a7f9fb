// GPU rows against the references on the CPU: fresh random numbers in every run, outputs filled with NaN first, odd
// sizes. Reported as skipped without a GPU.
#include "cuda_fixture.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/ssd/ssd.h"

namespace braid {
namespace {

TEST_F(CudaTest, StagingCarriesEveryByte) {
  const Tensor host = random(DType::f32, {5, 1'048'583});  // more than two pieces, the last one partial
  EXPECT_EQ(back(on_gpu(host.view())), to_doubles(host.view()));
}

TEST_F(CudaTest, Product) {
  struct Size {
    int64_t tokens, rows, depth;
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Size& s : {Size{1, 1856, 2688}, {7, 96, 80}, {33, 130, 72}, {0, 8, 8}}) {
      const Tensor x = random(dtype, {s.tokens, s.depth}), w = random(dtype, {s.rows, s.depth});
      Tensor y(arena_, DType::f32, {s.tokens, s.rows});
      LinearFwd op{.x = x.view(), .w = dense_weight(w.view()), .y = y.mut()};
      reference(op);
      op.x = on_gpu(x.view());
      op.w = dense_weight(on_gpu(w.view()));
      op.y = result(DType::f32, {s.tokens, s.rows});
      launch(op);
      near(back(op.y), to_doubles(y.view()), 1e-4);
    }
  }
}

TEST_F(CudaTest, Norm) {
  for (const int64_t width : {int64_t{2688}, int64_t{80}, int64_t{1}}) {
    const Tensor x = random(DType::f32, {19, width}), w = random(DType::f32, {width});
    Tensor y(arena_, DType::f32, {19, width});
    RmsNormFwd op{.x = x.view(), .w = w.view(), .y = y.mut()};
    reference(op);
    op.x = on_gpu(x.view());
    op.w = on_gpu(w.view());
    op.y = result(DType::f32, {19, width});
    launch(op);
    near(back(op.y), to_doubles(y.view()), 1e-5);
  }
}

TEST_F(CudaTest, OneTokenOfTheScan) {
  constexpr int64_t kHeads = 6, kGroups = 2;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [width, states] : {std::pair<int64_t, int64_t>{80, 128}, {64, 96}, {5, 33}}) {
      const int64_t tokens = 3;
      SeqMap seqs;
      for (int64_t i = 0; i < tokens; ++i) seqs.add(1, 0, i);
      const Tensor x = random(dtype, {tokens, kHeads, width}), b = random(dtype, {tokens, kGroups, states}),
                   c = random(dtype, {tokens, kGroups, states}), dt = random(dtype, {tokens, kHeads}, -3, 3),
                   dt_bias = random(DType::f32, {kHeads}), a_log = random(DType::f32, {kHeads}),
                   d_skip = random(DType::f32, {kHeads}), state = random(DType::f32, {tokens, kHeads, width, states});
      Tensor y(arena_, DType::f32, {tokens, kHeads, width});
      const MutView device_state = on_gpu(state.view());
      SsdStep op{.x = x.view(),
                 .b = b.view(),
                 .c = c.view(),
                 .dt = dt.view(),
                 .dt_bias = dt_bias.view(),
                 .a_log = a_log.view(),
                 .d_skip = d_skip.view(),
                 .state = state.mut(),
                 .y = y.mut(),
                 .seqs = &seqs,
                 .dt_min = 1e-3f,
                 .dt_max = 2.0f};
      reference(op);
      op.x = on_gpu(x.view());
      op.b = on_gpu(b.view());
      op.c = on_gpu(c.view());
      op.dt = on_gpu(dt.view());
      op.dt_bias = on_gpu(dt_bias.view());
      op.a_log = on_gpu(a_log.view());
      op.d_skip = on_gpu(d_skip.view());
      op.state = device_state;
      op.y = result(DType::f32, {tokens, kHeads, width});
      launch(op);
      near(back(op.y), to_doubles(y.view()), 1e-5);
      near(back(op.state), to_doubles(state.view()), 1e-5);
    }
  }
}

TEST_F(CudaTest, ARecordedPassRepeatsItsResult) {
  const Tensor x = random(DType::bf16, {4, 256}), w = random(DType::bf16, {128, 256}), n = random(DType::f32, {128});
  const MutView in = on_gpu(x.view()), middle = result(DType::f32, {4, 128}), out = result(DType::f32, {4, 128});
  const LinearFwd product{.x = in, .w = dense_weight(on_gpu(w.view())), .y = middle};
  const RmsNormFwd norm{.x = middle, .w = on_gpu(n.view()), .y = out};
  Ctx ctx{.arena = arena_, .gpu = gpu_.get()};
  GpuGraph graph;
  graph.record(*gpu_, [&] {
    run(ctx, product);
    run(ctx, norm);
  });
  for (int i = 0; i < 3; ++i) {
    gpu_->upload(random(DType::bf16, {4, 256}).view(), in);
    run(ctx, product);
    run(ctx, norm);
    const std::vector<double> direct = back(out);
    gpu_->upload(Tensor(arena_, DType::f32, {4, 128}).view(), out);
    graph.launch(*gpu_);
    EXPECT_EQ(back(out), direct);
  }
}

}  // namespace
}  // namespace braid
