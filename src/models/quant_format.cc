#include "models/quant_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/codec.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::models {
std::vector<io::TensorSpec> stored_as(const std::string& name, const Shape& shape, QuantFormat format) {
  const QuantCodec& codec = codec_of(format);
  CHECK(!codec.parts.empty(), "no file layout for {}", codec.name);
  std::vector<io::TensorSpec> tensors;
  for (const StoredPart& part : codec.parts) {
    const Shape each{shape[0], shape[1] / codec.block * part.each};
    tensors.push_back({name + part.suffix, part.dtype, part.each > 0 ? each : part.alone});
  }
  return tensors;
}

float global_scale(QuantFormat format, float amax, ScaleSearch search) {
  const QuantCodec& codec = codec_of(format);
  return codec.global ? codec.global(amax, search) : 1.0f;
}

float input_scale(QuantFormat format, float amax) {
  return amax == 0 ? 1 : global_scale(format, amax, ScaleSearch::max);
}

void for_each_row(const Weight& w, int threads, const sys::FunctionRef<void(int64_t, std::span<const float>)>& body) {
  sys::parallel_for(threads, w.rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(w.cols));
    for (int64_t r = begin; r < end; ++r) {
      decode_row(w, r, 0, w.cols, values.data());
      for (float& v : values) v *= w.global;
      body(r, values);
    }
  });
}

float measured_global(const Weight& w, QuantFormat format, ScaleSearch search, const MatrixName& name, int threads) {
  std::vector<float> largest(static_cast<size_t>(w.rows));
  for_each_row(w, threads, [&](int64_t r, std::span<const float> values) {
    float& amax = largest[static_cast<size_t>(r)];
    for (float v : values) amax = std::isnan(v) ? HUGE_VALF : std::max(amax, std::fabs(v));
  });
  const float amax = *std::max_element(largest.begin(), largest.end()), most = codec_of(format).largest;
  if (!std::isfinite(amax)) fail(name.model, {.what = "a matrix has a value that is not finite", .got = name.matrix});
  if (amax > most)
    fail(name.model, {.what = fmt::format("{} has a value that {} cannot hold", name.matrix, codec_of(format).name),
                      .got = fmt::format("{:g}", amax),
                      .expected = fmt::format("up to {:g}", most)});
  return amax < std::numeric_limits<float>::min() ? 0 : global_scale(format, amax, search);
}

Encoded encode(const Weight& w, QuantFormat format, float global, ScaleSearch search, int threads) {
  const BlockCoder coder(format, {global, search});
  const size_t code_bytes = coder.code_bytes(w.cols), scale_bytes = coder.scale_bytes(w.cols),
               rows = static_cast<size_t>(w.rows);
  Encoded out{.codes = std::vector<std::byte>(rows * code_bytes), .scales = std::vector<std::byte>(rows * scale_bytes)};
  std::vector<double> error(rows), square(rows);
  for_each_row(w, threads, [&](int64_t r, std::span<const float> values) {
    const auto row = static_cast<size_t>(r);
    std::byte *codes = out.codes.data() + row * code_bytes, *scales = out.scales.data() + row * scale_bytes;
    coder.encode(values, codes, scales);
    std::vector<float> back(values.size());
    coder.decode(codes, scales, back);
    for (size_t i = 0; i < back.size(); ++i) {
      const auto value = static_cast<double>(values[i]);
      error[row] += std::pow(value - static_cast<double>(back[i]), 2);
      square[row] += value * value;
    }
  });
  for (size_t r = 0; r < rows; ++r) {
    out.error += error[r];
    out.square += square[r];
  }
  return out;
}

Weight weight_of(const Encoded& matrix, int64_t rows, int64_t cols, QuantFormat format, float global,
                 WeightStore& store) {
  const auto copied = [&](const std::vector<std::byte>& bytes, DType type, const Shape& shape) {
    const MutView to = store.make(type, shape);
    CHECK(to.bytes() == std::ssize(bytes), "{} bytes for {}", bytes.size(), to_string(shape));
    std::copy(bytes.begin(), bytes.end(), to.data);
    return View(to);
  };
  const QuantCodec& codec = codec_of(format);
  if (!codec.compressed) {
    Weight w{.rows = rows, .cols = cols, .spec = codec.spec, .global = global};
    const auto tensors = stored_as("", {rows, cols}, format);
    w.codes = copied(matrix.codes, tensors[0].dtype, tensors[0].shape);
    if (codec.scale_bytes > 0) w.scales = copied(matrix.scales, tensors[1].dtype, tensors[1].shape);
    return w;
  }
  const BlockCoder coder(format, {});
  const int64_t groups = cols / kCompressedGroup,
                bytes = groups * ggml_type(static_cast<uint32_t>(codec.spec.ggml))->bytes;
  const MutView blocks = store.make(DType::u8, {rows, bytes});
  const size_t code_bytes = coder.code_bytes(cols), scale_bytes = coder.scale_bytes(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = static_cast<size_t>(r);
    stored_to_blocks(*codec.compressed, matrix.codes.data() + row * code_bytes,
                     matrix.scales.data() + row * scale_bytes, groups, blocks.data + r * bytes);
  }
  return ggml_weight(codec.spec.ggml, blocks, cols);
}

}  // namespace braid::models
