#include "kernels/dropout/dropout.h"

#include "kernels/dropout/dropout_ref.h"
#include "kernels/dropout/dropout_rows.h"

namespace braid {
namespace {

void check_map(const DropoutMap& map) {
  CHECK(map.rate >= 0 && map.rate < 1, "{}: rate {}", map.op, map.rate);
  CHECK(!map.seqs || map.seqs->tokens() <= map.from.dim(0), "{}: {} tokens in the map, {} rows", map.op,
        map.seqs->tokens(), map.from.dim(0));
}

template <class Op>
void map_ref(Ctx&, const Op& op, std::span<std::byte>) {
  const DropoutMap map = map_of(op);
  check_map(map);
  const int64_t width = map.from.dim(1);
  const uint32_t threshold = dropout_threshold(map.rate);
  const auto rows = [&](const Seq& seq) {
    const uint64_t key = dropout_sample_key(map.key, seq.sample_id);
    for (int64_t t = 0; t < seq.len; ++t) {
      for (int64_t c = 0; c < width; ++c) {
        const int64_t at = (seq.start + t) * width + c;
        const bool kept = dropout_keeps(key, seq.pos0 + t, c, threshold);
        set_element(map.to, at, kept ? element(map.from, at) / (1 - static_cast<double>(map.rate)) : 0);
      }
    }
  };
  if (!map.seqs) return rows({.len = map.from.dim(0)});
  for (const Seq& seq : map.seqs->seqs) rows(seq);
}

template <class Op>
void map_hwy(Ctx& ctx, const Op& op, std::span<std::byte>) {
  check_map(map_of(op));
  dropout_hwy(ctx, map_of(op));
}

template <class Op>
const char* hwy_supports(const Op& op) {
  const DropoutMap map = map_of(op);
  return map.from.rows_contiguous() && map.to.rows_contiguous() ? nullptr : "strided rows";
}

}  // namespace

std::span<const Row<DropoutFwd>> DropoutFwd::rows() {
  static constexpr Row<DropoutFwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports<DropoutFwd>, .run = &map_hwy<DropoutFwd>},
      {.name = "ref", .numerics = "f64", .run = &map_ref<DropoutFwd>},
  };
  return kRows;
}

std::span<const Row<DropoutBwd>> DropoutBwd::rows() {
  static constexpr Row<DropoutBwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports<DropoutBwd>, .run = &map_hwy<DropoutBwd>},
      {.name = "ref", .numerics = "f64", .run = &map_ref<DropoutBwd>},
  };
  return kRows;
}

}  // namespace braid
