// The parameters of a model in training: FP32 masters of all its stored tensors in one array and their gradients in
// another; with BF16 products a third has the matrices rounded, at the same offsets. The Params of the model view these
// arrays, so an optimiser walks them without knowing the tensors, and the data of a tensor (its moments, its running
// mean) is at the same offset of an array of the same size.
//
// With adapters the arrays have only their parameters: the model's own stay mapped as stored.
//
// Tensors are laid out as blocks read them: what loading transposed (GPT-2's matrices) or added (LayerNorm1p's one) is
// undone when a file is written.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/model_path.h"
#include "models/adapters.h"
#include "models/model.h"
#include "sys/big_vector.h"
#include "sys/pages.h"

namespace braid::models {

struct MasterTensor {
  std::string name{};  // as the files spell it
  ParamRole role = ParamRole::none;
  Shape shape{};            // as the files hold it
  int64_t offset = 0;       // of its first element in every array
  bool matrix = true;       // products read it
  bool transposed = false;  // stored here as [shape[1], shape[0]]
  float plus = 0;           // added to the files' values
  // Where ranks share a tensor, the rows (or columns) of the whole [rows, cols], as blocks read it, that this one
  // holds; empty: all of it.
  int64_t rows = 0, cols = 0;
  std::vector<Range> held{};
  bool by_cols = false;
  Range within{};          // the columns of these rows, or the rows that have these columns; none: all of them
  int64_t number = -1;     // among the tensors of the whole model
  bool of_expert = false;  // which other ranks lack: its gradient is summed over the ranks that hold it
  // Of the elements held: those that `sharers` consecutive ranks of the cut have alike, for keys, or groups of B and C,
  // that the heads of each read. Gradients add up; the first of these ranks counts and writes them.
  std::vector<Range> shared{};
  int64_t sharers = 1;
  bool first_sharer = true;
  bool partial = false;  // whole here and on other ranks, for other parts of its block or tokens: gradients add up
  bool ends = false;     // also held by the other end of a pipeline, which reads it too: gradients add up
  bool counted = true;   // by this rank, in the norm of all ranks' gradients
  int layer = -1;        // of the model, which alone reads it, once in a pass; -1: none
  bool beside = false;   // of the run alone: in no file of a model (MasterWeights::reserve_beside)

  int64_t count() const {  // of elements that this rank holds
    int64_t n = 0;
    for (const Range& r : held) n += r.count;
    return held.empty() ? shape.count() : n * (within.count > 0 ? within.count : by_cols ? rows : cols);
  }
  // Of the elements held, those that no rank before this one shares.
  std::vector<Range> first_held() const;
};

// Arrays of which a rank keeps parts. Addresses stay those of whole arrays; memory comes and goes by pages.
struct Parted {
  bool values = false, grads = false;
};

class MasterWeights {
 public:
  // `products`: what products read, F32 or BF16.
  explicit MasterWeights(DType products, const Parted& parted = {}) : products_(products), parted_(parted) {}
  MasterWeights(const MasterWeights&) = delete;
  MasterWeights& operator=(const MasterWeights&) = delete;

  // The model of a folder, its Params and their gradients over these arrays. Error for quantised weights. Once per
  // object. `mtp_steps`: times that training runs the prediction block, where there is one.
  // `cut`: the part of the blocks that divide which this rank has; `experts`: of the experts, which are then last in
  // the arrays; `stage`: of the layers (models/cut.h). `loaded` is called with every tensor that has its values, when
  // the places of all are known.
  using Loaded = std::function<void(const MasterTensor&)>;
  std::unique_ptr<Model> load(const io::ModelPath& path, int64_t mtp_steps = 1, const Cut& cut = {},
                              const ExpertCut& experts = {}, const Stage& stage = {}, const Loaded& loaded = {});

