#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/sampling/sampling_device.cuh"

// A radix search over a row's candidates by one thread block. It visits the candidates from the
// highest key down, until their number or the sum of their weights (their mass) exceeds a bound,
// and finds the candidate at which that happens. For each digit of the keys, from the highest
// digit down, it makes a histogram of counts and masses, so that nothing needs sorting.
namespace baton::cuda {

constexpr int kSearchThreads = 1024;
constexpr int kDigitBits = 10;
constexpr int kDigits = 1 << kDigitBits;  // values of a digit; one for each thread
// Bits below the top digit. The keys of weights have 50 bits (WeightBits), five digits; those of
// logits have 52.
constexpr int kTopShift = 40;
constexpr int kLogitTopShift = 50;
constexpr int kWeightBits = 30;
static_assert(kTopShift + kDigitBits == kWeightBits + kIdBits && kDigits == kSearchThreads);
static_assert(kLogitTopShift % kDigitBits == 0 && kLogitTopShift + kDigitBits >= 32 + kIdBits);

// The number of candidates that a walk has visited, and the sum of their weights.
struct WalkTotals {
  uint32_t count = 0;
  uint64_t mass = 0;
};

// A walk ends with the first candidate that raises the mass (or the count) above `bound`.
struct WalkGoal {
  bool by_mass;
  uint64_t bound;
};

// The end of a walk: the key of its last candidate, and the totals including that candidate.
struct WalkEnd {
  uint64_t key = 0;
  WalkTotals met;
};

// The digit at which a walk reaches its goal.
struct Crossing {
  uint32_t digit = 0;
  uint32_t count = 0;  // candidates with this digit; 0: the walk does not reach its goal
  WalkTotals before;   // totals of the candidates with higher digits
  WalkTotals total;    // totals of all candidates
};

struct SearchMemory {
  uint32_t counts[kDigits];
  uint32_t low_masses[kDigits];   // the low 32 bits of the masses
  uint32_t high_masses[kDigits];  // the high 32 bits
  uint32_t warp_counts[32];
  uint64_t warp_masses[32];
  Crossing crossing;
  uint64_t key;
  uint32_t listed;
  uint64_t list[kMaxCandidates];
};

// A candidate's key is KeyOf(WeightBits(weight), token). Weights are at most 1, so that the bits
// above kWeightBits of the float are 0. WeightOf returns the weight of such a key.
__device__ __forceinline__ uint32_t WeightBits(float weight) {
  return __float_as_uint(weight);
}
__device__ __forceinline__ float WeightOf(uint64_t key) {
  return __uint_as_float(ValueOf(key));
}

// Adds to a mass with 32-bit atomics, which are native in shared memory. The thread whose addition
// makes the low half overflow adds the carry.
__device__ __forceinline__ void AddMass(SearchMemory& m, uint32_t digit, uint64_t mass) {
  const auto low = static_cast<uint32_t>(mass);
  const uint32_t before = atomicAdd(&m.low_masses[digit], low);
  const uint32_t carry = before > 0xffffffffu - low ? 1 : 0;
  const uint32_t high = static_cast<uint32_t>(mass >> 32) + carry;
  if (high > 0) atomicAdd(&m.high_masses[digit], high);
}

// Makes the histogram of the digit above bit `shift`, over all candidates whose higher digits are
// `prefix`. `candidates(f)` calls f with every key.
template <bool kWithMass, class Candidates>
__device__ void CountDigits(SearchMemory& m,
                            const Candidates& candidates,
                            int shift,
                            uint64_t prefix) {
  m.counts[threadIdx.x] = 0;
  m.low_masses[threadIdx.x] = 0;
  m.high_masses[threadIdx.x] = 0;
  __syncthreads();
  candidates([&](uint64_t key) {
    if (key >> (shift + kDigitBits) != prefix) return;
    const auto digit = static_cast<uint32_t>(key >> shift) & (kDigits - 1);
    atomicAdd(&m.counts[digit], 1u);
    if constexpr (kWithMass) AddMass(m, digit, Fixed(WeightOf(key)));
  });
  __syncthreads();
}

// Finds the digit in the histogram at which a walk reaches `goal`. `before` are the totals of the
// candidates above this prefix.
__device__ inline Crossing FindCrossing(SearchMemory& m, WalkGoal goal, WalkTotals before) {
  const uint32_t digit = kDigits - 1 - threadIdx.x;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t count = m.counts[digit];
  const uint64_t mass = uint64_t{m.high_masses[digit]} << 32 | m.low_masses[digit];
  WalkTotals met{count, mass};  // totals down to this thread's digit
  for (int offset = 1; offset < 32; offset *= 2) {
    const uint32_t other_count = __shfl_up_sync(0xffffffffu, met.count, offset);
    const uint64_t other_mass = __shfl_up_sync(0xffffffffu, met.mass, offset);
    if (lane >= static_cast<uint32_t>(offset)) {
      met.count += other_count;
      met.mass += other_mass;
    }
  }
  if (lane == 31) {
    m.warp_counts[warp] = met.count;
    m.warp_masses[warp] = met.mass;
  }
  if (threadIdx.x == 0) m.crossing = {};
  __syncthreads();
  met.count += before.count;
  met.mass += before.mass;
  for (uint32_t i = 0; i < warp; ++i) {
    met.count += m.warp_counts[i];
    met.mass += m.warp_masses[i];
  }
  const WalkTotals above{met.count - count, met.mass - mass};
  const bool crosses = goal.by_mass ? met.mass > goal.bound && above.mass <= goal.bound
                                    : met.count > goal.bound && above.count <= goal.bound;
  if (crosses) {
    m.crossing.digit = digit;
    m.crossing.count = count;
    m.crossing.before = above;
  }
  if (digit == 0) m.crossing.total = met;
  __syncthreads();
  const Crossing crossing = m.crossing;
  __syncthreads();
  return crossing;
}

// Finds where the walk over `candidates` reaches `goal`. When it does not, the result has key 0 and
// the totals of all candidates. kWithMass: their keys are those of weights, otherwise of logits.
template <bool kWithMass, class Candidates>
__device__ WalkEnd FindWalkEnd(SearchMemory& m, const Candidates& candidates, WalkGoal goal) {
  uint64_t prefix = 0;
  WalkTotals before;
  int shift = kWithMass ? kTopShift : kLogitTopShift;
  for (;; shift -= kDigitBits) {
    CountDigits<kWithMass>(m, candidates, shift, prefix);
    const Crossing crossing = FindCrossing(m, goal, before);
    if (crossing.count == 0) return {0, crossing.total};
    prefix = prefix << kDigitBits | crossing.digit;
    before = crossing.before;
    if (crossing.count == 1 || shift == 0) break;
  }
  candidates([&](uint64_t key) {
    if (key >> shift == prefix) m.key = key;
  });
  __syncthreads();
  const uint64_t key = m.key;
  __syncthreads();
  return {key, {before.count + 1, before.mass + (kWithMass ? Fixed(WeightOf(key)) : 0)}};
}

// Puts the candidates with keys of at least `least` into m.list, in no particular order. Returns
// their number, and with kWithMass the mass of all candidates, including those below `least`. The
// list holds at most kMaxCandidates; the number may be larger.
template <bool kWithMass, class Candidates>
__device__ WalkTotals List(SearchMemory& m, const Candidates& candidates, uint64_t least) {
  if (threadIdx.x == 0) m.listed = 0;
  __syncthreads();
  uint64_t mass = 0;
  candidates([&](uint64_t key) {
    if constexpr (kWithMass) mass += Fixed(WeightOf(key));
    if (key < least) return;
    const uint32_t at = atomicAdd(&m.listed, 1u);
    if (at < kMaxCandidates) m.list[at] = key;
  });
  mass = BlockReduce(mass, Add());
  if (threadIdx.x == 0) m.key = mass;
  __syncthreads();
  const WalkTotals met{m.listed, m.key};
  __syncthreads();
  return met;
}

// Returns a key such that at least `wanted` candidates have this key or a higher one. It is the
// `wanted`-th highest among each thread's highest key. Returns 0 when fewer threads than `wanted`
// have a candidate, or when `wanted` exceeds the number of threads.
template <class Candidates>
__device__ uint64_t LowerBound(SearchMemory& m, const Candidates& candidates, uint32_t wanted) {
  if (wanted > kSearchThreads) return 0;
  uint64_t mine = 0;
  candidates([&](uint64_t key) { mine = max(mine, key); });
  if (threadIdx.x == 0) m.key = 0;
  m.list[threadIdx.x] = mine;
  __syncthreads();
  if (mine != 0) {
    uint32_t higher = 0;
    for (int i = 0; i < kSearchThreads; ++i) higher += m.list[i] > mine ? 1 : 0;
    if (higher == wanted - 1) m.key = mine;
  }
  __syncthreads();
  const uint64_t bound = m.key;
  __syncthreads();
  return bound;
}

}  // namespace baton::cuda
