// Joint training of nested models (prune/nested.h; Nemotron Elastic, arXiv 2511.16664): every step trains one of the
// models inside a nested one, drawn by the shares of the recipe, and its gradients go into the masters that all of them
// are prefixes of. Sizes are those of nested.json.
//
// With nest.router the sizes of the smaller models are learnt: a step reads the whole model under masks
// (nest_masks.h), whose shares of sizes routers draw (nest_router.h).
//
// A smaller model's parameters are copies of what it is in the masters, made before its step; so a pass costs what that
// model costs, and computes the bits of its slice.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/weight_store.h"
#include "io/model_path.h"
#include "models/master_weights.h"
#include "prune/nested.h"
#include "train/nest_masks.h"
#include "train/nest_router.h"
#include "train/recipe.h"

namespace braid::train {

// Error when [nest] is combined with what it cannot be, or its lists do not fit each other.
void check_nest(const Recipe& recipe);

class NestedModels {
 public:
  // `whole` is the model of the folder `origin`, its parameters in `masters`; all outlive this. Error when the folder
  // lists no such budgets.
  NestedModels(const Recipe& recipe, const io::ModelPath& origin, models::MasterWeights& masters, models::Model& whole);

  size_t count() const { return members_.size(); }
  double share(size_t budget) const { return members_[budget].budget.share; }
  models::Model& model(size_t budget) {
    if (members_[budget].routed) return routed_->masked.model();
    return members_[budget].model ? *members_[budget].model : whole_;
  }
  size_t draw(int64_t step) const;  // the budget that a step trains
  double bytes() const;             // of copies and their gradients

  // From the masters, after each of their updates. Routers draw for a step, or give their likeliest sizes.
  void take_values(size_t budget, int threads, std::optional<int64_t> step = {});
  // Adds the gradients of a step to the masters', and sets them to zero.
  void add_gradients(size_t budget, int threads);

  // Whether routers choose its sizes; then of those that take_values() took last: what they cost, over the whole.
  bool is_routed(size_t budget) const { return members_[budget].routed; }
  double cost() { return routed_->sizes.cost(); }
  // After a step, whose slopes `add_up` sums over ranks.
  void learn(size_t budget, double lr, const std::function<void(std::span<double>)>& add_up);
  // After a step that was skipped.
  void forget() {
    if (routed_) (void)routed_->sizes.take_slopes();
  }
  // The likeliest sizes, a line each; none without routers.
  std::vector<std::string> describe_sizes() const;
  void write_state(const std::filesystem::path& folder) const;
  void read_state(const std::filesystem::path& folder);

  const std::string& file() const { return file_; }          // nested.json of the origin
  std::string sizes_file() const;                            // with the sizes that routers chose
  const char* metric(std::string_view name, size_t budget);  // "loss" -> "loss_0.75"; stays valid

 private:
  class Prefixes;
  // A parameter of a smaller model in the masters.
  struct Site {
    int64_t offset = 0, cols = 0;  // of the whole parameter, [.., cols]
    std::vector<prune::Places> places{};
    std::span<const float> scale{};  // by column; empty: 1
    MutView value{};
    std::vector<MutView> grads{};  // of every use
  };
  struct Member {
    prune::Budget budget{};
    double weight = 1;
    prune::Keep keep{};
    std::unique_ptr<WeightStore> store{};
    std::vector<Site> sites{};
    std::unique_ptr<models::Model> model{};  // null: the whole
    bool routed = false;
  };
  struct Routed {
    Routed(const models::Config& config, const models::OpenFolder& folder, models::MasterWeights& masters,
           const prune::Nested& nested, const std::vector<Member>& members, uint64_t seed);
    prune::Layouts layouts;
    prune::SoftSizes sizes;
    NestRouter router;
    MaskedModel masked;
  };
  prune::Budget routed_budget(size_t budget) const;
  static bool is_whole(const models::Config& config, const prune::Budget& budget);

  models::MasterWeights& masters_;
  models::Model& whole_;
  uint64_t seed_;
  NestRecipe recipe_;
  int64_t steps_;
  std::string file_;
  prune::Nested nested_;
  std::vector<Member> members_;
  std::unique_ptr<Routed> routed_;  // null: sizes stay
  std::set<std::string> names_;
};

}  // namespace braid::train
