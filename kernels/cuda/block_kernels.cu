#include "kernels/cuda/block_kernels.h"
#include "kernels/cuda/launch.cuh"

namespace baton::cuda {
namespace {

// XXH3's default secret and primes (xxHash, doc/xxhash_spec.md).
__constant__ uint8_t kSecret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};
constexpr uint64_t kPrime32_1 = 0x9E3779B1;
constexpr uint64_t kPrime32_2 = 0x85EBCA77;
constexpr uint64_t kPrime32_3 = 0xC2B2AE3D;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime64_3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime64_4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime64_5 = 0x27D4EB2F165667C5;
constexpr int kStripe = 64;
constexpr int kJoinBytes = 1024;        // XXH3's block: 16 stripes
constexpr int kLastStripeSecret = 121;  // 192 − 64 − 7
constexpr int kScrambleSecret = 128;    // 192 − 64
constexpr int kMergeSecret = 11;

constexpr int kSumThreads = 256;
constexpr int kSumUnroll = 4;  // joined blocks of a warp in flight
constexpr int kSumRounds = 2;
constexpr int kSumsOfBlock = kSumThreads / 32 * kSumUnroll * kSumRounds;
constexpr int kJoinThreads = 32;  // four pieces, eight lanes each
constexpr int kJoinAhead = 16;

__device__ __forceinline__ uint64_t Secret(int at) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | kSecret[at + i];
  return value;
}

// What a 16-byte part of a stripe adds to the two accumulators at its place.
struct PairSum {
  uint64_t even = 0;
  uint64_t odd = 0;

  __device__ void Add(const ulonglong2& data, uint64_t even_secret, uint64_t odd_secret) {
    const uint64_t a = data.x ^ even_secret;
    const uint64_t b = data.y ^ odd_secret;
    even += uint64_t{static_cast<uint32_t>(a)} * (a >> 32) + data.y;
    odd += uint64_t{static_cast<uint32_t>(b)} * (b >> 32) + data.x;
  }
};

// Adds the sums of the lanes that hold the same part of stripes; lanes 0 to 3 store the eight.
__device__ __forceinline__ void StoreSums(PairSum sum, int lane, uint64_t* to) {
#pragma unroll
  for (int offset = 4; offset < 32; offset *= 2) {
    sum.even += __shfl_xor_sync(0xffffffffu, sum.even, offset);
    sum.odd += __shfl_xor_sync(0xffffffffu, sum.odd, offset);
  }
  if (lane < 4) reinterpret_cast<ulonglong2*>(to)[lane] = make_ulonglong2(sum.even, sum.odd);
}

__device__ __forceinline__ ulonglong2 LoadPart(const std::byte* from) {
  return __ldcs(reinterpret_cast<const ulonglong2*>(from));
}

// A warp for each 1,024 bytes: the sums of their stripes. Behind the whole ones come the stripes
// that are left, without the last, and the last 64 bytes, which XXH3 adds with a secret of their
// own.
__global__ void __launch_bounds__(kSumThreads) SumStripes(const ChecksumArgs args) {
  WaitForPredecessor();
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const uint64_t piece = blockIdx.y;
  const std::byte* data = args.base + args.offsets[piece];
  const auto whole = static_cast<int64_t>((args.bytes - 1) / kJoinBytes);
  uint64_t* sums = args.sums + piece * (8 * static_cast<uint64_t>(whole + 2));
  const int pair = lane % 4;
  const int stripe = lane / 4;  // and stripe + 8
  uint64_t secret[2][2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    secret[i][0] = Secret(8 * (stripe + 8 * i) + 16 * pair);
    secret[i][1] = Secret(8 * (stripe + 8 * i) + 16 * pair + 8);
  }
  int64_t at = int64_t{blockIdx.x} * kSumsOfBlock + threadIdx.x / 32 * kSumUnroll;
  for (int round = 0; round < kSumRounds && at < whole; ++round) {
    ulonglong2 parts[kSumUnroll][2];
#pragma unroll
    for (int i = 0; i < kSumUnroll; ++i) {
      // Beyond the end it reads the last again, which is not stored.
      const std::byte* from = data + min(at + i, whole - 1) * kJoinBytes + lane * 16;
      parts[i][0] = LoadPart(from);
      parts[i][1] = LoadPart(from + kJoinBytes / 2);
    }
#pragma unroll
    for (int i = 0; i < kSumUnroll; ++i) {
      if (at + i >= whole) continue;
      PairSum sum;
      sum.Add(parts[i][0], secret[0][0], secret[0][1]);
      sum.Add(parts[i][1], secret[1][0], secret[1][1]);
      StoreSums(sum, lane, sums + 8 * (at + i));
    }
    at += kSumThreads / 32 * kSumUnroll;
  }
  if (blockIdx.x != 0 || threadIdx.x >= 32) return;
  const auto left = static_cast<int>((args.bytes - 1 - whole * kJoinBytes) / kStripe);
  PairSum rest;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (stripe + 8 * i >= left) continue;
    const std::byte* from = data + whole * kJoinBytes + (stripe + 8 * i) * kStripe + pair * 16;
    rest.Add(LoadPart(from), secret[i][0], secret[i][1]);
  }
  StoreSums(rest, lane, sums + 8 * whole);
  PairSum last;
  if (stripe == 0) {
    last.Add(LoadPart(data + args.bytes - kStripe + pair * 16),
             Secret(kLastStripeSecret + 16 * pair),
             Secret(kLastStripeSecret + 16 * pair + 8));
  }
  StoreSums(last, lane, sums + 8 * (whole + 1));
}

