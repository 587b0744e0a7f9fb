// The source of a block's parameters: a folder of files, masters in training, or a list that only records the requests.
// A block requests roles; the family's Spelling gives their names and their layout in files.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/param.h"

namespace braid::nn {

struct ParamRequest : ParamInfo {
  Shape shape{};            // as stored: [rows, cols], [n], or with experts in a stack [count, rows, cols]
  const char* keys = "";    // the config entries that fix the shape, for error messages
  bool transposed = false;  // stored [cols, rows] (GPT-2's Conv1D)
  float plus = 0;           // added to every value: LayerNorm1p stores its weight - 1
  std::string stack{};      // for an expert's matrix: the name of the stack of all

  // As products read it; [1, n] for a vector, and for a bias of any shape.
  int64_t rows() const { return transposed ? shape[1] : shape.count() / cols(); }
  int64_t cols() const {
    return transposed ? shape[0] : role == ParamRole::bias ? shape.count() : shape[shape.rank - 1];
  }
  Param param(const Weight& value) const {
    Param p;
    static_cast<ParamInfo&>(p) = *this;
    p.value = value;
    return p;
  }
};

class ParamSource {
 public:
  virtual ~ParamSource() = default;
  // Matrices come in any format, the rest as F32. A repeated request is another use of the same parameter.
  Param get(const ParamRequest& request);
  virtual bool has(const std::string& name) const = 0;
  // The factor of an FP8 cache of keys or values that a quantised file names; 1 where it does not. Error: not a number
  // above 0.
  virtual float cache_factor(const std::string&) const { return 1; }

 protected:
  virtual Param first(const ParamRequest& request) = 0;
  // The gradient of each further use is summed separately, so the order of sums does not depend on how a batch is cut.
  virtual Param again(const ParamRequest&, const Param& given) { return given; }

 private:
  std::map<std::string, Param> given_;
};

// A family's names for its blocks' parameters, without the block's prefix, and the config keys that fix their shapes.
struct Spelling {
  struct Name {
    ParamRole role;
    const char* leaf;
    const char* keys;  // entries of config.json
  };
  std::span<const Name> names{};
  const char* shared = "";       // of a shared expert's matrices, before their own names
  const char* shared_keys = "";  // the keys that fix their shapes
  bool transposed = false;       // matrices are stored [inputs, outputs]

  const Name* find(ParamRole role) const;  // null: the family has none
};

// Requests the parameters of one block.
struct BlockSource {
  ParamSource& source;
  const Spelling& spelling;
  std::string prefix;
  int layer = -1, part = -1;  // as in ParamInfo
  bool mtp = false;
  const char* keys = nullptr;  // instead of those of the spelling

  bool has(ParamRole role) const { return spelling.find(role) != nullptr; }
  // `of`: of a bias that the family spells apart.
  Param get(ParamRole role, const Shape& shape, const Shard& shard, std::vector<Segment> segments = {},
            ParamRole of = ParamRole::none) const;
  // The bias of a product or a convolution of `role`.
  Param bias(ParamRole role, int64_t n, const Shard& shard, std::vector<Segment> segments = {}) const;
  // One matrix of each expert of `own` (of `count`), whether files hold them one by one or in a stack.
  struct Experts {
    int64_t count = 0;
    Range own{};
  };
  std::vector<Param> experts(ParamRole role, const Experts& experts, int64_t rows, int64_t cols,
                             const Shard& shard) const;
  BlockSource shared() const;  // of the shared expert
  // Of the cache of what a product of `role`, k or v, gives.
  float cache_factor(ParamRole role) const;

 private:
  ParamRequest request(ParamRole role, const Shard& shard, std::vector<Segment> segments) const;
};

// The values of a Param that is a vector, [n] F32.
inline View vector_of(const Param& p) { return {p.value.codes.data, DType::f32, {p.value.rows * p.value.cols}}; }

}  // namespace braid::nn
