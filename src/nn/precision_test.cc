// What recipes quantise, what ablations leave out, and that emulation adds no error: without encodings its products are
// the plain ones. A tensor is the operand of a whole micro-batch.
#include "nn/precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "core/op_sweep.h"
#include "support/error_of.h"

namespace braid::nn {
namespace {

struct Model {
  std::deque<TestTensor> values{};
  std::deque<Param> params{};
  std::vector<Param*> list{};

  Param& add(const ParamInfo& info, int64_t rows, int64_t cols, DType dtype = DType::f32) {
    const TestTensor& v = values.emplace_back(dtype, Shape{rows, cols}, 20 + values.size(), 0.2);
    list.push_back(&params.emplace_back(Param{info, dense_weight(v.view())}));
    return params.back();
  }
};

TEST(Precision, RecipesKeepTheNamedPartsHigh) {
  Model m;
  for (int layer = 0; layer < 62; ++layer) {
    const auto add = [&](const char* leaf, ParamRole role, int64_t cols) {
      m.add({.name = fmt::format("{}.{}", layer, leaf), .role = role, .layer = layer}, cols == 4 ? 32 : 16, cols);
    };
    add("in", ParamRole::mamba_in, 16);
    add("out", ParamRole::mamba_out, 16);
    add("q", ParamRole::q, 16);
    add("latent", ParamRole::latent_in, 16);
    add("router", ParamRole::router, 16);
    add("expert", ParamRole::expert_up, 16);
    add("conv", ParamRole::conv, 4);
  }
  m.add({.name = "embedding", .role = ParamRole::embedding}, 16, 16);
  m.add({.name = "head", .role = ParamRole::head}, 16, 16);
  m.add({.name = "mtp", .role = ParamRole::up, .layer = 62, .mtp = true}, 16, 16);
  const auto encoding = [&](const Precision& p, const std::string& name) {
    for (const Param* w : m.list) {
      if (w->name == name) return p.find(*w) ? p.find(*w).specs.forward_x.encoding : Encoding::none;
    }
    ADD_FAILURE() << name;
    return Encoding::none;
  };
  const auto in_layer = [](int layer, const char* leaf) { return fmt::format("{}.{}", layer, leaf); };
  const Precision four("nvfp4", m.list, 1), eight("fp8", m.list, 1), none("bf16", m.list, 1);
  EXPECT_EQ(encoding(four, in_layer(2, "in")), Encoding::nvfp4);
  EXPECT_EQ(encoding(four, in_layer(53, "expert")), Encoding::nvfp4);
  EXPECT_EQ(encoding(four, in_layer(30, "out")), Encoding::mxfp8);
  for (const char* leaf : {"q", "latent", "router", "conv"})
    EXPECT_EQ(encoding(four, in_layer(30, leaf)), Encoding::none) << leaf;
  EXPECT_EQ(encoding(four, in_layer(1, "in")), Encoding::none);
  EXPECT_EQ(encoding(four, in_layer(54, "in")), Encoding::none);
  EXPECT_EQ(encoding(eight, in_layer(4, "q")), Encoding::fp8_e4m3);
  EXPECT_EQ(encoding(eight, in_layer(57, "out")), Encoding::fp8_e4m3);
  EXPECT_EQ(encoding(eight, in_layer(3, "in")), Encoding::none);
  EXPECT_EQ(encoding(eight, in_layer(58, "in")), Encoding::none);
  EXPECT_EQ(encoding(eight, in_layer(30, "router")), Encoding::none);
  for (const char* name : {"embedding", "head", "mtp"}) {
    EXPECT_EQ(encoding(four, name), Encoding::none) << name;
    EXPECT_EQ(encoding(eight, name), Encoding::none) << name;
  }
  EXPECT_EQ(encoding(none, in_layer(30, "in")), Encoding::none);
  EXPECT_EQ(four.describe(),
            "nvfp4, emulated (numerics only, nothing is faster): 156 of 375 matrices, 42% of their values; the first 2 "
            "and last 8 layers stay in high precision");
  EXPECT_NE(support::error_of([&] { Precision("nvfp5", m.list, 1); }).find("nvfp4"), std::string::npos);
}

// One linear layer in the middle of a model of three.
struct Linear {
  static constexpr int64_t kIn = 40, kOut = 24, kTokens = 39;
  Arena arena{};
  Ctx ctx{.arena = arena};
  Model model{};
  Param* w = nullptr;
  TestTensor x, dy;
  std::vector<Seq> seqs = {{.start = 0, .len = 21, .sample_id = 4},
                           {.start = 21, .len = 18, .pos0 = 2, .sample_id = 9}};

