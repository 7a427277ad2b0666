#include <algorithm>

#include "kernels/cuda/exchange/peer_kernels.h"
#include "kernels/cuda/primitives/float_numbers.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/peer_parts.cuh"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
// All thread blocks must run at the same time, because they wait for those of other ranks: four on
// each of 132 SMs.
constexpr int64_t kMaxBlocks = 528;

// Rows of vectors of 16 bytes.
struct VectorRows {
  uint4* data;
  int64_t count;
  int64_t row;     // vectors of a row; `count` when there are no gaps
  int64_t stride;  // vectors

  __device__ __forceinline__ uint4* at(int64_t index) const {
    return row == count ? data + index : data + index / row * stride + index % row;
  }
};

__global__ void PushKernel(const VectorRows x, const PeerTargets to, int32_t peers) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < x.count; i += step) {
    const uint4 value = Pushed(*x.at(i));
    for (int32_t peer = 0; peer < peers; ++peer) StoreVolatile(to[peer] + i, value);
  }
}

template <class T>
struct Numbers {
  static constexpr int kCount = sizeof(uint4) / sizeof(T);
  T values[kCount];
};

// Adds the vector of all ranks.
template <class T>
__device__ __forceinline__ uint4 SumOf(const PeerParts& parts, const uint4& own, int64_t index) {
  constexpr int kCount = Numbers<T>::kCount;
  float sum[kCount];
  for (int32_t rank = 0; rank < parts.ranks; ++rank) {
    const uint4 bits = rank == parts.rank ? own : TakePart(parts, rank, index);
    const auto numbers = *reinterpret_cast<const Numbers<T>*>(&bits);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float number = ToFloat(numbers.values[i]);
      sum[i] = rank == 0 ? number : sum[i] + number;
    }
  }
  Numbers<T> out;
#pragma unroll
  for (int i = 0; i < kCount; ++i) Store(sum[i], &out.values[i]);
  return *reinterpret_cast<const uint4*>(&out);
}

// A thread pushes its next vector before it adds the one before, so that the sums of a large tensor
// are computed while the rest moves.
template <class T>
__global__ void PushAndSumKernel(const VectorRows x, const PeerTargets to, const PeerParts parts) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t i = first; i < x.count + step; i += step) {
    if (i < x.count) {
      const uint4 value = Pushed(*x.at(i));
      for (int32_t peer = 0; peer + 1 < parts.ranks; ++peer) StoreVolatile(to[peer] + i, value);
    }
    if (i >= step) {
      uint4* const place = x.at(i - step);
      *place = SumOf<T>(parts, *place, i - step);
    }
  }
}

// Rows in units of a word or a vector.
template <class Unit>
struct UnitRows {
  Unit* data;
  int64_t count;
  int64_t row;
  int64_t stride;

  __device__ __forceinline__ Unit* at(int64_t index) const {
    return data + index / row * stride + index % row;
  }
};

template <class Unit>
struct CopyArguments {
  UnitRows<Unit> own;
  UnitRows<Unit> from[kMaxPeerRanks - 1];
  bool sends[kMaxPeerRanks - 1];
  uint32_t flip;
  PeerTargets to;
  PeerParts parts;
};

__device__ __forceinline__ uint32_t Flipped(uint32_t word, uint32_t flip) {
  return word ^ flip;
}
__device__ __forceinline__ uint4 Flipped(const uint4& value, uint32_t flip) {
  return make_uint4(value.x ^ flip, value.y ^ flip, value.z ^ flip, value.w ^ flip);
}

template <class Unit>
__global__ void CopyKernel(const CopyArguments<Unit> a) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int32_t peers = a.parts.ranks - 1;
  for (int64_t i = first; i < a.own.count; i += step) {
    const Unit value = Pushed(Flipped(*a.own.at(i), a.flip));
    for (int32_t peer = 0; peer < peers; ++peer) {
      if (a.sends[peer]) StoreVolatile(reinterpret_cast<Unit*>(a.to[peer]) + i, value);
    }
  }
  if (first == 0) {
    for (int32_t peer = 0; peer < peers; ++peer) {
      if (!a.sends[peer]) StoreVolatile(a.to[peer], make_uint4(0, 0, 0, 0));
    }
  }
  for (int32_t peer = 0; peer < peers; ++peer) {
    const int32_t rank = peer + (peer >= a.parts.rank ? 1 : 0);
    const UnitRows<Unit>& rows = a.from[peer];
    for (int64_t i = first; i < rows.count; i += step) {
      *rows.at(i) = Flipped(TakePart<Unit>(a.parts, rank, i), a.flip);
    }
    if (rows.count == 0 && first == 0) TakePart(a.parts, rank, 0);
  }
}

