// Parameters and bytes of a model with other sizes, by arithmetic alone: a search counts hundreds of thousands of them.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "prune/axes.h"
#include "prune/layout.h"

namespace braid::prune {

struct Cost {
  int64_t params = 0;  // with the prediction block
  int64_t active = 0;  // per token: without it, and of the routed experts only the chosen
};

class CostModel {
 public:
  // `order` ranks the layers, the best first: of Sizes[layers] the first so many stay. Both outlive this.
  CostModel(const models::Config& config, std::span<const int64_t> order);
  Cost of(const Sizes& sizes) const;

 private:
  const models::Config& config_;
  std::span<const int64_t> order_;
  Sizes full_;
};

// Of its files, whose tensors keep their types: those of a model that is not quantised may still differ.
class FileBytes {
 public:
  // `value_bytes`: of a value of a tensor of the whole model. Where files have experts one by one, those of a layer
  // count with the widest type among them. `config` and `order`, as above, outlive this.
  FileBytes(const models::Config& config, const Layouts& layouts, std::span<const int64_t> order,
            const std::function<int64_t(const models::TensorSpec&)>& value_bytes);
  int64_t of(const Sizes& sizes) const;

 private:
  struct Term {  // equal matrices of one layer
    std::vector<Piece> rows{}, cols{};
    int64_t value_bytes = 0;
    bool each_expert = false;
  };
  using Units = std::array<int64_t, kLabels>;
  static int64_t bytes_of(const std::vector<Term>& terms, const Units& units);
  Units units_of(const models::LayerSpec* layer, const Resizer& resizer) const;

  const models::Config& config_;
  std::span<const int64_t> order_;
  Sizes full_;
  std::vector<std::vector<Term>> of_layer_;  // the first: outside layers
};

}  // namespace braid::prune
