// Philox 4x32-10 (core/philox.h), one counter per lane. Re-included once per target, as math/vec-inl.h.
//   philox_words(d, seed, words)   words: the four of the counters, replaced by the four random ones
#if defined(BRAID_MATH_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_MATH_PHILOX_INL_H_
#undef BRAID_MATH_PHILOX_INL_H_
#else
#define BRAID_MATH_PHILOX_INL_H_
#endif

#include <hwy/highway.h>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

template <class Tag, class Words = hwy::HWY_NAMESPACE::VFromD<Tag>>
HWY_INLINE void multiply_whole(Tag d, Words a, uint32_t b, Words& high, Words& low) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Repartition<uint64_t, Tag> wide;
  const Words factor = hn::Set(d, b);
  const auto even = hn::MulEven(a, factor);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), factor);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::Mul(a, factor);
}

// d of uint32_t
template <class Tag, class Words = hwy::HWY_NAMESPACE::VFromD<Tag>>
HWY_INLINE void philox_words(Tag d, uint64_t seed, Words (&words)[4]) {
  namespace hn = hwy::HWY_NAMESPACE;
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    Words high0, low0, high1, low1;
    multiply_whole(d, words[0], 0xD2511F53u, high0, low0);
    multiply_whole(d, words[2], 0xCD9E8D57u, high1, low1);
    words[0] = hn::Xor(hn::Xor(high1, words[1]), hn::Set(d, k0));
    words[2] = hn::Xor(hn::Xor(high0, words[3]), hn::Set(d, k1));
    words[1] = low1;
    words[3] = low0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
#endif
