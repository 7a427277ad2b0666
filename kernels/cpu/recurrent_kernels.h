#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vector_kernels.h"

namespace baton::cpu {

// The kernels of recurrent layers, with the vectors of instruction set S. Included only by files
// that are compiled for one instruction set.
template <class S>
struct RecurrentKernels {
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
      F sum = args.bias == nullptr ? S::Set(0.0f) : LoadLanes(args.bias + first, n);
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
  template <StateRule kRule, int kCount>
  static void UpdateColumns(const StateStepArgs& args, int64_t first, int lanes) {
    constexpr bool kByRow = kRule == StateRule::kChannelDelta;
    const int64_t cols = args.value_dim;
    float* const state = args.state + first;
    const F decay = S::Set(args.decay);
    const auto decay_of = [&](int32_t row) { return kByRow ? S::Set(args.decays[row]) : decay; };
    F change[kCount], out[kCount];
    for (int i = 0; i < kCount; ++i) change[i] = S::Set(0.0f);
    if constexpr (kRule != StateRule::kAdd) {
      // What the state has for k, before a common decay.
      for (int32_t row = 0; row < args.key_dim; ++row) {
        const F k = S::Set(args.k[row]);
        const F key = kByRow ? S::Mul(k, decay_of(row)) : k;
        for (int i = 0; i < kCount; ++i) {
          change[i] = S::Fma(key, LoadLanes(state + row * cols + i * 16, lanes), change[i]);
        }
      }
    }
    for (int i = 0; i < kCount; ++i) {
      const F value = LoadLanes(args.v + first + i * 16, lanes);
      F added = value;
      if constexpr (kRule != StateRule::kAdd) {
        added = S::Sub(value, kByRow ? change[i] : S::Mul(decay, change[i]));
      }
      change[i] = S::Mul(S::Set(args.beta), added);
      out[i] = S::Set(0.0f);
    }
    for (int32_t row = 0; row < args.key_dim; ++row) {
      const F key = S::Set(args.k[row]);
      const F query = S::Set(args.q[row]);
      const F of_row = decay_of(row);
      for (int i = 0; i < kCount; ++i) {
        float* const at = state + row * cols + i * 16;
        const F now = S::Fma(key, change[i], S::Mul(of_row, LoadLanes(at, lanes)));
        V::StoreLanes(at, now, lanes);
        out[i] = S::Fma(query, now, out[i]);
      }
    }
    for (int i = 0; i < kCount; ++i) V::StoreLanes(args.out + first + i * 16, out[i], lanes);
  }

  // The outputs of the same columns after an update, in the same order of operations.
  template <int kCount, class Args>
  static void ReadColumns(const Args& args, int64_t first, int lanes) {
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
  static void StepColumns(const StateStepArgs& args, int64_t first, int lanes) {
    if (!args.update) {
      ReadColumns<kCount>(args, first, lanes);
    } else if (args.rule == StateRule::kDelta) {
      UpdateColumns<StateRule::kDelta, kCount>(args, first, lanes);
    } else if (args.rule == StateRule::kChannelDelta) {
      UpdateColumns<StateRule::kChannelDelta, kCount>(args, first, lanes);
    } else {
      UpdateColumns<StateRule::kAdd, kCount>(args, first, lanes);
    }
  }

  static void StepState(const StateStepArgs& args) {
    constexpr int kTogether = 4;
    int64_t first = 0;
    for (; first + kTogether * 16 <= args.value_dim; first += kTogether * 16) {
      StepColumns<kTogether>(args, first, 16);
    }
    ForVectors(args.value_dim - first,
               [&](int64_t at, int n) { StepColumns<1>(args, first + at, n); });
  }

  static void ScanColumns(const ScanArgs& args, int64_t first, int lanes) {
    const F times = LoadLanes(args.times + first, lanes);
    const F added = S::Mul(times, LoadLanes(args.v + first, lanes));
    F out = S::Set(0.0f);
    for (int32_t row = 0; row < args.key_dim; ++row) {
      const int64_t offset = int64_t{row} * args.value_dim + first;
      const F decay = V::Exp(S::Mul(times, LoadLanes(args.rates + offset, lanes)));
      const F kept = S::Mul(decay, LoadLanes(args.state + offset, lanes));
      const F now = S::Fma(S::Set(args.k[row]), added, kept);
      V::StoreLanes(args.state + offset, now, lanes);
      out = S::Fma(S::Set(args.q[row]), now, out);
    }
    V::StoreLanes(args.out + first, out, lanes);
  }

  static void ScanState(const ScanArgs& args) {
    ForVectors(args.value_dim, [&](int64_t first, int n) {
      if (args.update) {
        ScanColumns(args, first, n);
      } else {
        ReadColumns<1>(args, first, n);
      }
    });
  }
};

}  // namespace baton::cpu
