// Rows of states that are stored in fewer than 32 bits (ssd_stored.h), to FP32 and back, once per target. Include it
// like math/vec-inl.h.
#if defined(BRAID_KERNELS_SSD_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_KERNELS_SSD_STORED_INL_H_
#undef BRAID_KERNELS_SSD_STORED_INL_H_
#else
#define BRAID_KERNELS_SSD_STORED_INL_H_
#endif

#include "kernels/ssd/ssd_stored.h"
#include "math/philox-inl.h"
#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using StoredTag = hn::CappedTag<float, 16>;  // 16 counters make a Philox block
using StoredVec = hn::VFromD<StoredTag>;
using StoredBits = hn::VFromD<hn::Rebind<uint32_t, StoredTag>>;

// The draws of columns [128 block, 128 block + 128) of a row.
HWY_INLINE void stored_draws(const RandomKey& key, int64_t position, int64_t row, int64_t block, uint32_t* draws) {
  const hn::Rebind<uint32_t, StoredTag> d;
  for (int64_t i = 0; i < 16; i += static_cast<int64_t>(hn::Lanes(d))) {
    StoredBits words[4] = {hn::Iota(d, static_cast<uint32_t>(block * 16 + i)), hn::Set(d, static_cast<uint32_t>(row)),
                           hn::Set(d, key.stream), hn::Set(d, static_cast<uint32_t>(position))};
    philox_words(d, key.seed, words);
    for (int64_t j = 0; j < 4; ++j) {
      hn::StoreU(hn::And(words[j], hn::Set(d, 0xffff)), d, draws + 32 * j + i);
      hn::StoreU(hn::ShiftRight<16>(words[j]), d, draws + 32 * j + 16 + i);
    }
  }
}

// v with the lowest kBits of its magnitude rounded up or down to zeros.
template <int kBits>
HWY_INLINE StoredVec round_magnitude(StoredTag d, StoredVec v, StoredBits draw) {
  const hn::Rebind<uint32_t, StoredTag> bits;
  const auto sum = hn::Add(hn::BitCast(bits, v), hn::ShiftRight<16 - kBits>(draw));
  return hn::BitCast(d, hn::And(sum, hn::Set(bits, ~((1u << kBits) - 1))));
}

HWY_INLINE StoredVec stored_as(StoredTag d, Bf16, StoredVec v, StoredBits draw, StoredVec) {
  const auto finite = hn::Lt(hn::Abs(v), hn::Inf(d));
  return hn::IfThenElse(finite, round_magnitude<16>(d, v, draw), v);
}
HWY_INLINE StoredVec stored_as(StoredTag d, F16, StoredVec v, StoredBits draw, StoredVec) {
  const StoredVec size = hn::Abs(v);
  const hn::Rebind<int32_t, StoredTag> whole;
  const StoredVec part = hn::Mul(hn::ConvertTo(d, hn::BitCast(whole, hn::ShiftRight<3>(draw))), hn::Set(d, 0x1p-13f));
  const StoredVec small = hn::Mul(hn::Floor(hn::MulAdd(size, hn::Set(d, 0x1p24f), part)), hn::Set(d, 0x1p-24f));
  const StoredVec normal = hn::Min(round_magnitude<13>(d, size, draw), hn::Set(d, kStoredF16Max));
  const StoredVec rounded = hn::IfThenElse(hn::Lt(size, hn::Set(d, 0x1p-14f)), small, normal);
  return hn::IfThenElse(hn::Lt(size, hn::Inf(d)), hn::CopySign(rounded, v), v);
}
// A code, as FP32.
HWY_INLINE StoredVec stored_as(StoredTag d, int8_t, StoredVec v, StoredBits draw, StoredVec inverse) {
  const hn::Rebind<int32_t, StoredTag> whole;
  const StoredVec part = hn::Mul(hn::ConvertTo(d, hn::BitCast(whole, draw)), hn::Set(d, 0x1p-16f));
  const StoredVec code = hn::Floor(hn::MulAdd(hn::Abs(v), inverse, part));
  return hn::CopySign(hn::Min(code, hn::Set(d, 127.0f)), v);
}

HWY_INLINE void put(StoredTag d, StoredVec v, Bf16* to) { store(v, d, to); }
HWY_INLINE void put(StoredTag, StoredVec v, F16* to) {
  const hn::Rebind<hwy::float16_t, StoredTag> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(to));
}
HWY_INLINE void put(StoredTag, StoredVec v, int8_t* to) {
  const hn::Rebind<int32_t, StoredTag> whole;
  const hn::Rebind<int8_t, StoredTag> d8;
  hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(whole, v)), d8, to);
}
template <class Num>
HWY_INLINE StoredVec get(StoredTag d, const Num* from) {
  return load(d, from);
}
HWY_INLINE StoredVec get(StoredTag d, const F16* from) {
  const hn::Rebind<hwy::float16_t, StoredTag> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
}

