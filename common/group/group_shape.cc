#include "common/group/group_shape.h"

namespace baton {

namespace {

// A message between stages, such as the logits of a step, is one chunk: its sender need not wait
// for the receiver, which may compute another step. Only the pages of written bytes take memory.
constexpr size_t kStageSlotBytes = size_t{256} << 20;

}  // namespace

GroupLayout GroupShape::layout() const {
  GroupLayout layout;
  layout.ranks = ranks();
  if (tensor_parallel > 1) {
    for (int stage = 0; stage < pipeline_parallel; ++stage) {
      CollectiveLayout& tensor = layout.collectives.emplace_back();
      for (int i = 0; i < tensor_parallel; ++i) tensor.ranks.push_back(stage * tensor_parallel + i);
    }
  }
  if (pipeline_parallel > 1) {
    for (int i = 0; i < tensor_parallel; ++i) {
      CollectiveLayout& pipeline = layout.collectives.emplace_back();
      pipeline.slot_bytes = kStageSlotBytes;
      for (int stage = 0; stage < pipeline_parallel; ++stage) {
        pipeline.ranks.push_back(stage * tensor_parallel + i);
      }
    }
  }
  return layout;
}

StatusOr<std::unique_ptr<RankCollectives>> RankCollectives::Create(
    GroupMemory& memory, const GroupShape& shape, int rank, const CollectiveOptions& options) {
  std::unique_ptr<RankCollectives> result(new RankCollectives(options.limit));
  size_t first_pipeline = 0;
  if (shape.tensor_parallel > 1) {
    first_pipeline = static_cast<size_t>(shape.pipeline_parallel);
    const auto stage = static_cast<size_t>(rank / shape.tensor_parallel);
    BATON_ASSIGN_OR_RETURN(result->tensor_, ShmCollective::Create(memory, stage, rank, options));
  }
  if (shape.pipeline_parallel > 1) {
    const size_t index = first_pipeline + static_cast<size_t>(rank % shape.tensor_parallel);
    BATON_ASSIGN_OR_RETURN(result->pipeline_, ShmCollective::Create(memory, index, rank, options));
  }
  return result;
}

}  // namespace baton
