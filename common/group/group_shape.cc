#include "common/group/group_shape.h"

#include <algorithm>

#include "common/collective/shm_collective.h"

namespace baton {

namespace {

// A message between stages, such as the logits of a step, is one chunk: its sender need not wait
// for the receiver, which may compute another step. Only the pages of written bytes take memory.
constexpr size_t kStageSlotBytes = size_t{256} << 20;

// Collective `index` of the group, for `rank`.
StatusOr<std::unique_ptr<Collective>> MakeCollective(
    GroupMemory& memory, size_t index, int rank, CollectiveOptions options, MpiWorld* world) {
  if (world != nullptr) {
    const std::vector<int>& ranks = memory.layout().collectives[index].ranks;
    const std::vector<int>& first = world->first_on_host();
    const auto is_here = [&](int other) { return first[other] == first[rank]; };
    if (!std::ranges::all_of(ranks, is_here)) {
      return world->MakeCollective(static_cast<int>(index) + 1, ranks, options);
    }
    options.busy_poll =
        BusyPollOf(options, static_cast<int>(std::ranges::count(first, first[rank])));
  }
  BATON_ASSIGN_OR_RETURN(auto made, ShmCollective::Create(memory, index, rank, options));
  return std::unique_ptr<Collective>(std::move(made));
}

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

StatusOr<std::unique_ptr<RankCollectives>> RankCollectives::Create(GroupMemory& memory,
                                                                   const GroupShape& shape,
                                                                   int rank,
                                                                   const CollectiveOptions& options,
                                                                   MpiWorld* world) {
  std::unique_ptr<RankCollectives> result(new RankCollectives(options.limit));
  size_t first_pipeline = 0;
  if (shape.tensor_parallel > 1) {
    first_pipeline = static_cast<size_t>(shape.pipeline_parallel);
    const auto stage = static_cast<size_t>(rank / shape.tensor_parallel);
    BATON_ASSIGN_OR_RETURN(result->tensor_, MakeCollective(memory, stage, rank, options, world));
  }
  if (shape.pipeline_parallel > 1) {
    const size_t index = first_pipeline + static_cast<size_t>(rank % shape.tensor_parallel);
    BATON_ASSIGN_OR_RETURN(result->pipeline_, MakeCollective(memory, index, rank, options, world));
  }
  return result;
}

}  // namespace baton