// max |v| / 127, NaN where a value is not finite.
HWY_INLINE float scale_of_row(const float* from, int64_t states) {
  const StoredTag d;
  StoredVec most = hn::Zero(d), poison = hn::Zero(d);
  for (int64_t n = 0; n < states; n += static_cast<int64_t>(hn::Lanes(d))) {
    const StoredVec v = hn::LoadU(d, from + n);
    most = hn::Max(most, hn::Abs(v));
    poison = hn::MulAdd(v, hn::Zero(d), poison);
  }
  return hn::GetLane(hn::MaxOfLanes(d, most)) / 127 + hn::GetLane(hn::SumOfLanes(d, poison));
}

// `from` and `to` of FP32 have room for whole blocks of 16, zero-padded after the row's values.
template <class Num>
HWY_INLINE void decode_row(const Num* from, float scale, int64_t states, float* to) {
  const StoredTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const StoredVec factor = hn::Set(d, scale);
  const auto scaled = [&](StoredVec v) HWY_ATTR { return std::is_same_v<Num, int8_t> ? hn::Mul(v, factor) : v; };
  int64_t n = 0;
  for (; n + lanes <= states; n += lanes) hn::StoreU(scaled(get(d, from + n)), d, to + n);
  if (n < states) {
    HWY_ALIGN Num rest[16] = {};
    std::copy(from + n, from + states, rest);
    hn::StoreU(scaled(get(d, rest)), d, to + n);
  }
}

template <class Num>
HWY_INLINE void encode_row(const float* from, const RandomKey& key, int64_t position, int64_t row, int64_t states,
                           Num* to, float* scale) {
  const StoredTag d;
  const hn::Rebind<uint32_t, StoredTag> bits;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  StoredVec inverse = hn::Zero(d);
  if constexpr (std::is_same_v<Num, int8_t>) {
    *scale = scale_of_row(from, states);
    if (*scale > 0 && std::isfinite(1 / *scale)) inverse = hn::Set(d, 1 / *scale);  // otherwise zeros
  }
  HWY_ALIGN uint32_t draws[128];
  for (int64_t n = 0; n < states; n += lanes) {
    if (n % 128 == 0) stored_draws(key, position, row, n / 128, draws);
    const StoredVec v = stored_as(d, Num{}, hn::LoadU(d, from + n), hn::LoadU(bits, draws + n % 128), inverse);
    if (n + lanes <= states) {
      put(d, v, to + n);
      continue;
    }
    HWY_ALIGN Num rest[16];
    put(d, v, rest);
    std::copy(rest, rest + (states - n), to + n);
  }
}

// Row p of a head's state of a slot, of an op that has `state`, `state_scales` and `noise`.
template <class Op>
HWY_INLINE void load_stored(const Op& op, int64_t slot, int64_t head, int64_t p, float* to) {
  const int64_t states = op.state.dim(3), at = head * op.state.stride(1) + p * op.state.stride(2);
  if (op.state.dtype == DType::bf16) decode_row(op.state.template as<Bf16>(slot) + at, 1, states, to);
  if (op.state.dtype == DType::f16) decode_row(op.state.template as<F16>(slot) + at, 1, states, to);
  if (op.state.dtype == DType::i8) {
    const float scale = op.state_scales.template as<float>(slot)[head * op.state.dim(2) + p];
    decode_row(op.state.template as<int8_t>(slot) + at, scale, states, to);
  }
}

// `position`: tokens that are in the state now.
template <class Op>
HWY_INLINE void store_stored(const Op& op, const float* from, int64_t position, int64_t slot, int64_t head, int64_t p) {
  const int64_t states = op.state.dim(3), at = head * op.state.stride(1) + p * op.state.stride(2);
  const int64_t row = head * op.state.dim(2) + p;
  const auto encode = [&](auto* to, float* scale)
                          HWY_ATTR { encode_row(from, op.noise, position, row, states, to + at, scale); };
  if (op.state.dtype == DType::bf16) encode(op.state.template as<Bf16>(slot), nullptr);
  if (op.state.dtype == DType::f16) encode(op.state.template as<F16>(slot), nullptr);
  if (op.state.dtype == DType::i8)
    encode(op.state.template as<int8_t>(slot), op.state_scales.template as<float>(slot) + row);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
#endif
