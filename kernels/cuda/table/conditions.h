#pragma once

#include <cstdint>

#include "kernels/cuda/table/kernel_table.h"

// Conditions of rows and rules: `left` beside a number, or that many times `right`.
namespace baton::cuda {

constexpr Condition AtMost(Property left, int64_t number, Property right = Property::kOne) {
  return {left, Relation::kAtMost, number, right};
}
constexpr Condition AtLeast(Property left, int64_t number, Property right = Property::kOne) {
  return {left, Relation::kAtLeast, number, right};
}
constexpr Condition Equal(Property left, int64_t number, Property right = Property::kOne) {
  return {left, Relation::kEqual, number, right};
}
constexpr Condition MultipleOf(Property left, int64_t number) {
  return {left, Relation::kMultiple, number};
}

}  // namespace baton::cuda
