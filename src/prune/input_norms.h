// The norms of what the matrices of a model are multiplied by, column by column, over passes that are observed.
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "nn/observer.h"

namespace braid::prune {

class InputNorms final : public nn::Observer {
 public:
  void product(const Param& w, const View& x, const View& y) override;
  void norm(const Param&, const View&, const View&, const View&) override {}
  void experts(Ctx& ctx, const nn::ExpertsSeen& seen) override;

  // The root of the mean square of every column, over the tokens that a matrix saw; of expert `expert` in a stack.
  // Ones for a matrix that saw none: its scores are magnitudes.
  std::vector<float> of(const ParamInfo& matrix, int expert, int64_t cols) const;

 private:
  using Key = std::tuple<int, ParamRole, int>;  // layer, role, expert
  struct Sums {
    std::vector<double> squares{};
    int64_t tokens = 0;
  };
  void add(const Key& key, std::span<const float> row);

  std::map<Key, Sums> sums_;
};

}  // namespace braid::prune
