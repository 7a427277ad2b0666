#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "kernels/cuda/graph/step_ops.h"

namespace baton::cuda {

// Lists of ops as they were listed, and what SplitRows and FuseOps made of them: steps with equal
// lists need no passes. Keeps the kMaxLists lists that were used last. Used by one thread.
class FusedLists final {
 public:
  static constexpr size_t kMaxLists = 32;

  // What the passes made of `listed`; null when that is not known. `split`: rows may be split.
  // Valid until Keep.
  const std::vector<StepOp>* Find(const std::vector<StepOp>& listed, bool split);
  void Keep(std::vector<StepOp> listed, bool split, std::vector<StepOp> fused);

 private:
  struct Entry {
    std::vector<StepOp> listed;
    bool split = false;
    std::vector<StepOp> fused;
  };

  std::list<Entry> entries_;  // most recently used first
};

}  // namespace baton::cuda
