#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "core/arena_plan.h"
#include "core/op_sweep.h"
#include "core/tape.h"
#include "support/error_of.h"
#include "sys/error.h"

namespace braid {
namespace {

TEST(DType, EveryF8ValueRoundTrips) {
  for (int bits = 0; bits < 256; ++bits) {
    const F8E4M3 v{static_cast<uint8_t>(bits)};
    if (std::isnan(to_float(v))) continue;
    EXPECT_EQ(to_f8e4m3(to_float(v)).bits, bits);
  }
  EXPECT_EQ(to_float(to_f8e4m3(1e6f)), 448.0f);
  EXPECT_EQ(to_float(to_f8e4m3(0.0009765625f)), 0.0f);  // half the smallest step: ties to even
  EXPECT_EQ(to_float(F8E4M3{1}), 0.001953125f);
}

TEST(DType, EveryHalfRoundTrips) {
  for (int bits = 0; bits < 65536; ++bits) {
    const F16 v{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(v))) continue;
    EXPECT_EQ(to_f16(to_float(v)).bits, bits);
  }
}

// Between every half and the next one: the middle to the even one, values next to it to the nearer.
TEST(DType, HalvesRoundToTheNearest) {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const auto next = static_cast<uint16_t>(bits + 1), even = bits % 2 == 0 ? bits : next;
    const float middle = (to_float(F16{bits}) + to_float(F16{next})) / 2;
    for (const uint16_t sign : {uint16_t{0}, uint16_t{0x8000}}) {
      const float to = sign ? -1.0f : 1.0f;
      EXPECT_EQ(to_f16(to * middle).bits, sign | even) << bits;
      EXPECT_EQ(to_f16(to * std::nextafter(middle, 0.0f)).bits, sign | bits) << bits;
      EXPECT_EQ(to_f16(to * std::nextafter(middle, 1e9f)).bits, sign | next) << bits;
    }
  }
  for (const float v : {65504.0f, 65519.9f}) EXPECT_EQ(to_f16(v).bits, 0x7bff);
  for (const float v : {65520.0f, 1e9f, INFINITY}) EXPECT_EQ(to_f16(v).bits, 0x7c00);
  EXPECT_EQ(to_float(F16{0x3c01}), 1 + std::ldexp(1.0f, -10));
  EXPECT_EQ(to_float(F16{0xfbff}), -65504.0f);
  EXPECT_EQ(to_float(F16{0x8400}), std::ldexp(-1.0f, -14));
}

TEST(DType, Bf16RoundsToEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1.00390625f).bits, 0x3f80);  // tie, down to even
  EXPECT_EQ(to_bf16(1.01171875f).bits, 0x3f82);  // tie, up to even
  EXPECT_TRUE(std::isnan(to_float(to_bf16(NAN))));
}

TEST(View, SlicesAndSplitsWithoutCopies) {
  std::vector<float> data(24);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const View v = view_of(data.data(), {4, 6});
  const View part = v.slice(1, 2, 4).split_last(2, 2);
  EXPECT_EQ(part.shape, (Shape{4, 2, 2}));
  EXPECT_EQ(element(part, 4 + 3), 6 + 5);
  EXPECT_FALSE(part.contiguous());
}

TEST(View, ChecksItsTypeAndBoundsInEveryBuild) {
  std::vector<float> data(24);
  const View v = view_of(data.data(), {4, 6});
  EXPECT_EXIT(v.as<Bf16>(), testing::ExitedWithCode(70), "F32 read as BF16");
  EXPECT_EXIT(v.slice(1, 3, 4), testing::ExitedWithCode(70), "3 \\+ 4 of 6");
  EXPECT_EXIT(v.split_last(4, 2), testing::ExitedWithCode(70), "6 as 4 x 2");
}

