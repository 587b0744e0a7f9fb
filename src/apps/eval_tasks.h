// The half of braid eval that answers tasks; apps/eval.cc declares its options.
#pragma once
#include <string>

#include "apps/model_args.h"

namespace braid::apps {

struct TaskArgs {
  std::string file, think, answers;
  int64_t tokens = 512, slots = 16, budget = -1;
  bool drafts = false;
  DraftArgs speculation;
};

int eval_tasks(const ModelArgs& model, const TaskArgs& args, bool json);

}  // namespace braid::apps
