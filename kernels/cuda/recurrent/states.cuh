#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/input/state_layout.h"
#include "kernels/kv_view.h"
#include "kernels/recurrent_ops.h"

// The states of sequences on the device (StateView).
namespace baton::cuda {

inline constexpr uint32_t kStateNumber = sizeof(float);

// What kernels need to find the sequences of a chain and their states.
struct StateArguments {
  const StateRows* rows;        // the sequences, chain by chain
  const int32_t* chain_starts;  // in `rows`
  const int32_t* tables;
  std::byte* base;
  int64_t block_stride;  // in bytes, as all below
  uint32_t block_bytes;
  uint32_t layer;         // where the layer begins
  uint32_t convolutions;  // where its second plane begins, after that
};

inline StateArguments StatesOf(const RecurrentShape& shape,
                               int32_t layer,
                               const StateLayout& states,
                               const KvView& kv) {
  return {.rows = states.d_rows,
          .chain_starts = states.d_chain_starts,
          .tables = states.d_tables,
          .base = kv.base,
          .block_stride = kv.block_stride,
          .block_bytes = static_cast<uint32_t>(kv.state.block_bytes),
          .layer = static_cast<uint32_t>(layer * kv.state.layer_bytes),
          .convolutions =
              static_cast<uint32_t>(shape.key_heads * shape.matrix_numbers()) * kStateNumber};
}

// The number at byte `at` of a state, the list of whose blocks begins at `table`.
__device__ __forceinline__ float& NumberAt(const StateArguments& a, int32_t table, uint32_t at) {
  const uint32_t block = at / a.block_bytes;
  return *reinterpret_cast<float*>(a.base +
                                   a.tables[table + static_cast<int32_t>(block)] * a.block_stride +
                                   at - block * a.block_bytes);
}

// Numbers of a state that follow each other, from byte `first` on.
class StateNumbers {
 public:
  __device__ __forceinline__
  StateNumbers(const StateArguments& a, int32_t table, uint32_t first, uint32_t count)
      : a_(a), table_(table), first_(first) {
    const uint32_t block = first / a.block_bytes;
    const uint32_t last = first + count * kStateNumber - 1;
    if (last / a.block_bytes == block) {
      in_one_block_ = &NumberAt(a, table, first);
    }
  }

  // Calls body(index, number) for indices first, first + step, …, `count` of them, at most kMost.
  template <int kMost, class Body>
  __device__ __forceinline__ void ForEach(uint32_t first,
                                          uint32_t step,
                                          int count,
                                          const Body& body) const {
    // Else the compiler would keep the distances of all numbers in registers until the next call.
    asm volatile("" : "+r"(step));
    // Two loops, so that the usual one has nothing between its loads.
    if (in_one_block_ != nullptr) {
      float* const at = in_one_block_ + first;
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        if (i < count) body(i, at[i * step]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        if (i < count) body(i, NumberAt(a_, table_, first_ + (first + i * step) * kStateNumber));
      }
    }
  }

 private:
  const StateArguments& a_;
  const int32_t table_;
  const uint32_t first_;
  float* in_one_block_ = nullptr;
};

__device__ __forceinline__ float Silu(float x) {
  return x / (1.0f + __expf(-x));
}
// The same with an approximate division.
__device__ __forceinline__ float FastSilu(float x) {
  return __fdividef(x, 1.0f + __expf(-x));
}
__device__ __forceinline__ float Sigmoid(float x) {
  return 1.0f / (1.0f + __expf(-x));
}
// ln(1 + eˣ).
__device__ __forceinline__ float SoftPlus(float x) {
  return fmaxf(x, 0.0f) + log1pf(__expf(-fabsf(x)));
}

}  // namespace baton::cuda
