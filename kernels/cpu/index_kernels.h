#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/kernel_table.h"

namespace baton::cpu {

// The scores by which LatentOps::SelectTokens ranks tokens, with the vectors of instruction set S.
// The heads are the lanes of a vector. The operations of a score have a fixed order: for each
// vector of heads fma over the dimensions, in order, and the maximum with 0; fma of these vectors
// with the weights, in order; the 16 lanes added in a fixed tree. Several tokens are computed
// together, but no sum contains terms of two tokens.
template <class S>
struct IndexKernels {
  using F = typename S::F;

  static void Run(const IndexTask& task) {
    if (task.kind == FloatKind::kF32) return RunKind<FloatKind::kF32>(task);
    if (task.kind == FloatKind::kF16) return RunKind<FloatKind::kF16>(task);
    return RunKind<FloatKind::kBF16>(task);
  }

  template <FloatKind kKind>
  static void RunKind(const IndexTask& task) {
    constexpr int kTogether = 4;
    int32_t position = task.begin;
    for (; position + kTogether <= task.end; position += kTogether) {
      ScoreTokens<kKind, kTogether>(task, position);
    }
    for (; position < task.end; ++position) ScoreTokens<kKind, 1>(task, position);
  }

  template <FloatKind kKind, int kN>
  static void ScoreTokens(const IndexTask& task, int32_t position) {
    float* keys[kN];
    F sums[kN];
    for (int i = 0; i < kN; ++i) {
      keys[i] = task.scratch + i * task.dim;
      LoadKey<kKind>(task, position + i, keys[i]);
      sums[i] = S::Set(0.0f);
    }
    for (int32_t head = 0; head < task.heads; head += 16) {
      F products[kN];
      for (int i = 0; i < kN; ++i) products[i] = S::Set(0.0f);
      for (int32_t d = 0; d < task.dim; ++d) {
        const F q = S::Load(task.q + int64_t{d} * task.heads + head);
        for (int i = 0; i < kN; ++i) products[i] = S::Fma(S::Set(keys[i][d]), q, products[i]);
      }
      const F weights = S::Load(task.weights + head);
      for (int i = 0; i < kN; ++i) {
        sums[i] = S::Fma(S::Max(products[i], S::Set(0.0f)), weights, sums[i]);
      }
    }
    for (int i = 0; i < kN; ++i) task.scores[position + i] = S::Sum(sums[i]);
  }

  // Converts the index key of a token to float32.
  template <FloatKind kKind>
  static void LoadKey(const IndexTask& task, int32_t position, float* key) {
    using Attention = AttentionKernels<S, KeyOrder::kTokenMajor>;
    constexpr int64_t kBytes = kKind == FloatKind::kF32 ? 4 : 2;
    const std::byte* const from = task.keys +
                                  task.blocks[position / task.block_tokens] * task.block_stride +
                                  position % task.block_tokens * task.dim * kBytes;
    const int32_t whole = task.dim / 16 * 16;
    for (int32_t d = 0; d < whole; d += 16) {
      S::Store(key + d, Attention::template LoadValues<kKind, 16>(from + d * kBytes));
    }
    if (whole == task.dim) return;
    S::StorePart(key + whole, Attention::template LoadValues<kKind, 8>(from + whole * kBytes), 8);
  }
};

}  // namespace baton::cpu
