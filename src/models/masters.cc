#include "models/masters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/philox.h"
#include "models/adapter_file.h"
#include "models/inventory.h"
#include "models/load.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::models {
namespace {

constexpr int64_t kAlign = 32;  // elements: 64 bytes also where they are BF16

int64_t aligned(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

void widen(const View& from, float* out) {
  const auto copy = [&](const auto* values) {
    for (int64_t i = 0; i < from.count(); ++i) out[i] = to_float(values[i]);
  };
  switch (from.dtype) {
    case DType::f32:
      return copy(from.as<float>());
    case DType::f16:
      return copy(from.as<F16>());
    default:
      return copy(from.as<Bf16>());
  }
}

// to(i, j): element i of the stored tensor is element j of the held one.
template <class To>
void each_element(const MasterTensor& tensor, To&& to) {
  if (!tensor.transposed) {
    for (int64_t i = 0; i < tensor.count(); ++i) to(i, i);
    return;
  }
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) to(r * cols + c, c * rows + r);
  }
}

}  // namespace

// Gives what another source gives, as copies.
class MasterSource final : public nn::ParamSource {
 public:
  MasterSource(Masters& masters, nn::ParamSource& files, const std::string& where)
      : masters_(masters), files_(files), where_(where) {}

  bool has(const std::string& name) const override { return files_.has(name); }
  Param matrix(const std::string& name, int64_t rows, int64_t cols, const char* keys) override {
    return own(files_.matrix(name, rows, cols, keys), {.shape = {rows, cols}});
  }
  Param transposed(const std::string& name, int64_t rows, int64_t cols, const char* keys) override {
    return own(files_.transposed(name, rows, cols, keys), {.shape = {cols, rows}, .transposed = true});
  }
  Param vector(const std::string& name, const Shape& shape, const char* keys, float plus) override {
    return own(files_.vector(name, shape, keys, plus), {.shape = shape, .matrix = false, .plus = plus});
  }
  std::vector<Param> stacked(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                             const char* keys) override {
    std::vector<Param> list = files_.stacked(name, count, rows, cols, keys);
    const std::string whole = list.front().name.substr(0, list.front().name.rfind('['));
    const std::span<float> values = masters_.add({.name = whole, .shape = {count, rows, cols}});
    const MasterTensor& tensor = masters_.tensors_.back();
    for (int64_t i = 0; i < count; ++i) {
      Param& p = list[static_cast<size_t>(i)];
      widen(p.value.codes, values.data() + i * rows * cols);
      p.value = masters_.weight(tensor, i * rows * cols, rows, cols);
      p.grad = masters_.grad(tensor, i * rows * cols, rows, cols);
    }
    return list;
  }
  Param again(const Param& p) override {
    std::vector<float>& grad =
        masters_.uses_
            .emplace_back(Masters::Use{masters_.place_of(p), std::vector<float>(static_cast<size_t>(p.grad.count()))})
            .grad;
    Param other = p;
    other.grad = mut_view_of(grad.data(), p.grad.shape);
    return other;
  }

 private:
  Param own(Param p, MasterTensor tensor) {
    if (p.value.spec.format != Format::f32 && p.value.spec.format != Format::f16 && p.value.spec.format != Format::bf16)
      fail(where_, {.what = "quantised weights cannot be trained",
                    .got = fmt::format("{} in {}", p.name, name_of(p.value.spec.format)),
                    .expected = "F32, F16 or BF16"});
    tensor.name = p.name;
    widen(p.value.codes, masters_.add(std::move(tensor)).data());
    const MasterTensor& own = masters_.tensors_.back();
    p.value = masters_.weight(own, 0, p.value.rows, p.value.cols);
    p.grad = masters_.grad(own, 0, p.value.rows, p.value.cols);
    return p;
  }

  Masters& masters_;
  nn::ParamSource& files_;
  const std::string& where_;
};

std::unique_ptr<Model> Masters::load(const io::ModelPath& path, int64_t mtp_steps) {
  CHECK(tensors_.empty(), "{} tensors", tensors_.size());
  Config config = load_config(path);
  if (config.mtp) config.mtp->steps = mtp_steps;
  int64_t size = 0;  // at most: experts may be stacked in the files
  for (const TensorSpec& tensor : inventory(config)) size += aligned(tensor.shape.count());
  values_.resize(static_cast<size_t>(size));
  grads_.resize(values_.size());
  if (products_ == DType::bf16) rounded_.resize(values_.size());
  const OpenFolder folder = open_folder(path);
  MasterSource source(*this, *folder.source, path.name);
  auto model = std::make_unique<Model>(std::move(config), source);
  values_.resize(static_cast<size_t>(used_));  // never grows: the Params view it
  if (products_ == DType::bf16) rounded_.resize(values_.size());
  grads_.resize(values_.size());
  round(1);
  return model;
}

