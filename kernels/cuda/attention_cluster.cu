#include <cooperative_groups.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_warp.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rounding.h"

// Attention of single rows in one kernel: a cluster of thread blocks shares the context of one row
// and KV head, and adds up its results in distributed shared memory.
//
// What was in the cache before this step is loaded before the kernel waits for its predecessor,
// which writes the query and the newest position.
namespace baton::cuda {
namespace {

constexpr int kMaxClusterSize = 16;

struct Arguments {
  const DecodeRow* list;
  RowsCall call;
};

// Where the units of one warp are: every kWarps-th of its thread block's. Block numbers are read 32
// at a time, one a lane.
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

  // Offset in the arena; i counts up from 0.
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

// Sums over `count` parts, of which part i has its values at values(i) and its weights (largest
// score, sum of exponentials over it) at weights(i); parts that saw nothing are allowed. Gives the
// value and the weight of the whole.
struct Added {
  float value = 0;
  float2 weight = make_float2(-INFINITY, 0);
};
template <class Values, class Weights>
__device__ __forceinline__ Added AddUp(int count, const Values& values, const Weights& weights) {
  Added added;
#pragma unroll 4
  for (int i = 0; i < count; ++i) added.weight.x = fmaxf(added.weight.x, weights(i).x);
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    const float2 weight = weights(i);
    const float share = weight.x == -INFINITY ? 0.0f : exp2f(weight.x - added.weight.x);
    added.value += share * values(i);
    added.weight.y += share * weight.y;
  }
  return added;
}

// Shared memory of a thread block: what its warps found, and the sum of it.
struct Found {
  int size;              // group · dim
  float* values;         // [warp][query][dim]
  float2* weights;       // [warp][kMaxQueries]
  float* part_values;    // [query][dim]
  float2* part_weights;  // [kMaxQueries]

