#include "plan/floor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/arena.h"
#include "core/grouped_rows.h"
#include "models/family.h"
#include "nn/param_source.h"

namespace braid::plan {
namespace {

// A model of M, *, E and - without values: its weights have shapes and an address that is never read.
class NoValues final : public nn::ParamSource {
 public:
  bool has(const std::string&) const override { return false; }

 protected:
  Param first(const nn::ParamRequest& r) override {
    static constexpr std::byte kNowhere[64] = {};
    return r.param(dense_weight(View(kNowhere, DType::bf16, {r.rows(), r.cols()})));
  }
};

models::Model small_model() {
  const char* config =
      R"({"architectures":["NemotronHForCausalLM"],"vocab_size":100,"hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,
    "head_dim":8,"hybrid_override_pattern":"M*E-","mamba_num_heads":4,"mamba_head_dim":8,"ssm_state_size":16,"n_groups":2,"conv_kernel":4,
    "intermediate_size":64,"n_routed_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":24,"moe_shared_expert_intermediate_size":48})";
  NoValues source;
  return models::Model(models::read_config(io::Json::parse(config, "config.json")), source);
}

TEST(Floor, EveryStoredByteCountsOnceButForEmbeddingAndExperts) {
  models::Model model = small_model();
  double stored = 0;
  for (const Param* p : model.params()) stored += static_cast<double>(p->value.bytes());
  const double embedding = 100 * 32 * 2, experts = 8 * 2 * 24 * 32 * 2;
  const Work sum = total(work_of(model, {.tokens = 1, .logits_rows = 1}));
  const double state = 2 * 4 * (4 * 8 * 16 + 3 * (32 + 2 * 2 * 16)), kv = 2 * 2 * 8 * 2;
  EXPECT_NEAR(sum.bytes, stored - embedding + 32 * 2 - experts * 3 / 4 + state + kv, 1e-6);
}

TEST(Floor, ManyTokensActivateAllExpertsAndCostInProportion) {
  models::Model model = small_model();
  const auto experts = [&](int64_t tokens) {
    for (const Work& w : work_of(model, {.tokens = tokens})) {
      if (w.kind == WorkKind::experts) return w;
    }
    return Work{};
  };
  EXPECT_NEAR(experts(1000).bytes, 8 * 2 * 24 * 32 * 2, 1);
  EXPECT_NEAR(experts(1000).flops, 1000.0 * 2 * 2 * 2 * 24 * 32, 1);
  EXPECT_NEAR(experts(2).bytes, 8 * 2 * 24 * 32 * 2 * (1 - std::pow(0.75, 2)), 1);
}

// A product reads and multiplies what its groups store: values, the columns of each group, and whose rows they are.
TEST(Floor, ZerosInGroupsAreNeitherReadNorMultiplied) {
  models::Model model = small_model();
  const Work before = total(work_of(model, {.tokens = 3}));
  const std::vector<float> values(size_t{2} * 5 * 16);
  const std::vector<int32_t> columns(size_t{2} * 5), row_of(size_t{2} * 16);
  const std::vector<int64_t> begin = {0, 5, 10};
  const GroupedView groups{.rows = 32,
                           .cols = 64,
                           .height = 16,
                           .row_of = view_of(row_of.data(), {32}),
                           .begin = view_of(begin.data(), {3}),
                           .columns = view_of(columns.data(), {10}),
                           .values = View(reinterpret_cast<const std::byte*>(values.data()), DType::bf16, {10, 16})};
  for (Param* p : model.params()) {
    if (p->role == ParamRole::down && p->experts == 0 && p->value.rows == 32 && p->value.cols == 64)
      p->value.groups = &groups;
  }
  const Work after = total(work_of(model, {.tokens = 3}));
  EXPECT_NEAR(before.bytes - after.bytes, 2 * 32 * 64 - (2 * 160 + 4 * 10 + 4 * 32), 1e-6);
  EXPECT_NEAR(before.flops - after.flops, 3.0 * 2 * (32 * 64 - 160), 1e-6);
}

TEST(Floor, IsTheSlowerOfBytesAndOperations) {
  EXPECT_EQ(floor_seconds({.bytes = 100, .flops = 50}, {10, 10, 10}), 10);
  EXPECT_EQ(floor_seconds({.bytes = 50, .flops = 100}, {10, 10, 10}), 10);
  EXPECT_EQ(floor_seconds({.bytes = 1, .flops = 100, .whole = 80}, {10, 10, 40}), 4);
}

}  // namespace
}  // namespace braid::plan
