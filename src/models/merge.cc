#include "models/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "io/atomic_folder.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "models/inventory.h"
#include "models/likeness.h"
#include "models/load.h"
#include "models/save.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/parallel.h"
#include "sys/read.h"

namespace braid::models {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMergeBlock = 4096;              // values that a thread converts at once: 32 KiB a model
constexpr int64_t kMergePiece = int64_t{1} << 22;  // values between two calls of `progress`
constexpr double kParallelCosine = 0.9995;         // cosine above which slerp is linear

using MergeBlock = std::array<double, kMergeBlock>;

bool is_float(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

// As FP32, to odd where it is not exact, so that rounding it once more gives the nearest of the narrower type.
float to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  if (static_cast<double>(nearest) == value || bits % 2 == 1) return nearest;
  return std::bit_cast<float>(std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? bits - 1 : bits + 1);
}

// Values [begin, begin + n) of a tensor; false: one of them is not finite.
bool read_block(const View& view, int64_t begin, int64_t n, MergeBlock& out) {
  bool finite = true;
  const auto convert = [&](const auto* from) {
    for (int64_t i = 0; i < n; ++i) {
      const double value = to_float(from[begin + i]);
      out[static_cast<size_t>(i)] = value;
      finite &= std::isfinite(value);
    }
  };
  if (view.dtype == DType::f32)
    convert(reinterpret_cast<const float*>(view.data));
  else if (view.dtype == DType::f16)
    convert(reinterpret_cast<const F16*>(view.data));
  else
    convert(reinterpret_cast<const Bf16*>(view.data));
  return finite;
}

// To the first values of `out`; false: the type cannot hold one of them.
bool write_block(const MergeBlock& values, int64_t n, DType type, std::byte* out) {
  bool finite = true;
  const auto convert = [&](auto* to, auto&& rounded) {
    for (int64_t i = 0; i < n; ++i) {
      to[i] = rounded(values[static_cast<size_t>(i)]);
      finite &= std::isfinite(to_float(to[i]));
    }
  };
  if (type == DType::f32)
    convert(reinterpret_cast<float*>(out), [](double v) { return static_cast<float>(v); });
  else if (type == DType::f16)
    convert(reinterpret_cast<F16*>(out), [](double v) { return to_f16(to_odd(v)); });
  else
    convert(reinterpret_cast<Bf16*>(out), [](double v) { return to_bf16(to_odd(v)); });
  return finite;
}

// Sums of one tensor's blocks, added in their order, so that the number of threads does not count.
struct Products {
  double first = 0, second = 0, both = 0;
};

class Merger {
 public:
  Merger(std::span<const MergeModel> models, MergeRule rule, int threads)
      : models_(models), rule_(rule), threads_(threads) {
    CHECK(models.size() >= (rule == MergeRule::task ? 1 : 2), "{} models", models.size());
    for (const MergeModel& model : models_) refuse_quantised(model.path);
    for (const MergeModel& model : models_) {
      configs_.push_back(load_config(model.path));
      files_.emplace_back(model.path.weights);
    }
    for (size_t k = 1; k < models_.size(); ++k) {
      need_same_function({name(0), configs_[0]}, {name(k), configs_[k]});
      need_same_vocabulary({name(0), models_[0].path.folder}, {name(k), models_[k].path.folder});
    }
    need_same_nests();
    for (const MergeModel& model : models_) factors_.push_back(model.weight);
    choose_tensors();
  }

  MergeReport write(const fs::path& out, const sys::FunctionRef<bool(int64_t, int64_t)>& progress) {
    int64_t total = 0, done = 0;
    for (const io::TensorSpec& spec : specs_) total += spec.bytes();
    io::AtomicFolder folder(out, io::AtomicFolder::Mark::none);
    io::SafetensorsWriter writer(folder.place(), specs_);
    const auto go_on = [&](int64_t bytes) { return progress(done += bytes, total); };
    for (const io::TensorSpec& spec : writer.order()) {
      if (!put(writer, spec, go_on)) return std::move(report_);
    }
    writer.finish();
    copy_companions(models_[0].path.folder, folder.place());
    copy_nested(models_[0].path.folder, folder.place());
    copy_config(models_[0].path.folder, folder.place());
    folder.commit();
    report_.whole = true;
    return std::move(report_);
  }

 private:
  const std::string& name(size_t k) const { return models_[k].path.name; }

  static void refuse_quantised(const io::ModelPath& path) {
    io::need_folder(path);
    const std::string where = printable(path.name);
    const auto refuse = [&](const std::string& got) {
      fail(where, {.what = "is quantised",
                   .got = got,
                   .expected = "weights in F32, F16 or BF16",
                   .hint = "merging the models that were quantised, and quantising the result"});
    };
    const io::Json config = io::Json::read(path.folder / "config.json");
    if (const auto quantised = config.get({"quantization_config", "compression_config"}))
      refuse(quantised->is_object() ? quantised->string_of({"quant_method"}).value_or(quantised->path())
                                    : quantised->path());
    if (fs::exists(path.folder / "hf_quant_config.json")) refuse("hf_quant_config.json");
  }

  // A nested model has its units in an order of its own: one unit of another model is not the same of this one.
  void need_same_nests() const {
    const auto file = [](const MergeModel& model) {
      const fs::path path = model.path.folder / kNestedFile;
      return fs::exists(path) ? sys::read_file(path) : std::string();
    };
    const std::string first = file(models_[0]);
    for (size_t k = 1; k < models_.size(); ++k) {
      if (file(models_[k]) != first)
        fail(printable(name(k)), {.what = fmt::format("has another {} than {}", kNestedFile, printable(name(0))),
                                  .expected = "models of one nest, whose units are in the same order"});
    }
  }

  // The tensors of a prediction block, as any of the models spells them.
  std::set<std::string> block_names() const {
    std::set<std::string> names;
    for (size_t k = 0; k < models_.size(); ++k) {
      if (!configs_[k].mtp) continue;
      for (const TensorSpec& spec : stored_inventory(configs_[k], *open_folder(models_[k].path).source)) {
        if (spec.mtp) names.insert({spec.name, spec.stack});
      }
    }
    names.erase("");
    return names;
  }

  // Those of them that are not merged, since not all models have some.
  std::set<std::string> uneven_block() {
    std::set<std::string> names = block_names();
    const auto has = [&](size_t k) {
      return std::ranges::any_of(files_[k].tensors(), [&](const auto& t) { return names.contains(t.name); });
    };
    const bool first = has(0);
    bool all = true;
    for (size_t k = 1; k < models_.size(); ++k) {
      if (has(k) == first) continue;
      all = false;
      report_.notes.push_back(first ? fmt::format("{} has no prediction block: that of {} is copied",
                                                  printable(name(k)), printable(name(0)))
                                    : fmt::format("the prediction block of {}, which {} lacks, is left out",
                                                  printable(name(k)), printable(name(0))));
    }
    if (all) names.clear();
    return names;
  }

  void choose_tensors() {
    const std::set<std::string> block = uneven_block();
    const std::string head = configs_[0].tied ? configs_[0].head : "";
    const bool heads = std::ranges::all_of(files_, [&](const auto& file) { return file.find(head) != nullptr; });
    const auto left_out = [&](const std::string& tensor) { return !heads && tensor == head; };
    for (const io::StoredTensor& t : files_[0].tensors()) {
      if (left_out(t.name)) continue;
      specs_.push_back({t.name, t.view.dtype, t.view.shape});
      report_.tensors += 1;
      report_.values += t.view.count();
      if (block.contains(t.name))
        copied_.insert(t.name);
      else
        check_tensor(t);
    }
    for (size_t k = 1; k < models_.size(); ++k) {
      for (const io::StoredTensor& t : files_[k].tensors()) {
        if (left_out(t.name) || block.contains(t.name) || files_[0].find(t.name)) continue;
        fail(printable(name(k)),
             {.what = fmt::format("has tensor {}, which {} lacks", printable(t.name), printable(name(0)))});
      }
    }
  }

  void check_tensor(const io::StoredTensor& first) {
    const std::string tensor = "tensor " + printable(first.name);
    for (size_t k = 0; k < models_.size(); ++k) {
      const View* view = files_[k].find(first.name);
      const std::string where = printable(name(k));
      if (!view) fail(where, {.what = fmt::format("lacks {}, which {} has", tensor, printable(name(0)))});
      if (view->shape != first.view.shape)
        fail(where, {.what = fmt::format("{} has another shape than in {}", tensor, printable(name(0))),
                     .got = to_string(view->shape),
                     .expected = to_string(first.view.shape)});
      if (view->dtype == DType::f8_e4m3 || is_float(view->dtype) != is_float(first.view.dtype))
        fail(where, {.what = tensor + " has a type that cannot be merged",
                     .got = name_of(view->dtype),
                     .expected = is_float(first.view.dtype) ? "F32, F16 or BF16" : name_of(first.view.dtype)});
      if (is_float(first.view.dtype)) continue;
      const bool same =
          view->dtype == first.view.dtype && std::equal(view->data, view->data + view->bytes(), first.view.data);
      if (!same)
        fail(where, {.what = fmt::format("{}, of whole numbers, is not that of {}", tensor, printable(name(0))),
                     .got = name_of(view->dtype),
                     .expected = "equal numbers: they cannot be merged"});
    }
    if (!is_float(first.view.dtype)) copied_.insert(first.name);
  }

  template <class GoOn>
  bool put(io::SafetensorsWriter& writer, const io::TensorSpec& spec, GoOn&& go_on) {
    if (copied_.contains(spec.name) || spec.shape.count() == 0) {
      writer.write(spec.name, files_[0].need(spec.name));
      return go_on(spec.bytes());
    }
    views_.clear();
    for (const io::Safetensors& file : files_) views_.push_back(file.need(spec.name));
    const std::vector<double> factors = rule_ == MergeRule::slerp ? slerp_factors(spec.name) : factors_;
    const int64_t count = spec.shape.count();
    for (int64_t begin = 0; begin < count; begin += kMergePiece) {
      const int64_t n = std::min(kMergePiece, count - begin);
      bytes_.resize(static_cast<size_t>(n * size_of(spec.dtype)));
      combine(spec, begin, n, factors);
      writer.write(spec.name, bytes_);
      if (!go_on(n * size_of(spec.dtype))) return false;
    }
    return true;
  }

  // What model of values x adds to a block; the base's part is `first`.
  void add(const MergeBlock& first, const MergeBlock& x, double factor, int64_t n, bool fresh, MergeBlock& sum) const {
    const auto each = [&](auto&& of) {
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) of(i);
    };
    if (rule_ == MergeRule::task)
      each([&](size_t i) {
        // What is equal leaves the base as it is, the sign of its zeros included.
        if (const double change = x[i] - first[i]; change != 0) sum[i] += factor * change;
      });
    else if (fresh)
      each([&](size_t i) { sum[i] = factor * x[i]; });
    else
      each([&](size_t i) { sum[i] += factor * x[i]; });
  }

  // Values [begin, begin + n) of the result into bytes_.
  void combine(const io::TensorSpec& spec, int64_t begin, int64_t n, const std::vector<double>& factors) {
    // By block: the model whose value is not finite, or as many as there are for the result; -1: none.
    faults_.assign(static_cast<size_t>((n + kMergeBlock - 1) / kMergeBlock), -1);
    sys::parallel_for(threads_, n, kMergeBlock, [&](int64_t from, int64_t to) {
      MergeBlock first{}, x{}, sum{};
      for (int64_t at = from; at < to; at += kMergeBlock) {
        const int64_t size = std::min(kMergeBlock, to - at);
        int& fault = faults_[static_cast<size_t>(at / kMergeBlock)];
        bool fresh = true;
        for (size_t k = 0; k < views_.size(); ++k) {
          const bool base = rule_ == MergeRule::task && k == 0;
          if (!read_block(views_[k], begin + at, size, base ? first : x) && fault < 0) fault = static_cast<int>(k);
          if (base) {
            sum = first;
          } else if (factors[k] != 0) {
            add(first, x, factors[k], size, fresh, sum);
            fresh = false;
          }
        }
        if (!write_block(sum, size, spec.dtype, bytes_.data() + at * size_of(spec.dtype)) && fault < 0)
          fault = static_cast<int>(views_.size());
      }
    });
    refuse_faults(spec);
  }

  void refuse_faults(const io::TensorSpec& spec) const {
    const auto found = std::ranges::find_if(faults_, [](int fault) { return fault >= 0; });
    if (found == faults_.end()) return;
    const auto k = static_cast<size_t>(*found);
    if (k < views_.size())
      fail(printable(name(k)), {.what = "tensor " + printable(spec.name) + " has values that are not finite",
                                .got = "NaN or infinity",
                                .expected = "finite numbers"});
    fail(printable(name(0)),
         {.what = fmt::format("tensor {} has no room for what is merged into it", printable(spec.name)),
          .got = fmt::format("a number beyond the range of {}", name_of(spec.dtype)),
          .hint = "smaller factors"});
  }

  // Of the two models, for a whole tensor.
  std::vector<double> slerp_factors(const std::string& tensor) {
    const double t = factors_[1];
    if (t == 0 || t == 1) return {1 - t, t};
    const int64_t count = views_[0].count();
    std::vector<Products> parts(static_cast<size_t>((count + kMergeBlock - 1) / kMergeBlock));
    faults_.assign(parts.size(), -1);
    sys::parallel_for(threads_, count, kMergeBlock, [&](int64_t from, int64_t to) {
      MergeBlock a{}, b{};
      for (int64_t at = from; at < to; at += kMergeBlock) {
        const int64_t size = std::min(kMergeBlock, to - at);
        Products& part = parts[static_cast<size_t>(at / kMergeBlock)];
        int& fault = faults_[static_cast<size_t>(at / kMergeBlock)];
        if (!read_block(views_[1], at, size, b)) fault = 1;
        if (!read_block(views_[0], at, size, a)) fault = 0;
        for (int64_t j = 0; j < size; ++j) {
          const auto i = static_cast<size_t>(j);
          part.first += a[i] * a[i];
          part.second += b[i] * b[i];
          part.both += a[i] * b[i];
        }
      }
    });
    refuse_faults({.name = tensor});
    Products sum;
    for (const Products& part : parts) {
      sum.first += part.first;
      sum.second += part.second;
      sum.both += part.both;
    }
    const double norms = std::sqrt(sum.first) * std::sqrt(sum.second);
    const double cosine = norms > 0 ? sum.both / norms : 1;
    if (std::fabs(cosine) > kParallelCosine) return {1 - t, t};
    const double angle = std::acos(cosine);
    return {std::sin((1 - t) * angle) / std::sin(angle), std::sin(t * angle) / std::sin(angle)};
  }

  std::span<const MergeModel> models_;
  MergeRule rule_;
  int threads_;
  std::vector<Config> configs_;
  std::vector<io::Safetensors> files_;
  std::vector<double> factors_;
  std::vector<io::TensorSpec> specs_;
  std::set<std::string> copied_;  // from the first model
  MergeReport report_;
  std::vector<View> views_;  // of the tensor that is being merged, by model
  std::vector<std::byte> bytes_;
  std::vector<int> faults_;
};

}  // namespace

MergeReport merge_models(std::span<const MergeModel> models, MergeRule rule, const fs::path& out, int threads,
                         const sys::FunctionRef<bool(int64_t, int64_t)>& progress) {
  return Merger(models, rule, threads).write(out, progress);
}

}  // namespace braid::models
