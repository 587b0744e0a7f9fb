// Arithmetic units that Highway 1.0.3 does not expose, each kept busy for `rounds`. They return the operations done and
// write their results to `sink`, 64 bytes. Call only where sys::machine() has the unit.
#pragma once
#include <cstdint>

namespace braid::sys {

double unit_bf16_dot(int64_t rounds, float* sink);      // vdpbf16ps
double unit_int8_dot(int64_t rounds, float* sink);      // vpdpbusd
double unit_int8_dot_256(int64_t rounds, float* sink);  // the same with AVX-VNNI
double unit_int8_pairs(int64_t rounds, float* sink);    // vpmaddubsw and sums of 16 bits: AVX2
double unit_amx_bf16(int64_t rounds);                   // tdpbf16ps
double unit_amx_int8(int64_t rounds);                   // tdpbssd

}  // namespace braid::sys
