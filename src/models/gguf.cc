#include "models/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>
#include <variant>

#include "codec/ggml_blocks.h"
#include "models/gguf_names.h"
#include "models/inventory.h"
#include "sys/error.h"

namespace braid::models {

std::vector<float> gguf_factors(const io::Gguf& file, const io::GgufTensor& tensor) {
  constexpr std::string_view kWeight = ".weight";  // a bias has none: that of its matrix has the name it would have
  if (!tensor.name.ends_with(kWeight)) return {};
  const io::GgufTensor* scale = file.find(tensor.name.substr(0, tensor.name.size() - kWeight.size()) + ".scale");
  if (!scale) return {};
  const int64_t count = scale->shape.count(), parts = tensor.shape.rank == 3 ? tensor.shape[0] : 1;
  if (scale->type->type != GgmlType::f32 || (count != 1 && count != parts))
    fail(file.where(), {.what = "tensor " + scale->name + " does not belong to its matrix",
                        .got = fmt::format("{} {}", scale->type->name, to_string(scale->shape)),
                        .expected = fmt::format("F32 [{}]", parts)});
  std::vector<float> factors(static_cast<size_t>(count));
  decode_ggml(GgmlType::f32, scale->bytes.data(), factors);
  for (const float factor : factors) {
    if (!(factor > 0) || std::isinf(factor))
      fail(file.where(), {.what = "tensor " + scale->name + " is damaged",
                          .got = std::to_string(factor),
                          .expected = "numbers above 0"});
  }
  return factors;
}

int64_t gguf_row(int64_t row, int64_t head_rows) {
  const int64_t at = row % head_rows, half = head_rows / 2;
  return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
}

namespace {

std::optional<DType> dense_type(GgmlType type) {
  if (type == GgmlType::f32) return DType::f32;
  if (type == GgmlType::f16) return DType::f16;
  if (type == GgmlType::bf16) return DType::bf16;
  return std::nullopt;
}

// P of a parameter whose rows llama.cpp has reordered, else 0.
int64_t head_rows_of(const io::Gguf& file, const nn::ParamRequest& request) {
  const ParamRole role = request.role == ParamRole::bias ? request.of : request.role;
  const std::string architecture = gguf_architecture(file);
  if ((architecture != "llama" && architecture != "deci") || (role != ParamRole::q && role != ParamRole::k)) return 0;
  const auto number = [&](const char* key) { return file.int_of(fmt::format("{}.{}", architecture, key)); };
  int64_t head = number("attention.key_length").value_or(number("rope.dimension_count").value_or(0));
  if (head <= 0) {
    const int64_t heads = file.need_int(architecture + ".attention.head_count");
    head = heads > 0 ? file.need_int(architecture + ".embedding_length") / heads : 0;
  }
  const int64_t rows = request.shape[0];
  if (head <= 0 || head % 2 != 0 || rows % head != 0)
    fail(file.where(), {.what = "tensor " + gguf_name(request.name, gguf_layers(file)) + " is not made of heads",
                        .got = fmt::format("{} rows", rows),
                        .expected = fmt::format("a multiple of {}, which must be even", head)});
  return head;
}

}  // namespace

GgufPart gguf_part(const io::Gguf& file, const nn::ParamRequest& request) {
  const bool expert = request.expert >= 0;
  const std::string name = gguf_name(expert ? request.stack : request.name, gguf_layers(file));
  const io::GgufTensor* tensor = name.empty() ? nullptr : file.find(name);
  if (!tensor) fail(file.where(), {.what = fmt::format("tensor {} is missing", name.empty() ? request.name : name)});
  const int64_t parts = expert ? request.experts : 1;
  const bool fits = tensor->shape.count() == request.shape.count() * parts &&
                    (expert ? tensor->shape[0] == parts : !is_matrix(request.role) || tensor->shape == request.shape) &&
                    request.shape.count() % tensor->type->values == 0 &&
                    (!is_matrix(request.role) || request.cols() % tensor->type->values == 0);
  if (!fits)
    fail(file.where(),
         {.what = fmt::format("tensor {} ({}) has the wrong shape", name, tensor->type->name),
          .got = to_string(tensor->shape),
          .expected = expert ? fmt::format("{} of {}", parts, to_string(request.shape)) : to_string(request.shape)});
  const size_t size = tensor->bytes.size() / static_cast<size_t>(parts);
  const size_t index = expert ? static_cast<size_t>(request.expert) : 0;
  const std::vector<float> factors = gguf_factors(file, *tensor);
  if (!factors.empty() && (dense_type(tensor->type->type) || !is_matrix(request.role)))
    fail(file.where(), {.what = fmt::format("tensor {} ({}) has a scale", name, tensor->type->name),
                        .expected = "scales of quantised matrices only"});
  return {.tensor = tensor,
          .bytes = tensor->bytes.subspan(index * size, size),
          .factor = factors.empty() ? 1.0f : factors[std::min(index, factors.size() - 1)],
          .head_rows = head_rows_of(file, request)};
}

void fail_damaged(const io::Gguf& file, const io::GgufTensor& tensor, ParamRole role) {
  fail(file.where(), {.what = fmt::format("tensor {} ({}) is damaged", tensor.name, tensor.type->name),
                      .expected = role == ParamRole::a_log ? "numbers below 0" : "finite numbers"});
}

// A few bytes of metadata can name more experts than the list of all tensors should have, or memory.
static void check_experts(const io::Gguf& file, const Config& config) {
  constexpr int64_t kBytes = 32;  // less than two matrices take, of one block each
  int64_t experts = 0, bytes = 0;
  for (const LayerSpec& layer : config.layers) {
    for (const PartSpec& part : layer.parts) {
      if (const auto* moe = std::get_if<nn::MoeSpec>(&part.block)) experts += moe->experts;
    }
  }
  for (const io::GgufTensor& tensor : file.tensors()) bytes += std::ssize(tensor.bytes);
  if (experts > bytes / kBytes)
    fail(file.where(), {.what = "the file is too small for its experts",
                        .got = fmt::format("{} bytes of tensors", bytes),
                        .expected = fmt::format("{} experts", experts)});
}

void check_gguf_tensors(const io::Gguf& file, const Config& config) {
  check_experts(file, config);
  const int64_t layers = gguf_layers(file);
  std::set<std::string> known;
  for (const nn::ParamRequest& r : inventory(config)) known.insert(gguf_name(r.expert >= 0 ? r.stack : r.name, layers));
  for (const io::GgufTensor& tensor : file.tensors()) {
    if (!gguf_needs_place(tensor.name, layers) || known.contains(tensor.name)) continue;
    fail(file.where(),
         {.what = fmt::format("tensor {} has no place in a {} model", tensor.name, gguf_architecture(file)),
          .expected = "only tensors that the model reads"});
  }
}

namespace {

class GgufSource final : public nn::ParamSource {
 public:
  GgufSource(WeightStore& store, const io::Gguf& file) : store_(store), file_(file) {}

