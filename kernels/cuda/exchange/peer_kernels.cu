#include <algorithm>
#include <type_traits>

#include "kernels/cuda/exchange/peer_kernels.h"
#include "kernels/cuda/exchange/unit_rows.cuh"
#include "kernels/cuda/primitives/float_numbers.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/rows/silu.cuh"
#include "kernels/cuda/sums/peer_sum.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
// The thread blocks on each SM. All of them must run at the same time, because they wait for the
// thread blocks of other ranks.
constexpr int kBlocksPerSm = 4;
// With many ranks the threads of a two-shot sum need more registers.
constexpr int TwoShotBlocksPerSm(int peers) {
  return peers <= 3 ? 4 : 2;
}

// Depths of the software pipelines, in grid strides. In each iteration a thread pushes one vector
// to each rank that needs it. The thread takes the peers' vectors this many iterations after its
// own push, so that the link and the device's memory work at the same time.
constexpr int32_t kOneShotDepth = 1;
constexpr int32_t kSumDepth = 1;     // two-shot: from pushing a part to adding the peers' parts
constexpr int32_t kResultDepth = 1;  // two-shot: from pushing a sum to taking the peers' sums
constexpr int32_t kCopyDepth = 1;

using VectorRows = UnitRows<uint4>;

__device__ __forceinline__ int32_t FirstUnit() {
  return static_cast<int32_t>(blockIdx.x) * kThreads + static_cast<int32_t>(threadIdx.x);
}
// The distance between the units of two consecutive iterations of a thread.
__device__ __forceinline__ int32_t GridStride() {
  return static_cast<int32_t>(gridDim.x) * kThreads;
}

// The rank to which this rank pushes at position `target`. A rank pushes to the next rank first, so
// that the ranks do not all use the link of rank 0 at the same time.
__host__ __device__ __forceinline__ int32_t TargetRank(const PeerParts& parts, int32_t target) {
  const int32_t rank = parts.rank + 1 + target;
  return rank < parts.ranks ? rank : rank - parts.ranks;
}

// Stores `value` as vector `at` of the slots on the `peers` other ranks; `peers` is at most kPeers.
template <int kPeers>
__device__ __forceinline__ void PushToAll(const PeerTargets& to,
                                          int32_t peers,
                                          int32_t at,
                                          const uint4& value) {
#pragma unroll
  for (int32_t peer = 0; peer < kPeers; ++peer) {
    if (peer < peers) StoreVolatile(to[peer] + at, value);
  }
}

// Takes vector `at` of all other ranks, adds the vectors of all ranks and rounds the sum once.
template <class T, int kPeers>
__device__ __forceinline__ uint4 SumAndRound(const PeerParts& parts, const uint4& own, int32_t at) {
  float sum[Elements<T>::kCount];
  SumOverRanks<T, kPeers>(parts, own, at, sum);
  Elements<T> out;
#pragma unroll
  for (int i = 0; i < Elements<T>::kCount; ++i) Store(sum[i], &out.values[i]);
  return *reinterpret_cast<const uint4*>(&out);
}

// One-shot all-reduce: each rank pushes its whole input to every peer and adds all inputs.
template <class T, int kPeers>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    OneShotKernel(const VectorRows x, const PeerTargets to, const PeerParts parts) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int32_t stride = GridStride();
  for (int32_t i = FirstUnit(); i < x.count + kOneShotDepth * stride; i += stride) {
    if (i < x.count) PushToAll<kPeers>(to, parts.ranks - 1, i, Pushed(*x.at(i)));
    if (const int32_t added = i - kOneShotDepth * stride; added >= 0) {
      uint4* const vector = x.at(added);
      *vector = SumAndRound<T, kPeers>(parts, *vector, added);
    }
  }
}

// The slices of a two-shot sum. Rank r adds slice r. The first `longer` slices have `length` + 1
// vectors, the other slices have `length` vectors.
struct Slices {
  int32_t length;
  int32_t longer;

  // The number of vectors of the longest slice.
  __host__ __device__ __forceinline__ int32_t longest() const {
    return length + (longer > 0 ? 1 : 0);
  }
  __device__ __forceinline__ int32_t First(int32_t rank) const {
    return rank * length + min(rank, longer);
  }
  // The number of slices longer than `at`. They belong to the lowest ranks.
  __device__ __forceinline__ int32_t SlicesWith(int32_t at, int32_t ranks) const {
    return at < length ? ranks : longer;
  }
};

