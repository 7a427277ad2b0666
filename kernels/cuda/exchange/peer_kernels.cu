#include <algorithm>
#include <type_traits>

#include "kernels/cuda/exchange/peer_kernels.h"
#include "kernels/cuda/exchange/unit_rows.cuh"
#include "kernels/cuda/primitives/float_numbers.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/peer_sum.cuh"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
// Thread blocks on each SM. All must run at the same time, because they wait for those of other
// ranks.
constexpr int kBlocksOfSm = 4;
// The threads of a two-shot sum of many ranks need more registers.
constexpr int TwoShotBlocksOfSm(int peers) {
  return peers <= 3 ? 4 : 2;
}

// In one step of a kernel each thread pushes one vector to each rank that needs it. These are the
// steps by which taking what the other ranks have pushed is behind: in between, the link moves
// numbers while the memory of the device works.
constexpr int32_t kOneShotBehind = 1;
constexpr int32_t kSumBehind = 1;     // of a two-shot sum: from pushing a part to adding
constexpr int32_t kResultBehind = 1;  // from pushing a sum to taking those of the other ranks
constexpr int32_t kCopyBehind = 1;

using VectorRows = UnitRows<uint4>;

__device__ __forceinline__ int32_t FirstUnit() {
  return static_cast<int32_t>(blockIdx.x) * kThreads + static_cast<int32_t>(threadIdx.x);
}
// The units of all threads of a grid of one dimension.
__device__ __forceinline__ int32_t UnitsOfStep() {
  return static_cast<int32_t>(gridDim.x) * kThreads;
}

// The kernels of sums push to the ranks behind their rank first: if all ranks began with rank 0,
// they would share its link.
__host__ __device__ __forceinline__ int32_t RankOfTarget(const PeerParts& parts, int32_t target) {
  const int32_t rank = parts.rank + 1 + target;
  return rank < parts.ranks ? rank : rank - parts.ranks;
}

// Stores `value` in place `at` of the slots of the `peers` other ranks; `peers` is at most kPeers.
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

// Adds the vectors of all ranks and rounds once.
template <class T, int kPeers>
__device__ __forceinline__ uint4 SumOf(const PeerParts& parts, const uint4& own, int32_t at) {
  float sum[Numbers<T>::kCount];
  SumOverRanks<T, kPeers>(parts, own, at, sum);
  Numbers<T> out;
#pragma unroll
  for (int i = 0; i < Numbers<T>::kCount; ++i) Store(sum[i], &out.values[i]);
  return *reinterpret_cast<const uint4*>(&out);
}

// Every rank pushes all of its numbers to all others and adds all numbers.
template <class T, int kPeers>
__global__ void __launch_bounds__(kThreads, kBlocksOfSm)
    OneShotKernel(const VectorRows x, const PeerTargets to, const PeerParts parts) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int32_t step = UnitsOfStep();
  for (int32_t i = FirstUnit(); i < x.count + kOneShotBehind * step; i += step) {
    if (i < x.count) PushToAll<kPeers>(to, parts.ranks - 1, i, Pushed(*x.at(i)));
    if (const int32_t added = i - kOneShotBehind * step; added >= 0) {
      uint4* const place = x.at(added);
      *place = SumOf<T, kPeers>(parts, *place, added);
    }
  }
}

// The slices of a two-shot sum, in vectors. Rank r adds slice r. The first `longer` slices have
// `length` + 1 vectors, the others `length`.
struct Slices {
  int32_t length;
  int32_t longer;

  // The vectors of the longest slice.
  __host__ __device__ __forceinline__ int32_t longest() const {
    return length + (longer > 0 ? 1 : 0);
  }
  __device__ __forceinline__ int32_t First(int32_t rank) const {
    return rank * length + min(rank, longer);
  }
  // The slices that have a vector `at`: those of the ranks below the result.
  __device__ __forceinline__ int32_t SlicesWith(int32_t at, int32_t ranks) const {
    return at < length ? ranks : longer;
  }
};

