#include <cooperative_groups.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/capped_kernels.h"
#include "kernels/cuda/attention/decode_warp.cuh"
#include "kernels/cuda/attention/logits.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/table/attention_request.h"

// Attention of single rows in one kernel. A cluster of thread blocks splits the context of one row
// and KV head, and combines its partial results in distributed shared memory.
//
// KV from earlier steps is loaded before the kernel waits for its predecessor, which writes the
// query and the KV of this step.
namespace baton::cuda {
namespace {

struct Arguments {
  const DecodeRow* list;
  DecodeArguments call;
};

// The units of one warp: every kWarps-th unit of its thread block. Block numbers are read 32 at a
// time, one per lane.
template <int kWarps>
class Units {
 public:
  __device__ __forceinline__ Units(const int32_t* table, int block_units, int first, int end)
      : table_(table),
        block_units_(block_units),
        first_(first),
        count_(max(0, (end - first + kWarps - 1) / kWarps)) {}

  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ int at(int i) const { return first_ + i * kWarps; }

  // Offset in the arena. Call with i counting up from 0.
  __device__ __forceinline__ int64_t Offset(int i, int64_t block_stride, int unit_bytes) {
    if (i % 32 == 0) {
      const int mine = i + static_cast<int>(threadIdx.x);
      blocks_ = mine < count_ ? table_[at(mine) / block_units_] : 0;
    }
    const int block = __shfl_sync(~0u, blocks_, i % 32);
    return block * block_stride + int64_t{at(i) % block_units_} * unit_bytes;
  }

 private:
  const int32_t* table_;
  int block_units_;
  int first_;
  int count_;
  int blocks_ = 0;
};

// Combines `count` partial results by softmax statistics: partial i has the value values(i) and the
// statistics stats(i) (maximum score, sum of exponentials relative to it). Partials that saw no
// position are allowed. Returns the combined value and statistics.
struct Combined {
  float value = 0;
  float2 stat = make_float2(-INFINITY, 0);
};
template <class Values, class Stats>
__device__ __forceinline__ Combined CombinePartials(int count,
                                                    const Values& values,
                                                    const Stats& stats) {
  Combined combined;
#pragma unroll 4
  for (int i = 0; i < count; ++i) combined.stat.x = fmaxf(combined.stat.x, stats(i).x);
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    const float2 stat = stats(i);
    const float factor = stat.x == -INFINITY ? 0.0f : exp2f(stat.x - combined.stat.x);
    combined.value += factor * values(i);
    combined.stat.y += factor * stat.y;
  }
  return combined;
}

// A number of a row: normalised, after its head's sink (null: none) has joined the sum.
__device__ __forceinline__ __nv_bfloat16 Normalised(const Combined& combined, const float* sink) {
  float sum = combined.stat.y;
  if (sink != nullptr) sum += SinkTerm(*sink, combined.stat.x);
  return __float2bfloat16(combined.value / sum);
}

// Shared memory of a thread block: the partial results of its warps, and their combination.
struct WarpResults {
  int size;             // group · dim
  float* values;        // [warp][query][dim]
  float2* stats;        // [warp][kMaxQueries]
  float* block_values;  // [query][dim]
  float2* block_stats;  // [kMaxQueries]
  const float* sinks;   // [query], or null

  __device__ __forceinline__
  WarpResults(float* shared, int warps, int queries_by_dim, const float* shared_sinks)
      : size(queries_by_dim),
        values(shared),
        stats(reinterpret_cast<float2*>(values + warps * size)),
        block_values(reinterpret_cast<float*>(stats + warps * kMaxQueries)),
        block_stats(reinterpret_cast<float2*>(block_values + size)),
        sinks(shared_sinks) {}

