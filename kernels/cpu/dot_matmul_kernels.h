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
    if constexpr (Base::Unpack::IsUnsigned(kKind)) return kNibbles;
    return kBytes;
  }

  // Weights of inputs 4 · kLane … 4 · kLane + 3, in Order(), of half `half` of the block at
  // `values`.
  template <PanelKind kKind, int kLane>
  [[gnu::always_inline]] static typename S::W Weights(const std::byte* values, int half) {
    if constexpr (kKind == PanelKind::kByte) {
      return S::Bytes(S::LoadInt(values + half * 256 + kLane * 64));
    } else if constexpr (kKind == PanelKind::kNibble) {
      const auto words = S::LoadInt(values + half * 128 + kLane / 2 * 64);
      return kLane % 2 == 0 ? S::LowNibbles(words) : S::HighNibbles(words);
    } else if constexpr (Base::Unpack::IsUnsigned(kKind)) {
      // Two pairs, the second one in the high bytes.
      constexpr int kPairs = Base::Unpack::template kPairs<kKind>;
      const int pair = half * 8 + kLane / 2 * 4 + kLane % 2;
      const std::byte* const chunk =
          values + pair / kPairs * Base::Unpack::template kChunkBytes<kKind>;
      const auto low = Base::Unpack::template Pair<kKind>(chunk, pair % kPairs);
      const auto high = Base::Unpack::template Pair<kKind>(chunk, pair % kPairs + 2);
      return S::Bytes(S::AddInt(low, S::template ShiftLeft<8>(high)));
    } else {
      const auto words = S::LoadInt(values + half * 128 + kLane / 2 * 64);
      return S::Bytes(Base::Unpack::template LookUp<kKind>(words, kLane % 2));
    }
  }

  template <PanelKind kKind, int kLane, int kR>
  [[gnu::always_inline]] static void AddFour(const std::byte* values,
                                             int half,
                                             const typename S::Inputs (&x)[kR],
                                             typename S::Sums (&sums)[kR]) {
    const auto weights = Weights<kKind, kLane>(values, half);
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) {
      sums[r].high = S::template AddHigh<kLane>(sums[r].high, weights, x[r]);
      if constexpr (Base::Unpack::IsUnsigned(kKind)) {
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
    AddFour<L::kKind, 0>(values, half, x, sums);
    AddFour<L::kKind, 1>(values, half, x, sums);
    AddFour<L::kKind, 2>(values, half, x, sums);
    AddFour<L::kKind, 3>(values, half, x, sums);
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
          const int32_t start = Base::template Start<L>(w, x, entry + r, part);
          sum[r] = S::Fma(scale, S::Total(dot[r], start), sum[r]);
        }
        if constexpr (L::kMin) {
          const F minimum = Base::template LoadScale<L::kWide>(block.scales, kParts + part);
#pragma GCC unroll 4
          for (int r = 0; r < kR; ++r) {
            sum[r] = S::Fma(minimum, S::Set(Base::template Sum<L>(x, entry + r, part)), sum[r]);
          }
        }
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