// Two-shot all-reduce. First, each rank pushes slice r of its input to rank r (reduce-scatter).
// Then rank r adds the parts of slice r and pushes the sum to every peer (all-gather). A slot holds
// a slice of parts, then a slice of sums. Only one thread reads and writes a vector of `x`.
template <class T, int kPeers>
__global__ void __launch_bounds__(kThreads, TwoShotBlocksPerSm(kPeers)) TwoShotKernel(
    const VectorRows x, const Slices slices, const PeerTargets to, const PeerParts parts) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int32_t stride = GridStride();
  const int32_t longest = slices.longest();
  for (int32_t i = FirstUnit(); i < longest + (kSumDepth + kResultDepth) * stride; i += stride) {
    if (i < longest) {
      const int32_t with = slices.SlicesWith(i, parts.ranks);
      uint4 own[kPeers];
#pragma unroll
      for (int32_t target = 0; target < kPeers; ++target) {
        if (target + 1 >= parts.ranks) continue;
        const int32_t rank = TargetRank(parts, target);
        if (rank < with) own[target] = *x.at(slices.First(rank) + i);
      }
#pragma unroll
      for (int32_t target = 0; target < kPeers; ++target) {
        if (target + 1 >= parts.ranks || TargetRank(parts, target) >= with) continue;
        StoreVolatile(to[target] + i, Pushed(own[target]));
      }
    }
    const int32_t added = i - kSumDepth * stride;
    if (added >= 0 && added < longest && parts.rank < slices.SlicesWith(added, parts.ranks)) {
      uint4* const vector = x.at(slices.First(parts.rank) + added);
      const uint4 sum = Pushed(SumAndRound<T, kPeers>(parts, *vector, added));
      *vector = sum;
      PushToAll<kPeers>(to, parts.ranks - 1, longest + added, sum);
    }
    const int32_t taken = added - kResultDepth * stride;
    if (taken >= 0) {
      const int32_t with = slices.SlicesWith(taken, parts.ranks);
      const int32_t peers = with - (parts.rank < with ? 1 : 0);
      uint4 sums[kPeers];
      TakeParts(parts, peers, longest + taken, sums);
#pragma unroll
      for (int32_t peer = 0; peer < kPeers; ++peer) {
        if (peer >= peers) continue;
        const int32_t rank = peer + (peer >= parts.rank ? 1 : 0);
        *x.at(slices.First(rank) + taken) = sums[peer];
      }
    }
  }
}

template <class Unit>
struct CopyArguments {
  UnitRows<Unit> own;
  UnitRows<Unit> up;
  UnitRows<Unit> kept;
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

// The unit that a rank sends: silu(own) · up, or own.
template <class Unit, bool kSiluMul>
__device__ __forceinline__ Unit UnitToSend(const CopyArguments<Unit>& a, int32_t at) {
  const Unit own = *a.own.at(at);
  if constexpr (!kSiluMul) {
    return own;
  } else {
    const uint4 other = *a.up.at(at);
    float gates[8];
    float ups[8];
    Unpack(*reinterpret_cast<const Packed8*>(&own), gates);
    Unpack(*reinterpret_cast<const Packed8*>(&other), ups);
#pragma unroll
    for (int i = 0; i < 8; ++i) gates[i] = SiluMul(gates[i], ups[i]);
    const Packed8 products = Pack(gates);
    return *reinterpret_cast<const uint4*>(&products);
  }
}

// The thread blocks with blockIdx.y = p exchange with peer p. A rank that sends no elements to a
// peer sends one word, because each rank must receive a word from each other rank (PeerSlots).
template <class Unit, bool kSiluMul>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    CopyKernel(const __grid_constant__ CopyArguments<Unit> a) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const auto peer = static_cast<int32_t>(blockIdx.y);
  const int32_t rank = peer + (peer >= a.parts.rank ? 1 : 0);
  const int32_t stride = GridStride();
  const int32_t first = FirstUnit();
  const UnitRows<Unit> from = a.from[peer];
  const int32_t sent = a.sends[peer] ? a.own.count : 0;
  auto* const to = reinterpret_cast<Unit*>(a.to[peer]);
  if (sent == 0 && first == 0) StoreVolatile(reinterpret_cast<uint32_t*>(to), 0u);
  for (int32_t i = first; i < max(sent, from.count + kCopyDepth * stride); i += stride) {
    if (i < sent) {
      const Unit unit = UnitToSend<Unit, kSiluMul>(a, i);
      StoreVolatile(to + i, Pushed(Flipped(unit, a.flip)));
      if (peer == 0 && a.kept.count > 0) *a.kept.at(i) = unit;
    }
    const int32_t taken = i - kCopyDepth * stride;
    if (taken >= 0 && taken < from.count) {
      *from.at(taken) = Flipped(TakePart<Unit>(a.parts, rank, taken), a.flip);
    }
  }
  if (from.count == 0 && first == 0) TakePart<uint32_t>(a.parts, rank, 0);
}

dim3 BlocksFor(int32_t units, int most) {
  return {static_cast<unsigned>(std::clamp(CeilDiv(units, kThreads), 1, most))};
}

