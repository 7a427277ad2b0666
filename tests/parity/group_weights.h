#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tests/parity/host_weights.h"

namespace baton::parity {

// How random weights with groups are (WeightGroups).
struct GroupForm {
  std::string_view name;
  int64_t group_rows = 1;  // 0: all
  int64_t group_cols = 0;  // 0: all
  DType dtype = DType::kU4;
  ScaleType scale_type = ScaleType::kF16;
  bool zeros = false;      // a zero point for each group, else the middle for all
  bool act_order = false;  // the groups of inputs are in another order
};

// One of each layout of published checkpoints, and some that fit no panels of the CPU backend.
std::span<const GroupForm> GroupForms();

HostWeights RandomGroupWeights(const GroupForm& form, int64_t rows, int64_t cols, uint64_t seed);

}  // namespace baton::parity
