// The plan of a recipe's steps, from a dry pass at the most tokens that a part of its batch can have.
#pragma once
#include "core/step_plan.h"
#include "models/model.h"
#include "nn/precision.h"
#include "train/recipe.h"

namespace braid::train {

// What a recipe leaves out of its low precision.
nn::RecipeParts precision_parts(const Recipe& recipe);

// Rows of at most `length` tokens, `rows` to a step, of documents with kDocument tokens at least on average: a step
// with more documents has its memory planned again. `model` may be one without numbers (models/empty_model.h). Error
// when a memory.recompute budget cannot be met.
inline constexpr int64_t kDocument = 16;

StepPlan rehearse(const Recipe& recipe, models::Model& model, const Ctx& ctx, int64_t rows, int64_t length);

}  // namespace braid::train
