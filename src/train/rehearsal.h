// The plan of a recipe's steps, from a dry pass at the most tokens that a part of its batch can have.
#pragma once
#include "core/step_plan.h"
#include "models/model.h"
#include "train/recipe.h"

namespace braid::train {

// Rows of at most `length` tokens, `rows` to a step. `model` may be one without numbers (models/empty_model.h). Error
// when a memory.recompute budget cannot be met.
StepPlan rehearse(const Recipe& recipe, models::Model& model, const Ctx& ctx, int64_t rows, int64_t length);

}  // namespace braid::train
