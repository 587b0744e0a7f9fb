// Dropout with Highway: the ten rounds of Philox 4x32 on a vector of counters, four words of 16 channels at a time.
#include "kernels/dropout/dropout_ref.h"
#include "kernels/dropout/dropout_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout/dropout_cpu.cc"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#include "math/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::VFromD<FloatTag>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using Words = hn::VFromD<WordTag>;

constexpr int64_t kLanes = static_cast<int64_t>(sizeof(FloatVec) / sizeof(float));
static_assert(16 % kLanes == 0);

// Both halves of the 64-bit products of the lanes.
HWY_INLINE void multiply(Words a, uint32_t factor, Words& high, Words& low) {
  const WordTag d;
  const hn::Repartition<uint64_t, WordTag> wide;
  const Words b = hn::Set(d, factor);
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

// philox(key; counter, stream) of core/philox.h for a vector of counters below 2^32.
HWY_INLINE void philox_words(uint64_t key, Words counter, uint32_t stream, Words (&c)[4]) {
  const WordTag d;
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  c[0] = counter;
  c[1] = hn::Zero(d);
  c[2] = hn::Set(d, stream);
  c[3] = hn::Zero(d);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    Words high0, low0, high1, low1;
    multiply(c[0], 0xD2511F53u, high0, low0);
    multiply(c[2], 0xCD9E8D57u, high1, low1);
    c[0] = hn::Xor(hn::Xor(high1, c[1]), hn::Set(d, k0));
    c[2] = hn::Xor(hn::Xor(high0, c[3]), hn::Set(d, k1));
    c[1] = low1;
    c[3] = low0;
  }
}

template <class From, class To>
void drop_row(const From* from, To* to, int64_t width, uint64_t key, uint32_t pos, float rate) {
  const FloatTag d;
  const WordTag w;
  const Words threshold = hn::Set(w, dropout_threshold(rate));
  const FloatVec scale = hn::Set(d, static_cast<float>(1 / (1 - static_cast<double>(rate))));
  for (int64_t block = 0; block < width; block += 64) {
    for (int64_t lane = 0; lane < 16; lane += kLanes) {
      Words words[4];
      philox_words(key, hn::Iota(w, static_cast<uint32_t>(block / 4 + lane)), pos, words);
      for (int64_t word = 0; word < 4; ++word) {
        const int64_t i = block + word * 16 + lane, n = HWY_MIN(kLanes, width - i);
        if (n <= 0) break;
        const auto dropped = hn::RebindMask(d, hn::Lt(words[word], threshold));
        const FloatVec x = n == kLanes ? load(d, from + i) : load_n(d, from + i, n);
        const FloatVec y = hn::IfThenZeroElse(dropped, hn::Mul(x, scale));
        if (n == kLanes) {
          store(y, d, to + i);
        } else {
          store_n(y, d, to + i, n);
        }
      }
    }
  }
}

template <class From>
void drop_from(const DropoutMap& map, int64_t row, uint64_t key, uint32_t pos) {
  const int64_t width = map.from.dim(1);
  if (map.to.dtype == DType::bf16) {
    drop_row(map.from.as<From>(row), map.to.as<Bf16>(row), width, key, pos, map.rate);
  } else {
    drop_row(map.from.as<From>(row), map.to.as<float>(row), width, key, pos, map.rate);
  }
}

// Tokens [begin, end) of a sequence.
void drop_seq(const DropoutMap& map, const Seq& seq, int64_t begin, int64_t end) {
  const uint64_t key = dropout_sample_key(map.key, seq.sample_id);
  for (int64_t t = begin; t < end; ++t) {
    const auto pos = static_cast<uint32_t>(seq.pos0 + t);
    if (map.from.dtype == DType::bf16) {
      drop_from<Bf16>(map, seq.start + t, key, pos);
    } else {
      drop_from<float>(map, seq.start + t, key, pos);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {

HWY_EXPORT(drop_seq);

void dropout_hwy(Ctx& ctx, const DropoutMap& map) {
  constexpr int64_t kGrain = 4;  // tokens: enough to pay for waking a thread
  const int64_t tokens = map.seqs ? map.seqs->tokens() : map.from.dim(0);
  sys::parallel_for(ctx.threads, tokens, kGrain, [&](int64_t begin, int64_t end) {
    if (!map.seqs) return HWY_DYNAMIC_DISPATCH(drop_seq)(map, {.len = tokens}, begin, end);
    for (const Seq& seq : map.seqs->seqs) {
      const int64_t first = HWY_MAX(begin, seq.start), last = HWY_MIN(end, seq.start + seq.len);
      if (first < last) HWY_DYNAMIC_DISPATCH(drop_seq)(map, seq, first - seq.start, last - seq.start);
    }
  });
}

}  // namespace braid
#endif
