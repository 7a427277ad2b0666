#pragma once

#include <memory>

#include "common/base/status.h"
#include "common/collective/collective_options.h"
#include "common/collective/group_memory.h"
#include "common/collective/mpi_world.h"
#include "kernels/collective.h"

namespace baton {

// The ranks of a group: rank r is tensor rank r mod tensor_parallel of stage r / tensor_parallel
// (RankPlace::Of).
struct GroupShape {
  int tensor_parallel = 1;
  int pipeline_parallel = 1;

  int ranks() const { return tensor_parallel * pipeline_parallel; }
  // The collectives of the group: first a tensor group of each stage, when there is more than one
  // tensor rank; then a pipeline group of each tensor rank, when there is more than one stage.
  GroupLayout layout() const;
};

// The collectives in which one rank takes part: over the memory of its host where all members are
// on this host, else over MPI.
class RankCollectives final {
 public:
  // Errors: those of ShmCollective::Create and MpiWorld::MakeCollective. `memory` has the layout of
  // `shape`; `world` is null when all ranks are on one host. Both outlive the result.
  static StatusOr<std::unique_ptr<RankCollectives>> Create(GroupMemory& memory,
                                                           const GroupShape& shape,
                                                           int rank,
                                                           const CollectiveOptions& options,
                                                           MpiWorld* world = nullptr);
  RankGroups groups() const { return {tensor_.get(), pipeline_.get(), limit_}; }

 private:
  explicit RankCollectives(Duration limit) : limit_(limit) {}

  const Duration limit_;
  std::unique_ptr<Collective> tensor_;
  std::unique_ptr<Collective> pipeline_;
};

}  // namespace baton
