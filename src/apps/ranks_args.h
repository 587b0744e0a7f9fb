// Options of the commands whose model ranks may divide (models/division.h), and the start of these ranks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "apps/model_args.h"
#include "comm/group.h"
#include "comm/same_words.h"

namespace braid::apps {

// How the ranks of a command come to be: processes that this one starts, those that mpirun started, or those that were
// started by hand, at every host.
struct StartArgs {
  std::string hosts;  // each rank's address and port; empty: not by hand
  int64_t rank = 0;

  void declare(Cli& cli);
  // Ranks that there are already, or are asked for by --ranks; 0: neither. Error when these differ.
  int given(int64_t ranks) const;
  // `words`: what all ranks have to be told alike, to which the build is added. `collectives`: a file of timed calls
  // (comm/selector.h) that algorithms are chosen by, or "".
  void run(int size, comm::Words words, const std::string& collectives,
           const std::function<void(comm::Group& world)>& body) const;

 private:
  std::vector<std::string> list() const;
};

struct RanksArgs {
  int64_t ranks = 0, tp = 1, pp = 1, ep = 1;
  StartArgs start_of_ranks;
  std::string collectives;

  void declare(Cli& cli);
  // Runs `body` with ModelArgs::ranks set, on as many ranks as the options take. Only the first rank's output is seen,
  // and its exit code is returned. Error, before a rank starts, when one of `models` cannot be divided so, and before
  // `body` when ranks were given other options of `cli`.
  int start(ModelArgs& model, const Cli& cli, const std::vector<std::string>& models,
            const std::function<int()>& body) const;

 private:
  int count() const;
};

}  // namespace braid::apps