std::unique_ptr<Model> Masters::adapt(const io::ModelPath& path, const AdapterSpec& spec, uint64_t seed) {
  CHECK(tensors_.empty(), "{} tensors", tensors_.size());
  Config config = load_config(path);
  OpenFolder folder = open_folder(path);
  std::vector<AdapterSite> sites = AdapterPlaces(config, *folder.source).find(spec);
  int64_t size = 0;
  for (const AdapterSite& site : sites)
    size += aligned(site.count * site.rank * site.in) + aligned(site.out * site.rank * site.count);
  values_.resize(static_cast<size_t>(size));
  grads_.resize(values_.size());
  if (products_ == DType::bf16) rounded_.resize(values_.size());
  uint32_t stream = 0;
  for (AdapterSite& site : sites) {
    const int64_t rank = site.count * site.rank;
    const auto own = [&](std::string name, int64_t rows, int64_t cols) {
      add({.name = name, .shape = {rows, cols}, .matrix = !site.folded});
      const MasterTensor& tensor = tensors_.back();
      return Param{
          .name = std::move(name), .value = weight(tensor, 0, rows, cols), .grad = grad(tensor, 0, rows, cols)};
    };
    site.adapter.a = own(lora_a_name(site), rank, site.in);
    float* a = values_.data() + tensors_.back().place;
    const float bound = 1 / std::sqrt(static_cast<float>(site.in));  // as torch.nn.Linear begins
    for (int64_t i = 0; i < rank * site.in; ++i)
      a[i] = bound * (2 * uniform(philox({seed, stream}, static_cast<uint64_t>(i))[0]) - 1);
    ++stream;
    site.adapter.b = own(lora_b_name(site), site.out, rank);
  }
  adapter_spec_ = spec;
  adapters_ = std::make_unique<Adapters>(std::move(sites), Adapters::Options{.dtype = products_, .gradients = true});
  auto model = adapters_->build(std::move(config), *folder.source);
  model->storage = std::move(folder.files);
  round(1);
  return model;
}

int64_t Masters::trained() const {
  int64_t sum = 0;
  for (const MasterTensor& tensor : tensors_) sum += tensor.count();
  return sum;
}

std::span<float> Masters::add(MasterTensor tensor) {
  const int64_t count = tensor.count();
  tensor.place = used_;
  used_ += aligned(count);
  CHECK(used_ <= std::ssize(values_), "{} of {}", used_, values_.size());
  tensors_.push_back(std::move(tensor));
  return std::span(values_).subspan(static_cast<size_t>(tensors_.back().place), static_cast<size_t>(count));
}

Weight Masters::weight(const MasterTensor& tensor, int64_t offset, int64_t rows, int64_t cols) const {
  const auto at = static_cast<size_t>(tensor.place + offset);
  return tensor.matrix && products_ == DType::bf16 ? dense_weight(view_of(&rounded_[at], {rows, cols}))
                                                   : dense_weight(view_of(&values_[at], {rows, cols}));
}

MutView Masters::grad(const MasterTensor& tensor, int64_t offset, int64_t rows, int64_t cols) {
  return mut_view_of(&grads_[static_cast<size_t>(tensor.place + offset)], {rows, cols});
}

int64_t Masters::place_of(const Param& p) const {
  const bool in_rounded = p.value.codes.dtype == DType::bf16;
  const auto* base = in_rounded ? reinterpret_cast<const std::byte*>(rounded_.data())
                                : reinterpret_cast<const std::byte*>(values_.data());
  const int64_t place = (p.value.codes.data - base) / size_of(p.value.codes.dtype);
  CHECK(place >= 0 && place + p.value.codes.count() <= size(), "{} at {} of {}", p.name, place, size());
  return place;
}

const MasterTensor& Masters::tensor_of(const Param& p) const {
  const int64_t place = place_of(p);
  const auto after = std::upper_bound(tensors_.begin(), tensors_.end(), place,
                                      [](int64_t at, const MasterTensor& t) { return at < t.place; });
  return *(after - 1);
}

const MasterTensor& Masters::tensor(const std::string& name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
  CHECK(found != tensors_.end(), "no tensor {}", name);
  return *found;
}

void Masters::zero_grads(int threads) {
  sys::parallel_for(threads, std::ssize(grads_), kAlign,
                    [&](int64_t begin, int64_t end) { std::fill(grads_.begin() + begin, grads_.begin() + end, 0.0f); });
}

void Masters::sum_uses(int threads) {
  for (Use& use : uses_) {
    float* sum = grads_.data() + use.place;
    sys::parallel_for(threads, std::ssize(use.grad), kAlign, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum[i] += std::exchange(use.grad[static_cast<size_t>(i)], 0.0f);
    });
  }
  if (adapters_) adapters_->fold_gradients(threads);
}

void Masters::follow(int threads) {
  if (adapters_) adapters_->apply(threads);
}

void Masters::round(int threads) {
  sys::parallel_for(threads, std::ssize(rounded_), kAlign, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) rounded_[i] = to_bf16(values_[i]);
  });
  follow(threads);
}

void to_stored(const MasterTensor& tensor, std::span<const float> array, bool value, DType dtype,
               std::span<std::byte> bytes) {
  CHECK(std::ssize(bytes) == tensor.count() * size_of(dtype), "{}: {} bytes", tensor.name, bytes.size());
  const float* held = array.data() + tensor.place;
  const float plus = value ? tensor.plus : 0;
  const auto write = [&](auto* out, auto convert) {
    each_element(tensor, [&](int64_t i, int64_t j) { out[i] = convert(held[j] - plus); });
  };
  if (dtype == DType::bf16) return write(reinterpret_cast<Bf16*>(bytes.data()), &to_bf16);
  write(reinterpret_cast<float*>(bytes.data()), [](float v) { return v; });
}

void from_stored(const MasterTensor& tensor, std::span<const std::byte> bytes, bool value, std::span<float> array) {
  CHECK(std::ssize(bytes) == tensor.count() * size_of(DType::f32), "{}: {} bytes", tensor.name, bytes.size());
  float* held = array.data() + tensor.place;
  const float plus = value ? tensor.plus : 0;
  const auto* stored = reinterpret_cast<const float*>(bytes.data());
  each_element(tensor, [&](int64_t i, int64_t j) { held[j] = stored[i] + plus; });
}

}  // namespace braid::models