  explicit Linear(DType dtype) : x(dtype, {kTokens, kIn}, 1), dy(DType::f32, {kTokens, kOut}, 2) {
    for (int layer = 0; layer < 3; ++layer) {
      Param& p = model.add({.role = ParamRole::up, .layer = layer}, kOut, kIn, dtype);
      if (layer == 1) w = &p;
    }
  }
  // y, dx, dw, dbias of sequences [first, first + n), dw and dbias added to what is there.
  struct Results {
    TestTensor y{DType::f32, {kTokens, kOut}, 1}, dx{DType::f32, {kTokens, kIn}, 1};
    TestTensor dw{DType::f32, {kOut, kIn}, 3}, dbias{DType::f32, {kOut}, 4};
  };
  void pass(const LowWeight& low, size_t first, size_t n, Results& r) {
    const int64_t start = seqs[first].start, rows = seqs[first + n - 1].start + seqs[first + n - 1].len - start;
    SeqMap map{std::vector<Seq>(seqs.begin() + static_cast<std::ptrdiff_t>(first),
                                seqs.begin() + static_cast<std::ptrdiff_t>(first + n))};
    for (Seq& s : map.seqs) s.start -= start;
    const View in = x.view().slice(0, start, rows), d = dy.view().slice(0, start, rows);
    product(ctx, low, LinearFwd{.x = in, .w = w->value, .y = r.y.mut().slice(0, start, rows), .train = true});
    product(ctx, low, LinearBwdData{.dy = d, .w = w->value, .dx = r.dx.mut().slice(0, start, rows)}, map.seqs);
    product(ctx, low, LinearBwdWeight{.dy = d, .x = in, .dw = r.dw.mut(), .dbias = r.dbias.mut(), .seqs = &map},
            map.seqs);
  }
};

TEST(LowLinear, WithoutEncodingsItIsThePlainOne) {
  Linear l(DType::f32);
  Precision precision("nvfp4", l.model.list, 1);
  ProductSpecs specs;
  specs.weight_dy.hadamard = specs.weight_x.hadamard = true;
  precision.replace(specs);
  Linear::Results plain, low;
  l.pass({}, 0, 2, plain);
  l.pass(precision.find(*l.w), 0, 2, low);
  EXPECT_EQ(plain.y.bytes, low.y.bytes);
  EXPECT_EQ(plain.dx.bytes, low.dx.bytes);
  EXPECT_LE(distance(low.dw.view(), plain.dw.view()), 1e-5) << "the transform cancels";
  EXPECT_LE(distance(low.dbias.view(), plain.dbias.view()), 1e-6);
}

TEST(LowLinear, BitsDependOnlyOnTheMicroBatch) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const char* recipe : {"fp8", "fp8-block", "mxfp8", "mxfp4", "nvfp4"}) {
      Linear l(dtype);
      Precision precision(recipe, l.model.list, 1);
      precision.begin_step(7);
      const LowWeight low = precision.find(*l.w);
      ASSERT_TRUE(low) << recipe;
      Linear::Results plain, whole, again, later;
      l.pass({}, 0, 2, plain);
      l.ctx.threads = 3;
      l.pass(low, 0, 2, whole);
      l.ctx.threads = 1;
      l.pass(low, 0, 2, again);
      EXPECT_EQ(whole.y.bytes, again.y.bytes) << recipe;
      EXPECT_EQ(whole.dx.bytes, again.dx.bytes) << recipe;
      EXPECT_EQ(whole.dw.bytes, again.dw.bytes) << recipe;
      EXPECT_EQ(whole.dbias.bytes, plain.dbias.bytes) << recipe << ": a bias is not quantised";
      EXPECT_NE(whole.y.bytes, plain.y.bytes) << recipe << " changed nothing";
      EXPECT_NE(whole.dx.bytes, plain.dx.bytes) << recipe << " left the gradient of the data unchanged";
      EXPECT_NE(whole.dw.bytes, plain.dw.bytes) << recipe << " left the gradient of the weight unchanged";
      EXPECT_LE(distance(whole.dx.view(), plain.dx.view()), 1.5) << recipe;
      Linear::Results next_use;
      LowWeight next = low;
      next.use = 1;
      l.pass(next, 0, 2, next_use);
      EXPECT_EQ(whole.dw.bytes != next_use.dw.bytes, low.specs.weight_dy.stochastic) << recipe << ": a step of a loop";
      EXPECT_EQ(whole.dx.bytes != next_use.dx.bytes, low.specs.data_dy.stochastic) << recipe;
      precision.begin_step(8);
      l.pass(low, 0, 2, later);
      EXPECT_EQ(whole.dw.bytes != later.dw.bytes, low.specs.weight_dy.stochastic) << recipe << ": noise of a step";
      EXPECT_EQ(whole.y.bytes, later.y.bytes) << recipe << ": only gradients are rounded at random";
    }
  }
}

