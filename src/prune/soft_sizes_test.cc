// Shares of sizes: where one size of every axis has all, costs are those of its slice; slopes of costs are differences.
#include "prune/soft_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "models/load.h"
#include "prune/cost.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/golden.h"

namespace braid::prune {
namespace {

// A model as nested as it lies, with layers in an order of their own and energies that rise over the channels.
struct SoftSubject {
  explicit SoftSubject(const std::filesystem::path& folder, const std::string& measure = "params")
      : path(io::find_model(folder.string())),
        config(models::load_config(path)),
        files(models::open_folder(path)),
        layouts(config, files.source.get()),
        nested{.measure = measure} {
    nested.budgets.push_back({.name = "1", .sizes = full_sizes(config), .layers = in_place(std::ssize(config.layers))});
    nested.layer_order = in_place(std::ssize(config.layers));
    std::rotate(nested.layer_order.begin(), nested.layer_order.begin() + 1, nested.layer_order.end());
    for (const std::string& name : layouts.names()) {
      const Layout& l = layouts.of(name);
      if (l.spec.role != ParamRole::norm && l.spec.role != ParamRole::gated_norm) continue;
      for (int64_t i = 0; i < l.spec.cols(); ++i) nested.energy[name].push_back(0.5 + 0.01 * static_cast<double>(i));
    }
  }
  SoftSizes soft() const { return SoftSizes(config, layouts, nested, "nest.router"); }

  io::ModelPath path;
  models::Config config;
  models::OpenFolder files;
  Layouts layouts;
  Nested nested;
};

// One size of every axis, drawn.
Shares drawn(const SoftSizes& soft, uint64_t draw) {
  Shares shares = soft.smallest();
  for (size_t a = 0; a < shares.size(); ++a) {
    std::fill(shares[a].begin(), shares[a].end(), 0.0);
    const uint32_t bits = philox({.seed = 5, .stream = static_cast<uint32_t>(a)}, draw)[0];
    shares[a][bits % shares[a].size()] = 1;
  }
  return shares;
}

// Positive shares of every size that sum to 1.
Shares mixed(const SoftSizes& soft) {
  Shares shares = soft.smallest();
  for (size_t a = 0; a < shares.size(); ++a) {
    double sum = 0;
    for (size_t j = 0; j < shares[a].size(); ++j) sum += shares[a][j] = 1.0 + static_cast<double>((3 * j + a) % 5);
    for (double& share : shares[a]) share /= sum;
  }
  return shares;
}

class Soft : public testing::TestWithParam<GoldenFolder> {};

TEST_P(Soft, CostsAreThoseOfSlices) {
  for (const char* measure : {"params", "active"}) {
    const SoftSubject s(GetParam().path, measure);
    SoftSizes soft = s.soft();
    ASSERT_FALSE(soft.axes().empty());
    const CostModel costs(s.config, s.nested.layer_order);
    const auto count = [&](const Sizes& sizes) {
      const Cost c = costs.of(sizes);
      return static_cast<double>(measure == std::string("active") ? c.active : c.params);
    };
    for (uint64_t draw = 0; draw < 20; ++draw) {
      const Shares shares = draw == 0 ? soft.smallest() : drawn(soft, draw);
      soft.set(shares);
      const Budget budget = soft.budget(shares);
      EXPECT_NEAR(soft.cost(), count(budget.sizes) / count({}), 1e-12) << measure;
      EXPECT_EQ(std::ssize(budget.layers), budget.sizes[Axis::layers]);
    }
  }
}

TEST_P(Soft, SlopesOfCostsAreDifferences) {
  const SoftSubject s(GetParam().path);
  SoftSizes soft = s.soft();
  const Shares at = mixed(soft);
  soft.set(at);
  soft.cost(3);
  const Shares slopes = soft.take_slopes();
  for (size_t a = 0; a < at.size(); ++a) {
    for (size_t j = 1; j < at[a].size(); ++j) {  // against the first: the shares of an axis sum to 1
      double ends[2] = {};
      for (const int side : {0, 1}) {
        Shares moved = at;
        const double by = side == 0 ? -1e-4 : 1e-4;
        moved[a][j] += by;
        moved[a][0] -= by;
        soft.set(moved);
        ends[side] = 3 * soft.cost();
      }
      EXPECT_NEAR(slopes[a][j] - slopes[a][0], (ends[1] - ends[0]) / 2e-4, 1e-8) << name_of(soft.axes()[a].axis);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Soft, testing::ValuesIn(unquantised_folders()),
                         [](const auto& test) { return test.param.label; });

TEST(SoftSizes, NeedAnOrderOfLayers) {
  SoftSubject s(support::data("hf/nemotron-h-latent-mtp"));
  s.nested.layer_order.clear();
  EXPECT_NE(support::error_of([&] { (void)s.soft(); }).find("[nest.router] the nested model was made without"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::prune
