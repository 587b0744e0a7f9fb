#include "models/master_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "codec/codec.h"
#include "core/philox.h"
#include "models/adapter_file.h"
#include "models/cut.h"
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

// to(i, j): element i of the stored tensor is element j of the held one. Transposes go block by block, so that neither
// side strides through memory.
template <class To>
void each_element(const MasterTensor& tensor, To&& to) {
  if (!tensor.transposed) {
    for (int64_t i = 0; i < tensor.count(); ++i) to(i, i);
    return;
  }
  constexpr int64_t kBlock = 16;
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  for (int64_t first = 0; first < rows; first += kBlock) {
    for (int64_t col = 0; col < cols; col += kBlock) {
      for (int64_t r = first; r < std::min(rows, first + kBlock); ++r) {
        for (int64_t c = col; c < std::min(cols, col + kBlock); ++c) to(r * cols + c, c * rows + r);
      }
    }
  }
}

// A tensor that files spell as `name`.
MasterTensor whole_tensor(const nn::ParamRequest& r, const std::string& name) {
  return {.name = name,
          .role = r.role,
          .shape = r.shape,
          .matrix = is_matrix(r.role),
          .transposed = r.transposed,
          .plus = r.plus};
}

}  // namespace

// Gives copies of what another source gives.
class MasterSource final : public nn::ParamSource {
 public:
  // `whole`: of all ranks; `config`: what this one has of it.
  MasterSource(MasterWeights& masters, nn::ParamSource& files, const std::string& where,
               const std::vector<TensorSpec>& whole, const Config& config)
      : masters_(masters), files_(files), where_(where), own_(config), cut_(own_.cut), experts_(own_.expert_cut) {
    for (const TensorSpec& t : whole) {
      numbers_.emplace(t.name, std::ssize(whole_));
      whole_.emplace(t.name, t);
    }
  }

  bool has(const std::string& name) const override { return files_.has(name); }
  Param first(const nn::ParamRequest& r) override {
    const nn::ParamRequest& all = whole_.at(r.name);
    const Param p = files_.get(all);
    if (!codec_of(p.value).dense)
      fail(where_, {.what = "quantised weights cannot be trained",
                    .got = fmt::format("{} in {}", p.name, name_of(p.value.spec)),
                    .expected = "F32, F16 or BF16",
                    .hint = "[lora] rank, adapters on top"});
    MasterTensor tensor = whole_tensor(all, p.name);
    tensor.number = numbers_.at(r.name);
    if (!r.mtp && !own_.loop) tensor.layer = r.layer;
    if (cut_.ranks > 1 || cut_.hidden_ranks > 1 || experts_.divides()) divide(tensor, r, all);
    if (r.role == ParamRole::embedding && own_.stage.shares_table) {
      tensor.ends = true;
      tensor.counted = tensor.counted && own_.stage.first;
    }
    Param own = r.param({});
    const std::span<float> values = masters_.add(tensor, r.rows(), r.cols(), own);
    fills_.push_back({masters_.tensors_.size() - 1, p.value.codes, values});
    return own;
  }
  Param again(const nn::ParamRequest&, const Param& p) override {
    share(p);
    return masters_.another_use(p);
  }

  // When all tensors have their places.
  void fill(const MasterWeights::Loaded& loaded) const {
    std::vector<float> stored;
    for (const Fill& fill : fills_) {
      const MasterTensor& tensor = masters_.tensors_[fill.tensor];
      if (tensor.held.empty()) {
        widen(fill.codes, fill.values.data());
      } else {
        stored.resize(static_cast<size_t>(fill.codes.count()));
        widen(fill.codes, stored.data());
        take_held(tensor, stored, fill.values);
      }
      if (!loaded) continue;
      masters_.round({tensor.offset, tensor.count()}, 1);
      loaded(tensor);
    }
  }

 private:
  struct Fill {
    size_t tensor;
    View codes;  // of the files
    std::span<float> values;
  };

  // A layer with a tensor that something else reads is not alone with it.
  void share(const Param& p) const {
    const int layer = masters_.tensor_of(p).layer;
    for (MasterTensor& t : masters_.tensors_) t.layer = t.layer == layer ? -1 : t.layer;
  }

