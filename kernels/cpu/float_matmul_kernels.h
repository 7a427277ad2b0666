#pragma once

#include "kernels/cpu/matmul_kernels.h"

namespace baton::cpu {

// GEMM of panels of floats, FP8 with scales among them. The operations of an output have the order
// that MatMulKernels states.
template <class S>
struct FloatMatMulKernels {
  using F = typename S::F;
  using Base = MatMulKernels<S>;
  using FloatShape = RegisterTile<S::kTileVectors, S::kFloatTileRows>;

  template <PanelKind kKind>
  static F LoadWeights(const std::byte* panel, int64_t k) {
    if constexpr (kKind == PanelKind::kF32) {
      return S::Load(reinterpret_cast<const float*>(panel) + k * 16);
    } else if constexpr (kKind == PanelKind::kF16) {
      return S::LoadHalf(reinterpret_cast<const uint16_t*>(panel) + k * 16);
    } else if constexpr (kKind == PanelKind::kFp8) {
      return S::LoadFp8(panel + k * 16);
    } else {
      return S::LoadBf16(reinterpret_cast<const uint16_t*>(panel) + k * 16);
    }
  }

  // The scales of FP8 weights from input `k` on, of kP panels. LoadFp8 gives 2^-8 of the numbers.
  template <int kP>
  [[gnu::always_inline]] static void LoadScales(const PanelView& w,
                                                int64_t panel,
                                                int64_t k,
                                                F (&scales)[kP]) {
    using Scales = typename Base::template Layout<PanelKind::kFp8, true, false, false>;
    for (int p = 0; p < kP; ++p) {
      const std::byte* const from = Base::template ScalesOf<Scales>(w, panel + p, k / kBlock);
      scales[p] = S::Mul(Base::template LoadScale<true>(from, 0), S::Set(256.0f));
    }
  }

  // Cache lines that a float tile prefetches at a time: about as many cache misses as a core can
  // have under way.
  static constexpr int64_t kBurst = 16;

  // Memory that a float tile prefetches: a burst before each `inputs` inputs.
  struct Ahead {
    const std::byte* from;
    int64_t inputs;
  };

  // What tile `tile` of `tiles` prefetches of the `bytes` bytes from `from` on. All tiles take
  // equal parts, so that the memory delivers at an even rate.
  static Ahead PartOf(
      const std::byte* from, int64_t bytes, int64_t cols, int32_t tile, int32_t tiles) {
    const int64_t inputs = cols * tiles * kBurst * 64 / bytes;
    return {from + bytes / tiles * tile, std::max<int64_t>(1, inputs)};
  }

  // Computes kP panels × kR rows from `row` on, with the accumulators in registers.
  template <PanelKind kKind, int kP, int kR>
  static void FloatTile(
      const PanelView& w, const TileView& x, int64_t panel, int row, Ahead ahead, float* acc) {
    const std::byte* from[kP];
    F sum[kP][kR];
    for (int p = 0; p < kP; ++p) {
      from[p] = w.values + static_cast<size_t>(panel + p) * w.panel_bytes;
      for (int r = 0; r < kR; ++r) sum[p][r] = S::Set(0.0f);
    }
    const float* in = x.x + row * x.x_stride;
    for (int64_t k = 0; k < w.cols;) {
      for (int64_t line = 0; line < kBurst; ++line) {
        __builtin_prefetch(ahead.from + line * 64, 0, 2);
      }
      ahead.from += kBurst * 64;
      const int64_t end = std::min(k + ahead.inputs, w.cols);
      while (k < end) {
        constexpr bool kScaled = kKind == PanelKind::kFp8;
        const int64_t last = kScaled ? std::min(end, (k / kBlock + 1) * kBlock) : end;
        F scales[kP];
        if constexpr (kScaled) LoadScales<kP>(w, panel, k, scales);
        for (; k < last; ++k) {
          F weights[kP];
          for (int p = 0; p < kP; ++p) {
            weights[p] = LoadWeights<kKind>(from[p], k);
            if constexpr (kScaled) weights[p] = S::Mul(weights[p], scales[p]);
          }
          for (int r = 0; r < kR; ++r) {
            const F value = S::Set(in[r * x.x_stride + k]);
            for (int p = 0; p < kP; ++p) sum[p][r] = S::Fma(value, weights[p], sum[p][r]);
          }
        }
      }
    }
    for (int p = 0; p < kP; ++p) {
      for (int r = 0; r < kR; ++r) S::Store(acc + (p * x.rows + row + r) * 16, sum[p][r]);
    }
  }

  // While the tiles of some panels are computed, they prefetch the panels after them: the
  // processor's own prefetches are too late for the first tile, and the others read its weights.
  template <PanelKind kKind>
  static void FloatPanels(
      const PanelView& w, const TileView& x, int64_t panel, int32_t count, float* acc) {
    const typename FloatShape::Rows rows(x.rows);
    Base::template ForPanels<FloatShape>(
        x.rows, panel, count, acc, [&](auto panels, int64_t first, float* sums) {
          const auto bytes = static_cast<int64_t>(panels.value * w.panel_bytes);
          const std::byte* const next =
              w.values + static_cast<size_t>(first + count) * w.panel_bytes;
          for (int32_t t = 0, row = 0; t < rows.tiles; row += rows.Of(t++)) {
            // One row only waits for memory, where the processor's own prefetches are the fastest.
            const Ahead ahead =
                x.rows == 1 ? Ahead{next, w.cols} : PartOf(next, bytes, w.cols, t, rows.tiles);
            FloatShape::WithRows(rows.Of(t), [&](auto n) {
              if constexpr (panels.value <= FloatShape::Width(n.value)) {
                FloatTile<kKind, panels.value, n.value>(w, x, first, row, ahead, sums);
              }
            });
          }
        });
  }
};

}  // namespace baton::cpu