// A product with an identity returns its rounded operand: the gradients of data and of weights, of this layer and of
// the next, are each rounded with different noise.
TEST(LowLinear, ProductsDrawDifferentNoise) {
  constexpr int64_t kSide = 32;
  Arena arena;
  Ctx ctx{.arena = arena};
  Model model;
  for (int layer = 0; layer < 4; ++layer) model.add({.role = ParamRole::up, .layer = layer}, kSide, kSide);
  TestTensor eye(DType::f32, {kSide, kSide}, 1), dy(DType::f32, {kSide, kSide}, 1);
  for (int64_t i = 0; i < kSide * kSide; ++i) {
    set_element(eye.mut(), i, i % (kSide + 1) == 0 ? 1 : 0);
    set_element(dy.mut(), i, i == 0 ? 448 : 17);  // the scale is 1; 17 lies between 16 and 18
  }
  Precision precision("nvfp4", model.list, 1);
  ProductSpecs specs;
  specs.data_dy = specs.weight_dy = {Encoding::fp8_e4m3, Scaling::matrix, false, true};
  precision.replace(specs);
  SeqMap map;
  map.add(kSide);
  std::vector<std::vector<bool>> ups;  // of each product, in the order of dy
  for (const int layer : {1, 2}) {
    const LowWeight low = precision.find(*model.list[static_cast<size_t>(layer)]);
    ASSERT_TRUE(low);
    TestTensor dx(DType::f32, {kSide, kSide}, 1), dw(DType::f32, {kSide, kSide}, 1);
    fill(dw.mut(), 0);
    product(ctx, low, LinearBwdData{.dy = dy.view(), .w = dense_weight(eye.view()), .dx = dx.mut()}, map.seqs);
    product(ctx, low, LinearBwdWeight{.dy = dy.view(), .x = eye.view(), .dw = dw.mut(), .seqs = &map}, map.seqs);
    std::vector<bool> data, weight;
    for (int64_t t = 0; t < kSide; ++t) {
      for (int64_t c = 0; c < kSide; ++c) {
        if (t + c == 0) continue;
        data.push_back(element(dx.view(), t * kSide + c) > 17);
        weight.push_back(element(dw.view(), c * kSide + t) > 17);
      }
    }
    ups.insert(ups.end(), {data, weight});
  }
  for (size_t a = 0; a < ups.size(); ++a) {
    const auto up = static_cast<double>(std::count(ups[a].begin(), ups[a].end(), true));
    EXPECT_NEAR(up, kSide * kSide / 2, 80) << a;  // five deviations
    for (size_t b = 0; b < a; ++b) {
      int same = 0;
      for (size_t i = 0; i < ups[a].size(); ++i) same += ups[a][i] == ups[b][i] ? 1 : 0;
      EXPECT_NEAR(same, kSide * kSide / 2, 80) << a << " and " << b;
    }
  }
}

// As published: the scale of a tensor is that of all tokens of the micro-batch, so cutting it in two changes bits.
// Formats with independent blocks are not affected if no block spans the cut.
TEST(LowLinear, TheScaleIsThatOfTheWholeMicroBatch) {
  for (const auto& [recipe, tensor_scale] :
       {std::pair("fp8", true), std::pair("nvfp4", true), std::pair("mxfp8", false), std::pair("fp8-block", false)}) {
    Linear l(DType::f32);
    set_element(l.x.mut(), 30 * Linear::kIn, 500);  // of the second sequence
    Precision precision(recipe, l.model.list, 1);
    const LowWeight low = precision.find(*l.w);
    Linear::Results whole, parts;
    l.pass(low, 0, 2, whole);
    l.pass(low, 0, 1, parts);
    l.pass(low, 1, 1, parts);
    EXPECT_EQ(whole.y.bytes != parts.y.bytes, tensor_scale) << recipe;
    TestTensor q(DType::f32, {Linear::kTokens, Linear::kIn}, 1), w(DType::f32, {Linear::kOut, Linear::kIn}, 1),
        want(DType::f32, {Linear::kTokens, Linear::kOut}, 1);
    run(l.ctx, Quantize{.x = l.x.view(), .q = q.mut(), .spec = low.specs.forward_x});
    run(l.ctx, Quantize{.x = l.w->value.codes, .q = w.mut(), .spec = low.specs.forward_w});
    run(l.ctx, LinearFwd{.x = q.view(), .w = dense_weight(w.view()), .y = want.mut(), .train = true});
    EXPECT_EQ(whole.y.bytes, want.bytes) << recipe;
  }
}

