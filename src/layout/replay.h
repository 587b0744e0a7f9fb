// A step in virtual time: collectives as comm's simulation plays them, message by message over LogGP links with shared
// cards (comm/sim.h), and the passes of every stage one after the other in the trainer's order (train/pipeline.h), each
// layer waiting for what it needs. Slower than the closed form, and independent of it: of that it shares only the
// layers' work (step.h). Tests compare the two.
#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "layout/cost.h"

namespace braid::layout {

class Replay {
 public:
  explicit Replay(const Machine& machine) : machine_(machine) {}  // `machine` outlives this

  double step_seconds(const Task& task, const StepWork& work);
  double seconds(const Call& call, const comm::Groups& group);

 private:
  double seconds(const std::vector<Call>& calls, const StepWork& work);
  double simulated(comm::Op op, const comm::Groups& group, int64_t bytes);
  double shift(double bytes, int distance);

  const Machine& machine_;
  std::map<std::tuple<int, int, int, int64_t>, double> known_;  // operation, group, bytes
};

}  // namespace braid::layout
