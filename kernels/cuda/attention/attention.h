#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/decode_dispatch.h"
#include "kernels/cuda/attention/work_tiles.h"
#include "kernels/cuda/device/scratch_memory.h"
#include "kernels/cuda/input/step_buffer.h"
#include "kernels/cuda/input/step_layout.h"
#include "kernels/kv_view.h"

namespace baton::cuda {

// Launch sizes and device addresses for the attention of one step. Equal plans launch the same
// kernels with the same arguments (only the contents of the arrays may differ), so a captured
// launch can be replayed.
struct AttentionPlan {
  AttentionShape shape;
  ClusterWork cluster;             // single rows: short contexts, or fixed splits
  StreamKWork work_tiles;          // single rows
  PagedWork rows;                  // sequences with one or a few rows
  PagedWork chunks;                // prompt chunks, read from their blocks
  bool rows_alone = false;         // how `chunks` are computed (rows_alone.h)
  std::vector<RaggedWork> ragged;  // prompt chunks, contiguous
  PortableWork portable;           // shapes that no other kernel supports

  bool operator==(const AttentionPlan&) const = default;
};

// The limits of the current device. Prepares the kernels of clusters, if they may run.
DecodeLimits FindDecodeLimits(const DeviceProperties& device);

// Paged attention over the KV arena for the decoding rows and the prompt chunks of one step, by
// the kernels that the kernel table chooses for single rows, sequences with a few rows and prompt
// chunks.
// Owns scratch memory on the device, which only grows. One thread, one stream.
class Attention final {
 public:
  // `device` is the current one. Errors: those of CUDA.
  static StatusOr<std::unique_ptr<Attention>> Create(const DeviceProperties& device,
                                                     const AttentionOptions& options);
  ~Attention() = default;
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  // Splits the step's work and writes the arrays of the kernels into `fixed`. In a recorded step
  // the array sizes and the plan depend only on step.rows and on a few classes of context length,
  // so that few graphs are needed. Errors: Unimplemented for a shape that no kernel supports,
  // ResourceExhausted.
  StatusOr<AttentionPlan> Plan(const AttentionShape& shape,
                               const StepLayout& step,
                               const KvView& kv,
                               StepBuffer& fixed);
  // `qkv` is [rows][(q + 2·kv) heads · dim] in bf16 after rope; its K and V are already in the
  // arena. `out` is [rows][q heads · dim] without gaps; its contents are undefined when the result
  // goes to `fp8_out`. Rows without a sequence are not written.
  cudaError_t Launch(const AttentionPlan& plan, AttentionLaunch call);

 private:
  Attention() = default;
  // Prompt chunks that one launch of FlashAttention 3 computes.
  struct RaggedGroup {
    std::span<const AttentionSequence> chunks;
    bool cached = false;  // reads K and V of the cache instead of those of the step
    size_t gathered = 0;  // bytes of their copy
  };
  // Divides many_.
  std::vector<RaggedGroup> RaggedGroups(const AttentionShape& shape, const KvView& kv) const;
  // Whether FlashAttention 3 computes many_ in `groups`.
  bool UsesRagged(const AttentionShape& shape,
                  const KvView& kv,
                  std::span<const RaggedGroup> groups);
  // Whether chunks read the cache instead of the K and V of the step.
  bool GathersAll(const KvView& kv) const;
  // Adds the prompt chunks, many_, to `plan`.
  Status PlanChunks(const AttentionShape& shape,
                    const StepLayout& step,
                    const KvView& kv,
                    const SequenceTables& tables,
                    StepBuffer& fixed,
                    AttentionPlan& plan);
  ClusterWork PlanCluster(const AttentionShape& shape,
                          const StepLayout& step,
                          const KvView& kv,
                          const DecodeBatch& rows,
                          StepBuffer& fixed);
  StatusOr<StreamKWork> PlanStreamK(const AttentionShape& shape,
                                    const StepLayout& step,
                                    const KvView& kv,
                                    StepBuffer& fixed);
  StatusOr<PagedWork> PlanPaged(const AttentionShape& shape,
                                const StepLayout& step,
                                int32_t tile,
                                const SequenceTables& tables,
                                StepBuffer& fixed);
  StatusOr<RaggedWork> PlanRagged(const RaggedGroup& group,
                                  const AttentionShape& shape,
                                  const StepLayout& step,
                                  const KvView& kv,
                                  StepBuffer& fixed);
  StatusOr<PortableWork> PlanPortable(const AttentionShape& shape,
                                      const StepLayout& step,
                                      StepBuffer& fixed);
  StatusOr<CombineWork> PlanCombine(const AttentionShape& shape,
                                    const std::vector<CombinedRow>& combined,
                                    int32_t partials,
                                    StepBuffer& fixed);
  // Scratch memory for `count` partial results.
  StatusOr<PartialResults> Partials(const AttentionShape& shape, int32_t count);
  static cudaError_t LaunchKernels(const AttentionPlan& plan, const AttentionLaunch& call);

  AttentionOptions options_;
  DecodeLimits limits_;
  ScratchMemory partial_;
  ScratchMemory tickets_;
  ScratchMemory gathered_;
  // The step being planned.
  std::vector<AttentionSequence> singles_;
  std::vector<AttentionSequence> few_;
  std::vector<AttentionSequence> many_;
  PagedTiles paged_tiles_;
  RaggedTiles ragged_tiles_;
  std::vector<DecodeRow> decode_rows_;
  std::vector<StreamKRow> stream_k_rows_;
  std::vector<WorkTile> work_tiles_;
  PortableTiles portable_tiles_;
};

}  // namespace baton::cuda
