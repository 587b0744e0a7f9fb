// Weights that are not finite: NaN among the codes of FP8, NaN or infinity among the scales in blocks of GGUF or among
// plain values. Scales in tensors of their own are checked on loading, being a ninth of the bytes at most; these lie
// between the codes, so that finding one reads the whole model, which is what loading does not do. It is done when a
// model's results are not finite, to say why.
#pragma once
#include <optional>
#include <string>

#include "engine/runner.h"
#include "models/model.h"

namespace braid::engine {

struct Damage {
  std::string tensor, format;
  int64_t row = 0;
};

// The first in the model's order.
std::optional<Damage> find_damage(models::Model& model, int threads);

// For results that are not finite: Error that names a damaged weight, if there is one. Reads all weights.
void fail_if_damaged(Runner& runner);

// The same in a process that goes on, which reads the weights once.
class DamageCheck {
 public:
  void fail_if_damaged(Runner& runner);

 private:
  bool searched_ = false;
  std::optional<Damage> found_;
};

}  // namespace braid::engine
