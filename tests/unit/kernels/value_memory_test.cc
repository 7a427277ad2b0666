#include "kernels/value_memory.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"

namespace baton {
namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kCols = 100;

ValueUse Use(size_t first, size_t last, ValueReach reach = ValueReach::kStep) {
  return {.dtype = DType::kF32,
          .reach = reach,
          .rows = kRows,
          .cols = kCols,
          .first = first,
          .last = last};
}

TEST(ValueMemoryTest, RowsHaveAStrideOfWholeCacheLines) {
  const Tensor shape = ShapeFor(Use(0, 0));
  EXPECT_EQ(shape.cols, kCols);
  EXPECT_EQ(shape.stride, 112);
  EXPECT_EQ(StridedBytes(shape), size_t{4} * 112 * 4);
}

TEST(ValueMemoryTest, ValuesThatAreNotNeededTogetherShareMemory) {
  CpuDevice device;
  const ValueUse uses[] = {Use(0, 1), Use(1, 2), Use(2, 3)};
  const auto placed = PlaceInBuffer(uses, device);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->tensors[0].data, placed->tensors[2].data);
  EXPECT_NE(placed->tensors[0].data, placed->tensors[1].data);
  EXPECT_EQ(placed->tensors[1].rows, kRows);
  EXPECT_EQ(placed->memory->size(), 2 * 1792u);
}

TEST(ValueMemoryTest, AResultSharesMemoryWithOpsOfOtherSteps) {
  CpuDevice device;
  // A step of the ops 0 and 1 keeps its result until it ends, at 2; another step begins at 3.
  const ValueUse uses[] = {Use(0, 2, ValueReach::kResult), Use(1, 1), Use(3, 3)};
  const auto placed = PlaceInBuffer(uses, device);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_NE(placed->tensors[0].data, placed->tensors[1].data);
  EXPECT_EQ(placed->tensors[0].data, placed->tensors[2].data);
}

TEST(ValueMemoryTest, WhatOtherStepsMustNotOverwriteIsAlone) {
  CpuDevice device;
  const ValueUse uses[] = {Use(2, 2, ValueReach::kAlways), Use(0, 0), Use(1, 1), Use(3, 3)};
  const auto placed = PlaceInBuffer(uses, device);
  ASSERT_TRUE(placed.ok()) << placed.status();
  for (size_t i = 1; i < 4; ++i) EXPECT_NE(placed->tensors[0].data, placed->tensors[i].data);
}

TEST(ValueMemoryTest, ValuesThatDoNotFitAreRefused) {
  CpuDevice device;
  ValueUse use = Use(0, 0);
  use.rows = int64_t{1} << 50;
  const auto placed = PlaceInBuffer({&use, 1}, device);
  EXPECT_EQ(placed.status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton
