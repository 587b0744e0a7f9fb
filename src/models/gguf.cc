#include "models/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "math/ggml_blocks.h"
#include "models/gguf_names.h"
#include "sys/error.h"

namespace braid::models {

std::vector<float> gguf_factors(const io::Gguf& file, const io::GgufTensor& tensor) {
  const io::GgufTensor* scale = file.find(tensor.name.substr(0, tensor.name.rfind('.')) + ".scale");
  if (!scale) return {};
  const int64_t count = scale->shape.count(), parts = tensor.shape.rank == 3 ? tensor.shape[0] : 1;
  if (scale->type->type != GgmlType::f32 || (count != 1 && count != parts))
    fail(file.where(), {.what = "tensor " + scale->name + " does not belong to its matrix",
                        .got = fmt::format("{} {}", scale->type->name, to_string(scale->shape)),
                        .expected = fmt::format("F32 [{}]", parts)});
  std::vector<float> factors(static_cast<size_t>(count));
  decode_ggml(GgmlType::f32, scale->bytes.data(), factors);
  return factors;
}

int64_t gguf_head_rows(const io::Gguf& file, const nn::ParamRequest& request) {
  const auto named = [&](const char* part) { return request.name.find(part) != std::string::npos; };
  const std::string architecture = gguf_architecture(file);
  if ((architecture != "llama" && architecture != "deci") ||
      !(named(".self_attn.q_proj.") || named(".self_attn.k_proj.")))
    return 0;
  const auto number = [&](const char* key) { return file.int_of(fmt::format("{}.{}", architecture, key)); };
  int64_t head = number("attention.key_length").value_or(number("rope.dimension_count").value_or(0));
  if (head <= 0) {
    const int64_t heads = file.need_int(architecture + ".attention.head_count");
    head = heads > 0 ? file.need_int(architecture + ".embedding_length") / heads : 0;
  }
  const int64_t rows = request.shape[0];
  if (head <= 0 || head % 2 != 0 || rows % head != 0)
    fail(file.where(), {.what = "tensor " + gguf_name(request.name) + " is not made of heads",
                        .got = fmt::format("{} rows", rows),
                        .expected = fmt::format("a multiple of {}, and that even", head)});
  return head;
}

int64_t gguf_row(int64_t row, int64_t head_rows) {
  const int64_t at = row % head_rows, half = head_rows / 2;
  return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
}

namespace {

class GgufSource final : public nn::ParamSource {
 public:
  GgufSource(WeightStore& store, const io::Gguf& file) : store_(store), file_(file) {}

  bool has(const std::string& name) const override { return file_.find(gguf_name(name)) != nullptr; }

  Param first(const nn::ParamRequest& r) override {
    const std::string name = gguf_name(r.name);
    const io::GgufTensor* tensor = file_.find(name);
    if (!tensor) fail(file_.where(), {.what = fmt::format("tensor {} is missing", name.empty() ? r.name : name)});
    if (tensor->shape.count() != r.shape.count() || (is_matrix(r.role) && tensor->shape != r.shape))
      fail(file_.where(), {.what = "tensor " + name + " has the wrong shape",
                           .got = to_string(tensor->shape),
                           .expected = to_string(r.shape)});
    Weight value = is_matrix(r.role) ? matrix(r, *tensor) : vector(r, *tensor);
    if (const int64_t head = gguf_head_rows(file_, r)) value = released_order(value, head);
    return r.param(value);
  }

 private:
  Weight matrix(const nn::ParamRequest& r, const io::GgufTensor& tensor) {
    const Shape shape{r.rows(), r.cols()};
    if (const auto dtype = stored_as(tensor.type->type)) return dense_weight(View(tensor.bytes.data(), *dtype, shape));
    const MutView values = store_.make(DType::f32, shape);
    const std::span<float> all(values.as<float>(), static_cast<size_t>(shape.count()));
    decode_ggml(tensor.type->type, tensor.bytes.data(), all);
    apply_factors(tensor, all);
    return dense_weight(values);
  }

  Weight vector(const nn::ParamRequest& r, const io::GgufTensor& tensor) {
    const MutView values = store_.make(DType::f32, {r.rows(), r.cols()});
    const std::span<float> all(values.as<float>(), static_cast<size_t>(r.shape.count()));
    decode_ggml(tensor.type->type, tensor.bytes.data(), all);
    if (r.role == ParamRole::a_log) {  // files have -exp of it
      for (float& v : all) v = std::log(-v);
    }
    return dense_weight(values);
  }

  Weight released_order(const Weight& stored, int64_t head) {
    const bool vector = stored.rows == 1;  // a bias
    const int64_t rows = vector ? stored.cols : stored.rows;
    const int64_t bytes = (vector ? 1 : stored.cols) * size_of(stored.codes.dtype);
    const MutView values = store_.make(stored.codes.dtype, {stored.rows, stored.cols});
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(values.data + row * bytes, stored.codes.data + gguf_row(row, head) * bytes,
                  static_cast<size_t>(bytes));
    return dense_weight(values);
  }

  void apply_factors(const io::GgufTensor& tensor, std::span<float> values) const {
    const std::vector<float> factors = gguf_factors(file_, tensor);
    if (factors.empty()) return;
    const size_t part = values.size() / factors.size();
    for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i / part];
  }

  static std::optional<DType> stored_as(GgmlType type) {
    if (type == GgmlType::f32) return DType::f32;
    if (type == GgmlType::f16) return DType::f16;
    if (type == GgmlType::bf16) return DType::bf16;
    return std::nullopt;
  }

  WeightStore& store_;
  const io::Gguf& file_;
};

}  // namespace

std::map<std::string, GgufStored> gguf_types(const io::Gguf& file) {
  std::map<std::string, GgufStored> types;
  for (const io::GgufTensor& tensor : file.tensors()) {
    GgufStored& type = types[tensor.type->name];
    type.bytes += std::ssize(tensor.bytes);
    type.values += tensor.shape.count();
  }
  return types;
}

std::unique_ptr<nn::ParamSource> gguf_source(WeightStore& store, const io::Gguf& file) {
  return std::make_unique<GgufSource>(store, file);
}

}  // namespace braid::models