  __device__ __forceinline__ const float* Sink(int query) const {
    return sinks == nullptr ? nullptr : sinks + query;
  }
};

// Combines the results of the warps. Writes the final rows to `out`, or the block's partial result
// when `out` is null.
template <int kHeadDim, int kWarps>
__device__ __forceinline__ void CombineWarps(const WarpResults& results,
                                             int thread,
                                             __nv_bfloat16* out) {
  for (int i = thread; i < results.size; i += kWarps * 32) {
    const int query = i / kHeadDim;
    const Combined combined = CombinePartials(
        kWarps,
        [&](int w) { return results.values[w * results.size + i]; },
        [&](int w) { return results.stats[w * kMaxQueries + query]; });
    if (out != nullptr) {
      out[i] = Normalised(combined, results.Sink(query));
    } else {
      results.block_values[i] = combined.value;
      if (i % kHeadDim == 0) results.block_stats[query] = combined.stat;
    }
  }
}

#if __CUDA_ARCH__ >= 900
// Combines the partial results of a cluster. Each of the `splits` thread blocks writes a slice of
// the dimensions.
template <int kHeadDim, int kWarps>
__device__ __forceinline__ void CombineCluster(
    const WarpResults& results, int splits, int split, int thread, __nv_bfloat16* out) {
  const auto cluster = cooperative_groups::this_cluster();
  cluster.sync();
  const int slice = CeilDiv(results.size, splits);
  const int end = min(results.size, (split + 1) * slice);
  for (int i = split * slice + thread; split < splits && i < end; i += kWarps * 32) {
    const Combined combined = CombinePartials(
        splits,
        [&](int p) { return cluster.map_shared_rank(results.block_values, p)[i]; },
        [&](int p) { return cluster.map_shared_rank(results.block_stats, p)[i / kHeadDim]; });
    out[i] = Normalised(combined, results.Sink(i / kHeadDim));
  }
  cluster.sync();  // other blocks may still read this block's shared memory
}
#endif

// Grid [split of the context][kv head][row]; a cluster holds all splits.
template <int kHeadDim, int kWarps, int kBlocksPerSm, class Kv, bool kCapped>
__global__ void __launch_bounds__(kWarps * 32, kBlocksPerSm)
    ClusterAttention(const __grid_constant__ Arguments arguments) {
  extern __shared__ float shared[];
  __shared__ float sinks[kMaxQueries];
  const DecodeArguments& a = arguments.call;
  const bool has_sinks = a.sinks != nullptr;
  const WarpResults results(shared, kWarps, a.group * kHeadDim, has_sinks ? sinks : nullptr);
  const DecodeRow row = arguments.list[blockIdx.z];
  const int warp = static_cast<int>(threadIdx.y);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.x);
  // True for the whole cluster, or for blocks that no other block waits for.
  if (row.row < 0 || (row.splits == 1 && split > 0)) return;
  const int last = (row.end - 1) / kUnit;
  const int per_split = (last - row.begin / kUnit + row.splits) / row.splits;
  const int first = row.begin / kUnit + split * per_split;
  Units<kWarps> units(a.tables + row.table_start,
                      a.block_units,
                      first + warp,
                      split < row.splits ? min(first + per_split, last + 1) : 0);
  const std::byte* keys = a.keys + kv_head * a.head_stride;

  using Work = DecodeWarp<kHeadDim, Kv>;
  constexpr int kUnitBytes = kUnit * Work::kRowBytes;
  Work work;
  int64_t offset = units.count() > 0 ? units.Offset(0, a.block_stride, kUnitBytes) : 0;
  const bool early = units.count() > 0 && units.at(0) < row.stored / kUnit;
  if (early) {
    work.LoadKeys(RowsInMemory{keys + offset});
    work.LoadValues(RowsInMemory{keys + a.value_offset + offset});
  }
  const int thread = warp * 32 + static_cast<int>(threadIdx.x);
  if (has_sinks && thread < a.group) sinks[thread] = a.sinks[kv_head * a.group + thread];
  ReleaseSuccessor();
  WaitForPredecessor();
  const __nv_bfloat16* queries = a.q + row.row * a.q_stride + int64_t{kv_head} * results.size;
  work.LoadQueries(RowsInMemory{reinterpret_cast<const std::byte*>(queries)}, a.group);
  if (units.count() > 0 && !early) {
    work.LoadKeys(RowsInMemory{keys + offset});
    work.LoadValues(RowsInMemory{keys + a.value_offset + offset});
  }
  const bool scaled = a.kv_scales != nullptr;
  const float score_scale = scaled ? a.scale * a.kv_scales[kv_head] : a.scale;
  const float value_scale = scaled ? a.kv_scales[a.kv_heads + kv_head] : 1.0f;
  for (int i = 0; i < units.count(); ++i) {
    const int position = units.at(i) * kUnit;
    const bool more = i + 1 < units.count();
    if (more) offset = units.Offset(i + 1, a.block_stride, kUnitBytes);
    work.template Score<kCapped>(position, row.begin, row.end, score_scale, a.cap);
    if (more) work.LoadKeys(RowsInMemory{keys + offset});
    work.Softmax();
    work.AccumulateValues(position, row.end);
    if (more) work.LoadValues(RowsInMemory{keys + a.value_offset + offset});
  }
  work.Write(results.values + warp * results.size,
             results.stats + warp * kMaxQueries,
             a.group,
             value_scale);
  __syncthreads();

  __nv_bfloat16* out = a.out + row.row * a.out_stride + int64_t{kv_head} * results.size;
  CombineWarps<kHeadDim, kWarps>(results, thread, row.splits == 1 ? out : nullptr);
#if __CUDA_ARCH__ >= 900
  if (row.splits > 1) CombineCluster<kHeadDim, kWarps>(results, row.splits, split, thread, out);
#endif
}