  __device__ __forceinline__ Found(float* shared, int warps, int queries_by_dim)
      : size(queries_by_dim),
        values(shared),
        weights(reinterpret_cast<float2*>(values + warps * size)),
        part_values(reinterpret_cast<float*>(weights + warps * kMaxQueries)),
        part_weights(reinterpret_cast<float2*>(part_values + size)) {}
};

// Adds up the warps' results; writes them to `out` when they are all there is.
template <int kHeadDim, int kWarps>
__device__ __forceinline__ void AddUpBlock(const Found& found, int thread, __nv_bfloat16* out) {
  for (int i = thread; i < found.size; i += kWarps * 32) {
    const int query = i / kHeadDim;
    const Added added = AddUp(
        kWarps,
        [&](int w) { return found.values[w * found.size + i]; },
        [&](int w) { return found.weights[w * kMaxQueries + query]; });
    if (out != nullptr) {
      out[i] = __float2bfloat16(added.value / added.weight.y);
    } else {
      found.part_values[i] = added.value;
      if (i % kHeadDim == 0) found.part_weights[query] = added.weight;
    }
  }
}

#if __CUDA_ARCH__ >= 900
// Adds up the parts of a cluster; each of `parts` thread blocks writes its share of the dimensions.
template <int kHeadDim, int kWarps>
__device__ __forceinline__ void AddUpCluster(
    const Found& found, int parts, int part, int thread, __nv_bfloat16* out) {
  const auto cluster = cooperative_groups::this_cluster();
  cluster.sync();
  const int slice = CeilDiv(found.size, parts);
  const int end = min(found.size, (part + 1) * slice);
  for (int i = part * slice + thread; part < parts && i < end; i += kWarps * 32) {
    const Added added = AddUp(
        parts,
        [&](int p) { return cluster.map_shared_rank(found.part_values, p)[i]; },
        [&](int p) { return cluster.map_shared_rank(found.part_weights, p)[i / kHeadDim]; });
    out[i] = __float2bfloat16(added.value / added.weight.y);
  }
  cluster.sync();  // others may still read this block's shared memory
}
#endif

// Grid [part of the context][kv head][row]; a cluster is all parts.
template <int kHeadDim, int kWarps, int kBlocksPerProcessor, class Kv>
__global__ void __launch_bounds__(kWarps * 32, kBlocksPerProcessor)
    AttendInCluster(const __grid_constant__ Arguments arguments) {
  extern __shared__ float shared[];
  const RowsCall& a = arguments.call;
  const Found found(shared, kWarps, a.group * kHeadDim);
  const DecodeRow row = arguments.list[blockIdx.z];
  const int warp = static_cast<int>(threadIdx.y);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int part = static_cast<int>(blockIdx.x);
  // True for all of a cluster, or for those whose part is not waited for.
  if (row.row < 0 || (row.parts == 1 && part > 0)) return;
  const int last = (row.end - 1) / kUnit;
  const int per_part = (last - row.begin / kUnit + row.parts) / row.parts;
  const int first = row.begin / kUnit + part * per_part;
  Units<kWarps> units(a.tables + row.table_start,
                      a.block_units,
                      first + warp,
                      part < row.parts ? min(first + per_part, last + 1) : 0);
  const std::byte* keys = a.keys + kv_head * a.head_stride;

  using Work = Warp<kHeadDim, Kv>;
  constexpr int kUnitBytes = kUnit * Work::kRowBytes;
  Work work;
  int64_t offset = units.count() > 0 ? units.Offset(0, a.block_stride, kUnitBytes) : 0;
  const bool early = units.count() > 0 && units.at(0) != last;
  if (early) {
    work.LoadKeys(RowsInMemory{keys + offset});
    work.LoadValues(RowsInMemory{keys + a.part_stride + offset});
  }
  ReleaseSuccessor();
  WaitForPredecessor();
  const __nv_bfloat16* queries = a.q + row.row * a.q_stride + int64_t{kv_head} * found.size;
  work.LoadQueries(RowsInMemory{reinterpret_cast<const std::byte*>(queries)}, a.group);
  if (units.count() > 0 && !early) {
    work.LoadKeys(RowsInMemory{keys + offset});
    work.LoadValues(RowsInMemory{keys + a.part_stride + offset});
  }
  const bool scaled = a.kv_scales != nullptr;
  const float score_scale = scaled ? a.scale * a.kv_scales[kv_head] : a.scale;
  const float value_scale = scaled ? a.kv_scales[a.kv_heads + kv_head] : 1.0f;
  for (int i = 0; i < units.count(); ++i) {
    const int position = units.at(i) * kUnit;
    const bool more = i + 1 < units.count();
    if (more) offset = units.Offset(i + 1, a.block_stride, kUnitBytes);
    work.Score(position, row.begin, row.end, score_scale);
    if (more) work.LoadKeys(RowsInMemory{keys + offset});
    work.Soften();
    work.AddValues(position, row.end);
    if (more) work.LoadValues(RowsInMemory{keys + a.part_stride + offset});
  }
  work.Write(
      found.values + warp * found.size, found.weights + warp * kMaxQueries, a.group, value_scale);
  __syncthreads();

  __nv_bfloat16* out = a.out + row.row * a.out_stride + int64_t{kv_head} * found.size;
  const int thread = warp * 32 + static_cast<int>(threadIdx.x);
  AddUpBlock<kHeadDim, kWarps>(found, thread, row.parts == 1 ? out : nullptr);
#if __CUDA_ARCH__ >= 900
  if (row.parts > 1) AddUpCluster<kHeadDim, kWarps>(found, row.parts, part, thread, out);
#endif
}

// `kBlocksPerProcessor` bounds the registers.
template <int kHeadDim, int kWarps, int kBlocksPerProcessor, class Kv>
struct Kernel {
  static constexpr auto kFunction = AttendInCluster<kHeadDim, kWarps, kBlocksPerProcessor, Kv>;

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(kFunction, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }

  static size_t SharedBytes(int group) {
    return sizeof(float) * (kWarps + 1) * group * kHeadDim +
           sizeof(float2) * (kWarps + 1) * kMaxQueries;
  }

