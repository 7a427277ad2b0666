#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/logits.cuh"
#include "kernels/cuda/attention/mma_operands.cuh"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"

// A warp loads 16 positions at a time, as they lie in memory, into the registers of mma.m16n8k16,
// with the queries of a group (up to 8) as columns: S' = K Q' and O' = V' P'. An mma allows any
// numbering of its inner and outer dimensions. They are numbered so that a thread's registers are
// 16 consecutive bytes of memory. With g = lane / 4 and c = lane % 4, in bf16:
//   K: positions g and g + 8, dimensions 32 i + 8 c + (0 … 7);
//   V: positions 2 c, 2 c + 1, 2 c + 8, 2 c + 9, dimensions 64 h + 8 (g ^ 4 h) + (0 … 7);
//   O': the same dimensions of queries 2 c and 2 c + 1.
// In fp8, 16 bytes hold twice as many dimensions. They become two such groups of 8 in half
// precision (KeyDim, ValueDim).
//
// Rows lie at multiples of 128 bytes, so that in shared memory the same dimensions of all positions
// are in the same banks. Neighbouring lanes therefore load their groups in different orders and
// swap them afterwards (SwapIf): K then loads at full rate, V in bf16 at half.
namespace baton::cuda {

constexpr int kUnit = kUnitPositions;

// The arguments of the kernels for single rows.
struct DecodeArguments {
  const int32_t* tables;
  const std::byte* keys;  // of the layer
  int64_t value_offset;   // in bytes, like the other strides
  int64_t block_stride;
  int64_t head_stride;
  int block_units;  // units in a block
  int kv_heads;
  int group;
  float scale;             // times kLog2E, as `cap`
  float cap;               // AttentionArgs::cap
  const float* kv_scales;  // RopeArgs::kv_scales
  const float* sinks;      // AttentionArgs::sinks, or null
  const __nv_bfloat16* q;
  int64_t q_stride;
  __nv_bfloat16* out;
  int64_t out_stride;
};

inline DecodeArguments DecodeArgumentsOf(const AttentionLaunch& call, const int32_t* tables) {
  const AttentionShape& shape = call.shape;
  const KvView& kv = call.kv;
  DecodeArguments a = {};
  a.tables = tables;
  a.keys = kv.base + call.layer * kv.layer_stride;
  a.value_offset = kv.value_offset;
  a.block_stride = kv.block_stride;
  a.head_stride = kv.head_stride;
  a.block_units = kv.block_tokens / kUnit;
  a.kv_heads = shape.kv_heads;
  a.group = shape.group();
  a.kv_scales = call.kv_scales;
  a.sinks = call.sinks;
  a.scale = shape.scale * kLog2E;
  a.cap = shape.cap * kLog2E;
  a.q = reinterpret_cast<const __nv_bfloat16*>(call.qkv.data);
  a.q_stride = call.qkv.stride;
  a.out = reinterpret_cast<__nv_bfloat16*>(call.out.data);
  a.out_stride = call.out.stride;
  return a;
}

constexpr int kMaxQueries = 8;  // columns of an mma

// Attention of one warp over its positions, for the queries of a group.
template <int kHeadDim, class Kv>
class DecodeWarp {
 public:
  static constexpr bool kFp8 = kIsFp8<Kv>;
  static constexpr int kKeyGroups = kHeadDim / 32;    // groups of 8 dimensions of one position
  static constexpr int kValueGroups = kHeadDim / 64;  // likewise
  static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(Kv));
  using Group = std::conditional_t<kFp8, uint2, uint4>;

  __device__ __forceinline__ DecodeWarp() : g_(threadIdx.x / 4), c_(threadIdx.x % 4) {}

  template <class Unit>
  __device__ __forceinline__ void LoadKeys(const Unit& unit) {
    constexpr int kStep = kFp8 ? 2 : 1;
    const bool swap = Unit::kInBanks && g_ % 2 == 1;
#pragma unroll
    for (int i = 0; i < kKeyGroups; i += kStep) {
      const int at = KeyDim(swap ? i ^ kStep : i) * static_cast<int>(sizeof(Kv));
      LoadGroups<kFp8>(unit, g_ * kRowBytes + at, &keys_[0][i]);
      LoadGroups<kFp8>(unit, (g_ + 8) * kRowBytes + at, &keys_[1][i]);
    }
    if constexpr (Unit::kInBanks) {
#pragma unroll
      for (int i = 0; i < kKeyGroups; ++i) {
        if (i & kStep) continue;
        SwapIf(swap, keys_[0][i], keys_[0][i ^ kStep]);
        SwapIf(swap, keys_[1][i], keys_[1][i ^ kStep]);
      }
    }
  }