  // Which rows or columns of the whole are this rank's, and who counts it.
  void divide(MasterTensor& tensor, const nn::ParamRequest& r, const nn::ParamRequest& all) const {
    if (experts_.divides() && all.experts > 0) return divide_expert(tensor, r, all);
    const int64_t rows = all.rows(), cols = all.cols();
    const bool along_cols = all.shard.axis == Shard::Axis::cols || (rows == 1 && !is_matrix(all.role));
    const bool fewer_rows = r.rows() != rows, fewer_cols = r.cols() != cols;
    const bool by_shard = all.shard.axis != Shard::Axis::whole && (along_cols ? fewer_cols : fewer_rows);
    const bool by_hidden = along_cols && by_shard ? fewer_rows : by_shard ? fewer_cols : fewer_rows || fewer_cols;
    // An expert's width may be divided over both kinds of ranks.
    const int64_t both = cut_.ranks * cut_.hidden_ranks;
    const bool over_both = by_shard && all.experts > 0 && cut_.hidden_ranks > 1 &&
                           both * (along_cols ? r.cols() : r.rows()) == (along_cols ? cols : rows);
    tensor.counted = (by_shard || cut_.rank == 0) && (by_hidden || over_both || cut_.hidden_rank == 0);
    const PartSpec* block = block_of(own_, r);
    tensor.partial = !by_shard && (block ? block->cut : cut_.sequence);
    if (!by_shard && !by_hidden) return;
    tensor.rows = rows;
    tensor.cols = cols;
    tensor.by_cols = by_shard ? along_cols : fewer_cols;
    if (by_shard) {
      const Cut over{.rank = cut_.hidden_rank * cut_.ranks + cut_.rank, .ranks = both};
      tensor.held = ranges_of(all, rows, cols, over_both ? over : cut_);
      if (by_hidden) tensor.within = channels_of(tensor.by_cols ? rows : cols)[0];
    } else {
      tensor.held = channels_of(tensor.by_cols ? cols : rows);
    }
    CHECK(tensor.count() == r.shape.count(), "{}: {} of {}", r.name, tensor.count(), r.shape.count());
    if (by_shard && !all.segments.empty()) share_units(tensor, all.segments);
  }

  // Segments of fewer units than ranks: each unit is on several ranks.
  void share_units(MasterTensor& tensor, const std::vector<Segment>& segments) const {
    int64_t rows = 0;
    for (const Range& r : tensor.held) rows += r.count;
    const int64_t width = tensor.count() / rows;
    int64_t at = 0;
    for (size_t i = 0; i < segments.size(); at += tensor.held[i++].count) {
      if (segments[i].units >= cut_.ranks) continue;
      const int64_t begin = at * width, count = tensor.held[i].count * width;
      if (!tensor.shared.empty() && tensor.shared.back().begin + tensor.shared.back().count == begin)
        tensor.shared.back().count += count;
      else
        tensor.shared.push_back({begin, count});
      tensor.sharers = cut_.ranks / segments[i].units;
    }
    tensor.first_sharer = cut_.rank % tensor.sharers == 0;
  }

  // This rank's channels of the residual stream, where `extent` rows or columns are the stream's, once or several
  // times.
  std::vector<Range> channels_of(int64_t extent) const {
    std::vector<Range> ranges;
    for (int64_t at = 0; at < extent; at += own_.hidden * cut_.hidden_ranks)
      ranges.push_back({at + own_.hidden * cut_.hidden_rank, own_.hidden});
    return ranges;
  }

  void divide_expert(MasterTensor& tensor, const nn::ParamRequest& r, const nn::ParamRequest& all) const {
    tensor.of_expert = true;
    if (r.shape == all.shape) return;
    tensor.rows = all.rows();
    tensor.cols = all.cols();
    const ExpertRanges held = expert_ranges_of(all, tensor.rows, tensor.cols, experts_);
    tensor.by_cols = !held.columns.empty();
    tensor.held = tensor.by_cols ? held.columns : held.rows;
    if (tensor.by_cols) tensor.within = held.within;
    CHECK(tensor.count() == r.shape.count(), "{}: {} of {}", r.name, tensor.count(), r.shape.count());
  }

  MasterWeights& masters_;
  nn::ParamSource& files_;
  const std::string& where_;
  const Config own_;
  const Cut& cut_;
  const ExpertCut& experts_;
  std::map<std::string, nn::ParamRequest> whole_;
  std::map<std::string, int64_t> numbers_;
  std::vector<Fill> fills_;
};

std::vector<Range> MasterTensor::first_held() const {
  std::vector<Range> ranges;
  int64_t at = 0;
  const auto until = [&](int64_t end) {
    if (at < end) ranges.push_back({at, end - at});
  };
  for (size_t i = 0; !first_sharer && i < shared.size(); at = shared[i].begin + shared[i].count, ++i)
    until(shared[i].begin);
  until(count());
  return ranges;
}

