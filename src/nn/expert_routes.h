// Where the tokens of a layer go when ranks share its experts, and how they get there and back. A slot is one of the K
// experts that a token chose; `parts` ranks hold its expert, a part of the width each. For every slot each of them gets
// the token's row, in an order that all dispatchers have in common: by source rank, then expert, then token. What an
// expert makes of a row goes straight back to where the row came from, which adds up the slots of a token in their
// order, and of a slot the parts in theirs: all dispatchers give the same bits (arXiv 2603.07685, token dispatchers).
//
// They differ in how rows go out. Of n ranks with T tokens [R] each, E = n / parts ranks apart, one rank sends:
//   allgather   every token to every rank, (n - 1) T R elements, and nobody asks who needs it: few ranks, large K
//   alltoall    every slot to its ranks, T K R (parts - 1 / E) elements where slots are balanced
//   node        a token once to every other node that has an expert for it, to the rank with this one's number there,
//               which forwards it within the node
// Before that ranks tell one another the chosen experts (allgather, node) or how many rows will come (alltoall, node).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "comm/group.h"
#include "core/ctx.h"
#include "core/param.h"
#include "core/tensor.h"

namespace braid::nn {

enum class Dispatcher : uint8_t { allgather, alltoall, node };

// Of the experts of every layer: rank i * parts + t of `all` holds part t of the i-th share of them.
struct ExpertRanks {
  comm::Group* all = nullptr;
  // Of Dispatcher::node: the ranks of this rank's node, and those with its number in every node.
  comm::Group *node = nullptr, *aligned = nullptr;
  int64_t parts = 1;
  Dispatcher dispatcher = Dispatcher::alltoall;
};

// Of one pass of a layer over its tokens. All ranks make the same calls in the same order; views are contiguous.
class ExpertRoutes {
 public:
  // `chosen` [T, K] I32 below `experts`, of which every share has as many; -1: the slot was dropped, and nothing of it
  // is sent. In a dry pass as many rows arrive as leave.
  ExpertRoutes(Ctx& ctx, const ExpertRanks& ranks, const View& chosen, int64_t experts);
  ExpertRoutes(const ExpertRoutes&) = delete;
  ExpertRoutes& operator=(const ExpertRoutes&) = delete;

  int64_t rows() const { return rows_; }                          // that arrive here
  std::span<const int32_t> experts() const { return arriving_; }  // of each: its expert, counted among this rank's

  // x [T, R] of any type to rows [rows(), R] of the same.
  void send(Ctx& ctx, const View& x, const MutView& rows) const;
  // One number for every slot: x [T, K] F32 to rows [rows(), 1].
  void send_slots(Ctx& ctx, const View& x, const MutView& rows) const;
  // The sums: rows [rows(), R] F32 to y [T, R] F32 or BF16.
  void add_up(Ctx& ctx, const View& rows, const MutView& y) const;
  // The same for every slot: rows [rows(), 1] to y [T, K] F32.
  void add_up_slots(Ctx& ctx, const View& rows, const MutView& y) const;

 private:
  // Rows to copy, and how many of them go to each rank.
  struct Load {
    std::vector<int32_t> rows{};
    std::vector<int64_t> counts{};
  };
  Range experts_of(int64_t share) const { return {share * each_, each_}; }
  int64_t share() const { return ranks_.all->rank() / ranks_.parts; }
  int64_t sent_rows(const Ctx& ctx) const;
  void count_arriving();
  void gather_chosen(std::span<const int32_t> chosen);
  void meet_at_nodes(std::span<const int32_t> chosen);
  void forward(std::span<const int32_t> chosen, std::span<const int64_t> from_nodes);
  void send_through_nodes(Ctx& ctx, const View& x, const MutView& rows) const;
  void back(const View& rows, const MutView& landing) const;

  ExpertRanks ranks_;
  int64_t tokens_, slots_of_token_, each_;  // each_: experts of a share
  int64_t rows_ = 0;
  std::vector<int32_t> slots_, position_;  // by expert, in order; of a slot: where it is there, or -1
  std::vector<int64_t> shares_;            // where the slots of each share begin there, and the end
  std::vector<int64_t> sent_, received_;   // rows to and from each rank
  std::vector<int32_t> arriving_;
  std::vector<int64_t> gathered_;                // allgather: tokens of each rank
  std::vector<int32_t> picked_;                  // allgather: of each row that arrives, its index among all tokens
  Load to_nodes_, onward_;                       // node: own tokens; what came from other nodes
  std::vector<int64_t> from_nodes_, forwarded_;  // node: tokens, and rows from each rank of this node
  std::vector<int64_t> landed_;                  // node: where the rows of a source are among those
};

}  // namespace braid::nn