  template <class Unit>
  __device__ __forceinline__ void LoadValues(const Unit& unit) {
    constexpr bool kTwo = kFp8 && kValueGroups > 1;
    constexpr bool kSwaps = Unit::kInBanks && !kFp8 && kValueGroups > 1;
    const bool swap = kSwaps && c_ % 2 == 1;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
#pragma unroll
      for (int h = 0; h < kValueGroups; h += kTwo ? 2 : 1) {
        const int at = ValueDim(swap ? h ^ 1 : h) * static_cast<int>(sizeof(Kv));
        LoadGroups<kTwo>(unit, ValuePosition(t) * kRowBytes + at, &values_[t][h]);
      }
    }
    if constexpr (kSwaps) {
#pragma unroll
      for (int t = 0; t < 4; ++t) {
#pragma unroll
        for (int h = 0; h < kValueGroups; h += 2) SwapIf(swap, values_[t][h], values_[t][h + 1]);
      }
    }
  }

  // `rows` begins with the group's first query. Columns beyond the group stay 0.
  template <class Rows>
  __device__ __forceinline__ void LoadQueries(const Rows& rows, int group) {
#pragma unroll
    for (int i = 0; i < kKeyGroups; ++i) {
      queries_[i] = make_uint4(0, 0, 0, 0);
      if (g_ >= group) continue;
      constexpr int kBytes = static_cast<int>(sizeof(__nv_bfloat16));
      queries_[i] = rows.Take16((g_ * kHeadDim + KeyDim(i)) * kBytes);
      if (kFp8) queries_[i] = ToHalf(queries_[i]);
    }
  }

  // Computes scores_ of the positions from `first` on. Positions outside [begin, end) get −∞.
  template <bool kCapped = false>
  __device__ __forceinline__ void Score(int first, int begin, int end, float scale, float cap = 0) {
    float even[4] = {};
    float odd[4] = {};
#pragma unroll
    for (int i = 0; i < kKeyGroups; ++i) {
      const uint4 low = Operand(keys_[0][i]);
      const uint4 high = Operand(keys_[1][i]);
      Multiply<kFp8>(even, low.x, high.x, low.y, high.y, queries_[i].x, queries_[i].y);
      Multiply<kFp8>(odd, low.z, high.z, low.w, high.w, queries_[i].z, queries_[i].w);
    }
    const bool whole = first >= begin && first + kUnit <= end;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int position = first + g_ + i / 2 * 8;
      const bool seen = whole || (position >= begin && position < end);
      float score = (even[i] + odd[i]) * scale;
      if constexpr (kCapped) score = Capped(score, cap);
      scores_[i] = seen ? score : -INFINITY;
    }
  }

  // Online softmax: turns scores_ into probabilities relative to the new maximum and rescales what
  // was accumulated.
  __device__ __forceinline__ void Softmax() {
#pragma unroll
    for (int query = 0; query < 2; ++query) {
      const float next =
          fmaxf(largest_[query], LargestOfColumn(fmaxf(scores_[query], scores_[query + 2])));
      const float keep = exp2f(largest_[query] - next);
      largest_[query] = next;
      scores_[query] = exp2f(scores_[query] - next);
      scores_[query + 2] = exp2f(scores_[query + 2] - next);
      Scale(query, keep);
      sum_[query] += scores_[query] + scores_[query + 2];
    }
  }

  // Accumulates probabilities times values. Memory behind `end` may hold anything.
  __device__ __forceinline__ void AccumulateValues(int first, int end) {
    if (first + kUnit > end) {
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        if (first + ValuePosition(t) < end) continue;
#pragma unroll
        for (int h = 0; h < kValueGroups; ++h) values_[t][h] = {};
      }
    }
    const uint32_t low = Transpose(PackPair<kFp8>(scores_[0], scores_[1]));
    const uint32_t high = Transpose(PackPair<kFp8>(scores_[2], scores_[3]));
