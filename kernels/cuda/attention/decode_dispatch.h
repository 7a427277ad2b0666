#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/work_tiles.h"
#include "kernels/cuda/device/device_properties.h"
#include "kernels/kv_view.h"

// Chooses the kernel for the single rows of a step, by measurements on an H200 (bench/results/h200/
// attention_*.jsonl). Pure.
namespace baton::cuda {

enum class DecodeKernel {
  kAuto,     // by the number of rows and their contexts
  kFlash2,   // FlashAttention 2
  kCluster,  // a cluster of thread blocks for each row and KV head
  kStreamK,  // equal work tiles over all contexts
};

struct AttentionOptions {
  // A row gives the same bits whatever else is in the step: contexts are split at fixed positions.
  bool deterministic = false;
  DecodeKernel decode = DecodeKernel::kAuto;
};

// Device limits.
struct DecodeLimits {
  int32_t sm_count = 0;
  bool hopper = false;    // whether kernels of KernelFamily::kHopper may run
  bool clusters = false;  // the same for kClusters
  // Resident clusters of 2, 4, 8 and 16 thread blocks, for heads of 64 and of 128.
  int32_t active_clusters[2][4] = {};
};

// The single rows of a step.
struct DecodeBatch {
  int32_t launched = 0;  // with the padding rows of a recorded step
  int32_t count = 0;
  int32_t longest = 0;  // the most positions that a row sees
  int64_t total = 0;    // positions that all rows see
};

// Positions that the last of `length` positions sees.
int32_t VisiblePositions(int32_t length, int32_t window);
DecodeBatch DecodeBatchOf(std::span<const AttentionSequence> singles,
                          int32_t window,
                          int32_t launched);

// Those of `device`, without the resident clusters.
DecodeLimits LimitsOf(const DeviceProperties& device);

// The shape must be one that FlashAttention 2 supports. Never returns kAuto. Where the device or
// the shape does not allow options.decode, returns kFlash2.
DecodeKernel ChooseDecodeKernel(const AttentionOptions& options,
                                const DecodeLimits& limits,
                                const AttentionShape& shape,
                                const KvView& kv,
                                const DecodeBatch& rows);
// For kCluster: the largest cluster size with which the clusters of all rows and KV heads are
// resident at once; 0 when not even single thread blocks are.
int32_t MaxClusterSplits(const DecodeLimits& limits,
                         const AttentionShape& shape,
                         const DecodeBatch& rows);
// For kCluster: positions that keep a thread block busy.
inline constexpr int32_t kShortClusterSplit = 128;
// For kStreamK: the number of thread blocks, hence work tiles, for each group of KV heads.
int32_t StreamKTileCount(const DecodeLimits& limits, const AttentionShape& shape, const KvView& kv);

}  // namespace baton::cuda
