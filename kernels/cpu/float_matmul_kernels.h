#pragma once

#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/scale_kernels.h"

namespace baton::cpu {

// GEMM of panels of floats, FP8 with scales among them. The operations of an output have the order
// that MatMulKernels states.
template <class S>
struct FloatMatMulKernels {
  using F = typename S::F;
  using I = typename S::I;
  using Base = MatMulKernels<S>;
  using FloatShape = RegisterTile<S::kTileVectors, S::kFloatTileRows>;

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

  // Weights of inputs k … k + kStep − 1 of kP panels.
  template <PanelKind kKind>
  static constexpr int64_t kStep = kKind == PanelKind::kFp8 ? 4 : 1;
  template <PanelKind kKind, int kP>
  [[gnu::always_inline]] static void LoadInputs(const PanelView& w,
                                                const std::byte* const (&from)[kP],
                                                int64_t panel,
                                                int64_t k,
                                                F (&weights)[kP][kStep<kKind>]) {
    for (int p = 0; p < kP; ++p) {
      if constexpr (kKind == PanelKind::kFp8) {
        const I words = S::LoadInt(from[p] + k * 16);
        using Scales = typename Base::template Layout<kKind, true, false, false>;
        const F scale = Base::template LoadScale<true>(
            Base::template ScalesOf<Scales>(w, panel + p, k / kBlock), 0);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
          weights[p][i] = S::Mul(ScaleKernels<S>::Fp8Number(words, i), scale);
      } else {
        weights[p][0] = LoadWeights<kKind>(from[p], k);
      }
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
    return {from + bytes / tiles * tile, std::max<int64_t>(4, inputs / 4 * 4)};
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
      for (; k < end; k += kStep<kKind>) {
        F weights[kP][kStep<kKind>];
        LoadInputs<kKind>(w, from, panel, k, weights);
#pragma GCC unroll 4
        for (int i = 0; i < kStep<kKind>; ++i) {
          for (int r = 0; r < kR; ++r) {
            const F value = S::Set(in[r * x.x_stride + k + i]);
            for (int p = 0; p < kP; ++p) sum[p][r] = S::Fma(value, weights[p][i], sum[p][r]);
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