  static cudaError_t CountActive(int32_t parts, int32_t* clusters) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = parts;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(parts, 1, 1);
    config.blockDim = dim3(32, kWarps);
    config.dynamicSmemBytes = SharedBytes(kMaxQueries);
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaOccupancyMaxActiveClusters(clusters, kFunction, &config);
  }

  static cudaError_t Launch(const Arguments& a,
                            const ClusterWork& work,
                            const AttentionCall& call) {
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = work.parts;
    attributes[0].val.clusterDim.y = 1;
    attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(work.parts, call.shape.kv_heads, work.rows);
    config.blockDim = dim3(32, kWarps);
    config.dynamicSmemBytes = SharedBytes(call.shape.group());
    config.stream = call.stream;
    config.attrs = attributes;
    config.numAttrs = 2;
    return cudaLaunchKernelEx(&config, kFunction, a);
  }
};

// Calls `use` with the kernel for clusters of `parts` blocks. Eight warps where thread blocks are
// few: alone on a processor, or, in the largest clusters, two, since few such clusters fit
// otherwise. Else four warps, and as many blocks as the registers allow.
template <int kHeadDim, class Kv, class Use>
cudaError_t With(int32_t parts, int32_t warps, Use&& use) {
  // Blocks on a processor: E4M3 takes fewer registers, and needs more warps to keep as much under
  // way.
  constexpr int kFourWarps = (kHeadDim == 64 ? 4 : 3) + (sizeof(Kv) == 1 ? 1 : 0);
  if (warps == 4) return use(Kernel<kHeadDim, 4, kFourWarps, Kv>());
  return parts == kMaxClusterSize ? use(Kernel<kHeadDim, 8, 2, Kv>())
                                  : use(Kernel<kHeadDim, 8, 1, Kv>());
}

template <class Kv, class Use>
cudaError_t With(int32_t head_dim, int32_t parts, int32_t warps, Use&& use) {
  return head_dim == 64 ? With<64, Kv>(parts, warps, use) : With<128, Kv>(parts, warps, use);
}

template <class Kv>
cudaError_t PrepareFor() {
  for (const int32_t head_dim : {64, 128}) {
    for (const auto& [parts, warps] : {std::pair{1, 4}, {1, 8}, {kMaxClusterSize, 8}}) {
      const cudaError_t error =
          With<Kv>(head_dim, parts, warps, [](auto kernel) { return kernel.Prepare(); });
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

}  // namespace

bool TakesSingleRows(const AttentionShape& shape, const KvView& kv) {
  return (shape.head_dim == 64 || shape.head_dim == 128) && shape.group() <= kMaxQueries &&
         (kv.dtype == DType::kBF16 || kv.dtype == DType::kF8) && kv.block_tokens % kUnit == 0;
}

int32_t ClusterParts(int32_t positions, int32_t positions_per_part, int32_t most) {
  int32_t parts = 1;
  while (2 * parts <= std::min(most, kMaxClusterSize) && parts * positions_per_part < positions) {
    parts *= 2;
  }
  return parts;
}

// With KV in E4M3 it is no fewer: the kernel needs less.
cudaError_t CountActiveClusters(int32_t head_dim, int32_t parts, int32_t* clusters) {
  return With<__nv_bfloat16>(
      head_dim, parts, 8, [&](auto kernel) { return kernel.CountActive(parts, clusters); });
}

cudaError_t PrepareClusterAttention() {
  const cudaError_t error = PrepareFor<__nv_bfloat16>();
  return error != cudaSuccess ? error : PrepareFor<__nv_fp8_e4m3>();
}

cudaError_t LaunchClusterAttention(const ClusterWork& work, const AttentionCall& call) {
  const Arguments a = {work.list, RowsCallOf(call, work.tables)};
  const auto launch = [&](auto kernel) { return kernel.Launch(a, work, call); };
  const int32_t head_dim = call.shape.head_dim;
  return call.kv.dtype == DType::kF8
             ? With<__nv_fp8_e4m3>(head_dim, work.parts, work.warps, launch)
             : With<__nv_bfloat16>(head_dim, work.parts, work.warps, launch);
}

}  // namespace baton::cuda