  // Stacks of experts are given one by one: each may have a factor of its own.
  bool has(const std::string& name) const override {
    const io::GgufTensor* tensor = file_.find(gguf_name(name, gguf_layers(file_)));
    return tensor && tensor->shape.rank < 3;
  }

  Param first(const nn::ParamRequest& r) override {
    const GgufPart part = gguf_part(file_, r);
    return r.param(is_matrix(r.role) ? matrix(r, part) : vector(r, part));
  }

 private:
  Weight matrix(const nn::ParamRequest& r, const GgufPart& part) {
    const GgmlTypeRow& type = *part.tensor->type;
    const auto dense = dense_type(type.type);
    const Shape shape{r.rows(), dense ? r.cols() : r.cols() / type.values * type.bytes};
    View stored(part.bytes.data(), dense.value_or(DType::u8), shape);
    if (part.head_rows > 0) stored = released_order(stored, part.head_rows);
    return dense ? dense_weight(stored) : ggml_weight(type.type, stored, r.cols(), part.factor);
  }

  Weight vector(const nn::ParamRequest& r, const GgufPart& part) {
    const MutView values = store_.make(DType::f32, {r.rows(), r.cols()});
    const std::span<float> all(values.as<float>(), static_cast<size_t>(r.shape.count()));
    decode_ggml(part.tensor->type->type, part.bytes.data(), all);
    if (r.role == ParamRole::a_log) {  // files have -exp of it
      for (float& v : all) v = std::log(-v);
    }
    if (!std::ranges::all_of(all, [](float v) { return std::isfinite(v); })) fail_damaged(file_, *part.tensor, r.role);
    if (part.head_rows == 0) return dense_weight(values);
    const View rows = released_order(View(values.data, DType::f32, {r.shape[0], 1}), part.head_rows);
    return dense_weight(View(rows.data, DType::f32, {r.rows(), r.cols()}));
  }

  View released_order(const View& stored, int64_t head) {
    const int64_t bytes = stored.bytes() / stored.dim(0);
    const MutView copy = store_.make(stored.dtype, stored.shape);
    for (int64_t row = 0; row < stored.dim(0); ++row)
      std::memcpy(copy.data + row * bytes, stored.data + gguf_row(row, head) * bytes, static_cast<size_t>(bytes));
    return copy;
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
