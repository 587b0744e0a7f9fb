// A model that does not train, beside the one that does: the model at the start of a run, or a teacher. Its weights
// stay mapped as they are stored, so it costs address space and page cache, no copy.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/ctx.h"
#include "data/batch.h"
#include "io/model_path.h"
#include "models/model.h"

namespace braid::train {

class Frozen {
 public:
  Frozen(const io::ModelPath& path, const Numerics& numerics);

  // The losses of the targets of a part, minus their log-probabilities, [T]. A row is computed when it is first seen
  // and then remembered by its id, 4 bytes a token: before the training it would be a pass over all
  // the data, however short the run.
  std::span<const float> losses(Ctx& ctx, const data::Batch& part, bool held_out);

  void forget() { seen_[0].clear(), seen_[1].clear(); }

  // What the head reads of every token, [T, D] in the type of the products.
  Tensor head_input(Ctx& ctx, const data::Batch& part);
  // The same, with the residual stream after so many layers, for each of `ends`, ascending, [T, D] F32.
  std::vector<Tensor> states(Ctx& ctx, const data::Batch& part, std::span<const int64_t> ends, Tensor& head_input);
  const models::Model& model() const { return *model_; }

 private:
  template <class Pass>
  auto run(Ctx& ctx, const data::Batch& rows, Pass&& pass);
  void compute(Ctx& ctx, const data::Batch& rows, std::unordered_map<int64_t, std::vector<float>>& seen);

  std::unique_ptr<models::Model> model_;
  Numerics numerics_;
  std::unordered_map<int64_t, std::vector<float>> seen_[2];  // of training, held out: by row id
  std::vector<float> losses_;                                // of the part
  data::Batch missing_;
};

}  // namespace braid::train
