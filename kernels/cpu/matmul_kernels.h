#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vector_kernels.h"

namespace baton::cpu {

// GEMM of panels with tiles, with the vectors of instruction set S. The operations of an output
// have a fixed order, independent of the rows and panels that are computed with it:
//   quantised: for each block b: acc = fma(d·s, float(Σ w·x), acc), then acc = fma(m, s·Σ x, acc);
//   float:     for each k: acc = fma(x[k], w[k], acc).
template <class S>
struct MatMulKernels {
  using F = typename S::F;
  using I = typename S::I;
  using Vector = VectorKernels<S>;

  // Quantises blocks of activations to 16-bit integers. A block that contains NaN or infinity gets
  // a NaN scale, so that its outputs become NaN.
  static void Quantize(const QuantizeArgs& args) {
    const I magnitude = S::SetInt(0x7fffffff);
    const F magic = S::Set(12582912.0f);
    for (int64_t b = 0; b < args.blocks; ++b) {
      const int64_t entry = b * args.rows + args.row;
      const F low = S::Load(args.x + b * kBlock);
      const F high = S::Load(args.x + b * kBlock + 16);
      // Compares the bits as integers, so that NaN is the highest value.
      const I highest =
          S::MaxInt(S::And(S::Bits(low), magnitude), S::And(S::Bits(high), magnitude));
      const float maximum = AsFloat(S::MaxLaneInt(highest));
      float scale = maximum / 32767.0f;
      float inverse = 32767.0f / maximum;
      if (!(maximum < 3e38f)) {
        scale = __builtin_nanf("");
        inverse = 0;
      } else if (maximum < 1e-30f) {
        scale = 0;
        inverse = 0;
      }
      const F factor = S::Set(inverse);
      const I zero = S::Bits(magic);
      const F clean_low = inverse == 0 ? S::Set(0.0f) : low;
      const F clean_high = inverse == 0 ? S::Set(0.0f) : high;
      const I x0 = S::SubInt(S::Bits(S::Fma(clean_low, factor, magic)), zero);
      const I x1 = S::SubInt(S::Bits(S::Fma(clean_high, factor, magic)), zero);
      S::StoreInt16(args.values + entry * kBlock, x0);
      S::StoreInt16(args.values + entry * kBlock + 16, x1);
      const int32_t count = S::SumInt(S::AddInt(x0, x1));
      args.scales[entry] = scale;
      args.counts[entry] = count;
      args.sums[entry] = scale * static_cast<float>(count);
    }
  }

  // Unpacks the 32 × 16 weights of a block into 16 vectors; each lane has the weights of two
  // consecutive inputs.
  template <PanelKind kKind>
  static void Unpack(const std::byte* from, I (&w)[16]) {
    if constexpr (kKind == PanelKind::kNibble) {
      const I mask = S::SetInt(0x000f000f);
      for (int j = 0; j < 4; ++j) {
        const I word = S::LoadInt(from + j * 64);
        w[4 * j] = S::And(word, mask);
        w[4 * j + 1] = S::And(S::template ShiftRight<4>(word), mask);
        w[4 * j + 2] = S::And(S::template ShiftRight<8>(word), mask);
        w[4 * j + 3] = S::And(S::template ShiftRight<12>(word), mask);
      }
    } else {
      for (int j = 0; j < 8; ++j) {
        const I word = S::LoadInt(from + j * 64);
        w[2 * j] = S::EvenBytes(word);
        w[2 * j + 1] = S::OddBytes(word);
      }
    }
  }

  static I Pair(const int16_t* x, int i) {
    int32_t pair;
    __builtin_memcpy(&pair, x + 2 * i, sizeof(pair));
    return S::SetInt(pair);
  }

  // Two independent chains of additions, so that their latencies overlap.
  template <int kFrom, int kTo>
  static I Dot(const I (&w)[16], const int16_t* x, I start) {
    I even = start;
    I odd = S::SetInt(0);
    for (int i = kFrom; i < kTo; i += 2) {
      even = S::DotPairs(even, w[i], Pair(x, i));
      odd = S::DotPairs(odd, w[i + 1], Pair(x, i + 1));
    }
    return S::AddInt(even, odd);
  }

