#pragma once

#include <cstdint>

#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/mma_tiles.cuh"

// How GEMMs with mma.sync copy the rows of their operands, of any alignment, into the stages of
// MmaTiling.
namespace baton::cuda {

inline constexpr int kVectorBytes = kSwizzledRowBytes / kSwizzledRowVectors;

// Rows of x or of the weight, as a tile copies them.
template <class Number>
struct Operand {
  const Number* at = nullptr;
  int64_t stride = 0;
  int32_t rows = 0;
};

// The vector of row[from] and the numbers behind it, with zeros from the k-th number on.
template <class Number>
__device__ __forceinline__ uint4 GatherVector(const Number* row, int32_t from, int32_t k) {
  constexpr int kNumbers = kVectorBytes / sizeof(Number);
  alignas(16) Number numbers[kNumbers];
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) numbers[i] = from + i < k ? row[from + i] : Number(0.0f);
  return *reinterpret_cast<const uint4*>(numbers);
}

__device__ __forceinline__ void StoreSharedVector(uint32_t to, const uint4& v) {
  asm volatile(
      "st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
      : "memory");
}

// Copies this thread's part of one operand's rows [first, first + kRows) in a stage: one vector in
// each of some rows. kVectors: rows start at multiples of a vector, and k is one.
template <class T, int kRows, bool kVectors>
__device__ __forceinline__ void CopyRows(const Operand<typename T::Number>& from,
                                         int32_t first,
                                         int32_t first_input,
                                         int32_t k,
                                         uint32_t stage,
                                         int first_line) {
  constexpr int kNumbers = kVectorBytes / sizeof(typename T::Number);
  const int vector = static_cast<int>(threadIdx.x) % kSwizzledRowVectors;
  const int32_t input = first_input + vector * kNumbers;
#pragma unroll
  for (int row = static_cast<int>(threadIdx.x) / kSwizzledRowVectors; row < kRows;
       row += T::kRowStep) {
    const uint32_t to = SwizzledVector(stage, first_line + row, vector);
    const bool present = first + row < from.rows && input < k;
    const auto* const source = from.at + (present ? (first + row) * from.stride : 0);
    if constexpr (kVectors) {
      CopyVector(to, present ? source + input : from.at, present);
    } else {
      StoreSharedVector(to, present ? GatherVector(source, input, k) : make_uint4(0, 0, 0, 0));
    }
  }
}

}  // namespace baton::cuda
