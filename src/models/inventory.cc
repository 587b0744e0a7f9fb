#include "models/inventory.h"

#include "models/empty_model.h"

namespace braid::models {
namespace {

class ListSource final : public nn::ParamSource {
 public:
  explicit ListSource(DType matrices, bool gradients, const nn::ParamSource* files = nullptr)
      : matrices_(matrices), gradients_(gradients), files_(files) {}
  std::vector<TensorSpec> list;

  bool has(const std::string& name) const override { return files_ && files_->has(name); }

 protected:
  // A weight of the right shape at an address that is never read.
  Param first(const nn::ParamRequest& r) override {
    alignas(64) static constexpr std::byte kNowhere[64] = {};
    list.push_back(r);
    const Shape shape{r.rows(), r.cols()};
    Param p = r.param(dense_weight(View(kNowhere, is_matrix(r.role) ? matrices_ : DType::f32, shape)));
    if (gradients_) p.grad = MutView(const_cast<std::byte*>(kNowhere), DType::f32, shape);
    return p;
  }

 private:
  DType matrices_;
  bool gradients_;
  const nn::ParamSource* files_;
};

}  // namespace

std::vector<TensorSpec> inventory(const Config& config) {
  ListSource source(DType::bf16, false);
  const Model model(config, source);
  return std::move(source.list);
}

std::vector<TensorSpec> stored_inventory(const Config& config, const nn::ParamSource& files) {
  ListSource source(DType::bf16, false, &files);
  const Model model(config, source);
  return std::move(source.list);
}

Model empty_model(const Config& config, DType products) {
  ListSource source(products, true);
  return {config, source};
}

}  // namespace braid::models
