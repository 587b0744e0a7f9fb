// The plan of a recipe's steps, from a dry pass with the most tokens that a part of its batch can have.
#pragma once
#include "core/step_plan.h"
#include "models/model.h"
#include "nn/precision.h"
#include "train/mesh.h"
#include "train/recipe.h"
#include "train/stage_passes.h"

namespace braid::train {

// Which parts of low precision a recipe switches on.
nn::RecipeParts precision_parts(const Recipe& recipe);

// Rows of at most `length` tokens, `rows` to a step, of documents with kDocument tokens at least on average: the memory
// of a step with more documents is planned again. `model` may be one without values (models/empty_model.h). Error when
// a memory.recompute budget cannot be met.
inline constexpr int64_t kDocument = 16;

// `loop_steps`: of a model with a loop, its steps with gradients; 0: the most that a step can have. `chunk`: of a stage
// of a pipeline, whose passes alone are planned.
StepPlan rehearse(const Recipe& recipe, models::Model& model, const Ctx& ctx, int64_t rows, int64_t length,
                  int64_t loop_steps = 0, Mesh* mesh = nullptr, const Chunk* chunk = nullptr);

}  // namespace braid::train
