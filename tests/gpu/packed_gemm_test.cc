#include <cuda_runtime_api.h>

#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/gemm/packed_skinny.h"
#include "tests/gpu/gemm_fixture.h"

namespace baton::cuda {
namespace {

constexpr int32_t kMaxRows = 64;

using Case = testing::GemmCase;
using Fixture = testing::GemmFixture;

constexpr PackedFormat kGptq128 = {.number = DType::kU4, .group = 128, .zero = 8};
constexpr PackedFormat kGptqZeros32 = {.number = DType::kU4, .group = 32, .zeros = true};
constexpr PackedFormat kGptqZeros64 = {.number = DType::kU4, .group = 64, .zeros = true};
constexpr PackedFormat kGptqZeros16 = {.number = DType::kU4, .group = 16, .zeros = true};
constexpr PackedFormat kAwq128 = {.number = DType::kU4, .group = 128, .zeros = true};
constexpr PackedFormat kInt8 = {.number = DType::kI8, .group = 128, .zero = 128};
constexpr PackedFormat kInt8Zeros32 = {.number = DType::kI8, .group = 32, .zeros = true};
constexpr PackedFormat kFp8Blocks = {.number = DType::kFp8, .group = 128};
constexpr PackedFormat kFp8Groups32 = {.number = DType::kFp8, .group = 32};
constexpr PackedFormat kMxFp4 = {.number = DType::kFp4, .scale = ScaleType::kE8m0, .group = 32};
constexpr PackedFormat kNvFp4 = {.number = DType::kFp4, .scale = ScaleType::kFp8, .group = 16};

Fixture::Launch With(const PackedLimits& limits) {
  return [limits](const GemmProblem& problem) {
    return LaunchPackedGemm(problem, PlanPackedGemm(problem, limits), nullptr);
  };
}

class PackedGemmTest : public testing::HopperTest, public ::testing::WithParamInterface<Case> {};

TEST_P(PackedGemmTest, GivesTheProductAndNothingElse) {
  Fixture fixture(GetParam(), kMaxRows);
  for (const int32_t rows : {1, 2, 5, 8, 9, 16, 17, 33, 63, 64}) {
    ASSERT_TRUE(PackedGemmSupports(fixture.Make(rows)));
    fixture.Expect(rows, With(FindPackedLimits(fixture.sm_count())));
  }
}

// Also plans that PlanPackedGemm would choose only for other shapes.
TEST_P(PackedGemmTest, AnyPlanGivesTheProduct) {
  Fixture fixture(GetParam(), kMaxRows);
  for (const int32_t rows : {1, 40}) {
    for (const int32_t cluster : {1, 2, 4}) {
      for (const int32_t matrices : {1, 2, 3, 4}) {
        for (const int32_t parts : {1, 4}) {
          PackedLimits limits = FindPackedLimits(fixture.sm_count());
          limits.cluster = cluster;
          limits.tile_matrices = matrices;
          limits.parts = parts;
          limits.stage_bytes = matrices == 1 ? 4 << 10 : 32 << 10;
          limits.shared_bytes = matrices == 2 ? 112 << 10 : 208 << 10;
          SCOPED_TRACE(::testing::Message() << "clusters of " << cluster << ", " << matrices
                                            << " matrices, " << parts << " parts");
          fixture.Expect(rows, With(limits));
        }
      }
    }
  }
}

TEST_P(PackedGemmTest, RepeatsItself) {
  Fixture fixture(GetParam(), kMaxRows);
  const Fixture::Launch launch = With(FindPackedLimits(fixture.sm_count()));
  for (const int32_t rows : {1, 9, 40}) fixture.ExpectRepeats(rows, launch);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    PackedGemmTest,
    ::testing::Values(
        Case{.name = "one_tile", .n = 64, .k = 64, .packed = kGptqZeros64},
        Case{.name = "odd_n", .n = 200, .k = 2880, .out_gap = 8, .packed = kGptq128},
        Case{.name = "odd_k", .n = 576, .k = 1088, .f32 = true, .x_gap = 24, .packed = kAwq128},
        Case{.name = "bias", .n = 2880, .k = 4096, .bias = true, .packed = kMxFp4},
        Case{.name = "groups_of_16", .n = 328, .k = 320, .packed = kGptqZeros16},
        Case{.name = "groups_of_32", .n = 640, .k = 1024, .packed = kGptqZeros32},
        Case{.name = "int8", .n = 1096, .k = 2880, .accumulate = true, .packed = kInt8},
        Case{.name = "int8_zeros", .n = 1032, .k = 640, .f32 = true, .packed = kInt8Zeros32},
        Case{.name = "fp8", .n = 2112, .k = 896, .packed = kFp8Blocks},
        Case{.name = "fp8_groups", .n = 512, .k = 576, .bias = true, .packed = kFp8Groups32},
        Case{
            .name = "factors", .n = 456, .k = 1152, .f32 = true, .packed = kNvFp4, .factors = true},
        Case{.name = "pairs",
             .n = 1152,
             .k = 2880,
             .silu_mul = true,
             .out_gap = 40,
             .packed = kAwq128},
        Case{.name = "pairs_with_factors",
             .n = 3072,
             .k = 448,
             .silu_mul = true,
             .packed = kNvFp4,
             .factors = true},
        Case{.name = "qkv", .n = 6144, .k = 4096, .packed = kGptq128},
        Case{.name = "o",
             .n = 4096,
             .k = 4096,
             .accumulate = true,
             .f32 = true,
             .x_gap = 2048,
             .packed = kGptq128},
        Case{.name = "gate_up", .n = 28672, .k = 4096, .silu_mul = true, .packed = kGptq128},
        Case{.name = "down",
             .n = 4096,
             .k = 14336,
             .accumulate = true,
             .f32 = true,
             .packed = kGptq128},
        Case{.name = "head", .n = 40000, .k = 1024, .f32 = true, .packed = kInt8}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace baton::cuda
