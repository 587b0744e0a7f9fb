// Collectives tried on a group, whatever its transport: all types and operations, sizes that do not divide, in place
// and out of place, uneven blocks; results against FP64 and, of an all-reduce, bit for bit between ranks. All ranks
// call these.
#pragma once
#include "comm/comm_fixture.h"

namespace braid::comm {

struct Case {
  const Algorithm& algorithm;
  DType type = DType::f32;
  Reduction op = Reduction::sum;
  int64_t size = 0;
  bool in_place = false, uneven = false;

  std::string text() const {
    return std::string(name_of(algorithm.op)) + " " + algorithm.name + " " + braid::name_of(type) + " " + name_of(op) +
           " of " + std::to_string(size) + (in_place ? " in place" : "") + (uneven ? " uneven" : "");
  }
};

inline void expect_reduced(const Case& c, const MutView& out, int ranks, int64_t first = 0) {
  for (int64_t i = 0; i < out.count(); ++i) {
    const Expected e = reduced(c.type, c.op, ranks, first + i);
    const double error = std::fabs(element(out, i) - e.value);
    const bool right = error <= (c.op == Reduction::sum ? bound(c.type, ranks, e.magnitude) : 0);  // false for NaN
    ASSERT_TRUE(right) << c.text() << " at " << i << ": " << element(out, i) << ", expected " << e.value;
  }
}

inline void expect_unchanged(const Case& c, Guarded& in, int rank) {
  for (int64_t i = 0; i < in.view().count(); ++i)
    ASSERT_EQ(element(in.view(), i), input_value(c.type, rank, i)) << c.text() << ": the input changed";
}

inline void try_all_reduce(Group& world, const Case& c) {
  Guarded in(c.type, c.size), out(c.type, c.size);
  in.fill_from(world.rank());
  if (c.in_place) out.fill_from(world.rank());
  world.all_reduce(c.in_place ? View(out.view()) : in.view(), out.view(), c.op, c.algorithm.name).wait();
  expect_reduced(c, out.view(), world.size());
  expect_unchanged(c, in, world.rank());
  ASSERT_TRUE(in.guards_intact() && out.guards_intact()) << c.text();
  // Every rank has the same bits.
  const MutView v = out.view();
  std::vector<std::byte> all(static_cast<size_t>(v.bytes() * world.size()));
  world.all_gather({v.data, DType::u8, {v.bytes()}}, {all.data(), DType::u8, {std::ssize(all)}}, {}, "linear").wait();
  for (int r = 1; r < world.size() && v.bytes() > 0; ++r)
    ASSERT_EQ(std::memcmp(all.data() + r * v.bytes(), all.data(), static_cast<size_t>(v.bytes())), 0)
        << c.text() << ": rank " << r << " differs";
}

inline void try_reduce(Group& world, const Case& c) {
  for (const int root : {0, world.size() - 1}) {
    Guarded in(c.type, c.size), out(c.type, c.size);
    const bool is_root = world.rank() == root, in_place = c.in_place && is_root;
    in.fill_from(world.rank());
    if (in_place) out.fill_from(world.rank());
    world
        .reduce(in_place ? View(out.view()) : in.view(), is_root ? out.view() : MutView(), c.op, root, c.algorithm.name)
        .wait();
    if (is_root) expect_reduced(c, out.view(), world.size());
    expect_unchanged(c, in, world.rank());
    ASSERT_TRUE(out.guards_intact()) << c.text();
  }
}

inline void try_broadcast(Group& world, const Case& c) {
  for (const int root : {0, world.size() / 2}) {
    Guarded x(c.type, c.size);
    if (world.rank() == root) x.fill_from(root);
    world.broadcast(x.view(), root, c.algorithm.name).wait();
    expect_unchanged(c, x, root);
    ASSERT_TRUE(x.guards_intact()) << c.text();
  }
}

inline std::vector<int64_t> counts_of(const Case& c, int ranks) {
  return c.uneven ? uneven_counts(ranks, c.size) : std::vector<int64_t>(static_cast<size_t>(ranks), c.size);
}

inline void try_all_gather(Group& world, const Case& c) {
  const std::vector<int64_t> counts = counts_of(c, world.size());
  const Blocks blocks = Blocks::of_counts(counts);
  Guarded in(c.type, blocks.count(world.rank())), out(c.type, blocks.total());
  in.fill_from(world.rank());
  const MutView own = out.view().slice(0, blocks.at(world.rank()), blocks.count(world.rank()));
  if (c.in_place) std::memcpy(own.data, in.view().data, static_cast<size_t>(own.bytes()));
  world
      .all_gather(c.in_place ? View(own) : in.view(), out.view(), c.uneven ? counts : std::vector<int64_t>{},
                  c.algorithm.name)
      .wait();
  for (int r = 0; r < world.size(); ++r) {
    for (int64_t i = 0; i < blocks.count(r); ++i)
      ASSERT_EQ(element(out.view(), blocks.at(r) + i), input_value(c.type, r, i)) << c.text() << " of " << r;
  }
  ASSERT_TRUE(out.guards_intact()) << c.text();
}

inline void try_reduce_scatter(Group& world, const Case& c) {
  const std::vector<int64_t> counts = counts_of(c, world.size());
  const Blocks blocks = Blocks::of_counts(counts);
  Guarded in(c.type, blocks.total()), apart(c.type, blocks.count(world.rank()));
  in.fill_from(world.rank());
  const int64_t first = blocks.at(world.rank());
  const MutView out = c.in_place ? MutView(in.view().slice(0, first, apart.view().count())) : apart.view();
  world.reduce_scatter(in.view(), out, c.op, c.uneven ? counts : std::vector<int64_t>{}, c.algorithm.name).wait();
  expect_reduced(c, out, world.size(), first);
  if (!c.in_place) expect_unchanged(c, in, world.rank());
  ASSERT_TRUE(in.guards_intact() && apart.guards_intact()) << c.text();
}

// Rank r sends size + (r + d) % 3 elements to rank d when uneven, numbered by (r, d).
inline void try_all_to_all(Group& world, const Case& c) {
  const auto count = [&](int r, int d) { return c.size + (c.uneven ? (r + d) % 3 : 0); };
  std::vector<int64_t> counts;  // symmetric, so that in place is possible
  for (int d = 0; d < world.size(); ++d) counts.push_back(count(world.rank(), d));
  const Blocks blocks = Blocks::of_counts(counts);
  Guarded in(c.type, blocks.total()), out(c.type, blocks.total());
  const auto value = [&](int r, int d, int64_t i) { return input_value(c.type, r * 64 + d, i); };
  for (int d = 0; d < world.size(); ++d) {
    for (int64_t i = 0; i < blocks.count(d); ++i)
      set_element(c.in_place ? out.view() : in.view(), blocks.at(d) + i, value(world.rank(), d, i));
  }
  const auto listed = c.uneven ? counts : std::vector<int64_t>{};
  world.all_to_all(c.in_place ? View(out.view()) : in.view(), out.view(), listed, listed, c.algorithm.name).wait();
  for (int r = 0; r < world.size(); ++r) {
    for (int64_t i = 0; i < blocks.count(r); ++i)
      ASSERT_EQ(element(out.view(), blocks.at(r) + i), value(r, world.rank(), i)) << c.text() << " from " << r;
  }
  ASSERT_TRUE(in.guards_intact() && out.guards_intact()) << c.text();
}

inline bool has_uneven(Op op) { return op == Op::all_gather || op == Op::reduce_scatter || op == Op::all_to_all; }
inline bool reduces(Op op) { return op == Op::reduce || op == Op::all_reduce || op == Op::reduce_scatter; }

inline void try_case(Group& world, const Case& c) {
  switch (c.algorithm.op) {
    case Op::barrier:
      return world.barrier(c.algorithm.name).wait();
    case Op::broadcast:
      return try_broadcast(world, c);
    case Op::reduce:
      return try_reduce(world, c);
    case Op::all_reduce:
      return try_all_reduce(world, c);
    case Op::all_gather:
      return try_all_gather(world, c);
    case Op::reduce_scatter:
      return try_reduce_scatter(world, c);
    case Op::all_to_all:
      return try_all_to_all(world, c);
  }
}

inline void try_algorithm(Group& world, const Algorithm& a) {
  for (const bool uneven : {false, true}) {
    if (uneven && !has_uneven(a.op)) continue;
    if (a.refuses({.op = a.op, .uniform = !uneven, .native = true, .alone = true})) continue;
    for (const bool in_place : {false, true}) {
      for (const int64_t size : {0, 1, 5, 64, 1031})
        try_case(world, {a, DType::f32, Reduction::sum, size, in_place, uneven});
    }
    for (const DType type : {DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8})
      try_case(world, {a, type, Reduction::sum, 37, false, uneven});
    for (const Reduction op : {Reduction::max, Reduction::min}) {
      if (!reduces(a.op)) continue;
      for (const DType type : {DType::f32, DType::bf16, DType::i64, DType::u8})
        try_case(world, {a, type, op, 13, true, uneven});
    }
  }
}

}  // namespace braid::comm