std::unique_ptr<Model> MasterWeights::load(const io::ModelPath& path, int64_t mtp_steps, const Cut& cut,
                                           const ExpertCut& experts, const Stage& stage, const Loaded& loaded) {
  CHECK(tensors_.empty(), "{} tensors", tensors_.size());
  Config config = load_config(path);
  if (config.mtp) config.mtp->steps = mtp_steps;
  const OpenFolder folder = open_folder(path);
  Config own = cut_config(stage_config(config, stage), cut, experts);
  const std::vector<TensorSpec> whole = stored_inventory(config, *folder.source);
  int64_t size = 0, of_experts = 0;
  for (const TensorSpec& tensor : stored_inventory(own, *folder.source))
    (experts.divides() && tensor.experts > 0 ? of_experts : size) += aligned(tensor.shape.count());
  size += size_beside();
  allocate(size + of_experts);
  if (experts.divides()) experts_begin_ = experts_used_ = size;
  MasterSource source(*this, *folder.source, path.name, whole, own);
  auto model = std::make_unique<Model>(std::move(own), source);
  reserved_.number = std::ssize(whole);
  add_beside();
  used_ = std::max(used_, experts_used_);
  values_ = values_.first(static_cast<size_t>(used_));
  if (products_ == DType::bf16) rounded_ = rounded_.first(values_.size());
  grads_ = grads_.first(values_.size());
  model->store = store_;
  source.fill(loaded);
  if (!loaded) round(1);
  return model;
}

void MasterWeights::own_whole(const io::ModelPath& path) {
  const OpenFolder folder = open_folder(path);
  std::vector<MasterTensor> tensors;
  for (const TensorSpec& t : stored_inventory(load_config(path), *folder.source))
    tensors.push_back(whole_tensor(t, folder.source->get(t).name));
  own(tensors);
}

std::unique_ptr<Model> MasterWeights::adapt(const io::ModelPath& path, const AdapterSpec& spec, uint64_t seed) {
  CHECK(tensors_.empty(), "{} tensors", tensors_.size());
  Config config = load_config(path);
  OpenFolder folder = open_folder(path);
  std::vector<AdapterSite> sites = AdapterPlaces(config, *folder.source).find(spec);
  int64_t size = 0;
  for (const AdapterSite& site : sites)
    size += aligned(site.count * site.rank * site.in) + aligned(site.out * site.rank * site.count);
  allocate(size + size_beside());
  uint32_t stream = 0;
  for (AdapterSite& site : sites) {
    const int64_t rank = site.count * site.rank;
    const Shard& shard = site.matrices[0].base.shard;
    // A reads what the matrix reads, B writes what it writes: each is split where the matrix is.
    const auto own = [&](ParamRole role, std::string name, int64_t rows, int64_t cols) {
      Param p;
      p.name = name;
      p.role = role;
      const bool divided = shard.axis == (role == ParamRole::lora_a ? Shard::Axis::cols : Shard::Axis::rows);
      p.shard = divided && !site.folded ? shard : Shard{.axis = Shard::Axis::whole};
      if (role == ParamRole::lora_b && !site.folded) p.segments = site.matrices[0].base.segments;
      add({.name = std::move(name), .role = role, .shape = {rows, cols}, .matrix = !site.folded}, rows, cols, p);
      return p;
    };
    site.adapter.a = own(ParamRole::lora_a, lora_a_name(site), rank, site.in);
    float* a = values_.data() + tensors_.back().offset;
    const float bound = 1 / std::sqrt(static_cast<float>(site.in));  // as torch.nn.Linear initialises
    for (int64_t i = 0; i < rank * site.in; ++i)
      a[i] = bound * (2 * uniform(philox({seed, stream}, static_cast<uint64_t>(i))[0]) - 1);
    ++stream;
    site.adapter.b = own(ParamRole::lora_b, lora_b_name(site), site.out, rank);
  }
  add_beside();
  adapter_spec_ = spec;
  store_->keep(folder.store);
  adapters_ =
      std::make_unique<Adapters>(std::move(sites), *store_, Adapters::Options{.dtype = products_, .gradients = true});
  auto model = adapters_->build(std::move(config), *folder.source);
  model->store = store_;
  round(1);
  return model;
}

void MasterWeights::allocate(int64_t size) {
  const auto n = static_cast<size_t>(size);
  const auto make = [&]<class T>(std::span<T>& array, DType dtype, bool parted, std::shared_ptr<sys::Pages>& pages) {
    if (parted) store_->keep(pages = std::make_shared<sys::Pages>(n * sizeof(T)));
    array = {parted ? reinterpret_cast<T*>(pages->data()) : store_->make(dtype, {size}).template as<T>(), n};
  };
  make(values_, DType::f32, parted_.values, value_pages_);
  if (products_ == DType::bf16) make(rounded_, DType::bf16, parted_.values, rounded_pages_);
  make(grads_, DType::f32, parted_.grads, grad_pages_);
}

