// Options of the commands whose model ranks may divide (models/division.h), and the start of these ranks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "apps/model_args.h"

namespace braid::apps {

struct RanksArgs {
  int64_t ranks = 0, tp = 1, pp = 1, ep = 1;

  void declare(Cli& cli);
  // Runs `body` with ModelArgs::ranks set, on as many ranks as the options take: processes that this one starts, or
  // those that mpirun started. Only the first rank's output is seen, and its exit code is returned. Error, before a
  // rank starts, when one of `models` cannot be divided so.
  int start(ModelArgs& model, const std::vector<std::string>& models, const std::function<int()>& body) const;

 private:
  int count() const;
};

}  // namespace braid::apps
