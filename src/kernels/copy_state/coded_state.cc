#include "kernels/copy_state/coded_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "sys/check.h"
#include "sys/parallel.h"

namespace braid {
namespace {

constexpr float kLeast = 1e-30f;  // smaller scales have no finite inverse

struct Head {
  int64_t rows, columns;  // P, N
  int64_t codes_bytes() const { return (rows * columns + 1) / 2 * 2; }
  int64_t bytes() const { return codes_bytes() + (rows + columns) * size_of(DType::bf16); }
};

// The least BF16 not below v >= 0, from kLeast on; else 0.
Bf16 scale_from(float v) {
  if (v < kLeast) return {};
  return {static_cast<uint16_t>((std::bit_cast<uint32_t>(v) + 0xffff) >> 16)};
}

float largest(const float* row, int64_t n) {
  float most = 0, poison = 0;
  for (int64_t i = 0; i < n; ++i) {
    most = std::max(most, std::fabs(row[i]));
    poison += row[i] * 0.0f;
  }
  const float bound = to_float(Bf16{0x7f7f});  // the largest finite one
  return poison == 0 && most <= bound ? most : std::numeric_limits<float>::quiet_NaN();
}

// Its low byte is the integer nearest to v, for |v| <= 127.
int8_t nearest(float v) { return static_cast<int8_t>(std::bit_cast<uint32_t>(v + 12582912.0f) & 0xff); }

void encode_head(const Head& head, const float* values, std::byte* to, float* work) {
  auto* codes = reinterpret_cast<int8_t*>(to);
  auto* row_scales = reinterpret_cast<Bf16*>(to + head.codes_bytes());
  Bf16* column_scales = row_scales + head.rows;
  float *inverse = work, *columns = work + head.rows;
  std::fill_n(columns, head.columns, 0.0f);
  for (int64_t p = 0; p < head.rows; ++p) {
    const float* row = values + p * head.columns;
    const float most = largest(row, head.columns);
    row_scales[p] = std::isnan(most) ? to_bf16(most) : scale_from(most);
    const float scale = to_float(row_scales[p]);
    inverse[p] = scale > 0 ? 1 / scale : 0;
    if (inverse[p] == 0) continue;
    const float by = inverse[p];
    for (int64_t n = 0; n < head.columns; ++n) columns[n] = std::max(columns[n], std::fabs(row[n] * by));
  }
  for (int64_t n = 0; n < head.columns; ++n) {
    column_scales[n] = scale_from(columns[n] / 127);
    const float scale = to_float(column_scales[n]);
    columns[n] = scale > 0 ? 1 / scale : 0;
  }
  for (int64_t p = 0; p < head.rows; ++p) {
    const float* row = values + p * head.columns;
    int8_t* out = codes + p * head.columns;
    const float by = inverse[p];
    if (by == 0) {
      std::fill_n(out, head.columns, int8_t{0});
      continue;
    }
    for (int64_t n = 0; n < head.columns; ++n) out[n] = nearest(row[n] * by * columns[n]);
  }
}

void decode_head(const Head& head, const std::byte* from, float* values, float* columns) {
  const auto* codes = reinterpret_cast<const int8_t*>(from);
  const auto* row_scales = reinterpret_cast<const Bf16*>(from + head.codes_bytes());
  const Bf16* column_scales = row_scales + head.rows;
  for (int64_t n = 0; n < head.columns; ++n) columns[n] = to_float(column_scales[n]);
  for (int64_t p = 0; p < head.rows; ++p) {
    const float scale = to_float(row_scales[p]);
    float* out = values + p * head.columns;
    const int8_t* in = codes + p * head.columns;
    for (int64_t n = 0; n < head.columns; ++n) out[n] = static_cast<float>(in[n]) * columns[n] * scale;
  }
}

}  // namespace

int64_t coded_state_bytes(int64_t heads, int64_t head_dim, int64_t state) {
  return heads * Head{head_dim, state}.bytes();
}

void encode_state(int threads, const View& state, std::span<std::byte> coded) {
  const Head head{state.dim(1), state.dim(2)};
  CHECK(state.contiguous() && std::ssize(coded) == state.dim(0) * head.bytes(), "{} bytes", coded.size());
  const int64_t width = head.rows + head.columns;
  std::vector<float> work(static_cast<size_t>(state.dim(0) * width));
  sys::parallel_for(sys::team_for(threads, static_cast<double>(state.count())), state.dim(0), 1,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t h = begin; h < end; ++h)
                        encode_head(head, state.as<float>() + h * head.rows * head.columns,
                                    coded.data() + h * head.bytes(), work.data() + h * width);
                    });
}

void decode_state(int threads, std::span<const std::byte> coded, const MutView& state) {
  const Head head{state.dim(1), state.dim(2)};
  CHECK(state.contiguous() && std::ssize(coded) == state.dim(0) * head.bytes(), "{} bytes", coded.size());
  std::vector<float> work(static_cast<size_t>(state.dim(0) * head.columns));
  sys::parallel_for(sys::team_for(threads, static_cast<double>(state.count())), state.dim(0), 1,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t h = begin; h < end; ++h)
                        decode_head(head, coded.data() + h * head.bytes(),
                                    state.as<float>() + h * head.rows * head.columns, work.data() + h * head.columns);
                    });
}

}  // namespace braid
