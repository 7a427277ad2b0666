#pragma once

#include "kernels/cpu/simd_neon_dot.h"

namespace baton::cpu {
namespace {

// The same with products of signed and unsigned bytes (FEAT_I8MM) and conversions to bfloat16
// (FEAT_BF16).
struct NeonI8mm : NeonDotProd {
  template <int kLane>
  static I AddLow(I sums, const W& weights, const Inputs& x) {
    return Each(
        [&](auto sum, auto w) { return vsudotq_laneq_s32(sum, w, x.low, kLane); }, sums, weights);
  }
  static void StoreBf16(uint16_t* p, F v) {
    StoreNarrow(p, Each([](auto f) { return vreinterpret_u16_bf16(vcvt_bf16_f32(f)); }, v));
  }
};

}  // namespace
}  // namespace baton::cpu
