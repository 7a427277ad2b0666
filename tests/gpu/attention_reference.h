#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/attention_kernels.h"

// Known keys, values and queries, and a simple float32 attention as the reference. All addresses
// are device addresses.
namespace baton::cuda::testing {

// The KV heads that a rank holds of a model: `first` and the following ones, of `all`. A head has
// the same numbers on every rank.
struct HeldHeads {
  int32_t first = 0;
  int32_t all = 1;
};

// Writes the key and value of positions [0, length) of sequence `number` to all layers of the
// arena, through its block table.
void WriteKv(const KvView& kv,
             const HeldHeads& heads,
             const int32_t* table,
             int32_t number,
             int32_t length,
             cudaStream_t stream);

// Writes the query, key and value of `layer` for the `rows` positions from `first_position` on of
// sequence `number` to `qkv`.
void WriteQkv(const AttentionShape& shape,
              const HeldHeads& heads,
              std::byte* qkv,
              int64_t stride,
              int32_t number,
              int32_t first_position,
              int32_t rows,
              int32_t layer,
              cudaStream_t stream);

// Fills memory with bits that are NaN in bf16, f16, f32 and FP8.
void FillNan(std::byte* memory, size_t bytes, cudaStream_t stream);

// Computed rows of one sequence.
struct Computed {
  const int32_t* table = nullptr;
  int32_t first_position = 0;
  int32_t rows = 0;
  const std::byte* q = nullptr;
  int64_t q_stride = 0;
  const std::byte* out = nullptr;
  int64_t out_stride = 0;
};

// Writes to errors [rows][q heads] the relative error (L2) of each head of each row. `scores` is
// scratch memory for [rows][q heads][first_position + rows] numbers. `kv_scales` and `sinks` are
// those of AttentionLaunch.
void Compare(const AttentionShape& shape,
             const KvView& kv,
             const float* kv_scales,
             const float* sinks,
             int32_t layer,
             const Computed& computed,
             float* scores,
             float* errors,
             cudaStream_t stream);

}  // namespace baton::cuda::testing
