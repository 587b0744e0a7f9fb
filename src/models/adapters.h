// Adapters applied to a model whose own weights stay as stored. Where a product of the model is its own module, the
// adapter adds a product to its output (nn::linear); experts and the head instead read working copies of W + scale B A,
// which are updated with A and B, and the gradients of those copies become gradients of A and B.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/ctx.h"
#include "models/adapter_sites.h"
#include "models/model.h"
#include "sys/big_vector.h"

namespace braid::models {

class Adapters {
 public:
  struct Options {
    std::optional<DType> dtype{};  // of working copies, F32 or BF16; nullopt: that of the weight
    bool gradients = false;
  };
  // `sites` with the values of their A and B. Working copies are allocated in `store`; both outlive this.
  Adapters(std::vector<AdapterSite> sites, WeightStore& store, const Options& options);
  Adapters(const Adapters&) = delete;
  Adapters& operator=(const Adapters&) = delete;

  // The model with its adapters; this object must outlive it. `files` must have what the sites were found in.
  std::unique_ptr<Model> build(Config config, nn::ParamSource& files);

  // Updates the working copies after A and B changed.
  void apply(int threads);
  // After the last part of a batch: adds the gradients of working copies to those of A and B, and clears them.
  void fold_gradients(int threads);
  // Adds those of the copies, in the same order on every rank.
  void gradient_arrays(std::vector<std::span<float>>& arrays);

  const std::vector<AdapterSite>& sites() const { return sites_; }
  std::vector<Param*> params();  // every A and B
  // The working copy of a tensor, [rows, cols]; empty when it has none.
  View working(const std::string& name) const;

 private:
  friend class AdapterSource;
  struct Copy {  // of one stored tensor
    MutView value{};
    std::deque<sys::BigVector<float>> grads{};  // one per use, so that cuts of a batch do not change the order of sums
  };
  Copy& copy_of(const SiteMatrix& matrix) { return copies_.at(matrix.name); }
  void apply(const AdapterSite& site, Ctx& ctx);
  void fold_gradients(AdapterSite& site, Ctx& ctx);

  std::vector<AdapterSite> sites_;
  std::map<std::string, Adapter*> by_tensor_;  // by the name of the tensor
  std::map<std::string, Copy> copies_;
  Arena arena_;
};

}  // namespace braid::models
