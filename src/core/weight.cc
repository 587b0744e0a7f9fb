#include "core/weight.h"

#include "core/grouped_rows.h"

namespace braid {

const char* name_of(Format f) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "fp8", "nvfp4", "gguf"};
  return kNames[static_cast<int>(f)];
}

const char* name_of(const QuantSpec& spec) {
  return spec.format == Format::ggml ? ggml_type(static_cast<uint32_t>(spec.ggml))->name : name_of(spec.format);
}

int64_t Weight::product_bytes() const { return groups ? groups->bytes() : bytes(); }
int64_t Weight::product_values() const { return groups ? groups->values.count() : rows * cols; }

Weight Weight::rows_of(int64_t begin, int64_t n) const {
  Weight part = *this;
  part.rows = n;
  part.groups = nullptr;
  part.codes = codes.slice(0, begin, n);
  if (scales) part.scales = scales.slice(0, begin, n);
  return part;
}

Weight ggml_weight(GgmlType type, const View& blocks, int64_t cols, float global) {
  const GgmlTypeRow* row = ggml_type(static_cast<uint32_t>(type));
  CHECK(row && cols % row->values == 0 && blocks.dtype == DType::u8 && blocks.dim(1) == cols / row->values * row->bytes,
        "{} values in rows of {} bytes", cols, blocks.dim(1));
  Weight w{.rows = blocks.dim(0), .cols = cols, .codes = blocks, .global = global};
  w.spec = {.format = Format::ggml, .block = static_cast<int>(row->values), .ggml = type};
  return w;
}

Weight dense_weight(const View& values) {
  CHECK(values.shape.rank == 2 && values.rows_contiguous(), "{}", to_string(values.shape));
  Weight w{.rows = values.dim(0), .cols = values.dim(1)};
  w.codes = values;
  switch (values.dtype) {
    case DType::f32:
      w.spec.format = Format::f32;
      break;
    case DType::f16:
      w.spec.format = Format::f16;
      break;
    case DType::bf16:
      w.spec.format = Format::bf16;
      break;
    default:
      CHECK(false, "a weight of {}", name_of(values.dtype));
  }
  return w;
}

}  // namespace braid