  template <bool kWide>
  static F LoadScale(const std::byte* scales, int index) {
    if constexpr (kWide) {
      return S::Load(reinterpret_cast<const float*>(scales) + 16 * index);
    } else {
      return S::LoadHalf(reinterpret_cast<const uint16_t*>(scales) + 16 * index);
    }
  }

  // Prefetch distance in bytes of weights: memory latency times bandwidth.
  static constexpr int64_t kAhead = 4096;

  template <PanelKind kKind, bool kWide, bool kMin, bool kHalves>
  static void QuantisedPanel(const PanelView& w, const TileView& x, int64_t panel, float* acc) {
    constexpr int kScales = (kHalves ? 2 : 1) + (kMin ? 1 : 0);
    constexpr int64_t kScaleBytes = kScales * 16 * (kWide ? 4 : 2);
    constexpr int64_t kValueBytes = kKind == PanelKind::kNibble ? 256 : 512;
    const std::byte* values = w.values + static_cast<size_t>(panel) * w.panel_bytes;
    const std::byte* scales = w.scales + static_cast<size_t>(panel) * w.panel_scale_bytes;
    const F zero = S::Set(0.0f);
    if (x.rows == 1) {
      F sum = zero;
      for (int64_t b = 0; b < w.blocks; ++b) {
        for (int64_t at = 0; at < kValueBytes; at += 64) __builtin_prefetch(values + kAhead + at);
        I weights[16];
        Unpack<kKind>(values, weights);
        sum = Block<kWide, kMin, kHalves>(w, x, weights, scales, b, sum);
        values += kValueBytes;
        scales += kScaleBytes;
      }
      S::Store(acc, sum);
      return;
    }
    for (int32_t row = 0; row < x.rows; ++row) S::Store(acc + row * 16, zero);
    for (int64_t b = 0; b < w.blocks; ++b) {
      for (int64_t at = 0; at < kValueBytes; at += 64) __builtin_prefetch(values + kAhead + at);
      I weights[16];
      Unpack<kKind>(values, weights);
      for (int32_t row = 0; row < x.rows; ++row) {
        const int64_t entry = b * x.rows + row;
        const F sum = S::Load(acc + row * 16);
        S::Store(acc + row * 16, Block<kWide, kMin, kHalves>(w, x, weights, scales, entry, sum));
      }
      values += kValueBytes;
      scales += kScaleBytes;
    }
  }

  template <bool kWide, bool kMin, bool kHalves>
  static F Block(const PanelView& w,
                 const TileView& x,
                 const I (&weights)[16],
                 const std::byte* scales,
                 int64_t entry,
                 F sum) {
    const int16_t* values = x.values + entry * kBlock;
    const F s = S::Set(x.scales[entry]);
    if constexpr (kHalves) {
      const F d0 = S::Mul(LoadScale<kWide>(scales, 0), s);
      const F d1 = S::Mul(LoadScale<kWide>(scales, 1), s);
      sum = S::Fma(d0, S::ToFloat(Dot<0, 8>(weights, values, S::SetInt(0))), sum);
      sum = S::Fma(d1, S::ToFloat(Dot<8, 16>(weights, values, S::SetInt(0))), sum);
    } else {
      const I start = S::SetInt(kMin ? 0 : -w.zero_point * x.counts[entry]);
      const F d = S::Mul(LoadScale<kWide>(scales, 0), s);
      sum = S::Fma(d, S::ToFloat(Dot<0, 16>(weights, values, start)), sum);
    }
    if constexpr (kMin) {
      sum = S::Fma(LoadScale<kWide>(scales, kHalves ? 2 : 1), S::Set(x.sums[entry]), sum);
    }
    return sum;
  }

  template <PanelKind kKind>
  static void QuantisedPanels(
      const PanelView& w, const TileView& x, int64_t panel, int32_t count, float* acc) {
    for (int32_t p = 0; p < count; ++p, ++panel, acc += x.rows * 16) {
      if (w.half_groups) {
        QuantisedPanel<kKind, true, false, true>(w, x, panel, acc);
      } else if (w.has_min && w.wide_scales) {
        QuantisedPanel<kKind, true, true, false>(w, x, panel, acc);
      } else if (w.has_min) {
        QuantisedPanel<kKind, false, true, false>(w, x, panel, acc);
      } else {
        QuantisedPanel<kKind, false, false, false>(w, x, panel, acc);
      }
    }
  }

