#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "common/collective/group_memory.h"
#include "common/engine/options.h"
#include "common/group/group_executor.h"
#include "common/group/group_shape.h"
#include "common/group/step_ring.h"
#include "common/model/model_spec.h"
#include "common/model/weight_source.h"

namespace baton {

// A group of ranks that are threads of this process and exchange through a group's shared memory,
// as processes do. The constructor loads the model; the destructor ends the followers.
class ThreadRanks final {
 public:
  ThreadRanks(const ModelSpec& spec,
              const WeightSource& weights,
              const GroupShape& shape,
              const KvOptions& kv);
  ~ThreadRanks();

  // The executor of the whole group, for the engine.
  Executor& executor();

 private:
  class Rank;

  const GroupShape shape_;
  std::unique_ptr<GroupMemory> memory_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<StepRing> ring_;
  std::unique_ptr<GroupExecutor> group_;  // null for one rank
  std::vector<std::jthread> followers_;
};

}  // namespace baton