TEST(Precision, AblationsLeaveOutOnePart) {
  Linear l(DType::f32);
  const auto specs = [&](const char* recipe, const RecipeParts& parts) {
    const Precision precision(recipe, l.model.list, 1, parts);
    return precision.find(*l.w).specs;
  };
  const ProductSpecs full = specs("nvfp4", {});
  EXPECT_TRUE(full.data_dy.stochastic && full.weight_dy.stochastic);
  ProductSpecs want = full;
  want.data_dy.stochastic = want.weight_dy.stochastic = false;
  EXPECT_EQ(specs("nvfp4", {.stochastic = false}), want);
  want = full;
  want.weight_dy.hadamard = want.weight_x.hadamard = false;
  EXPECT_EQ(specs("nvfp4", {.hadamard = false}), want);
  want = full;
  want.forward_w.scaling = Scaling::along_cols;
  want.data_w.scaling = Scaling::along_rows;
  EXPECT_EQ(specs("nvfp4", {.square_weights = false}), want);
  EXPECT_EQ(specs("fp8-block", {.square_weights = false}).data_w.scaling, Scaling::along_rows);
  EXPECT_NE(Precision("nvfp4", l.model.list, 1, {.stochastic = false, .hadamard = false})
                .describe()
                .find("nvfp4, without stochastic rounding and Hadamard transform, emulated"),
            std::string::npos);
  for (const char* recipe : {"fp8", "none"}) {  // an arm that changes nothing would look like evidence
    EXPECT_EQ(support::error_of([&] { Precision(recipe, l.model.list, 1, {.hadamard = false}); }),
              fmt::format("[precision.hadamard] {} has no Hadamard transform; try leaving it out", recipe));
  }
}

struct Experts {
  static constexpr int64_t kTokens = 37, kSlots = 2, kExperts = 5, kIn = 32, kWidth = 24;
  Arena arena{};
  Ctx ctx{.arena = arena};
  std::deque<TestTensor> values{};
  std::vector<Param> up{}, gate{}, down{}, ends{};
  std::vector<Param*> list{};
  TestTensor x, dy{DType::f32, {kTokens, kIn}, 2}, weights{DType::f32, {kTokens, kSlots}, 3};
  std::vector<int32_t> chosen;
  std::vector<Seq> seqs = {{.start = 0, .len = 17, .sample_id = 3}, {.start = 17, .len = 20, .sample_id = 8}};

  Experts(DType dtype, bool gated) : x(dtype, {kTokens, kIn}, 1) {
    fill_list(up, 1, kWidth, kIn, dtype);
    if (gated) fill_list(gate, 1, kWidth, kIn, dtype);
    fill_list(down, 1, kIn, kWidth, dtype);
    for (const int end : {0, 2}) fill_list(ends, end, 16, 16, dtype);
    for (auto* group : {&up, &gate, &down, &ends}) {
      for (Param& p : *group) list.push_back(&p);
    }
    for (int64_t t = 0; t < kTokens; ++t) {  // expert 3 is never chosen
      chosen.push_back(static_cast<int32_t>(t % 3));
      chosen.push_back(t % 5 == 0 ? 4 : static_cast<int32_t>((t + 1) % 3));
    }
  }
  void fill_list(std::vector<Param>& params, int layer, int64_t rows, int64_t cols, DType dtype) {
    for (int64_t e = 0; e < kExperts; ++e) {
      const TestTensor& v = values.emplace_back(dtype, Shape{rows, cols}, 30 + values.size(), 0.2);
      params.push_back(Param{{.role = ParamRole::expert_up, .layer = layer}, dense_weight(v.view())});
    }
  }

