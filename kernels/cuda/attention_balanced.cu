#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_warp.cuh"
#include "kernels/cuda/launch.cuh"

// Attention of single rows, as many thread blocks as processors: each takes the same number of
// units (16 positions of a KV head of a row), whatever rows they belong to, and its loads never
// pause: the first units of the next (row, head) are on their way while the last is added up.
//
// A (row, head) that lies in several blocks is added up by the one that finishes last.
namespace baton::cuda {
namespace {

constexpr int kWarps = 12;

struct Arguments {
  BalancedWork work;
  RowsCall call;
  int kv_heads;
};

// The part of one (row, head) that this block takes.
struct Segment {
  DecodeRow row;
  int listed = 0;  // of the row
  int head = 0;
  int first = 0;  // unit
  int end = 0;
  bool begins = false;  // the first unit that the row sees is in it
  bool ends = false;

  __device__ __forceinline__ int last_unit() const { return (row.end - 1) / kUnit; }
};

__device__ __forceinline__ Segment
SegmentAt(const DecodeRow* list, int listed, int head, int skipped, int remaining) {
  Segment s;
  s.row = list[listed];
  s.listed = listed;
  s.head = head;
  const int begin = s.row.begin / kUnit;
  s.first = begin + skipped;
  s.end = min(s.first + remaining, s.last_unit() + 1);
  s.begins = skipped == 0;
  s.ends = s.end == s.last_unit() + 1;
  return s;
}

// What the warps of a block found of a segment; two of these take turns.
struct Found {
  float* values;    // [warp][query][dim]
  float2* weights;  // [warp][kMaxQueries]
};

template <int kHeadDim>
class Block {
 public:
  static constexpr int kUnitBytes = kUnit * kHeadDim * 2;

  __device__ __forceinline__ explicit Block(const Arguments& a)
      : a_(a),
        size_(a.call.group * kHeadDim),
        block_(static_cast<int>(blockIdx.x)),
        thread_(static_cast<int>(threadIdx.y * 32 + threadIdx.x)) {}

  __device__ __forceinline__ Units<kWarps> UnitsOf(const Segment& s) const {
    return Units<kWarps>(a_.call.tables + s.row.table_start,
                         a_.call.block_units,
                         s.first + static_cast<int>(threadIdx.y),
                         s.end);
  }
  __device__ __forceinline__ const std::byte* KeysOf(const Segment& s) const {
    return a_.call.keys + s.head * a_.call.head_stride;
  }
  __device__ __forceinline__ const __nv_bfloat16* QueriesOf(const Segment& s) const {
    return a_.call.q + s.row.row * a_.call.q_stride + int64_t{s.head} * size_;
  }

  // Adds up what the warps found of a segment.
  __device__ __forceinline__ void Finish(const Segment& s, const Found& found) {
    __nv_bfloat16* out = a_.call.out + s.row.row * a_.call.out_stride + int64_t{s.head} * size_;
    const bool whole = s.begins && s.ends;
    const int64_t partial = 2 * block_ + (s.begins ? 1 : 0);
    for (int i = thread_; i < size_; i += kWarps * 32) {
      const int query = i / kHeadDim;
      const Added added = AddUp(
          kWarps,
          [&](int w) { return found.values[w * size_ + i]; },
          [&](int w) { return found.weights[w * kMaxQueries + query]; });
      if (whole) {
        out[i] = __float2bfloat16(added.value / added.weight.y);
        continue;
      }
      a_.work.partial.values[partial * size_ + i] = added.value;
      if (i % kHeadDim == 0) Weights(partial)[query] = added.weight;
    }
    if (!whole) Share(s.begins ? block_ : a_.work.starts[block_].owner, out);
  }

 private:
  __device__ __forceinline__ float2* Weights(int64_t partial) const {
    return reinterpret_cast<float2*>(a_.work.partial.weights) + partial * kMaxQueries;
  }

