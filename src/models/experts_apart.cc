#include "models/experts_apart.h"

#include <fmt/format.h>

#include <utility>

#include "models/inventory.h"

namespace braid::models {

ExpertsApart::ExpertsApart(const Config& config, std::unique_ptr<nn::ParamSource> files) : files_(std::move(files)) {
  for (const TensorSpec& tensor : inventory(config)) {
    if (tensor.expert < 0 || !files_->has(tensor.stack)) continue;
    stacks_[tensor.name] = tensor.stack;
    names_.insert(tensor.stack);
  }
}

bool ExpertsApart::has(const std::string& name) const {
  return !names_.contains(name) && (stacks_.contains(name) || files_->has(name));
}

std::string ExpertsApart::stack_of(const std::string& name) const {
  const auto found = given_stacks_.find(name);
  return found == given_stacks_.end() ? std::string() : found->second;
}

Param ExpertsApart::first(const nn::ParamRequest& request) {
  if (!stacks_.contains(request.name)) return files_->get(request);
  nn::ParamRequest whole = request;
  whole.name = request.stack;
  whole.expert = -1;
  whole.shape = {request.experts, request.shape[0], request.shape[1]};
  const Param stack = files_->get(whole);
  const size_t dot = stack.name.rfind('.');
  const int64_t rows = request.shape[0];
  Param own = part_of(stack, {"expert", request.expert * rows, rows, request.shard.units},
                      fmt::format("{}.{}{}.weight", stack.name.substr(0, dot), request.expert, stack.name.substr(dot)),
                      request.role);
  own.expert = request.expert;
  given_stacks_[own.name] = stack.name;
  return own;
}

OpenApart open_apart(const io::ModelPath& path, const Config& config) {
  OpenFolder folder = open_folder(path);
  return {std::move(folder.store), std::make_unique<ExpertsApart>(config, std::move(folder.source))};
}

}  // namespace braid::models
