#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_pieces.h"
#include "kernels/kv_view.h"

// Which kernel attends the single rows of a step, as measured on an H200 (bench/results/h200/
// attention_*.jsonl). Pure.
namespace baton::cuda {

enum class DecodeKernel {
  kChosen,   // by the number of rows and their contexts
  kTiles,    // FlashAttention 2
  kCluster,  // a cluster of thread blocks for each row and KV head
  kShares,   // all contexts in equal shares, where it takes the shape; else tiles
};

struct AttentionOptions {
  // Rows give the same bits whatever else is in the step: the context is split at fixed places.
  bool deterministic = false;
  DecodeKernel decode = DecodeKernel::kChosen;
};

// What the device allows.
struct DecodeLimits {
  int32_t processors = 0;
  int32_t architecture = 0;  // 90 for sm_90
  // Clusters of 2, 4, 8, 16 thread blocks that run at a time, for heads of 64 and of 128.
  int32_t active_clusters[2][4] = {};
};

// The single rows of a step.
struct DecodeRows {
  int32_t launched = 0;  // with those that fill a recorded step up
  int32_t count = 0;
  int32_t longest = 0;  // positions that any sees
  int64_t total = 0;    // that all see
};

// Positions that the last of `length` sees.
int32_t VisiblePositions(int32_t length, int32_t window);
DecodeRows DecodeRowsOf(std::span<const AttendingSequence> singles,
                        int32_t window,
                        int32_t launched);

// For a shape that FlashAttention 2 takes; not kChosen.
DecodeKernel ChooseDecode(const AttentionOptions& options,
                          const DecodeLimits& limits,
                          const AttentionShape& shape,
                          const KvView& kv,
                          const DecodeRows& rows);
// Of kCluster: the largest cluster of which one for every row and KV head runs at a time; 0 when
// not even single thread blocks do.
int32_t MostClusterParts(const DecodeLimits& limits,
                         const AttentionShape& shape,
                         const DecodeRows& rows);
// Of kCluster: positions that keep a thread block busy.
inline constexpr int32_t kShortClusterPart = 128;
// Of kShares: thread blocks that share out the units of a group of KV heads.
int32_t ShareCount(const DecodeLimits& limits, const AttentionShape& shape);

}  // namespace baton::cuda
