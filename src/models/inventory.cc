#include "models/inventory.h"

#include "models/model.h"

namespace braid::models {
namespace {

class ListSource final : public nn::ParamSource {
 public:
  std::vector<TensorSpec> list;

  bool has(const std::string&) const override { return false; }
  Param matrix(const std::string& name, int64_t rows, int64_t cols, const char*) override {
    return note(name, {rows, cols}, true);
  }
  Param transposed(const std::string& name, int64_t rows, int64_t cols, const char*) override {
    note(name, {cols, rows}, true);
    return empty(name, rows, cols);
  }
  Param vector(const std::string& name, const Shape& shape, const char*, float) override {
    return note(name, shape, false);
  }
  std::vector<Param> stacked(const std::string& name, int64_t count, int64_t rows, int64_t cols, const char*) override {
    note(name, {count, rows, cols}, true);
    return std::vector<Param>(static_cast<size_t>(count), empty(name, rows, cols));
  }

 private:
  // A weight of the right shape at an address that nobody reads.
  static Param empty(const std::string& name, int64_t rows, int64_t cols) {
    alignas(64) static constexpr std::byte kNowhere[64] = {};
    Param p;
    p.name = name;
    p.value = dense_weight(View(kNowhere, DType::bf16, {rows, cols}));
    return p;
  }
  Param note(const std::string& name, const Shape& shape, bool matrix) {
    list.push_back({name, shape, matrix});
    const int64_t rows = shape.rank > 1 ? shape[0] : 1;
    return empty(name, rows, shape.count() / rows);
  }
};

}  // namespace

std::vector<TensorSpec> inventory(const Config& config) {
  ListSource source;
  const Model model(config, source);
  return std::move(source.list);
}

}  // namespace braid::models