TEST(View, IntegersSaturate) {
  int8_t small[4];
  int64_t large[1];
  const MutView codes = mut_view_of(small, {4}), counts = mut_view_of(large, {1});
  for (const auto& [at, value] : {std::pair{0, 142.5}, {1, -1e300}, {2, -3.9}, {3, std::nan("")}})
    set_element(codes, at, value);
  const int8_t stored[] = {127, -128, -3, 0};
  EXPECT_TRUE(std::ranges::equal(small, stored));
  set_element(counts, 0, 0x1p63);
  EXPECT_EQ(large[0], std::numeric_limits<int64_t>::max());
}

TEST(Arena, FreesAndMerges) {
  Arena arena;
  {
    const Tensor a(arena, DType::f32, {100}), b(arena, DType::f32, {200});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.view().data) % 64, 0u);
    const Tensor shared = a;
    EXPECT_EQ(shared.view().data, a.view().data);
    EXPECT_FALSE(a.sole());
  }
  EXPECT_EQ(arena.bytes_in_use(), 0);
  const int64_t mapped = arena.bytes_mapped();
  for (int i = 0; i < 100; ++i) const Tensor t(arena, DType::f32, {mapped / 4});
  EXPECT_EQ(arena.bytes_mapped(), mapped) << "freed blocks were not merged";
}

// What the system does not give is named with what it has; a pass that only plans may take far more.
TEST(Arena, WhatDoesNotFitIsNamed) {
  constexpr int64_t kLarge = int64_t{1} << 45;  // 32 TiB
  Arena arena;
  const Tensor small(arena, DType::f32, {100});
  const std::string error = support::error_of([&] { const Tensor large(arena, DType::u8, {kLarge}); });
  EXPECT_NE(error.find("GiB free; expected 32768.0 GiB besides 0.1 GiB in use"), std::string::npos) << error;
  Arena planned;
  ArenaPlan plan{.dry = true};
  planned.begin_pass(plan);
  { const Tensor large(planned, DType::u8, {kLarge}); }
  planned.end_pass();
  EXPECT_GE(plan.bytes, kLarge);
}

// Allocates and frees in an order that first fit would scatter; returns the addresses.
std::vector<const std::byte*> scattered(Arena& arena, ArenaPlan& plan, int64_t scale, bool swapped = false) {
  arena.begin_pass(plan);
  std::vector<const std::byte*> places;
  {
    std::deque<Tensor> held;
    for (const int64_t n : {3000, 100, 2000, 100, 1000}) {
      const Tensor& t = held.emplace_back(arena, DType::u8, Shape{n * scale});
      std::memset(t.mut().data, static_cast<int>(held.size()), static_cast<size_t>(n * scale));
      places.push_back(t.view().data);
    }
    const auto free_one = [&](size_t i) { held[i] = Tensor(); };
    free_one(swapped ? 2 : 0);
    free_one(swapped ? 0 : 2);
    const Tensor late(arena, DType::u8, {5000 * scale});
    std::memset(late.mut().data, 9, static_cast<size_t>(late.view().bytes()));
    places.push_back(late.view().data);
    for (const size_t i : {size_t{1}, size_t{3}, size_t{4}}) {
      EXPECT_EQ(static_cast<size_t>(held[i].view().data[0]), i + 1) << "two blocks share memory while both live";
      EXPECT_EQ(static_cast<size_t>(held[i].view().data[held[i].view().bytes() - 1]), i + 1);
    }
  }
  arena.end_pass();
  return places;
}

TEST(Arena, SmallerPassesFollowAPlan) {
  ArenaPlan plan;
  {
    Arena rehearsal;
    scattered(rehearsal, plan, 40);
  }
  EXPECT_EQ(plan.made, 1);
  EXPECT_EQ(plan.blocks.size(), 6u);
  EXPECT_LE(plan.bytes, plan.bytes_live * 21 / 20) << "blocks that are never live together do not share";
  Arena arena;
  const auto first = scattered(arena, plan, 40);
  const int64_t mapped = arena.bytes_mapped();
  EXPECT_LT(mapped, plan.bytes + 8192) << "something was placed elsewhere";
  EXPECT_EQ(scattered(arena, plan, 7), first);
  EXPECT_EQ(scattered(arena, plan, 40), first);
  EXPECT_EQ(arena.bytes_mapped(), mapped);
  EXPECT_EQ(arena.bytes_in_use(), 0);
  EXPECT_EQ(plan.outgrown, 0);
}