namespace {

template <class T>
void drop(std::span<T> array, const Range& of, sys::Pages* pages) {
  const auto begin = static_cast<size_t>(of.begin), count = static_cast<size_t>(of.count);
  if (array.empty()) return;
  if (pages) return pages->clear(begin * sizeof(T), (begin + count) * sizeof(T));
  std::fill_n(array.begin() + of.begin, of.count, T());
}

}  // namespace

void MasterWeights::drop_values(const Range& of) {
  drop(values_, of, value_pages_.get());
  drop(rounded_, of, rounded_pages_.get());
}

void MasterWeights::drop_grads(const Range& of) { drop(grads_, of, grad_pages_.get()); }

int64_t MasterWeights::parted_bytes() const {
  size_t bytes = 0;
  for (const auto& pages : {value_pages_, rounded_pages_, grad_pages_}) bytes += pages ? pages->resident() : 0;
  return static_cast<int64_t>(bytes);
}

std::vector<Param> MasterWeights::own(const std::vector<MasterTensor>& tensors) {
  CHECK(tensors_.empty(), "{} tensors", tensors_.size());
  int64_t size = 0, of_experts = 0;
  for (const MasterTensor& t : tensors) (t.of_expert ? of_experts : size) += aligned(t.count());
  allocate(size + of_experts);
  if (of_experts > 0) experts_begin_ = experts_used_ = size;
  std::vector<Param> params;
  for (const MasterTensor& t : tensors) {
    const int64_t whole = t.shape.rank > 1 ? t.shape[t.transposed ? 1 : 0] : 1;
    // Of what is held, the side that `held` does not count.
    const int64_t across = t.within.count > 0 ? t.within.count : t.by_cols ? t.rows : t.cols;
    const int64_t rows = t.held.empty() ? whole : t.by_cols ? across : t.count() / across;
    Param& p = params.emplace_back();
    p.name = t.name;
    p.role = t.role;
    add(t, rows, t.held.empty() || t.by_cols ? t.count() / rows : across, p);
  }
  return params;
}

int64_t MasterWeights::trained() const {
  int64_t sum = 0;
  for (const MasterTensor& tensor : tensors_) sum += tensor.count();
  return sum;
}

namespace {

// Runs of elements: of(in the whole tensor, in what is held, their number).
template <class Of>
void each_run(const MasterTensor& t, Of&& of) {
  int64_t at = 0;
  if (t.held.empty()) return of(int64_t{0}, int64_t{0}, t.count());
  const auto run = [&](int64_t row, const Range& columns) {
    of(row * t.cols + columns.begin, at, columns.count);
    at += columns.count;
  };
  const Range across = t.within.count > 0 ? t.within : Range{0, t.by_cols ? t.rows : t.cols};
  for (int64_t row = across.begin; t.by_cols && row < across.begin + across.count; ++row) {
    for (const Range& columns : t.held) run(row, columns);
  }
  if (t.by_cols) return;
  for (const Range& rows : t.held) {
    for (int64_t row = rows.begin; row < rows.begin + rows.count; ++row) run(row, across);
  }
}

}  // namespace

void put_held(const MasterTensor& tensor, std::span<const float> held, std::span<float> to) {
  each_run(tensor, [&](int64_t whole, int64_t own, int64_t n) {
    std::copy_n(&held[static_cast<size_t>(own)], n, &to[static_cast<size_t>(whole)]);
  });
}

void take_held(const MasterTensor& tensor, std::span<const float> from, std::span<float> held) {
  each_run(tensor, [&](int64_t whole, int64_t own, int64_t n) {
    std::copy_n(&from[static_cast<size_t>(whole)], n, &held[static_cast<size_t>(own)]);
  });
}

std::span<float> MasterWeights::add(MasterTensor tensor, int64_t rows, int64_t cols, Param& p) {
  const int64_t count = tensor.count();
  int64_t& used = tensor.of_expert ? experts_used_ : used_;
  tensor.offset = used;
  used += aligned(count);
  CHECK(used <= (tensor.of_expert ? std::ssize(values_) : experts_begin()), "{} of {}", used, values_.size());
  const auto at = static_cast<size_t>(tensor.offset);
  const bool rounded = tensor.matrix && products_ == DType::bf16;
  p.value = dense_weight(rounded ? view_of(&rounded_[at], {rows, cols}) : view_of(&values_[at], {rows, cols}));
  p.grad = mut_view_of(&grads_[at], {rows, cols});
  p.tensor = std::ssize(tensors_);
  p.offset = tensor.offset;
  tensors_.push_back(std::move(tensor));
  return values_.subspan(at, static_cast<size_t>(count));
}

