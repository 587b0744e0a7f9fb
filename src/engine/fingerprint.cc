#include "engine/fingerprint.h"

#include <algorithm>
#include <string_view>

#include "core/grouped_rows.h"
#include "engine/language_model.h"
#include "io/checksum.h"
#include "sys/mapped_file.h"

namespace braid::engine {
namespace {

void add_text(io::Checksum& sum, std::string_view text) {
  sum.update_value(text.size());
  sum.update(std::as_bytes(std::span(text)));
}

// Parts spread evenly over the bytes, all of a small tensor: reading all of a large model would take longer than its
// first answers.
void add_bytes(io::Checksum& sum, const View& values) {
  constexpr int64_t kPart = 512, kParts = 16;
  const int64_t bytes = values.bytes();
  sum.update_value(bytes);
  if (!values.contiguous()) return;
  const auto all = std::span(values.data, static_cast<size_t>(bytes));
  if (bytes <= kPart * kParts) return sum.update(all);
  for (int64_t i = 0; i < kParts; ++i)
    sum.update(all.subspan(static_cast<size_t>((bytes - kPart) / (kParts - 1) * i), static_cast<size_t>(kPart)));
}

void add_param(io::Checksum& sum, const Param& param) {
  const Weight& w = param.value;
  add_text(sum, param.name);
  sum.update_value(w.spec.format);
  sum.update_value(w.spec.block);
  sum.update_value(w.spec.ggml);
  sum.update_value(w.global);
  add_bytes(sum, w.codes);
  if (w.scales) add_bytes(sum, w.scales);
  if (w.groups) sum.update_value(w.groups->height);  // whose sums run in another order
  if (!param.adapter) return;
  sum.update_value(param.adapter->scale);
  add_param(sum, param.adapter->a);
  add_param(sum, param.adapter->b);
}

}  // namespace

uint64_t fingerprint_of(LanguageModel& model) {
  io::Checksum sum;
  // GGUF files begin with their config.
  constexpr size_t kConfigMax = size_t{1} << 20;
  const io::ModelPath& path = model.path();
  const sys::MappedFile config(path.is_gguf() ? path.weights : path.folder / "config.json");
  sum.update(config.bytes().first(std::min(config.bytes().size(), kConfigMax)));
  const Numerics& n = model.runner().options().numerics;
  const CacheTypes types = n.caches();
  for (const DType dtype : {n.products, n.activations, types.kv, types.ssm}) sum.update_value(dtype);
  sum.update_value(n.product_class);
  for (const bool flag : {n.exact, n.int8}) sum.update_value(flag);
  for (const nn::StateShape& shape : model.runner().model().state_shapes()) {
    sum.update_value(shape.k_factor);
    sum.update_value(shape.v_factor);
  }
  const LoopOptions& loop = model.runner().options().loop;
  for (const int64_t count : {loop.steps, loop.states, std::ssize(loop.start)}) sum.update_value(count);
  sum.update(std::as_bytes(std::span(loop.start)));
  for (const bool flag : {loop.zero, loop.warm_start}) sum.update_value(flag);
  sum.update_value(loop.seed);
  sum.update_value(loop.exit);
  sum.update_value(loop.threshold);
  for (const Param* param : model.runner().model().params()) add_param(sum, *param);
  return sum.value();
}

}  // namespace braid::engine