TEST(Arena, WhatOutgrowsItsBlockIsPlannedAgain) {
  ArenaPlan plan;
  Arena arena;
  scattered(arena, plan, 10);
  scattered(arena, plan, 40);
  EXPECT_GT(plan.outgrown, 0);
  EXPECT_EQ(plan.made, 2);
  const int64_t counted = plan.outgrown, live = plan.bytes_live;
  scattered(arena, plan, 40);
  EXPECT_EQ(plan.outgrown, counted);
  EXPECT_GT(live, 40 * 5000);
  scattered(arena, plan, 40, true);  // another order: recorded by the next pass
  EXPECT_EQ(plan.outgrown, counted + 1);
  EXPECT_EQ(plan.made, 0);
  scattered(arena, plan, 40, true);
  EXPECT_EQ(plan.made, 1);
  scattered(arena, plan, 40, true);
  EXPECT_EQ(plan.outgrown, counted + 1);
  EXPECT_EQ(arena.bytes_in_use(), 0);
}

TEST(Arena, WhatOutlivesItsPassIsNotOverwritten) {
  ArenaPlan plan;
  Arena arena;
  Tensor held;
  for (int i = 0; i < 4; ++i) {
    arena.begin_pass(plan);
    Tensor t(arena, DType::u8, {100});
    std::memset(t.mut().data, i, 100);
    if (i == 1) held = t;
    t = Tensor();
    arena.end_pass();
  }
  EXPECT_EQ(static_cast<int>(held.view().data[99]), 1);
  held = Tensor();
  EXPECT_EQ(arena.bytes_in_use(), 0);
}

// A toy op with a wrong row, a refusing row and a reference: the mechanism itself is under test.
struct Twice {
  View x{};
  MutView y{};
  static constexpr const char* name = "twice";
  static constexpr auto fields() { return std::tuple{in("x", &Twice::x, "T D"), out("y", &Twice::y, "T D")}; }
  double flops() const { return static_cast<double>(x.count()); }
  static std::span<const Row<Twice>> rows();
};

const char* only_even(const Twice& op) { return op.x.count() % 2 ? "odd count" : nullptr; }
void twice(Ctx&, const Twice& op, std::span<std::byte>) {
  for (int64_t i = 0; i < op.x.count(); ++i) set_element(op.y, i, 2 * element(op.x, i));
}
std::span<const Row<Twice>> Twice::rows() {
  static constexpr Row<Twice> kRows[] = {
      {.name = "cuda", .numerics = "f32", .device = Device::cuda},
      {.name = "even", .numerics = "f32", .supports = &only_even, .run = &twice},
      {.name = "ref", .numerics = "f64", .run = &twice},
  };
  return kRows;
}

TEST(Op, FirstAcceptorWinsAndReasonsArePrinted) {
  Arena arena;
  Ctx ctx{.arena = arena};
  std::vector<float> x(6, 1.0f), y(6);
  EXPECT_STREQ(choose(ctx, Twice{view_of(x.data(), {2, 3}), mut_view_of(y.data(), {2, 3})}).name, "even");
  const Twice odd{view_of(x.data(), {1, 3}), mut_view_of(y.data(), {1, 3})};
  ctx.verbose_dispatch = true;
  testing::internal::CaptureStderr();
  EXPECT_STREQ(choose(ctx, odd).name, "ref");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "dispatch twice: ref (f64); refused cuda: other device, even: odd count\n");
}

