// The parameters of a folder with the experts of every stack one by one, each under the name that it would have in a
// folder without stacks: quantised layouts have codes and scales for every expert, so what is quantised is planned,
// measured and written like that.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>

#include "models/config.h"
#include "models/load.h"

namespace braid::models {

class ExpertsApart final : public nn::ParamSource {
 public:
  ExpertsApart(const Config& config, std::unique_ptr<nn::ParamSource> files);

  bool has(const std::string& name) const override;
  float cache_factor(const std::string& name) const override { return files_->cache_factor(name); }
  // Of an expert that this source was asked for and that is in a stack: the stack's name in the files, else empty.
  std::string stack_of(const std::string& name) const;

 protected:
  Param first(const nn::ParamRequest& request) override;

 private:
  std::unique_ptr<nn::ParamSource> files_;
  std::map<std::string, std::string> stacks_;  // by names of experts, as the config spells them, those of their stacks
  std::set<std::string> names_;                // of the stacks
  std::map<std::string, std::string> given_stacks_;  // by names of experts, as the files spell the stacks
};

// Of a folder whose experts may be stacked.
struct OpenApart {
  std::shared_ptr<WeightStore> store;
  std::unique_ptr<ExpertsApart> source;
};
OpenApart open_apart(const io::ModelPath& path, const Config& config);

}  // namespace braid::models