  // The last block to come here adds up the partial results of what `owner` began.
  __device__ __forceinline__ void Share(int owner, __nv_bfloat16* out) {
    __shared__ bool last;
    const int sharers = a_.work.starts[owner].sharers;
    __threadfence();
    __syncthreads();
    if (thread_ == 0) {
      last = atomicInc(a_.work.tickets + owner, sharers - 1) == static_cast<uint32_t>(sharers - 1);
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    const auto partial = [&](int i) { return int64_t{2} * (owner + i) + (i == 0 ? 1 : 0); };
    for (int i = thread_; i < size_; i += kWarps * 32) {
      const Added added = AddUp(
          sharers,
          [&](int p) { return __ldcg(a_.work.partial.values + partial(p) * size_ + i); },
          [&](int p) { return __ldcg(Weights(partial(p)) + i / kHeadDim); });
      out[i] = __float2bfloat16(added.value / added.weight.y);
    }
  }

  const Arguments& a_;
  const int size_;
  const int block_;
  const int thread_;
};

template <int kHeadDim>
__global__ void __launch_bounds__(kWarps * 32, 1)
    AttendBalanced(const __grid_constant__ Arguments arguments) {
  extern __shared__ float shared[];
  const RowsCall& a = arguments.call;
  const int warp = static_cast<int>(threadIdx.y);
  const int size = a.group * kHeadDim;
  const BalancedStart start = arguments.work.starts[blockIdx.x];
  ReleaseSuccessor();
  if (start.units == 0) return;
  Block<kHeadDim> block(arguments);
  const DecodeRow* list = arguments.work.list;

  Segment segment = SegmentAt(list, start.row, start.head, start.unit, start.units);
  int remaining = start.units - (segment.end - segment.first);
  Units<kWarps> units = block.UnitsOf(segment);
  const std::byte* keys = block.KeysOf(segment);
  Warp<kHeadDim> work;
  int64_t offset =
      units.count() > 0 ? units.Offset(0, a.block_stride, Block<kHeadDim>::kUnitBytes) : 0;
  const bool early = units.count() > 0 && units.at(0) != segment.last_unit();
  if (early) {
    work.LoadKeys(keys + offset);
    work.LoadValues(keys + a.part_stride + offset);
  }
  WaitForPredecessor();
  work.LoadQueries(block.QueriesOf(segment), a.group);
  if (units.count() > 0 && !early) {
    work.LoadKeys(keys + offset);
    work.LoadValues(keys + a.part_stride + offset);
  }

  for (int turn = 0;; turn ^= 1) {
    // The next segment, and where this warp begins in it.
    const bool more = remaining > 0;
    Segment next = segment;
    if (more) {
      const bool same_row = segment.head + 1 < arguments.kv_heads;
      next = SegmentAt(list,
                       same_row ? segment.listed : segment.listed + 1,
                       same_row ? segment.head + 1 : 0,
                       0,
                       remaining);
      remaining -= next.end - next.first;
    }
    Units<kWarps> next_units = block.UnitsOf(next);
    const bool continues = more && next_units.count() > 0;
    const std::byte* next_keys = block.KeysOf(next);
    const int64_t next_offset =
        continues ? next_units.Offset(0, a.block_stride, Block<kHeadDim>::kUnitBytes) : 0;

    const int count = units.count();
    for (int i = 0; i < count; ++i) {
      const int position = units.at(i) * kUnit;
      const bool last = i + 1 == count;
      const std::byte* from = next_keys + next_offset;
      if (!last) from = keys + units.Offset(i + 1, a.block_stride, Block<kHeadDim>::kUnitBytes);
      work.Score(position, segment.row.begin, segment.row.end, a.scale);
      if (last && more) work.LoadQueries(block.QueriesOf(next), a.group);
      if (!last || continues) work.LoadKeys(from);
      work.Soften();
      work.AddValues(position, segment.row.end);
      if (!last || continues) work.LoadValues(from + a.part_stride);
    }
    const Found found = {shared + turn * kWarps * (size + 2 * kMaxQueries),
                         reinterpret_cast<float2*>(
                             shared + turn * kWarps * (size + 2 * kMaxQueries) + kWarps * size)};
    work.Write(found.values + warp * size, found.weights + warp * kMaxQueries, a.group);
    if (count == 0 && more) {
      work.LoadQueries(block.QueriesOf(next), a.group);
      if (continues) {
        work.LoadKeys(next_keys + next_offset);
        work.LoadValues(next_keys + next_offset + a.part_stride);
      }
    }
    __syncthreads();
    block.Finish(segment, found);
    if (!more) return;
    work.Reset();
    segment = next;
    units = next_units;
    keys = next_keys;
  }
}

template <int kHeadDim>
size_t SharedBytes(int group) {
  return 2 * sizeof(float) * kWarps * (group * kHeadDim + 2 * kMaxQueries);
}

template <int kHeadDim>
cudaError_t Prepare() {
  return cudaFuncSetAttribute(AttendBalanced<kHeadDim>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(SharedBytes<kHeadDim>(kMaxQueries)));
}

template <int kHeadDim>
cudaError_t Launch(const BalancedWork& work, const AttentionCall& call) {
  const Arguments a = {work, RowsCallOf(call, work.tables), call.shape.kv_heads};
  const dim3 grid(work.blocks);
  const dim3 block(32, kWarps);
  const size_t shared = SharedBytes<kHeadDim>(call.shape.group());
  if (call.overlapped) {
    return LaunchOverlapped(AttendBalanced<kHeadDim>, grid, block, shared, call.stream, a);
  }
  AttendBalanced<kHeadDim><<<grid, block, shared, call.stream>>>(a);
  return cudaGetLastError();
}

}  // namespace

cudaError_t PrepareBalancedAttention() {
  const cudaError_t error = Prepare<64>();
  return error != cudaSuccess ? error : Prepare<128>();
}

cudaError_t LaunchBalancedAttention(const BalancedWork& work, const AttentionCall& call) {
  return call.shape.head_dim == 64 ? Launch<64>(work, call) : Launch<128>(work, call);
}

}  // namespace baton::cuda
