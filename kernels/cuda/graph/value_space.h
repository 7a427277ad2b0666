#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "kernels/value_memory.h"

namespace baton::cuda {

// The memory of steps while they are listed. Where a block of it is, is decided when the passes
// have fused the ops (BindMemory), because they leave values out. Until then, addresses stand for
// blocks that no memory has. Results are in memory from the start: callers read them after the
// step.
class ValueSpace final {
 public:
  struct Block {
    std::byte* begin = nullptr;
    size_t bytes = 0;
  };

  // `results`: where the memory of the results will be.
  explicit ValueSpace(std::byte* results) : results_{.begin = results} {}

  // Tensors for the values of a decoder. Results of several decoders share memory.
  std::vector<Tensor> Place(std::span<const ValueUse> values);
  // Memory that only ops of the step read and write that is being listed. Equal steps that ask for
  // the same memory in the same order get the same addresses.
  std::byte* Scratch(size_t bytes);
  // Forgets the scratch memory of the step before.
  void BeginStep() { scratch_.clear(); }

  // The block to which an address belongs; null for other memory. Valid until the next change.
  const Block* Find(const void* address) const;
  bool IsScratch(const Block& block) const;
  // The memory of all results, the first part of the bound memory.
  const Block& results() const { return results_; }
  // Whether results are read while other steps run.
  bool keeps_results() const { return keeps_results_; }

 private:
  std::vector<Block> values_;   // in the order of addresses
  std::vector<Block> scratch_;  // in the order of addresses
  Block results_;
  bool keeps_results_ = false;
};

}  // namespace baton::cuda