// Every rank pushes each of its slices to the rank that adds it, and pushes the sum of its own
// slice to all. A slot holds a slice of parts, then a slice of sums. Each vector of `x` is read and
// written by one thread.
template <class T, int kPeers>
__global__ void __launch_bounds__(kThreads, TwoShotBlocksOfSm(kPeers)) TwoShotKernel(
    const VectorRows x, const Slices slices, const PeerTargets to, const PeerParts parts) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int32_t step = UnitsOfStep();
  const int32_t longest = slices.longest();
  for (int32_t i = FirstUnit(); i < longest + (kSumBehind + kResultBehind) * step; i += step) {
    if (i < longest) {
      const int32_t with = slices.SlicesWith(i, parts.ranks);
      uint4 own[kPeers];
#pragma unroll
      for (int32_t target = 0; target < kPeers; ++target) {
        if (target + 1 >= parts.ranks) continue;
        const int32_t rank = RankOfTarget(parts, target);
        if (rank < with) own[target] = *x.at(slices.First(rank) + i);
      }
#pragma unroll
      for (int32_t target = 0; target < kPeers; ++target) {
        if (target + 1 >= parts.ranks || RankOfTarget(parts, target) >= with) continue;
        StoreVolatile(to[target] + i, Pushed(own[target]));
      }
    }
    const int32_t added = i - kSumBehind * step;
    if (added >= 0 && added < longest && parts.rank < slices.SlicesWith(added, parts.ranks)) {
      uint4* const place = x.at(slices.First(parts.rank) + added);
      const uint4 sum = Pushed(SumOf<T, kPeers>(parts, *place, added));
      *place = sum;
      PushToAll<kPeers>(to, parts.ranks - 1, longest + added, sum);
    }
    const int32_t taken = added - kResultBehind * step;
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

// The thread blocks (·, p) exchange with peer p. A rank that sends no numbers sends one word, so
// that every rank receives something from each other rank.
template <class Unit>
__global__ void __launch_bounds__(kThreads, kBlocksOfSm)
    CopyKernel(const __grid_constant__ CopyArguments<Unit> a) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const auto peer = static_cast<int32_t>(blockIdx.y);
  const int32_t rank = peer + (peer >= a.parts.rank ? 1 : 0);
  const int32_t step = UnitsOfStep();
  const int32_t first = FirstUnit();
  const UnitRows<Unit> own = a.own;
  const UnitRows<Unit> from = a.from[peer];
  const int32_t sent = a.sends[peer] ? own.count : 0;
  auto* const to = reinterpret_cast<Unit*>(a.to[peer]);
  if (sent == 0 && first == 0) StoreVolatile(reinterpret_cast<uint32_t*>(to), 0u);
  for (int32_t i = first; i < max(sent, from.count + kCopyBehind * step); i += step) {
    if (i < sent) {
      const Unit unit = *own.at(i);
      StoreVolatile(to + i, Pushed(Flipped(unit, a.flip)));
      if (peer == 0 && a.kept.count > 0) *a.kept.at(i) = unit;
    }
    const int32_t taken = i - kCopyBehind * step;
    if (taken >= 0 && taken < from.count) {
      *from.at(taken) = Flipped(TakePart<Unit>(a.parts, rank, taken), a.flip);
    }
  }
  if (from.count == 0 && first == 0) TakePart<uint32_t>(a.parts, rank, 0);
}

dim3 BlocksFor(int32_t units, int most) {
  return {static_cast<unsigned>(std::clamp(CeilDiv(units, kThreads), 1, most))};
}

// Calls `launch` with a number of other ranks for which kernels are compiled.
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

template <class Unit>
cudaError_t LaunchCopy(const PeerCopy& copy,
                       const PeerTargets& to,
                       const PeerParts& parts,
                       int sm_count,
                       cudaStream_t stream) {
  CopyArguments<Unit> arguments = {};
  arguments.own = UnitsOf<Unit>(copy.own);
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
  const int blocks = std::clamp(CeilDiv(units, kThreads), 1, sm_count * kBlocksOfSm / peers);
  return LaunchOverlapped(CopyKernel<Unit>,
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
    const int32_t rank = RankOfTarget(parts, target);
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
                            BlocksFor(rows.count, sm_count * kBlocksOfSm),
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
                            BlocksFor(slices.longest(), sm_count * TwoShotBlocksOfSm(peers())),
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
  const auto whole = [](const PeerRows& rows) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(uint4));
    return (rows.row_bytes | rows.stride | reinterpret_cast<int64_t>(rows.data)) % kBytes == 0;
  };
  if (whole(copy.own) && whole(copy.kept) && std::ranges::all_of(copy.from, whole)) {
    return LaunchCopy<uint4>(copy, to, parts, sm_count, stream);
  }
  return LaunchCopy<uint32_t>(copy, to, parts, sm_count, stream);
}

}  // namespace baton::cuda