// `kBlocksPerSm` bounds the registers.
template <int kHeadDim, int kWarps, int kBlocksPerSm, class Kv, bool kCapped>
struct Kernel {
  static constexpr auto kFunction = ClusterAttention<kHeadDim, kWarps, kBlocksPerSm, Kv, kCapped>;

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(kFunction, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }

  static size_t SharedBytes(int group) {
    return sizeof(float) * (kWarps + 1) * group * kHeadDim +
           sizeof(float2) * (kWarps + 1) * kMaxQueries;
  }

  static cudaError_t CountActive(int32_t splits, int32_t* clusters) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = splits;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(splits, 1, 1);
    config.blockDim = dim3(32, kWarps);
    config.dynamicSmemBytes = SharedBytes(kMaxQueries);
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaOccupancyMaxActiveClusters(clusters, kFunction, &config);
  }

  static cudaError_t Launch(const Arguments& a,
                            const ClusterWork& work,
                            const AttentionLaunch& call) {
    const OverlappedLaunch launch(dim3(work.splits, call.shape.kv_heads, work.rows),
                                  dim3(32, kWarps),
                                  SharedBytes(call.shape.group()),
                                  call.stream,
                                  work.splits);
    return cudaLaunchKernelEx(launch.config(), kFunction, a);
  }
};

// Calls `use` with the kernel for clusters of `splits` blocks. Eight warps when few thread blocks
// are resident: one on an SM, or two for the largest clusters, because few of them fit on the
// device. Else four warps and as many blocks as the registers allow.
template <int kHeadDim, class Kv, bool kCapped, class Use>
cudaError_t With(int32_t splits, int32_t warps, Use&& use) {
  // Blocks on an SM. fp8 needs fewer registers, and more warps to keep as many bytes in flight.
  constexpr int kFourWarps = (kHeadDim == 64 ? 4 : 3) + (sizeof(Kv) == 1 ? 1 : 0);
  if (warps == 4) return use(Kernel<kHeadDim, 4, kFourWarps, Kv, kCapped>());
  return splits == kMaxClusterSize ? use(Kernel<kHeadDim, 8, 2, Kv, kCapped>())
                                   : use(Kernel<kHeadDim, 8, 1, Kv, kCapped>());
}

template <class Kv, bool kCapped, class Use>
cudaError_t With(int32_t head_dim, int32_t splits, int32_t warps, Use&& use) {
  return head_dim == 64 ? With<64, Kv, kCapped>(splits, warps, use)
                        : With<128, Kv, kCapped>(splits, warps, use);
}

template <class Kv, bool kCapped>
cudaError_t PrepareFor() {
  for (const int32_t head_dim : {64, 128}) {
    for (const auto& [splits, warps] : {std::pair{1, 4}, {1, 8}, {kMaxClusterSize, 8}}) {
      const cudaError_t error =
          With<Kv, kCapped>(head_dim, splits, warps, [](auto kernel) { return kernel.Prepare(); });
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

template <bool kCapped>
cudaError_t Prepare() {
  const cudaError_t error = PrepareFor<__nv_bfloat16, kCapped>();
  return error != cudaSuccess ? error : PrepareFor<__nv_fp8_e4m3, kCapped>();
}

template <bool kCapped>
cudaError_t Launch(const ClusterWork& work, const AttentionLaunch& call) {
  const Arguments a = {work.list, DecodeArgumentsOf(call, work.tables)};
  const auto launch = [&](auto kernel) { return kernel.Launch(a, work, call); };
  const int32_t head_dim = call.shape.head_dim;
  return call.kv.dtype == DType::kFp8
             ? With<__nv_fp8_e4m3, kCapped>(head_dim, work.splits, work.warps, launch)
             : With<__nv_bfloat16, kCapped>(head_dim, work.splits, work.warps, launch);
}

}  // namespace

// With KV in fp8 the count is at least as high, because the kernel needs fewer registers.
cudaError_t CountActiveClusters(int32_t head_dim, int32_t splits, int32_t* clusters) {
  return With<__nv_bfloat16, false>(
      head_dim, splits, 8, [&](auto kernel) { return kernel.CountActive(splits, clusters); });
}

cudaError_t PrepareClusterAttention() {
  return Prepare<false>();
}

cudaError_t PrepareCappedClusterAttention() {
  return Prepare<true>();
}

cudaError_t LaunchClusterAttention(const ClusterWork& work, const AttentionLaunch& call) {
  return call.shape.cap > 0 ? Launch<true>(work, call) : Launch<false>(work, call);
}

}  // namespace baton::cuda