  struct Results {
    TestTensor y{DType::f32, {kTokens, kIn}, 1}, dx{DType::f32, {kTokens, kIn}, 1};
    TestTensor dweights{DType::f32, {kTokens, kSlots}, 1};
    std::deque<TestTensor> grads{};
    std::vector<MutView> dup{}, dgate{}, ddown{};
    explicit Results(bool gated) {
      const auto add = [&](std::vector<MutView>& to, int64_t rows, int64_t cols) {
        for (int64_t e = 0; e < kExperts; ++e) to.push_back(grads.emplace_back(DType::f32, Shape{rows, cols}, 5).mut());
      };
      add(dup, kWidth, kIn);
      if (gated) add(dgate, kWidth, kIn);
      add(ddown, kIn, kWidth);
    }
  };
  static std::vector<Weight> weights_of(const std::vector<Param>& params) {
    std::vector<Weight> w;
    for (const Param& p : params) w.push_back(p.value);
    return w;
  }
  void pass(const Precision* precision, size_t first, size_t n, Results& r, uint32_t use = 0) {
    const int64_t start = seqs[first].start, rows = seqs[first + n - 1].start + seqs[first + n - 1].len - start;
    SeqMap map{std::vector<Seq>(seqs.begin() + static_cast<std::ptrdiff_t>(first),
                                seqs.begin() + static_cast<std::ptrdiff_t>(first + n))};
    for (Seq& s : map.seqs) s.start -= start;
    const auto u = weights_of(up), g = weights_of(gate), d = weights_of(down);
    const LowExperts low{.precision = precision, .up = up, .gate = gate, .down = down, .use = use};
    const View in = x.view().slice(0, start, rows), w = weights.view().slice(0, start, rows),
               who = view_of(chosen.data(), {kTokens, kSlots}).slice(0, start, rows);
    const ExpertAct act = g.empty() ? ExpertAct::relu2 : ExpertAct::silu;
    const MutView y = r.y.mut().slice(0, start, rows);
    product(ctx, low,
            ExpertsFwd{.x = in, .experts = who, .weights = w, .up = u, .gate = g, .down = d, .y = y, .act = act});
    product(ctx, low,
            ExpertsBwd{.dy = dy.view().slice(0, start, rows),
                       .x = in,
                       .experts = who,
                       .weights = w,
                       .up = u,
                       .gate = g,
                       .down = d,
                       .dx = r.dx.mut().slice(0, start, rows),
                       .dweights = r.dweights.mut().slice(0, start, rows),
                       .dup = r.dup,
                       .dgate = r.dgate,
                       .ddown = r.ddown,
                       .seqs = &map,
                       .act = act},
            map.seqs);
  }
};

TEST(LowExperts, WithoutEncodingsTheyAreThePlainOnes) {
  for (const bool gated : {false, true}) {
    Experts e(DType::f32, gated);
    Precision precision("nvfp4", e.list, 1);
    precision.replace({});
    ASSERT_TRUE(precision.find(e.up[0]));
    Experts::Results plain(gated), low(gated);
    e.pass(nullptr, 0, 2, plain);
    e.pass(&precision, 0, 2, low);
    EXPECT_LE(distance(low.y.view(), plain.y.view()), 1e-5);
    EXPECT_LE(distance(low.dx.view(), plain.dx.view()), 1e-5);
    EXPECT_LE(distance(low.dweights.view(), plain.dweights.view()), 1e-5);
    for (size_t i = 0; i < plain.grads.size(); ++i)
      EXPECT_LE(distance(low.grads[i].view(), plain.grads[i].view()), 1e-5) << i;
  }
}

TEST(LowExperts, BitsDependOnlyOnTheMicroBatch) {
  for (const bool gated : {false, true}) {
    Experts e(DType::bf16, gated);
    Precision precision("nvfp4", e.list, 1);
    Experts::Results plain(gated), whole(gated), again(gated), later(gated);
    e.pass(nullptr, 0, 2, plain);
    e.ctx.threads = 3;
    e.pass(&precision, 0, 2, whole);
    e.ctx.threads = 1;
    e.pass(&precision, 0, 2, again);
    Experts::Results next_use(gated);
    e.pass(&precision, 0, 2, next_use, 1);
    EXPECT_NE(whole.dx.bytes, next_use.dx.bytes) << "a step of a loop";
    precision.begin_step(1);
    e.pass(&precision, 0, 2, later);
    EXPECT_EQ(whole.y.bytes, again.y.bytes);
    EXPECT_EQ(whole.dx.bytes, again.dx.bytes);
    EXPECT_EQ(whole.dweights.bytes, again.dweights.bytes);
    EXPECT_EQ(whole.y.bytes, later.y.bytes);
    EXPECT_NE(whole.dx.bytes, later.dx.bytes) << "noise of a step";
    for (size_t i = 0; i < whole.grads.size(); ++i) {
      EXPECT_EQ(whole.grads[i].bytes, again.grads[i].bytes) << i;
      EXPECT_EQ(whole.grads[i].bytes == plain.grads[i].bytes, i % Experts::kExperts == 3) << i;
    }
  }
}

}  // namespace
}  // namespace braid::nn
