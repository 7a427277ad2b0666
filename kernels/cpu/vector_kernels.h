#pragma once

#include "kernels/cpu/kernel_table.h"

namespace baton::cpu {

// Kernels that process single rows, with the vectors of instruction set S. Included only by files
// that are compiled for one instruction set.
template <class S>
struct VectorKernels {
  using F = typename S::F;
  using I = typename S::I;

  // eˣ; e⁸⁸ for x > 88 and 0 for x < −87. The expf of Cephes: 2ⁿ · P(x − n·ln 2).
  static F Exp(F x) {
    const F clamped = S::Min(S::Set(88.0f), S::Max(S::Set(-88.0f), x));
    const F magic = S::Set(12582912.0f);  // 1.5·2²³: adding it rounds to an integer
    const F shifted = S::Fma(clamped, S::Set(1.44269504088896341f), magic);
    const F n = S::Sub(shifted, magic);
    F r = S::Fma(n, S::Set(-0.693359375f), clamped);
    r = S::Fma(n, S::Set(2.12194440e-4f), r);
    F p = S::Set(1.9875691500e-4f);
    p = S::Fma(p, r, S::Set(1.3981999507e-3f));
    p = S::Fma(p, r, S::Set(8.3334519073e-3f));
    p = S::Fma(p, r, S::Set(4.1665795894e-2f));
    p = S::Fma(p, r, S::Set(1.6666665459e-1f));
    p = S::Fma(p, r, S::Set(5.0000001201e-1f));
    p = S::Fma(p, S::Mul(r, r), r);
    p = S::Add(p, S::Set(1.0f));
    const I exponent = S::template ShiftLeft<23>(S::SubInt(S::Bits(shifted), S::Bits(magic)));
    const F power = S::FromBits(S::AddInt(S::Bits(p), exponent));
    return S::KeepFrom(S::Set(-87.0f), x, power);
  }

  static F Silu(F x) {
    const F negative = S::Sub(S::Set(0.0f), x);
    return S::Div(x, S::Add(S::Set(1.0f), Exp(negative)));
  }

  static void StoreLanes(float* out, F value, int n) {
    if (n == 16) {
      S::Store(out, value);
    } else {
      S::StorePart(out, value, n);
    }
  }

  static void SiluMul(const GateArgs& args) {
    Gate(args, [](F gate, F up) { return S::Mul(Silu(gate), up); });
  }

  static void ClampedMul(const GateArgs& args) {
    const F limit = S::Set(args.limit);
    const F lowest = S::Set(-args.limit);
    const F negative = S::Set(-args.alpha);
    const F one = S::Set(1.0f);
    Gate(args, [&](F gate, F up) {
      const F g = S::Min(limit, gate);
      const F u = S::Min(limit, S::Max(lowest, up));
      return S::Mul(S::Div(g, S::Add(one, Exp(S::Mul(negative, g)))), S::Add(u, one));
    });
  }

  // out[row] = combine(gate + bias, up + bias).
  template <class Combine>
  static void Gate(const GateArgs& args, const Combine& combine) {
    for (int32_t row = 0; row < args.rows; ++row) {
      F gate = S::Load(args.gate + row * 16);
      F up = S::Load(args.up + row * 16);
      if (args.gate_bias != nullptr) {
        gate = S::Add(gate, S::LoadPart(args.gate_bias, args.n));
        up = S::Add(up, S::LoadPart(args.up_bias, args.n));
      }
      StoreLanes(args.out + row * args.stride, combine(gate, up), args.n);
    }
  }

