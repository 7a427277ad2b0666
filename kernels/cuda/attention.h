#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_pieces.h"
#include "kernels/cuda/decode_choice.h"
#include "kernels/cuda/scratch_memory.h"
#include "kernels/cuda/step_buffer.h"
#include "kernels/cuda/step_layout.h"
#include "kernels/kv_view.h"

namespace baton::cuda {

// How the attention of one step is spread over the device: launch sizes, and the device addresses
// of the plan's arrays. Equal plans launch the same kernels with the same arguments (only what the
// arrays hold may differ), so a recorded launch may be repeated.
struct AttentionPlan {
  AttentionShape shape;
  ClusterWork cluster;    // sequences of one row: short ones, or cut at fixed places
  ShareWork shares;       // sequences of one row
  PagedWork rows;         // sequences of one row or few
  PagedWork chunks;       // prompt chunks, in their blocks
  RaggedWork ragged;      // prompt chunks, contiguous
  PortableWork portable;  // what the others do not take

  bool operator==(const AttentionPlan&) const = default;
};

// Paged attention over the KV arena, for decode rows and prompt chunks of one step. Which kernel
// computes a row:
//   KV in bf16 or E4M3 with head size 64, 128 or 256: single rows as ChooseDecode says; few rows of
//   a sequence, the 16-row tiles of FlashAttention 2; chunks, FlashAttention 3 on sm_90 (unless
//   there is a window or too little work for it), else wide tiles of FlashAttention 2; anything
//   else: the portable kernel.
// Holds scratch memory on the device, which only grows; one thread, one stream.
class Attention final {
 public:
  // On the current device. Errors: FailedPrecondition when it is older than sm_80, Internal.
  static StatusOr<std::unique_ptr<Attention>> Create(const AttentionOptions& options);
  ~Attention() = default;
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  // Cuts the step's work and writes the arrays the kernels need into `fixed`. In a recorded step
  // their sizes, and the plan, depend on step.rows and a few classes of context length alone, so
  // that few graphs are needed. Errors: InvalidArgument for a shape no kernel takes,
  // ResourceExhausted.
  StatusOr<AttentionPlan> Plan(const AttentionShape& shape,
                               const StepLayout& step,
                               const KvView& kv,
                               StepBuffer& fixed);
  // `qkv` is [rows][(q + 2·kv) heads · dim] in bf16 after rope, whose k and v are in the arena
  // already; `out` is [rows][q heads · dim] without gaps, which may hold anything when the result
  // goes to `quantized`. Rows without a sequence are left as they are.
  cudaError_t Launch(const AttentionPlan& plan, AttentionCall call);

 private:
  Attention() = default;
  bool TakesPaged(const AttentionShape& shape, const KvView& kv) const;
  bool TakesRagged(const AttentionShape& shape, const KvView& kv);
  // Whether chunks read the cache instead of the step's own k and v.
  bool GathersAll(const KvView& kv) const;
  ClusterWork PlanCluster(const AttentionShape& shape,
                          const StepLayout& step,
                          const KvView& kv,
                          const DecodeRows& rows,
                          StepBuffer& fixed);
  StatusOr<ShareWork> PlanShares(const AttentionShape& shape,
                                 const StepLayout& step,
                                 StepBuffer& fixed);
  StatusOr<PagedWork> PlanPaged(const AttentionShape& shape,
                                const StepLayout& step,
                                int32_t tile,
                                const SequenceTables& tables,
                                StepBuffer& fixed);
  StatusOr<RaggedWork> PlanRagged(const AttentionShape& shape,
                                  const StepLayout& step,
                                  const KvView& kv,
                                  StepBuffer& fixed);
  StatusOr<PortableWork> PlanPortable(const AttentionShape& shape,
                                      const StepLayout& step,
                                      StepBuffer& fixed);
  StatusOr<MergeWork> PlanMerge(const AttentionShape& shape,
                                const std::vector<MergedRow>& merged,
                                int32_t partials,
                                StepBuffer& fixed);
  // Room for so many.
  StatusOr<PartialResults> Partials(const AttentionShape& shape, int32_t count);
  static cudaError_t LaunchKernels(const AttentionPlan& plan, const AttentionCall& call);

  AttentionOptions options_;
  DecodeLimits limits_;
  ScratchMemory partial_;
  ScratchMemory tickets_;
  ScratchMemory gathered_;
  // Of the step being planned.
  std::vector<AttendingSequence> singles_;
  std::vector<AttendingSequence> few_;
  std::vector<AttendingSequence> many_;
  PagedPieces paged_pieces_;
  RaggedPieces ragged_pieces_;
  std::vector<DecodeRow> decode_rows_;
  std::vector<SharedRow> shared_rows_;
  std::vector<Share> shares_;
  PortablePieces portable_pieces_;
};

}  // namespace baton::cuda