__device__ __forceinline__ uint64_t FirstAccumulator(int lane) {
  constexpr uint64_t kFirst[8] = {kPrime32_3,
                                  kPrime64_1,
                                  kPrime64_2,
                                  kPrime64_3,
                                  kPrime64_4,
                                  kPrime32_2,
                                  kPrime64_5,
                                  kPrime32_1};
  uint64_t value = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) value = lane == i ? kFirst[i] : value;
  return value;
}

// Eight lanes for each piece, one an accumulator: joins the sums in order, then the accumulators.
__global__ void __launch_bounds__(kJoinThreads) JoinSums(const ChecksumArgs args) {
  WaitForPredecessor();
  const auto lane = static_cast<int>(threadIdx.x % 8);
  const auto piece = static_cast<int32_t>(blockIdx.x * (kJoinThreads / 8) + threadIdx.x / 8);
  const auto whole = static_cast<int64_t>((args.bytes - 1) / kJoinBytes);
  // Lanes beyond the last piece repeat it, since all take part in the shuffles.
  const uint64_t of_piece = min(piece, args.count - 1);
  const uint64_t* sums = args.sums + of_piece * (8 * static_cast<uint64_t>(whole + 2)) + lane;
  const uint64_t secret = Secret(kScrambleSecret + 8 * lane);
  uint64_t value = FirstAccumulator(lane);
  const auto join = [&](uint64_t sum) {
    value += sum;
    value = (value ^ value >> 47 ^ secret) * kPrime32_1;
  };
  uint64_t ahead[kJoinAhead];
  int64_t at = 0;
  if (whole >= kJoinAhead) {
#pragma unroll
    for (int i = 0; i < kJoinAhead; ++i) ahead[i] = sums[8 * i];
  }
  for (; at + kJoinAhead <= whole; at += kJoinAhead) {
    uint64_t now[kJoinAhead];
#pragma unroll
    for (int i = 0; i < kJoinAhead; ++i) {
      now[i] = ahead[i];
      ahead[i] = sums[8 * min(at + kJoinAhead + i, whole)];
    }
#pragma unroll
    for (int i = 0; i < kJoinAhead; ++i) join(now[i]);
  }
  for (; at < whole; ++at) join(sums[8 * at]);
  value += sums[8 * whole] + sums[8 * (whole + 1)];
  // Each accumulator with its neighbour, then the four products.
  value ^= Secret(kMergeSecret + 8 * lane);
  const uint64_t other = __shfl_xor_sync(0xffffffffu, value, 1);
  uint64_t merged = value * other ^ __umul64hi(value, other);
  merged += __shfl_xor_sync(0xffffffffu, merged, 2);
  merged += __shfl_xor_sync(0xffffffffu, merged, 4);
  merged += args.bytes * kPrime64_1;
  merged ^= merged >> 37;
  merged *= 0x165667919E3779F9;
  merged ^= merged >> 32;
  if (lane == 0 && piece < args.count) args.out[piece] = merged;
}

}  // namespace

cudaError_t LaunchChecksums(const ChecksumArgs& args, cudaStream_t stream) {
  const uint64_t whole = (args.bytes - 1) / kJoinBytes;
  const auto parts = static_cast<uint32_t>((whole + kSumsOfBlock - 1) / kSumsOfBlock);
  const dim3 grid(parts > 0 ? parts : 1, static_cast<uint32_t>(args.count));
  cudaError_t error = LaunchOverlapped(SumStripes, grid, dim3(kSumThreads), 0, stream, args);
  if (error != cudaSuccess) return error;
  const int32_t pieces = kJoinThreads / 8;
  const dim3 join_grid(static_cast<uint32_t>((args.count + pieces - 1) / pieces));
  return LaunchOverlapped(JoinSums, join_grid, dim3(kJoinThreads), 0, stream, args);
}

}  // namespace baton::cuda