VectorRows VectorsOf(const Tensor& x) {
  const auto vectors = [&](int64_t numbers) {
    return numbers * static_cast<int64_t>(ShapeOf(x.dtype).bytes) /
           static_cast<int64_t>(sizeof(uint4));
  };
  const bool gaps = x.rows > 1 && x.stride != x.cols;
  const int64_t count = vectors(x.rows * x.cols);
  return {.data = reinterpret_cast<uint4*>(x.data),
          .count = count,
          .row = gaps ? vectors(x.cols) : count,
          .stride = vectors(x.stride)};
}

dim3 BlocksFor(int64_t units) {
  return dim3(
      static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(units, int64_t{kThreads}), 1, kMaxBlocks)));
}

template <class Unit>
UnitRows<Unit> UnitsOf(const PeerRows& rows) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Unit));
  if (rows.data == nullptr) return {.data = nullptr, .count = 0, .row = 1, .stride = 0};
  return {.data = reinterpret_cast<Unit*>(rows.data),
          .count = rows.rows * rows.row_bytes / kBytes,
          .row = rows.row_bytes / kBytes,
          .stride = rows.stride / kBytes};
}

template <class Unit>
cudaError_t LaunchCopy(const PeerCopy& copy,
                       const PeerTargets& to,
                       const PeerParts& parts,
                       cudaStream_t stream) {
  CopyArguments<Unit> arguments = {
      .own = UnitsOf<Unit>(copy.own), .flip = copy.flip, .to = to, .parts = parts};
  int64_t most = arguments.own.count;
  for (size_t peer = 0; peer < copy.from.size(); ++peer) {
    arguments.sends[peer] = copy.sends[peer];
    arguments.from[peer] = UnitsOf<Unit>(copy.from[peer]);
    most = std::max(most, arguments.from[peer].count);
  }
  return LaunchOverlapped(CopyKernel<Unit>, BlocksFor(most), dim3(kThreads), 0, stream, arguments);
}

}  // namespace

cudaError_t LaunchPeerPush(const Tensor& x,
                           const PeerTargets& to,
                           const PeerParts& parts,
                           cudaStream_t stream) {
  const VectorRows rows = VectorsOf(x);
  if (rows.count == 0) return cudaSuccess;
  return LaunchOverlapped(
      PushKernel, BlocksFor(rows.count), dim3(kThreads), 0, stream, rows, to, parts.ranks - 1);
}

cudaError_t LaunchPeerSum(const Tensor& x,
                          const PeerTargets& to,
                          const PeerParts& parts,
                          cudaStream_t stream) {
  const VectorRows rows = VectorsOf(x);
  if (rows.count == 0) return cudaSuccess;
  return LaunchOverlapped(
      x.dtype == DType::kF32 ? PushAndSumKernel<float> : PushAndSumKernel<__nv_bfloat16>,
      BlocksFor(rows.count),
      dim3(kThreads),
      0,
      stream,
      rows,
      to,
      parts);
}

cudaError_t LaunchPeerCopy(const PeerCopy& copy,
                           const PeerTargets& to,
                           const PeerParts& parts,
                           cudaStream_t stream) {
  const auto whole = [](const PeerRows& rows) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(uint4));
    return (rows.row_bytes | rows.stride | reinterpret_cast<int64_t>(rows.data)) % kBytes == 0;
  };
  if (whole(copy.own) && std::ranges::all_of(copy.from, whole)) {
    return LaunchCopy<uint4>(copy, to, parts, stream);
  }
  return LaunchCopy<uint32_t>(copy, to, parts, stream);
}

}  // namespace baton::cuda
