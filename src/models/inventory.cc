#include "models/inventory.h"

#include "models/empty_model.h"

namespace braid::models {
namespace {

class ListSource final : public nn::ParamSource {
 public:
  explicit ListSource(DType matrices, bool gradients) : matrices_(matrices), gradients_(gradients) {}
  std::vector<TensorSpec> list;

  bool has(const std::string&) const override { return false; }
  Param matrix(const std::string& name, int64_t rows, int64_t cols, const char*) override {
    return note(name, {rows, cols}, true);
  }
  Param transposed(const std::string& name, int64_t rows, int64_t cols, const char*) override {
    note(name, {cols, rows}, true);
    return empty(name, rows, cols, true);
  }
  Param vector(const std::string& name, const Shape& shape, const char*, float) override {
    return note(name, shape, false);
  }
  std::vector<Param> stacked(const std::string& name, int64_t count, int64_t rows, int64_t cols, const char*) override {
    note(name, {count, rows, cols}, true);
    return std::vector<Param>(static_cast<size_t>(count), empty(name, rows, cols, true));
  }

 private:
  // A weight of the right shape at an address that nobody reads.
  Param empty(const std::string& name, int64_t rows, int64_t cols, bool matrix) const {
    alignas(64) static constexpr std::byte kNowhere[64] = {};
    Param p;
    p.name = name;
    p.value = dense_weight(View(kNowhere, matrix ? matrices_ : DType::f32, {rows, cols}));
    if (gradients_) p.grad = MutView(const_cast<std::byte*>(kNowhere), DType::f32, {rows, cols});
    return p;
  }
  Param note(const std::string& name, const Shape& shape, bool matrix) {
    list.push_back({name, shape, matrix});
    const int64_t rows = shape.rank > 1 ? shape[0] : 1;
    return empty(name, rows, shape.count() / rows, matrix);
  }

  DType matrices_;
  bool gradients_;
};

}  // namespace

std::vector<TensorSpec> inventory(const Config& config) {
  ListSource source(DType::bf16, false);
  const Model model(config, source);
  return std::move(source.list);
}

Model empty_model(const Config& config, DType products) {
  ListSource source(products, true);
  return {config, source};
}

}  // namespace braid::models