// Calls `launch` with the least number of peers for which kernels are compiled and that is at least
// `peers`.
template <class Launch>
cudaError_t ForPeers(int32_t peers, const Launch& launch) {
  if (peers == 1) return launch(std::integral_constant<int, 1>{});
  if (peers <= 3) return launch(std::integral_constant<int, 3>{});
  return launch(std::integral_constant<int, kMaxPeerRanks - 1>{});
}

template <class Unit>
UnitRows<Unit> UnitsOf(const PeerRows& rows) {
  return UnitRows<Unit>::Of(rows.data, rows.rows, rows.row_bytes, rows.stride);
}

template <class Unit, bool kSiluMul = false>
cudaError_t LaunchCopy(const PeerCopy& copy,
                       const PeerTargets& to,
                       const PeerParts& parts,
                       int sm_count,
                       cudaStream_t stream) {
  CopyArguments<Unit> arguments = {};
  arguments.own = UnitsOf<Unit>(copy.own);
  arguments.up = UnitsOf<Unit>(copy.up);
  arguments.kept = UnitsOf<Unit>(copy.kept);
  arguments.flip = copy.flip;
  arguments.to = to;
  arguments.parts = parts;
  int32_t units = arguments.own.count;
  for (size_t peer = 0; peer < copy.from.size(); ++peer) {
    arguments.sends[peer] = copy.sends[peer];
    arguments.from[peer] = UnitsOf<Unit>(copy.from[peer]);
    units = std::max(units, arguments.from[peer].count);
  }
  const int peers = parts.ranks - 1;
  const int blocks = std::clamp(CeilDiv(units, kThreads), 1, sm_count * kBlocksPerSm / peers);
  return LaunchOverlapped(CopyKernel<Unit, kSiluMul>,
                          dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(peers)),
                          dim3(kThreads),
                          0,
                          stream,
                          arguments);
}

}  // namespace

PeerTargets InPushOrder(const PeerTargets& to, const PeerParts& parts) {
  PeerTargets ordered = {};
  for (int32_t target = 0; target + 1 < parts.ranks; ++target) {
    const int32_t rank = TargetRank(parts, target);
    ordered[static_cast<size_t>(target)] =
        to[static_cast<size_t>(rank - (rank > parts.rank ? 1 : 0))];
  }
  return ordered;
}

cudaError_t LaunchOneShotSum(const Tensor& x,
                             const PeerTargets& to,
                             const PeerParts& parts,
                             int sm_count,
                             cudaStream_t stream) {
  const VectorRows rows = VectorRows::Of(x);
  if (rows.count == 0) return cudaSuccess;
  return ForPeers(parts.ranks - 1, [&](auto peers) {
    return LaunchOverlapped(x.dtype == DType::kF32 ? OneShotKernel<float, peers()>
                                                   : OneShotKernel<__nv_bfloat16, peers()>,
                            BlocksFor(rows.count, sm_count * kBlocksPerSm),
                            dim3(kThreads),
                            0,
                            stream,
                            rows,
                            InPushOrder(to, parts),
                            parts);
  });
}

cudaError_t LaunchTwoShotSum(const Tensor& x,
                             const PeerTargets& to,
                             const PeerParts& parts,
                             int sm_count,
                             cudaStream_t stream) {
  const VectorRows rows = VectorRows::Of(x);
  const Slices slices = {.length = rows.count / parts.ranks, .longer = rows.count % parts.ranks};
  if (slices.length == 0 || 2 * slices.longest() > parts.slot_vectors) return cudaErrorInvalidValue;
  return ForPeers(parts.ranks - 1, [&](auto peers) {
    return LaunchOverlapped(x.dtype == DType::kF32 ? TwoShotKernel<float, peers()>
                                                   : TwoShotKernel<__nv_bfloat16, peers()>,
                            BlocksFor(slices.longest(), sm_count * TwoShotBlocksPerSm(peers())),
                            dim3(kThreads),
                            0,
                            stream,
                            rows,
                            slices,
                            InPushOrder(to, parts),
                            parts);
  });
}

cudaError_t LaunchPeerCopy(const PeerCopy& copy,
                           const PeerTargets& to,
                           const PeerParts& parts,
                           int sm_count,
                           cudaStream_t stream) {
  const auto fits_vectors = [](const PeerRows& rows) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(uint4));
    return (rows.row_bytes | rows.stride | reinterpret_cast<int64_t>(rows.data)) % kBytes == 0;
  };
  if (fits_vectors(copy.own) && fits_vectors(copy.kept) &&
      std::ranges::all_of(copy.from, fits_vectors)) {
    return copy.up.data != nullptr ? LaunchCopy<uint4, true>(copy, to, parts, sm_count, stream)
                                   : LaunchCopy<uint4>(copy, to, parts, sm_count, stream);
  }
  if (copy.up.data != nullptr) return cudaErrorInvalidValue;
  return LaunchCopy<uint32_t>(copy, to, parts, sm_count, stream);
}

}  // namespace baton::cuda