  static void RmsNorm(const RmsNormArgs& args) {
    const int64_t whole = args.size / 16 * 16;
    const int rest = static_cast<int>(args.size - whole);
    const float* x = args.x;
    F sum = S::Set(0.0f);
    if (args.delta != nullptr) {
      for (int64_t i = 0; i < whole; i += 16) {
        const F v = S::Add(S::Load(args.x + i), S::Load(args.delta + i));
        S::Store(args.residual + i, v);
        sum = S::Fma(v, v, sum);
      }
      if (rest > 0) {
        const F v =
            S::Add(S::LoadPart(args.x + whole, rest), S::LoadPart(args.delta + whole, rest));
        S::StorePart(args.residual + whole, v, rest);
        sum = S::Fma(v, v, sum);
      }
      x = args.residual;
    } else {
      for (int64_t i = 0; i < whole; i += 16) {
        const F v = S::Load(x + i);
        sum = S::Fma(v, v, sum);
      }
      if (rest > 0) {
        const F v = S::LoadPart(x + whole, rest);
        sum = S::Fma(v, v, sum);
      }
    }
    const float mean = S::Sum(sum) / static_cast<float>(args.size);
    const F scale = S::Set(1.0f / __builtin_sqrtf(mean + args.epsilon));
    for (int64_t i = 0; i < whole; i += 16) {
      S::Store(args.out + i, S::Mul(S::Mul(S::Load(x + i), scale), S::Load(args.weight + i)));
    }
    if (rest > 0) {
      const F v = S::Mul(S::LoadPart(x + whole, rest), scale);
      S::StorePart(args.out + whole, S::Mul(v, S::LoadPart(args.weight + whole, rest)), rest);
    }
  }

  static void Rotate(const RotateArgs& args) {
    const int32_t half = args.rotary_dim / 2;
    if (args.adjacent) {
      for (int32_t i = 0; i < half; ++i) {
        const float a = args.x[2 * i];
        const float b = args.x[2 * i + 1];
        args.x[2 * i] = a * args.cos[i] - b * args.sin[i];
        args.x[2 * i + 1] = a * args.sin[i] + b * args.cos[i];
      }
      return;
    }
    for (int32_t i = 0; i < half; ++i) {
      const float a = args.x[i];
      const float b = args.x[i + half];
      args.x[i] = a * args.cos[i] - b * args.sin[i];
      args.x[i + half] = a * args.sin[i] + b * args.cos[i];
    }
  }

  static void AddScaled(const float* x, float scale, int64_t size, float* out) {
    const F factor = S::Set(scale);
    int64_t i = 0;
    for (; i + 16 <= size; i += 16) {
      S::Store(out + i, S::Fma(S::Load(x + i), factor, S::Load(out + i)));
    }
    if (const int rest = static_cast<int>(size - i); rest > 0) {
      const F sum = S::Fma(S::LoadPart(x + i, rest), factor, S::LoadPart(out + i, rest));
      S::StorePart(out + i, sum, rest);
    }
  }

  static void WriteKv(
      const float* x, int64_t size, FloatKind kind, int64_t stride, std::byte* out) {
    alignas(64) uint16_t narrow[16];
    for (int64_t i = 0; i < size; i += 16) {
      const int n = size - i < 16 ? static_cast<int>(size - i) : 16;
      if (kind == FloatKind::kF32) {
        auto* to = reinterpret_cast<float*>(out) + i * stride;
        for (int j = 0; j < n; ++j) to[j * stride] = x[i + j];
        continue;
      }
      const F v = S::LoadPart(x + i, n);
      if (kind == FloatKind::kF16) {
        S::StoreHalf(narrow, v);
      } else {
        S::StoreBf16(narrow, v);
      }
      auto* to = reinterpret_cast<uint16_t*>(out) + i * stride;
      for (int j = 0; j < n; ++j) to[j * stride] = narrow[j];
    }
  }

  static float ExpSum(float* x, int64_t size, float scale, float maximum) {
    const F factor = S::Set(scale);
    const F shift = S::Set(-maximum);
    F sum = S::Set(0.0f);
    int64_t i = 0;
    for (; i + 16 <= size; i += 16) {
      const F e = Exp(S::Fma(S::Load(x + i), factor, shift));
      S::Store(x + i, e);
      sum = S::Add(sum, e);
    }
    if (const int rest = static_cast<int>(size - i); rest > 0) {
      const F e = Exp(S::Fma(S::LoadPart(x + i, rest), factor, shift));
      S::StorePart(x + i, e, rest);
      sum = S::Add(sum, S::Select(0, rest, e, S::Set(0.0f)));
    }
    return S::Sum(sum);
  }

  static int64_t ArgMax(const float* x, int64_t size) {
    const F lowest = S::Set(-__builtin_inff());
    F best = lowest;
    int64_t i = 0;
    for (; i + 16 <= size; i += 16) best = S::Max(S::Load(x + i), best);
    float maximum = S::MaxLane(best);
    for (; i < size; ++i) maximum = x[i] > maximum ? x[i] : maximum;
    for (i = 0; i < size; ++i) {
      if (x[i] == maximum) return i;
    }
    return -1;
  }
};

}  // namespace baton::cpu