#pragma unroll
    for (int h = 0; h < kValueGroups; ++h) {
      const uint4 values[4] = {Operand(values_[0][h]),
                               Operand(values_[1][h]),
                               Operand(values_[2][h]),
                               Operand(values_[3][h])};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t v0 = Word(values[0], j);
        const uint32_t v1 = Word(values[1], j);
        const uint32_t v2 = Word(values[2], j);
        const uint32_t v3 = Word(values[3], j);
        Multiply<kFp8>(out_[h][j],
                       __byte_perm(v0, v1, 0x5410),
                       __byte_perm(v0, v1, 0x7632),
                       __byte_perm(v2, v3, 0x5410),
                       __byte_perm(v2, v3, 0x7632),
                       low,
                       high);
      }
    }
  }

  // Clears the accumulators.
  __device__ __forceinline__ void Reset() {
#pragma unroll
    for (int query = 0; query < 2; ++query) {
      largest_[query] = -INFINITY;
      sum_[query] = 0;
    }
#pragma unroll
    for (int h = 0; h < kValueGroups; ++h) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out_[h][j][i] = 0;
      }
    }
  }

  // Writes values [query][dim], not normalised, times `scale`, and for each query its statistics
  // (maximum score, sum of exponentials).
  __device__ __forceinline__ void Write(float* values, float2* weights, int group, float scale) {
#pragma unroll
    for (int query = 0; query < 2; ++query) {
      const float sum = SumOfColumn(sum_[query]);
      const int column = 2 * c_ + query;
      if (column >= group) continue;
      if (g_ == 0) weights[column] = make_float2(largest_[query], sum);
#pragma unroll
      for (int h = 0; h < kValueGroups; ++h) {
        auto* to = reinterpret_cast<float4*>(values + column * kHeadDim + ValueDim(h));
        const auto& o = out_[h];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          to[i] = make_float4(o[2 * i][query] * scale,
                              o[2 * i][query + 2] * scale,
                              o[2 * i + 1][query] * scale,
                              o[2 * i + 1][query + 2] * scale);
        }
      }
    }
  }

  // Combines `count` partial results that WritePartial wrote with a scale of 1. Loads several at
  // once, because a load takes most of a microsecond; more than two do not fit in the registers.
  template <class PartialOf>
  __device__ __forceinline__ void AddPartials(int count, int group, const PartialOf& partial) {
    constexpr int kBatch = 2;
    // Columns beyond the group repeat its last column, so that lanes do not diverge.
    const int columns[2] = {min(2 * c_, group - 1), min(2 * c_ + 1, group - 1)};
    for (int first = 0; first < count; first += kBatch) {
      float weights[kBatch][2];
      float4 values[kBatch][2][kValueGroups][2];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const auto from = partial(min(first + i, count - 1));
#pragma unroll
        for (int query = 0; query < 2; ++query) {
          const bool counts = first + i < count;
          weights[i][query] = counts ? __ldcg(from.lse + columns[query]) : -INFINITY;
          const float* row = from.values + columns[query] * kHeadDim;
#pragma unroll
          for (int h = 0; h < kValueGroups; ++h) {
            const auto* at = reinterpret_cast<const float4*>(row + ValueDim(h));
            values[i][query][h][0] = __ldcg(at);
            values[i][query][h][1] = __ldcg(at + 1);
          }
        }
      }
#pragma unroll
      for (int query = 0; query < 2; ++query) {
        float largest = largest_[query];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) largest = fmaxf(largest, weights[i][query]);
        Scale(query, exp2f(largest_[query] - largest));
        largest_[query] = largest;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const float by = exp2f(weights[i][query] - largest);
          if (g_ == 0) sum_[query] += by;
#pragma unroll
          for (int h = 0; h < kValueGroups; ++h) {
            auto& o = out_[h];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const float4 four = values[i][query][h][half];
              o[2 * half][query] += four.x * by;
              o[2 * half][query + 2] += four.y * by;
              o[2 * half + 1][query] += four.z * by;
              o[2 * half + 1][query + 2] += four.w * by;
            }
          }
        }
      }
    }
  }

  // Writes a partial result in the format of PartialResults: values [query][dim], normalised, times
  // `scale`, and their LSE.
  __device__ __forceinline__ void WritePartial(float* values,
                                               float* weights,
                                               int group,
                                               float scale) const {
    ForEachEight(group, scale, [&](int at, const float(&eight)[8]) { Write8(values + at, eight); });
#pragma unroll
    for (int query = 0; query < 2; ++query) {
      const float sum = SumOfColumn(sum_[query]);
      const int column = 2 * c_ + query;
      if (g_ == 0 && column < group) weights[column] = largest_[query] + log2f(sum);
    }
  }
  // Writes rows [query][dim], normalised, times `scale`.
  __device__ __forceinline__ void WriteRows(__nv_bfloat16* rows, int group, float scale) const {
    ForEachEight(group, scale, [&](int at, const float(&eight)[8]) { Write8(rows + at, eight); });
  }
  // Writes the numbers of the rows in bf16, times `factor`, in fp8.
  __device__ __forceinline__ void WriteRows(uint8_t* rows,
                                            int group,
                                            float scale,
                                            float factor) const {
    ForEachEight(group, scale, [&](int at, const float(&eight)[8]) {
      float rounded[8];
      Unpack(Pack(eight), rounded);
      *reinterpret_cast<uint2*>(rows + at) = PackFp8(rounded, factor);
    });
  }
  // The largest magnitude of the rows in bf16, in all lanes.
  __device__ __forceinline__ float LargestOfRows(int group, float scale) const {
    float largest = 0;
    ForEachEight(group, scale, [&](int, const float(&eight)[8]) {
      float rounded[8];
      Unpack(Pack(eight), rounded);
#pragma unroll
      for (const float value : rounded) largest = fmaxf(largest, fabsf(value));
    });
    return LargestOverWarp(largest);
  }

 private:
  // Calls use(at, eight) for each eight values that this thread holds of rows [query][dim],
  // normalised, times `scale`.
  template <class Use>
  __device__ __forceinline__ void ForEachEight(int group, float scale, const Use& use) const {
#pragma unroll
    for (int query = 0; query < 2; ++query) {
      const float by = scale / SumOfColumn(sum_[query]);
      const int column = 2 * c_ + query;
      if (column >= group) continue;
#pragma unroll
      for (int h = 0; h < kValueGroups; ++h) {
        float eight[8];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          eight[2 * j] = out_[h][j][query] * by;
          eight[2 * j + 1] = out_[h][j][query + 2] * by;
        }
        use(column * kHeadDim + ValueDim(h), eight);
      }
    }
  }
  // Rescales the accumulators of a query.
  __device__ __forceinline__ void Scale(int query, float by) {
    sum_[query] *= by;
#pragma unroll
    for (int h = 0; h < kValueGroups; ++h) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        out_[h][j][query] *= by;
        out_[h][j][query + 2] *= by;
      }
    }
  }
  // The position of this thread's value t (0 … 3).
  __device__ __forceinline__ int ValuePosition(int t) const {
    return 2 * c_ + t % 2 + t / 2 * 8;
  }
  // The first dimension of a group of K and of a group of V.
  __device__ __forceinline__ int KeyDim(int i) const {
    return kFp8 ? 64 * (i / 2) + 16 * c_ + 8 * (i % 2) : 32 * i + 8 * c_;
  }
  __device__ __forceinline__ int ValueDim(int h) const {
    return kFp8 && kValueGroups > 1 ? 128 * (h / 2) + 16 * g_ + 8 * (h % 2)
                                    : 64 * h + 8 * (g_ ^ h % 2 * 4);
  }

  // Loads one group, or two groups of fp8.
  template <bool kTwo, class Unit>
  static __device__ __forceinline__ void LoadGroups(const Unit& unit, int offset, Group* to) {
    if constexpr (kTwo) {
      const uint4 both = unit.Take16(offset);
      to[0] = make_uint2(both.x, both.y);
      to[1] = make_uint2(both.z, both.w);
    } else if constexpr (kFp8) {
      to[0] = unit.Take8(offset);
    } else {
      to[0] = unit.Take16(offset);
    }
  }

  const int g_;
  const int c_;
  uint4 queries_[kKeyGroups];
  Group keys_[2][kKeyGroups];
  Group values_[4][kValueGroups];
  float scores_[4];  // position g with queries 2 c and 2 c + 1, then position g + 8
  float out_[kValueGroups][4][4] = {};
  float largest_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};  // over this thread's positions
};

}  // namespace baton::cuda
