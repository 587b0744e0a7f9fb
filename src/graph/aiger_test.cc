// AIGER in both forms: the same circuit from each, tables of truth of circuits, and files that are wrong.
#include "graph/aiger.h"

#include <gtest/gtest.h>

#include "support/error_of.h"

namespace braid::graph {
namespace {

// The outputs of a circuit for values of its inputs.
std::vector<bool> simulate(const Aig& aig, const std::vector<bool>& inputs) {
  std::vector<bool> values = {false};
  values.insert(values.end(), inputs.begin(), inputs.end());
  const auto at = [&](int32_t literal) { return values[static_cast<size_t>(literal / 2)] != (literal % 2 == 1); };
  for (const auto& [left, right] : aig.gates) values.push_back(at(left) && at(right));
  std::vector<bool> outputs;
  for (const int32_t output : aig.outputs) outputs.push_back(at(output));
  return outputs;
}

// A half adder: sum and carry, its gates in an order that is not topological.
constexpr const char* kHalfAdder =
    "aag 7 2 0 2 3\n2\n4\n6\n12\n6 13 15\n12 2 4\n14 3 5\ni0 x\ni1 y\no0 s\nc\na comment\n";

TEST(Aiger, AsciiGatesMayComeInAnyOrder) {
  const Aig aig = parse_aiger(kHalfAdder, "h.aag");
  EXPECT_EQ(aig.inputs, 2);
  ASSERT_EQ(aig.gates.size(), 3u);
  for (const bool x : {false, true}) {
    for (const bool y : {false, true}) EXPECT_EQ(simulate(aig, {x, y}), (std::vector<bool>{x != y, x && y}));
  }
}

TEST(Aiger, BinaryIsTheSameCircuit) {
  // Gates 6 = 4 & 2, 8 = 5 & 3, 10 = 9 & 7; deltas of each.
  const std::string bytes =
      "aig 5 2 0 2 3\n10\n6\n\x02\x02\x03\x02\x01\x02"
      "c\nx";
  const Aig aig = parse_aiger(bytes, "h.aig");
  EXPECT_EQ(aig.gates, (std::vector<std::array<int32_t, 2>>{{4, 2}, {5, 3}, {9, 7}}));
  for (const bool x : {false, true}) {
    for (const bool y : {false, true}) EXPECT_EQ(simulate(aig, {x, y}), (std::vector<bool>{x != y, x && y}));
  }
}

TEST(Aiger, DeltasOfSeveralBytes) {
  std::string bytes = "aig 201 200 0 1 1\n402\n";
  bytes += {'\x90', '\x03', '\x00'};  // 402 - 400 = 2; 2 - 0 = 2
  const Aig aig = parse_aiger(bytes, "long.aig");
  EXPECT_EQ(aig.gates, (std::vector<std::array<int32_t, 2>>{{2, 2}}));
}

TEST(Aiger, LatchesAreInputsAndOutputs) {
  // One input, a latch that toggles with it: next = x xor q.
  const Aig aig = parse_aiger("aag 5 1 1 1 3\n2\n4 10 0\n4\n6 2 4\n8 3 5\n10 7 9\n", "t.aag");
  EXPECT_EQ(aig.inputs, 2);
  for (const bool x : {false, true}) {
    for (const bool q : {false, true}) EXPECT_EQ(simulate(aig, {x, q}), (std::vector<bool>{q, x != q}));
  }
}

TEST(Aiger, NodesHaveWhatTheyRead) {
  const AigNodes nodes = nodes_of(parse_aiger("aag 3 1 0 2 2\n2\n7\n1\n4 2 2\n6 5 1\n", "n.aag"));
  ASSERT_EQ(nodes.in.rows, 6);  // constant, input, two gates, two outputs
  EXPECT_EQ(nodes.in.rowptr, (std::vector<int64_t>{0, 0, 0, 2, 4, 5, 6}));
  EXPECT_EQ(nodes.in.col, (std::vector<int32_t>{1, 1, 0, 2, 3, 0}));
  EXPECT_EQ(nodes.inverted, (std::vector<uint8_t>{0, 0, 0, 2, 1, 1}));
  EXPECT_EQ(nodes.level, (std::vector<int32_t>{0, 0, 1, 2, 2, 0}));
  EXPECT_EQ(nodes.kind[0], AigKind::constant);
  EXPECT_EQ(nodes.kind[1], AigKind::input);
  EXPECT_EQ(nodes.kind[3], AigKind::gate);
  EXPECT_EQ(nodes.kind[5], AigKind::output);
  EXPECT_EQ(nodes.depth, 2);
  EXPECT_EQ(nodes_of(parse_aiger("aag 0 0 0 0 0\n", "none.aag")).in.rows, 1);
}

TEST(Aiger, WrongFilesGiveOneLine) {
  const auto refused = [](const std::string& bytes, const std::string& says) {
    const std::string error = support::error_of([&] { parse_aiger(bytes, "w.aig"); });
    EXPECT_NE(error.find(says), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  };
  refused("", "is not an AIGER file");
  refused("aig", "is not an AIGER file");
  refused("aag 1 1 0 0\n2\n", "no blank");
  refused("aag 1 -1 0 0 0\n", "I is not a number");
  refused("aag 1" + std::string(30, 'x') + " 1\n", "; got " + std::string(20, 'x') + "...");
  refused("aag 99999999999999999999 0 0 0 0\n", "M is not a number");
  refused("aag 1 1 0 0 1\n2\n4 2 2\n", "fewer variables");
  refused("aig 999999 0 0 0 999999\n", "more sizes");
  refused("aig 1073741824 1073741824 0 0 0\n", "M is not a number");
  refused("aag 1 1 0 0 0 1\n2\n", "properties");
  refused("aag 1 1 0 0 0\n3\n", "inverted, constant or defined twice");
  refused("aag 1 1 0 0 0\n0\n", "inverted, constant or defined twice");
  refused("aag 2 2 0 0 0\n2\n2\n", "defined twice");
  refused("aag 2 1 0 1 0\n2\n4\n", "neither an input nor a gate");
  refused("aag 2 1 0 1 0\n2\n6\n", "an output is not a number from 0 to 5");
  refused("aag 3 1 0 0 2\n2\n4 6 2\n6 4 2\n", "in a circle");
  refused("aag 2 1 0 0 1\n2\n4 4 2\n", "in a circle");
  refused("aag 1 1 0 0 0\n2 ", "a line does not end");
  refused("aig 2 1 0 0 0\n", "no unused variables");
  refused(std::string("aig 2 1 0 0 1\n\x00\x00", 16), "reads itself");
  refused("aig 2 1 0 0 1\n\x05", "names no variable before it");
  refused("aig 2 1 0 0 1\n\x01\x04", "names no variable before it");
  refused("aig 2 1 0 0 1\n\x01", "ends within its gates");
  refused("aig 2 1 0 0 1\n\xff\xff\xff\xff\xff\xff", "names no variable before it");
}

}  // namespace
}  // namespace braid::graph
