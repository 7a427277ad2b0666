#include "kernels/cuda/dma/checksum_kernel.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/granule_checksum.h"

namespace baton::cuda {
namespace {

// Constants of XXH3 (xxHash, doc/xxhash_spec.md): the default secret in 64-bit words, and the
// initial values of the accumulators. They are in global memory, because the lanes of a warp read
// different words at once, which constant memory serves one after the other.
__device__ const uint64_t kSecret[24] = {
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
    0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
    0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
    0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
    0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
    0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
};
__device__ const uint64_t kFirstAccumulators[8] = {
    0x00000000c2b2ae3d,
    0x9e3779b185ebca87,
    0xc2b2ae3d27d4eb4f,
    0x165667b19e3779f9,
    0x85ebca77c2b2ae63,
    0x0000000085ebca77,
    0x27d4eb2f165667c5,
    0x000000009e3779b1,
};
constexpr uint64_t kPrime32_1 = 0x9e3779b1;
constexpr uint64_t kPrime64_1 = 0x9e3779b185ebca87;
constexpr uint64_t kLastFactor = 0x165667919e3779f9;
constexpr int kStripe = 64;
constexpr int kStripesPerXxhBlock = 16;  // an XXH3 block has 1,024 bytes
constexpr int kLastStripeSecret = 121;   // 192 − 64 − 7
constexpr int kScrambleSecret = 128;     // 192 − 64
constexpr int kMergeSecret = 11;

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 4;
constexpr int kXxhBlocksPerWarp = 4;  // a warp has the loads of all of them in flight
// A thread block computes few parts, so that it ends within a few microseconds. A kernel of a step
// may wait for its SM.
constexpr int kPartsPerBlock = 2;
constexpr int kSumsPerPart = kThreads / 32 * kXxhBlocksPerWarp * 8;
static_assert(kThreads / 32 * kXxhBlocksPerWarp * kStripesPerXxhBlock * kStripe ==
              kChecksumPartBytes);

// The eight bytes of the secret that begin at byte kFrom + 8 · index.
template <int kFrom>
__device__ __forceinline__ uint64_t Secret(int index) {
  constexpr int kShift = kFrom % 8 * 8;
  const uint64_t* words = kSecret + kFrom / 8 + index;
  if constexpr (kShift == 0) {
    return __ldg(words);
  } else {
    return __ldg(words) >> kShift | __ldg(words + 1) << (64 - kShift);
  }
}

// The product of the low and the high 32 bits.
__device__ __forceinline__ uint64_t HalvesProduct(uint64_t value) {
  return uint64_t{static_cast<uint32_t>(value)} * (value >> 32);
}

// The sums that a 16-byte piece of each stripe adds to two neighbouring accumulators.
struct PairSum {
  uint64_t even = 0;
  uint64_t odd = 0;

