#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vector_kernels.h"

namespace baton::cpu {

// The kernels of gated delta nets, with the vectors of instruction set S. Included only by files
// that are compiled for one instruction set.
template <class S>
struct DeltaNetKernels {
  using F = typename S::F;
  using V = VectorKernels<S>;

  static F LoadLanes(const float* p, int n) { return n == 16 ? S::Load(p) : S::LoadPart(p, n); }

  // Calls body(first number, count) for each vector of `size` numbers.
  template <class Body>
  static void ForVectors(int64_t size, const Body& body) {
    int64_t i = 0;
    for (; i + 16 <= size; i += 16) body(i, 16);
    if (i < size) body(i, static_cast<int>(size - i));
  }

  static void Convolve(const ConvolutionArgs& args) {
    ForVectors(args.channels, [&](int64_t first, int n) {
      F sum = S::Set(0.0f);
      // Behind the newest input is the oldest one.
      int32_t row = args.newest;
      for (int32_t tap = 0; tap < args.kernel; ++tap) {
        row = row + 1 == args.kernel ? 0 : row + 1;
        const F x = LoadLanes(args.inputs + int64_t{row} * args.channels + first, n);
        const F w = LoadLanes(args.weights + int64_t{tap} * args.channels + first, n);
        sum = S::Fma(x, w, sum);
      }
      V::StoreLanes(args.out + first, V::Silu(sum), n);
    });
  }

  static void MulSilu(const float* gate, int64_t size, float* x) {
    ForVectors(size, [&](int64_t first, int n) {
      const F silu = V::Silu(LoadLanes(gate + first, n));
      V::StoreLanes(x + first, S::Mul(LoadLanes(x + first, n), silu), n);
    });
  }

  // The columns first … first + 16 · kCount − 1 of the matrix, or `lanes` of them.
  template <int kCount>
  static void UpdateColumns(const DeltaRuleArgs& args, int64_t first, int lanes) {
    const int64_t cols = args.value_dim;
    float* const state = args.state + first;
    F found[kCount];
    for (int i = 0; i < kCount; ++i) found[i] = S::Set(0.0f);
    for (int32_t row = 0; row < args.key_dim; ++row) {
      const F key = S::Set(args.k[row]);
      for (int i = 0; i < kCount; ++i) {
        found[i] = S::Fma(key, LoadLanes(state + row * cols + i * 16, lanes), found[i]);
      }
    }
    const F decay = S::Set(args.decay);
    F change[kCount], out[kCount];
    for (int i = 0; i < kCount; ++i) {
      const F value = LoadLanes(args.v + first + i * 16, lanes);
      change[i] = S::Mul(S::Set(args.beta), S::Sub(value, S::Mul(decay, found[i])));
      out[i] = S::Set(0.0f);
    }
    for (int32_t row = 0; row < args.key_dim; ++row) {
      const F key = S::Set(args.k[row]);
      const F query = S::Set(args.q[row]);
      for (int i = 0; i < kCount; ++i) {
        float* const at = state + row * cols + i * 16;
        const F now = S::Fma(key, change[i], S::Mul(decay, LoadLanes(at, lanes)));
        V::StoreLanes(at, now, lanes);
        out[i] = S::Fma(query, now, out[i]);
      }
    }
    for (int i = 0; i < kCount; ++i) V::StoreLanes(args.out + first + i * 16, out[i], lanes);
  }

  // The outputs of the same columns after an update, in the same order of operations.
  template <int kCount>
  static void ReadColumns(const DeltaRuleArgs& args, int64_t first, int lanes) {
    const float* const state = args.state + first;
    F out[kCount];
    for (int i = 0; i < kCount; ++i) out[i] = S::Set(0.0f);
    for (int32_t row = 0; row < args.key_dim; ++row) {
      const F query = S::Set(args.q[row]);
      for (int i = 0; i < kCount; ++i) {
        const float* const at = state + int64_t{row} * args.value_dim + i * 16;
        out[i] = S::Fma(query, LoadLanes(at, lanes), out[i]);
      }
    }
    for (int i = 0; i < kCount; ++i) V::StoreLanes(args.out + first + i * 16, out[i], lanes);
  }

  template <int kCount>
  static void ApplyToColumns(const DeltaRuleArgs& args, int64_t first, int lanes) {
    if (args.update) {
      UpdateColumns<kCount>(args, first, lanes);
    } else {
      ReadColumns<kCount>(args, first, lanes);
    }
  }

  static void ApplyDeltaRule(const DeltaRuleArgs& args) {
    constexpr int kTogether = 4;
    int64_t first = 0;
    for (; first + kTogether * 16 <= args.value_dim; first += kTogether * 16) {
      ApplyToColumns<kTogether>(args, first, 16);
    }
    ForVectors(args.value_dim - first,
               [&](int64_t at, int n) { ApplyToColumns<1>(args, first + at, n); });
  }
};

}  // namespace baton::cpu