Param MasterWeights::another_use(const Param& p) {
  sys::BigVector<float>& grad =
      uses_.emplace_back(Use{p.offset, sys::BigVector<float>(static_cast<size_t>(p.grad.count()))}).grad;
  Param other = p;
  other.grad = mut_view_of(grad.data(), p.grad.shape);
  return other;
}

void MasterWeights::reserve_beside(MasterTensor tensor, int64_t uses) {
  CHECK(tensors_.empty() && uses > 0, "{} tensors, {} uses", tensors_.size(), uses);
  reserved_ = std::move(tensor);
  reserved_.beside = true;
  beside_.resize(static_cast<size_t>(uses));
}

int64_t MasterWeights::size_beside() const { return beside_.empty() ? 0 : aligned(reserved_.count()); }

void MasterWeights::add_beside() {
  if (beside_.empty()) return;
  Param& first = beside_[0];
  first.name = reserved_.name;
  first.role = reserved_.role;
  first.shard = {.axis = Shard::Axis::whole};
  add(reserved_, reserved_.shape[0], reserved_.shape[1], first);
  for (size_t i = 1; i < beside_.size(); ++i) beside_[i] = another_use(first);
}

std::vector<Param*> MasterWeights::params(Model& model) {
  std::vector<Param*> list = adapters_ ? adapters_->params() : model.params();
  if (!beside_.empty()) list.push_back(beside_.data());
  return list;
}

const MasterTensor& MasterWeights::tensor(const std::string& name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
  CHECK(found != tensors_.end(), "no tensor {}", name);
  return *found;
}

void MasterWeights::zero_grads(int threads) {
  if (grad_pages_) return drop_grads({0, size()});
  sys::parallel_for(threads, std::ssize(grads_), kAlign,
                    [&](int64_t begin, int64_t end) { std::fill(grads_.begin() + begin, grads_.begin() + end, 0.0f); });
}

void MasterWeights::sum_uses(int threads) {
  for (Use& use : uses_) {
    float* sum = grads_.data() + use.offset;
    sys::parallel_for(threads, std::ssize(use.grad), kAlign, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum[i] += std::exchange(use.grad[static_cast<size_t>(i)], 0.0f);
    });
  }
  if (adapters_) adapters_->fold_gradients(threads);
}

std::vector<std::span<float>> MasterWeights::gradient_arrays() {
  std::vector<std::span<float>> arrays = {grads_};
  for (Use& use : uses_) arrays.emplace_back(use.grad);
  if (adapters_) adapters_->gradient_arrays(arrays);
  return arrays;
}

void MasterWeights::follow(int threads) {
  if (adapters_) adapters_->apply(threads);
}

void MasterWeights::round(const Range& of, int threads) {
  sys::parallel_for(threads, rounded_.empty() ? 0 : of.count, kAlign, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(of.begin + begin); i < static_cast<size_t>(of.begin + end); ++i)
      rounded_[i] = to_bf16(values_[i]);
  });
  follow(threads);
}

void to_stored(const MasterTensor& tensor, std::span<const float> array, bool value, DType dtype,
               std::span<std::byte> bytes) {
  CHECK(tensor.held.empty() && std::ssize(bytes) == tensor.count() * size_of(dtype), "{}: {} bytes", tensor.name,
        bytes.size());
  const float* held = array.data() + tensor.offset;
  const float plus = value ? tensor.plus : 0;
  const auto write = [&](auto* out, auto convert) {
    each_element(tensor, [&](int64_t i, int64_t j) { out[i] = convert(held[j] - plus); });
  };
  if (dtype == DType::bf16) return write(reinterpret_cast<Bf16*>(bytes.data()), &to_bf16);
  write(reinterpret_cast<float*>(bytes.data()), [](float v) { return v; });
}

void from_stored(const MasterTensor& tensor, std::span<const std::byte> bytes, bool value, std::span<float> array) {
  CHECK(tensor.held.empty() && std::ssize(bytes) == tensor.count() * size_of(DType::f32), "{}: {} bytes", tensor.name,
        bytes.size());
  float* held = array.data() + tensor.offset;
  const float plus = value ? tensor.plus : 0;
  const auto* stored = reinterpret_cast<const float*>(bytes.data());
  each_element(tensor, [&](int64_t i, int64_t j) { held[j] = stored[i] + plus; });
}

}  // namespace braid::models
