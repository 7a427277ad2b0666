#include "kernels/cuda/graph/fused_lists.h"

#include <algorithm>
#include <utility>

namespace baton::cuda {

const std::vector<StepOp>* FusedLists::Find(const std::vector<StepOp>& listed, bool split) {
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.split == split && entry.listed == listed; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return &entries_.front().fused;
}

void FusedLists::Keep(std::vector<StepOp> listed, bool split, std::vector<StepOp> fused) {
  entries_.push_front({std::move(listed), split, std::move(fused)});
  if (entries_.size() > kMaxLists) entries_.pop_back();
}

}  // namespace baton::cuda