  // The same folder, quantised or not, with new adapters, and only these in the arrays: A random, B zero, so the
  // model's output is unchanged. Error for a spec that does not fit.
  std::unique_ptr<Model> adapt(const io::ModelPath& path, const AdapterSpec& spec, uint64_t seed);
  // The tensors of all ranks that load parts of a folder, as one that loads all of it has them.
  void own_whole(const io::ModelPath& path);
  // Tensors that come from no folder, initially zero, for training other things than these models: one Param each, in
  // order, with its name and role.
  std::vector<Param> own(const std::vector<MasterTensor>& tensors);
  // Room for a tensor that a run trains beside the model, `uses` times in a pass, such as a map that only its loss
  // reads. Everything that is done with parameters and their state is done with it too, but models are written without
  // it. Before load() or adapt().
  void reserve_beside(MasterTensor tensor, int64_t uses);
  // A Param for each use, with its own gradient; zero at first. Empty: nothing was reserved.
  std::span<Param> beside() { return beside_; }
  const Adapters* adapters() const { return adapters_.get(); }
  const AdapterSpec& adapter_spec() const { return adapter_spec_; }

  std::span<const MasterTensor> tensors() const { return tensors_; }
  int64_t trained() const;                              // numbers of all tensors
  int64_t size() const { return std::ssize(values_); }  // of every array: the elements and alignment padding
  int64_t experts_begin() const { return experts_begin_ < 0 ? size() : experts_begin_; }  // MasterTensor::of_expert
  std::span<float> values() { return values_; }
  std::span<float> grads() { return grads_; }
  std::span<Bf16> rounded() { return rounded_; }  // empty with F32 products
  DType products() const { return products_; }

  // The Params over these arrays.
  std::vector<Param*> params(Model& model);
  // Several Params may be parts of one tensor.
  const MasterTensor& tensor_of(const Param& p) const { return tensors_[static_cast<size_t>(p.tensor)]; }
  const MasterTensor& tensor(const std::string& name) const;
  void zero_grads(int threads);
  // A parameter that a model uses more than once has a gradient per use, so that the order of sums does not depend on
  // how a batch is cut: adds them up in grads(), after the last part of a batch. Likewise for adapters.
  void sum_uses(int threads);
  // grads(), and the gradient of every further use: what sum_uses() adds up.
  std::vector<std::span<float>> gradient_arrays();
  // Rounds the matrices again, after anything but an optimiser's row wrote the masters: of all elements, or of some.
  void round(int threads) { round({0, size()}, threads); }
  void round(const Range& of, int threads);
  // Sets them to zero; where the arrays are parted, their pages are freed.
  void drop_values(const Range& of);  // and those rounded
  void drop_grads(const Range& of);
  // Memory of the parted arrays in use, to whole pages.
  int64_t parted_bytes() const;
  // Called after every change, to update what is derived from the masters (models/adapters.h).
  void follow(int threads);

 private:
  friend class MasterSource;
  void allocate(int64_t size);
  // Gives `p` its own tensor, [rows, cols] as blocks read it.
  std::span<float> add(MasterTensor tensor, int64_t rows, int64_t cols, Param& p);
  Param another_use(const Param& p);
  int64_t size_beside() const;
  void add_beside();

  DType products_;
  Parted parted_;
  std::vector<MasterTensor> tensors_;
  std::shared_ptr<WeightStore> store_ = std::make_shared<WeightStore>();  // of the three below
  std::span<float> values_;
  std::span<Bf16> rounded_;
  std::span<float> grads_;
  std::shared_ptr<sys::Pages> value_pages_, rounded_pages_, grad_pages_;  // null: not parted
  int64_t used_ = 0, experts_begin_ = -1, experts_used_ = 0;
  struct Use {
    int64_t offset;
    sys::BigVector<float> grad;
  };
  std::vector<Use> uses_;  // after the first, of tensors used more than once
  MasterTensor reserved_;  // beside the model
  std::vector<Param> beside_;
  AdapterSpec adapter_spec_;
  std::unique_ptr<Adapters> adapters_;
};

// Copies what a rank holds of a tensor to its places in the whole array `to`, or from there.
void put_held(const MasterTensor& tensor, std::span<const float> held, std::span<float> to);
void take_held(const MasterTensor& tensor, std::span<const float> from, std::span<float> held);

// Copies one whole tensor between an array and a file: transposed, and with `value` (not a gradient or a moment)
// without what was added. `bytes` has the tensor in `dtype`, F32 or BF16. Of parts of tensors: stored_rows.h.
void to_stored(const MasterTensor& tensor, std::span<const float> array, bool value, DType dtype,
               std::span<std::byte> bytes);
void from_stored(const MasterTensor& tensor, std::span<const std::byte> bytes, bool value, std::span<float> array);

}  // namespace braid::models
