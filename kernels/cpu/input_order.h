#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor.h"

// Weights whose groups are not in the order of the inputs (the act-order of GPTQ) are packed with
// the inputs of a group next to each other, and activations are brought into the same order.
namespace baton::cpu {

// The inputs, sorted by their group; empty when they are in order. Also empty when `parts`, which
// share their inputs, do not all have the same groups, or not all inputs of them.
std::vector<int32_t> InputOrder(std::span<const HostMatrix> parts);

// A copy of a matrix with its inputs in this order, and the groups in order. Owns the numbers; the
// scales are those of the matrix.
class ReorderedMatrix {
 public:
  ReorderedMatrix(const HostMatrix& matrix, std::span<const int32_t> order);

  const HostMatrix& view() const { return view_; }

 private:
  std::vector<std::byte> numbers_;
  HostMatrix view_;
};

}  // namespace baton::cpu