  template <PanelKind kKind>
  static F LoadWeights(const std::byte* panel, int64_t k) {
    if constexpr (kKind == PanelKind::kF32) {
      return S::Load(reinterpret_cast<const float*>(panel) + k * 16);
    } else if constexpr (kKind == PanelKind::kF16) {
      return S::LoadHalf(reinterpret_cast<const uint16_t*>(panel) + k * 16);
    } else {
      return S::LoadBf16(reinterpret_cast<const uint16_t*>(panel) + k * 16);
    }
  }

  // Computes kP panels × kR rows from `row` on, with the accumulators in registers.
  template <PanelKind kKind, int kP, int kR>
  static void FloatTile(const PanelView& w, const TileView& x, int64_t panel, int row, float* acc) {
    const std::byte* from[kP];
    F sum[kP][kR];
    for (int p = 0; p < kP; ++p) {
      from[p] = w.values + static_cast<size_t>(panel + p) * w.panel_bytes;
      for (int r = 0; r < kR; ++r) sum[p][r] = S::Set(0.0f);
    }
    const float* in = x.x + row * x.x_stride;
    for (int64_t k = 0; k < w.cols; ++k) {
      F weights[kP];
      for (int p = 0; p < kP; ++p) weights[p] = LoadWeights<kKind>(from[p], k);
      for (int r = 0; r < kR; ++r) {
        const F value = S::Set(in[r * x.x_stride + k]);
        for (int p = 0; p < kP; ++p) sum[p][r] = S::Fma(value, weights[p], sum[p][r]);
      }
    }
    for (int p = 0; p < kP; ++p) {
      for (int r = 0; r < kR; ++r) S::Store(acc + (p * x.rows + row + r) * 16, sum[p][r]);
    }
  }

  template <PanelKind kKind, int kP>
  static void FloatRows(const PanelView& w, const TileView& x, int64_t panel, float* acc) {
    int row = 0;
    for (; row + S::kFloatRows <= x.rows; row += S::kFloatRows) {
      FloatTile<kKind, kP, S::kFloatRows>(w, x, panel, row, acc);
    }
    for (; row + 2 <= x.rows; row += 2) FloatTile<kKind, kP, 2>(w, x, panel, row, acc);
    if (row < x.rows) FloatTile<kKind, kP, 1>(w, x, panel, row, acc);
  }

  template <PanelKind kKind>
  static void FloatPanels(
      const PanelView& w, const TileView& x, int64_t panel, int32_t count, float* acc) {
    int32_t p = 0;
    for (; p + S::kFloatPanels <= count; p += S::kFloatPanels) {
      FloatRows<kKind, S::kFloatPanels>(w, x, panel + p, acc + p * x.rows * 16);
    }
    for (; p < count; ++p) FloatRows<kKind, 1>(w, x, panel + p, acc + p * x.rows * 16);
  }

  static void StoreLanes(float* out, F value, int n) {
    if (n == 16) {
      S::Store(out, value);
    } else {
      S::StorePart(out, value, n);
    }
  }

  static void StoreRows(
      const float* acc, int32_t rows, const float* bias, float* out, int64_t stride, int n) {
    const F add = bias != nullptr ? S::LoadPart(bias, n) : S::Set(0.0f);
    for (int32_t row = 0; row < rows; ++row) {
      F value = S::Load(acc + row * 16);
      if (bias != nullptr) value = S::Add(value, add);
      StoreLanes(out + row * stride, value, n);
    }
  }

  static void SiluMul(const float* gate,
                      const float* up,
                      int32_t rows,
                      const float* gate_bias,
                      const float* up_bias,
                      float* out,
                      int64_t stride,
                      int n) {
    for (int32_t row = 0; row < rows; ++row) {
      F g = S::Load(gate + row * 16);
      F u = S::Load(up + row * 16);
      if (gate_bias != nullptr) {
        g = S::Add(g, S::LoadPart(gate_bias, n));
        u = S::Add(u, S::LoadPart(up_bias, n));
      }
      StoreLanes(out + row * stride, S::Mul(Vector::Silu(g), u), n);
    }
  }

 private:
  static float AsFloat(int32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof(x));
    return x;
  }
};

}  // namespace baton::cpu
