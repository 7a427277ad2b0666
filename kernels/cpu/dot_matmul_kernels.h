#pragma once

#include "kernels/cpu/matmul_kernels.h"

namespace baton::cpu {

// GEMM of quantised panels with dot products of four bytes. Computes the same integers as
// MatMulKernels, and floats from them in the same order.
template <class S>
struct DotMatMulKernels {
  using F = typename S::F;
  using Base = MatMulKernels<S>;
  using Shape = RegisterTile<S::kDotTileRows, S::kDotTileRows>;

  // The order of 16 inputs in which a vector of weights has them.
  template <PanelKind kKind>
  static const uint8_t (&Order())[16] {
    static constexpr uint8_t kNibbles[16] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
    static constexpr uint8_t kBytes[16] = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};
    if constexpr (kKind == PanelKind::kNibble) return kNibbles;
    return kBytes;
  }

  // Weights of inputs 4 · kLane … 4 · kLane + 3, in Order(), of the 16 whose words begin at
  // `values`.
  template <PanelKind kKind, int kLane>
  [[gnu::always_inline]] static typename S::W Weights(const std::byte* values) {
    if constexpr (kKind == PanelKind::kByte) return S::Bytes(S::LoadInt(values + kLane * 64));
    if constexpr (kKind == PanelKind::kFp4) {
      return S::Bytes(Base::Fp4Bytes(S::LoadInt(values + kLane / 2 * 64), kLane % 2));
    }
    const auto words = S::LoadInt(values + kLane / 2 * 64);
    if constexpr (kLane % 2 == 0) return S::LowNibbles(words);
    return S::HighNibbles(words);
  }

  template <PanelKind kKind, int kLane, int kR>
  [[gnu::always_inline]] static void AddFour(const std::byte* values,
                                             const typename S::Inputs (&x)[kR],
                                             typename S::Sums (&sums)[kR]) {
    const auto weights = Weights<kKind, kLane>(values);
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) {
      sums[r].high = S::template AddHigh<kLane>(sums[r].high, weights, x[r]);
      if constexpr (kKind == PanelKind::kNibble) {
        sums[r].low = S::template AddLowUnsigned<kLane>(sums[r].low, weights, x[r]);
      } else {
        sums[r].low = S::template AddLow<kLane>(sums[r].low, weights, x[r]);
      }
    }
  }

  // Adds the products of 16 inputs: half `half` of the block.
  template <class L, int kR>
  [[gnu::always_inline]] static void AddHalf(const std::byte* values,
                                             const int16_t* inputs,
                                             int half,
                                             typename S::Sums (&sums)[kR]) {
    typename S::Inputs x[kR];
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) {
      x[r] = S::LoadInputs(inputs + r * kBlock + half * 16, Order<L::kKind>());
    }
    values += half * L::kValueBytes / 2;
    AddFour<L::kKind, 0>(values, x, sums);
    AddFour<L::kKind, 1>(values, x, sums);
    AddFour<L::kKind, 2>(values, x, sums);
    AddFour<L::kKind, 3>(values, x, sums);
  }

  template <class L>
  static int32_t Start(const PanelView& w, const TileView& x, int64_t entry) {
    if constexpr (L::kMin || L::kHalves || L::kKind != PanelKind::kNibble) return 0;
    return -w.zero_point * x.counts[entry];
  }

  // A panel × kR rows from `row` on, with the sums in registers.
  template <class L, int kR>
  static void Tile(const PanelView& w, const TileView& x, int64_t panel, int32_t row, float* acc) {
    constexpr int kParts = L::kHalves ? 2 : 1;
    auto block = Base::template BlockOf<L>(w, panel, 0);
    F sum[kR];
    for (int r = 0; r < kR; ++r) sum[r] = S::Set(0.0f);
    for (int64_t b = 0; b < w.blocks; ++b) {
      Base::template Prefetch<L>(block, Base::kAhead);
      const int64_t entry = b * x.rows + row;
      const int16_t* inputs = x.values + entry * kBlock;
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        typename S::Sums dot[kR];
        for (int r = 0; r < kR; ++r) dot[r] = S::Zero();
        AddHalf<L>(block.values, inputs, part, dot);
        if constexpr (!L::kHalves) AddHalf<L>(block.values, inputs, 1, dot);
        const F weight_scale = Base::template LoadScale<L::kWide>(block.scales, part);
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r) {
          const F scale = S::Mul(weight_scale, S::Set(x.scales[entry + r]));
          sum[r] = S::Fma(scale, S::Total(dot[r], Start<L>(w, x, entry + r)), sum[r]);
        }
      }
      if constexpr (L::kMin) {
        const F minimum = Base::template LoadScale<L::kWide>(block.scales, kParts);
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r) sum[r] = S::Fma(minimum, S::Set(x.sums[entry + r]), sum[r]);
      }
      block.values += L::kValueBytes;
      block.scales = Base::template ScalesOf<L>(w, panel, b + 1);
    }
    for (int r = 0; r < kR; ++r) S::Store(acc + (row + r) * 16, sum[r]);
  }

  // `count` panels × all rows of x.
  template <class L>
  static void Panels(
      const PanelView& w, const TileView& x, int64_t panel, int32_t count, float* acc) {
    const typename Shape::Rows rows(x.rows);
    for (int32_t p = 0; p < count; ++p, acc += x.rows * 16) {
      for (int32_t t = 0, row = 0; t < rows.tiles; row += rows.Of(t++)) {
        Shape::WithRows(rows.Of(t), [&](auto n) { Tile<L, n.value>(w, x, panel + p, row, acc); });
      }
    }
  }

  template <PanelKind kKind>
  static void QuantisedPanels(
      const PanelView& w, const TileView& x, int64_t panel, int32_t count, float* acc) {
    Base::template WithLayout<kKind>(
        w, [&](auto layout) { Panels<decltype(layout)>(w, x, panel, count, acc); });
  }
};

}  // namespace baton::cpu