  __device__ void Add(const ulonglong2& data, const ulonglong2& secret) {
    even += HalvesProduct(data.x ^ secret.x) + data.y;
    odd += HalvesProduct(data.y ^ secret.y) + data.x;
  }
};

struct Part {
  const std::byte* data = nullptr;
  int bytes = 0;
};

__device__ __forceinline__ Part PartAt(const ChecksumArgs& args, uint32_t parts, uint32_t index) {
  const uint32_t granule = index / parts;
  const uint32_t part = index - granule * parts;
  return {args.base + args.offsets[granule] + part * kChecksumPartBytes,
          static_cast<int>(ChecksumPartBytes(args.bytes, part))};
}

// Adds the values of two lanes whose indices differ only in `bit`. The lane without the bit returns
// the sum of both `low`, and the lane with the bit returns the sum of both `high`.
__device__ __forceinline__ uint64_t AddAcross(uint64_t low, uint64_t high, int lane, int bit) {
  const bool is_high = (lane & bit) != 0;
  const uint64_t other = __shfl_xor_sync(0xffffffffu, is_high ? low : high, bit);
  return (is_high ? high : low) + other;
}

// Computes eight sums over the stripes of each XXH3 block of a part, without the last stripe of the
// part. In each XXH3 block a lane reads one 16-byte piece of stripes lane / 4 and lane / 4 + 8;
// `secret` holds the secrets for these two pieces.
__device__ __forceinline__ void SumStripes(const Part& part,
                                           const ulonglong2 (&secret)[2],
                                           uint64_t* sums) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int first_block = static_cast<int>(threadIdx.x / 32) * kXxhBlocksPerWarp;
  const int stripes = (part.bytes - 1) / kStripe;
  const int first = first_block * kStripesPerXxhBlock + lane / 4;
  const std::byte* from = part.data + first * kStripe + lane % 4 * 16;
  ulonglong2 data[kXxhBlocksPerWarp][2];
#pragma unroll
  for (int i = 0; i < kXxhBlocksPerWarp * 2; ++i) {
    if (first + 8 * i >= stripes) continue;
    data[i / 2][i % 2] = __ldcs(reinterpret_cast<const ulonglong2*>(from + 8 * i * kStripe));
  }
  PairSum sum[kXxhBlocksPerWarp];
#pragma unroll
  for (int i = 0; i < kXxhBlocksPerWarp * 2; ++i) {
    if (first + 8 * i < stripes) sum[i / 2].Add(data[i / 2][i % 2], secret[i % 2]);
  }
  // Eight lanes hold partial sums of the same piece of the stripes. After three exchanges, each of
  // these lanes has one of the piece's eight sums (even and odd of four XXH3 blocks).
  PairSum half[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    half[i].even = AddAcross(sum[i].even, sum[i + 2].even, lane, 16);
    half[i].odd = AddAcross(sum[i].odd, sum[i + 2].odd, lane, 16);
  }
  const uint64_t even = AddAcross(half[0].even, half[1].even, lane, 8);
  const uint64_t odd = AddAcross(half[0].odd, half[1].odd, lane, 8);
  sums[(first_block + lane / 8) * 8 + lane % 4 * 2 + lane / 4 % 2] = AddAcross(even, odd, lane, 4);
}

// Called by eight lanes, one for each accumulator. Joins the sums of a part in order, then its last
// stripe, which has a secret of its own, then the accumulators. Returns the XXH3-64 of the part to
// all eight lanes.
__device__ __forceinline__ uint64_t JoinSums(const Part& part, const uint64_t* sums) {
  const auto lane = static_cast<int>(threadIdx.x % 8);
  const unsigned eight = 0xffu << (threadIdx.x % 32 / 8 * 8);
  const auto* stripe = reinterpret_cast<const uint64_t*>(part.data + part.bytes - kStripe);
  const uint64_t last =
      HalvesProduct(stripe[lane] ^ Secret<kLastStripeSecret>(lane)) + stripe[lane ^ 1];
  const uint64_t scramble = Secret<kScrambleSecret>(lane);
  const int whole_blocks = (part.bytes - 1) / (kStripesPerXxhBlock * kStripe);
  uint64_t value = __ldg(kFirstAccumulators + lane);
#pragma unroll 4
  for (int i = 0; i < whole_blocks; ++i) {
    value += sums[8 * i + lane];
    value = (value ^ value >> 47 ^ scramble) * kPrime32_1;
  }
  value += sums[8 * whole_blocks + lane] + last;
  // Multiplies neighbouring accumulators, then adds the four products.
  value ^= Secret<kMergeSecret>(lane);
  const uint64_t other = __shfl_xor_sync(eight, value, 1);
  uint64_t merged = value * other ^ __umul64hi(value, other);
  merged += __shfl_xor_sync(eight, merged, 2);
  merged += __shfl_xor_sync(eight, merged, 4);
  merged += static_cast<uint64_t>(part.bytes) * kPrime64_1;
  merged ^= merged >> 37;
  merged *= kLastFactor;
  return merged ^ merged >> 32;
}

// A thread block computes the XXH3-64 of kPartsPerBlock parts. The index of a part counts the parts
// of all granules. All threads sum the stripes of one part after the other. Then eight lanes join
// the sums of each part.
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    SumParts(const __grid_constant__ ChecksumArgs args) {
  __shared__ uint64_t sums[kPartsPerBlock][kSumsPerPart];
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int word = lane / 4 + lane % 4 * 2;
  const ulonglong2 secret[2] = {make_ulonglong2(Secret<0>(word), Secret<0>(word + 1)),
                                make_ulonglong2(Secret<64>(word), Secret<64>(word + 1))};
  const auto parts = static_cast<uint32_t>(ChecksumParts(args.bytes));
  const uint32_t first = blockIdx.x * kPartsPerBlock;
  const uint32_t count = min(uint32_t{kPartsPerBlock}, args.count * parts - first);
  WaitForPredecessor();
#pragma unroll 1
  for (uint32_t i = 0; i < count; ++i) SumStripes(PartAt(args, parts, first + i), secret, sums[i]);
  __syncthreads();
  const uint32_t mine = threadIdx.x / 8;
  if (mine >= count) return;
  const uint64_t checksum = JoinSums(PartAt(args, parts, first + mine), sums[mine]);
  if (threadIdx.x % 8 == 0) args.out[first + mine] = checksum;
}

}  // namespace

cudaError_t LaunchChecksums(const ChecksumArgs& args, cudaStream_t stream) {
  const uint64_t parts = args.count * ChecksumParts(args.bytes);
  const dim3 grid(CeilDiv(parts, kPartsPerBlock));
  return LaunchOverlapped(SumParts, grid, dim3(kThreads), 0, stream, args);
}

}  // namespace baton::cuda
