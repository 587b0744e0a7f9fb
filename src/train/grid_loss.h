// Cross-entropy where ranks have some of the classes of the same rows each: with m the largest logit of all, lse = m +
// log of the ranks' sum of exp(lse_r - m), and one rank has the target's logit. Two sums over the ranks, of one number
// a row and of three; every rank gets the same.
#pragma once
#include "comm/group.h"
#include "core/ctx.h"
#include "core/view.h"

namespace braid::train {

struct GridLoss {
  View logits{};      // [n, own classes] F32
  View targets{};     // [n] I32, -1: not in the loss
  MutView dlogits{};  // [n, own classes] F32, or empty
  int64_t first = 0;  // class of this rank
  float weight = 0;   // of a row, in dlogits
};

struct GridLossSums {
  double loss = 0, right = 0;  // right: rows whose target is the first of the largest logits
};
GridLossSums grid_loss(Ctx& ctx, comm::Group& ranks, const GridLoss& op);

// The sums of all ranks, in their order.
GridLossSums add_up(comm::Group& ranks, const GridLossSums& own);

}  // namespace braid::train
