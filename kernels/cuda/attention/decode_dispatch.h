#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/work_tiles.h"
#include "kernels/cuda/table/attention_request.h"
#include "kernels/cuda/table/kernel_table.h"
#include "kernels/kv_view.h"

// Asks the kernel table which kernel computes the single rows of a step. Pure.
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
  // Prompt chunks whose cached K and V take more than this are computed by several launches of
  // FlashAttention 3, and a longer sequence by a launch of its own.
  size_t gather_bytes = size_t{512} << 20;
};

// Positions that the last of `length` positions sees.
int32_t VisiblePositions(int32_t length, int32_t window);
DecodeBatch DecodeBatchOf(std::span<const AttentionSequence> singles,
                          int32_t window,
                          int32_t launched);

// Those of `device`, without the resident clusters.
DecodeLimits LimitsOf(const DeviceProperties& device);

inline AttentionHeads HeadsOf(const AttentionShape& shape) {
  return {.q_heads = shape.q_heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .window = shape.window,
          .soft_cap = shape.cap > 0,
          .sinks = shape.has_sinks,
          .chunks = shape.chunk > 0};
}

// The shape must be one that FlashAttention 2 supports. Never returns kAuto. Where the device or
// the shape does not allow options.decode, returns kFlash2.
DecodeKernel ChooseDecodeKernel(const AttentionOptions& options,
                                const DecodeLimits& limits,
                                const AttentionShape& shape,
                                const KvView& kv,
                                const DecodeBatch& rows);

}  // namespace baton::cuda
