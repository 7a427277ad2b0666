#include <algorithm>

#include "kernels/cuda/dma/row_copy_kernel.h"
#include "kernels/cuda/primitives/launch.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr auto kVectorBytes = static_cast<uint32_t>(sizeof(uint4));
static_assert(RowCopyArgs::kAlignment == kVectorBytes);
// The number of loads that each thread has in flight.
constexpr int kVectors = RowCopyArgs::kBlockBytes / kVectorBytes / kThreads;
static_assert(kVectors * kThreads * kVectorBytes == RowCopyArgs::kBlockBytes);
// The shared memory of a thread block with RowCopyOccupancy::kOneBlockPerSm. The kernel does not
// use this memory. It only keeps the SM free of other thread blocks of this kernel and of NCCL's
// kernels, because an SM has little more (228 KiB on Hopper, 164 KiB on the A100).
constexpr int kMaxSharedBytes = 200 << 10;

// The index of the copy of this thread block: the last copy whose first thread block is this one or
// an earlier one.
__device__ __forceinline__ uint32_t CopyIndex(const RowCopyArgs& args) {
  uint32_t low = 0;
  uint32_t high = args.count - 1;
  while (low < high) {
    const uint32_t middle = (low + high + 1) / 2;
    if (args.copies[middle].first_block <= blockIdx.x) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kThreads) CopyRows(const __grid_constant__ RowCopyArgs args) {
  const RowCopyArgs::Copy& copy = args.copies[CopyIndex(args)];
  const uint32_t row_vectors = copy.row_bytes / kVectorBytes;
  const uint32_t vectors = row_vectors * copy.rows;
  const uint32_t first = (blockIdx.x - copy.first_block) * (kVectors * kThreads) + threadIdx.x;
  uint4 data[kVectors];
  WaitForPredecessor();
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint32_t at = first + i * kThreads;
    if (at >= vectors) continue;
    const uint32_t row = at / row_vectors;
    const std::byte* from = copy.source + row * copy.source_pitch;
    data[i] = __ldcs(reinterpret_cast<const uint4*>(from) + (at - row * row_vectors));
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint32_t at = first + i * kThreads;
    if (at >= vectors) continue;
    const uint32_t row = at / row_vectors;
    std::byte* to = copy.destination + row * copy.destination_pitch;
    __stcs(reinterpret_cast<uint4*>(to) + (at - row * row_vectors), data[i]);
  }
}

// Writes the smaller of kMaxSharedBytes and the current device's limit for a thread block to
// `bytes`.
cudaError_t GetSharedBytes(int* bytes) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const cudaError_t known =
      cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  *bytes = std::min(*bytes, kMaxSharedBytes);
  return known;
}

}  // namespace

cudaError_t LoadRowCopyKernel() {
  // Reading the attributes of a kernel loads it. Setting an attribute may not.
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, CopyRows);
  if (error != cudaSuccess) return error;
  int shared_bytes = 0;
  error = GetSharedBytes(&shared_bytes);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(CopyRows, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
}

cudaError_t LaunchRowCopies(const RowCopyArgs& args,
                            RowCopyOccupancy occupancy,
                            cudaStream_t stream) {
  if (args.count == 0) return cudaSuccess;
  const RowCopyArgs::Copy& last = args.copies[args.count - 1];
  const dim3 grid(last.first_block + last.blocks());
  int shared_bytes = 0;
  if (occupancy == RowCopyOccupancy::kOneBlockPerSm) {
    const cudaError_t error = GetSharedBytes(&shared_bytes);
    if (error != cudaSuccess) return error;
  }
  return LaunchOverlapped(
      CopyRows, grid, dim3(kThreads), static_cast<size_t>(shared_bytes), stream, args);
}

}  // namespace baton::cuda
