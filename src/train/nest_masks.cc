#include "train/nest_masks.h"

#include <map>
#include <string>
#include <utility>

#include "prune/cut_model.h"
#include "sys/check.h"
#include "sys/parallel.h"

namespace braid::train {
namespace {

constexpr float kClosed = -1e4f;  // added to the selection bias of an expert that is never chosen

}  // namespace

// Gives copies of all that the masters have.
class MaskedModel::Source final : public nn::ParamSource {
 public:
  Source(MaskedModel& to, prune::CutSource& all) : to_(to), all_(all) {}
  bool has(const std::string& name) const override { return all_.has(name); }

 protected:
  Param first(const nn::ParamRequest& r) override {
    const models::MasterTensor& tensor = to_.masters_.tensor(all_.stored_name(r));
    Site& site = to_.sites_.emplace_back();
    site.layout = &all_.origin(r);
    site.offset = tensor.offset;
    site.value = to_.store_.make(tensor.matrix ? to_.masters_.products() : DType::f32, {r.rows(), r.cols()});
    Param p = r.param(dense_weight(site.value));
    p.grad = grad(site);
    site_of_[r.name] = to_.sites_.size() - 1;
    return p;
  }
  Param again(const nn::ParamRequest& r, const Param& given) override {
    Param p = given;
    p.grad = grad(to_.sites_[site_of_.at(r.name)]);
    return p;
  }

 private:
  MutView grad(Site& site) const { return site.grads.emplace_back(to_.store_.make(DType::f32, site.value.shape)); }

  MaskedModel& to_;
  prune::CutSource& all_;
  std::map<std::string, size_t> site_of_;
};

MaskedModel::MaskedModel(const models::Config& config, const models::OpenFolder& folder, const prune::Layouts& layouts,
                         models::MasterWeights& masters)
    : masters_(masters) {
  const prune::Keep all = prune::order_of(config);
  prune::CutSource cut(*folder.source, layouts, all, store_);
  Source source(*this, cut);
  model_ = std::make_unique<models::Model>(config, source);
}

double MaskedModel::bytes() const {
  double sum = 0;
  for (const Site& s : sites_) {
    sum += static_cast<double>(s.value.bytes());
    for (const MutView& g : s.grads) sum += static_cast<double>(g.bytes());
  }
  return sum;
}

void MaskedModel::take_values(const prune::SoftSizes& sizes, int threads) {
  sys::parallel_for(threads, std::ssize(sites_), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Site& s = sites_[static_cast<size_t>(i)];
      s.factors = sizes.factors(*s.layout);
      CHECK(std::ssize(s.factors.rows) == s.value.dim(0) && std::ssize(s.factors.cols) == s.value.dim(1), "{}: {}",
            s.layout->spec.name, to_string(s.value.shape));
      const bool selects = s.layout->spec.role == ParamRole::router_bias;
      fill(s, selects ? sizes.closed_experts(s.layout->spec.layer) : std::vector<bool>());
    }
  });
}

void MaskedModel::fill(Site& s, const std::vector<bool>& closed) const {
  const auto offset = static_cast<size_t>(s.offset), cols = s.factors.cols.size();
  const std::span<const float> values = masters_.values().subspan(offset);
  const auto each = [&](auto&& put) {
    for (size_t r = 0, i = 0; r < s.factors.rows.size(); ++r) {
      for (size_t c = 0; c < cols; ++c, ++i) put(i, static_cast<float>(s.factors.rows[r] * s.factors.cols[c]));
    }
  };
  if (s.value.dtype == DType::bf16) {
    const std::span<const Bf16> rounded = masters_.rounded().subspan(offset);
    auto* to = s.value.as<Bf16>();
    each([&](size_t i, float f) { to[i] = f == 1 ? rounded[i] : to_bf16(f * values[i]); });
    return;
  }
  auto* to = s.value.as<float>();
  each([&](size_t i, float f) { to[i] = f * values[i]; });
  for (size_t e = 0; e < closed.size(); ++e) to[e] += closed[e] ? kClosed : 0;
}

void MaskedModel::add_gradients(prune::SoftSizes& sizes, int threads) {
  std::vector<prune::Factors> slopes(sites_.size());
  sys::parallel_for(threads, std::ssize(sites_), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      slopes[static_cast<size_t>(i)] = take_gradients(sites_[static_cast<size_t>(i)]);
  });
  for (size_t i = 0; i < sites_.size(); ++i) sizes.add_slopes(*sites_[i].layout, sites_[i].factors, slopes[i]);
}

prune::Factors MaskedModel::take_gradients(Site& s) const {
  const size_t rows = s.factors.rows.size(), cols = s.factors.cols.size();
  prune::Factors slopes{.rows = std::vector<double>(rows), .cols = std::vector<double>(cols)};
  const std::span<const float> values = masters_.values().subspan(static_cast<size_t>(s.offset));
  const std::span<float> sums = masters_.grads().subspan(static_cast<size_t>(s.offset));
  for (size_t r = 0, i = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c, ++i) {
      float grad = 0;
      for (const MutView& use : s.grads) grad += std::exchange(use.as<float>()[i], 0.0f);
      const double product = static_cast<double>(grad) * static_cast<double>(values[i]);
      slopes.rows[r] += product * s.factors.cols[c];
      slopes.cols[c] += product * s.factors.rows[r];
      sums[i] += static_cast<float>(s.factors.rows[r] * s.factors.cols[c]) * grad;
    }
  }
  return slopes;
}

}  // namespace braid::train