TEST(Op, RowsCanBeForced) {
  Arena arena;
  Ctx ctx{.arena = arena};
  std::vector<float> x(6, 1.0f), y(6);
  const Twice op{view_of(x.data(), {2, 3}), mut_view_of(y.data(), {2, 3})};
  ctx.forced_rows["twice"] = "ref";
  EXPECT_STREQ(choose(ctx, op).name, "ref");
  ctx.forced_rows["twice"] = "none";
  EXPECT_THROW(choose(ctx, op), Error);
  ctx.forced_rows["twice"] = "even";
  EXPECT_THROW(choose(ctx, Twice{view_of(x.data(), {1, 3}), mut_view_of(y.data(), {1, 3})}), Error);
}

TEST(Op, APreferredRowComesFirstIfItAcceptsAndAForcedOneBeforeIt) {
  Arena arena;
  Ctx ctx{.arena = arena};
  std::vector<float> x(6, 1.0f), y(6);
  const Twice op{view_of(x.data(), {2, 3}), mut_view_of(y.data(), {2, 3})},
      odd{view_of(x.data(), {1, 3}), mut_view_of(y.data(), {1, 3})};
  ctx.preferred_rows["twice"] = "ref";
  EXPECT_STREQ(choose(ctx, op).name, "ref");
  ctx.forced_rows["twice"] = "even";
  EXPECT_STREQ(choose(ctx, op).name, "even");
  ctx.forced_rows.clear();
  ctx.preferred_rows["twice"] = "even";
  EXPECT_STREQ(choose(ctx, odd).name, "ref");
  ctx.preferred_rows["twice"] = "none";
  EXPECT_THROW(choose(ctx, op), Error);
}

TEST(Op, WrongShapesAreBugsThatNameTheField) {
  Arena arena;
  Ctx ctx{.arena = arena};
  std::vector<float> x(6), y(6);
  const Twice op{view_of(x.data(), {2, 3}), mut_view_of(y.data(), {3, 2})};
  EXPECT_EXIT(run(ctx, op), testing::ExitedWithCode(70), "twice: y is \\[3, 2\\]; expected \\[T D\\] with T = 2");
}

// Rows of either device would follow a pointer of the other. The weight is a stack, whose second one is elsewhere.
TEST(Op, FieldsOnTwoDevicesAreABug) {
  Arena arena;
  Ctx ctx{.arena = arena};
  std::vector<float> x(6), y(6);
  Twice op{view_of(x.data(), {2, 3}), mut_view_of(y.data(), {2, 3})};
  op.x.device = Device::cuda;
  EXPECT_EXIT(run(ctx, op), testing::ExitedWithCode(70), "twice: y is not on cuda as x is");
  op.x.device = Device::cpu;
  op.y.device = Device::cuda;
  EXPECT_EXIT(run(ctx, op), testing::ExitedWithCode(70), "twice: y is not on cpu as x is");
  Weight list[2] = {dense_weight(view_of(x.data(), {2, 3})), dense_weight(view_of(x.data(), {2, 3}))};
  EXPECT_TRUE(detail::lies_on(Device::cpu, std::span<const Weight>(list)));
  list[1].scales = View(list[1].codes.data, DType::f8_e4m3, {2, 1}, Device::cuda);
  EXPECT_FALSE(detail::lies_on(Device::cpu, std::span<const Weight>(list)));
}

TEST(Op, PoisonShowsWhatIsNotWritten) {
  Arena arena;
  Ctx ctx{.arena = arena};
  ctx.poison = true;
  std::vector<float> y(2, 1.0f);
  detail::poison(mut_view_of(y.data(), {2}));
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
}

TEST(Op, BytesComeFromTheFields) {
  std::vector<float> x(6), y(6);
  EXPECT_EQ(bytes_of(Twice{view_of(x.data(), {2, 3}), mut_view_of(y.data(), {2, 3})}), 48);
}

}  // namespace
}  // namespace braid
