#include <cstdint>
#include <span>

#include "kernels/cuda/table/conditions.h"
#include "kernels/cuda/table/kernel_table.h"

// Which of the kernels that can compute an op computes it.
namespace baton::cuda {
namespace {

using enum KernelId;

// The most rows of the skinny GEMM. With more rows it reads x too often.
constexpr int64_t kSkinnyRows = 32;
// From this context on, stream-K is faster than the largest cluster size.
constexpr int64_t kLargestClusterContext = 4096;
// A mean context of fewer positions is short.
constexpr int64_t kShortContext = 1024;

// Enough work in a tile, or contexts of few tiles; FP8 only with short contexts, because loads are
// faster than the few warps of stream-K convert FP8 to half.
constexpr Condition kLongTiles = AtLeast(Property::kWorkTile, 40).Or();
constexpr Condition kFewTiles = AtMost(Property::kLongest, 8, Property::kWorkTile);
constexpr Condition kConvertsNothing = AtLeast(Property::kNumberBytes, 2).Or();
constexpr Condition kAreShort = AtMost(Property::kPositions, kShortContext, Property::kRows);

constexpr Condition kFitsWindow = AtMost(Property::kLongest, 1, Property::kWindow);
constexpr Condition kHasNoWindow = AtLeast(Property::kWindow, INT32_MAX);

// By measurements on an H200 (notes/).
constexpr KernelRule kRules[] = {
    {.op = KernelOp::kGemm, .kernel = kGemv, .why = "the fastest for one row"},
    {.op = KernelOp::kGemm,
     .kernel = kSkinnyGemm,
     .when = {AtMost(Property::kRows, kSkinnyRows)},
     .why = "reads the weight once, and x seldom enough"},
    {.op = KernelOp::kGemm,
     .kernel = kSkinnyGemm,
     .operands = SetOf(Operands::kBf16),
     .when = {AtLeast(Property::kInputs, 2, Property::kOutputs)},
     .why = "divides a large k among thread blocks better than cuBLASLt"},
    {.op = KernelOp::kGemm,
     .kernel = kGatedGemm,
     .when = {AtLeast(Property::kRows, kSkinnyRows + 1)},
     .why = "gate and up are not written to memory"},
    {.op = KernelOp::kGemm,
     .kernel = kSequentialGemm,
     .mode = RuleMode::kDeterministic,
     .operands = SetOf(Operands::kBf16),
     .when = {AtMost(Property::kRows, 64)},
     .why = "keeps the order of sums and is as fast as cuBLASLt, which must have an algorithm of "
            "this order for more rows"},
    {.op = KernelOp::kGemm,
     .kernel = kSequentialGemm,
     .mode = RuleMode::kDeterministic,
     .operands = SetOf(Operands::kFp8),
     .when = {AtMost(Property::kRows, 32)},
     .why = "keeps the order of sums and is as fast as cuBLASLt, which must have an algorithm of "
            "this order for more rows"},
    {.op = KernelOp::kGemm,
     .kernel = kSequentialGemm,
     .mode = RuleMode::kDeterministic,
     .operands = SetOf(Operands::kBf16),
     .when = {AtMost(Property::kRows, 256),
              AtLeast(Property::kInputs, 2, Property::kOutputs),
              AtMost(Property::kRows, 128).Or(),
              AtMost(Property::kOutputs, 16, Property::kSms),
              AtMost(Property::kOutputs, 32, Property::kSms)},
     .why = "has a tile of few outputs for each SM, where cuBLASLt may not divide k"},
    {.op = KernelOp::kGemm, .kernel = kCublas, .why = "computes every GEMM without silu · up"},
    {.op = KernelOp::kGemm, .kernel = kCublasFp8, .why = "computes every GEMM without silu · up"},
    {.op = KernelOp::kGemm,
     .kernel = kPortableGemm,
     .mode = RuleMode::kDeterministic,
     .why = "keeps the order of sums where no algorithm of cuBLASLt does"},
    {.op = KernelOp::kGemm,
     .kernel = kPortableFp8Gemm,
     .mode = RuleMode::kDeterministic,
     .why = "keeps the order of sums where no algorithm of cuBLASLt does"},
    {.op = KernelOp::kGemm,
     .kernel = kCublasScaled,
     .when = {AtLeast(Property::kRows, 1024)},
     .why = "applies scales in less time than another kernel"},
    {.op = KernelOp::kGemm,
     .kernel = kPackedGemm,
     .why = "reads the packed weight once, and writes no weights in bf16"},
    {.op = KernelOp::kGemm,
     .kernel = kWidenedGemm,
     .why = "reads the packed weight once, and computes at the rate of bf16"},

    {.op = KernelOp::kSingleRows,
     .kernel = kStreamK,
     .mode = RuleMode::kFast,
     .when = {AtLeast(Property::kLongest, kLargestClusterContext + 1),
              kLongTiles,
              kFewTiles,
              kConvertsNothing,
              kAreShort},
     .why = "faster than the largest clusters with long contexts"},
    {.op = KernelOp::kSingleRows,
     .kernel = kCluster,
     .mode = RuleMode::kFast,
     // When lengths differ, no SM should wait for the longest row; none does when all are busy.
     .when = {AtLeast(Property::kClusterSplits, 1),
              AtMost(Property::kSplitPositions, 512).Or(),
              {Property::kSplitPositions, Relation::kAtMost, 5, Property::kFairPositions, 2},
              AtMost(Property::kSplitPositions, 1024).Or(),
              Equal(Property::kSplits, 1),
              AtMost(Property::kSplitPositions, 1024).Or(),
              {Property::kSplitPositions, Relation::kAtMost, 5, Property::kFairPositions, 4}},
     .why = "all clusters are resident at once and equally long"},
    {.op = KernelOp::kSingleRows,
     .kernel = kStreamK,
     .mode = RuleMode::kFast,
     .when = {kLongTiles, kFewTiles, kConvertsNothing, kAreShort},
     .why = "all SMs read equal shares of all contexts"},
    {.op = KernelOp::kSingleRows,
     .kernel = kCluster,
     .mode = RuleMode::kFast,
     .operands = SetOf(Operands::kFp8),
     .why = "FlashAttention 2 converts FP8 too slowly"},
    {.op = KernelOp::kSingleRows,
     .kernel = kCluster,
     .mode = RuleMode::kFast,
     .when = {AtMost(Property::kClusterSplits, 0), kAreShort, AtMost(Property::kLongest, 1024)},
     .why = "the tiles of FlashAttention 2 are too large for short rows"},
    {.op = KernelOp::kSingleRows,
     .kernel = kStreamK,
     .mode = RuleMode::kDeterministic,
     .why = "the same splits for every number of rows and heads"},
    {.op = KernelOp::kSingleRows,
     .kernel = kCluster,
     .mode = RuleMode::kDeterministic,
     .why = "the same splits for every number of rows and heads"},
    {.op = KernelOp::kSingleRows,
     .kernel = kFlash2Rows,
     .why = "computes every FlashAttention shape"},
    {.op = KernelOp::kSingleRows, .kernel = kPortableAttention, .why = "computes every shape"},

    {.op = KernelOp::kFewRows, .kernel = kFlash2Rows, .why = "splits contexts among all SMs"},
    {.op = KernelOp::kFewRows, .kernel = kPortableAttention, .why = "computes every shape"},

    {.op = KernelOp::kChunks,
     .kernel = kFlash3,
     .mode = RuleMode::kFast,
     .when = {kFitsWindow, AtLeast(Property::kTwiceWorkTiles, 1, Property::kSms)},
     .why = "twice as fast as FlashAttention 2 when half of the SMs have work"},
    {.op = KernelOp::kChunks,
     .kernel = kFlash3,
     .mode = RuleMode::kDeterministic,
     // A row has the same kernel, however long its chunk is.
     .when = {kHasNoWindow},
     .why = "twice as fast as FlashAttention 2"},
    {.op = KernelOp::kChunks,
     .kernel = kFlash2Chunks,
     .why = "computes every FlashAttention shape"},
    {.op = KernelOp::kChunks, .kernel = kPortableAttention, .why = "computes every shape"},

    {.op = KernelOp::kLatents,
     .kernel = kHopperLatents,
     .why = "multiplies a latent by many heads with wgmma"},
    {.op = KernelOp::kLatents,
     .kernel = kTiledLatents,
     .why = "multiplies a latent by many heads with tensor cores"},
    {.op = KernelOp::kLatents, .kernel = kPortableLatents, .why = "computes every shape"},
    {.op = KernelOp::kHeadGemms, .kernel = kHeadGemm, .why = "computes all heads at once"},
    {.op = KernelOp::kRecurrent, .kernel = kUpdateStates, .why = "keeps states in registers"},
    {.op = KernelOp::kRecurrentRows,
     .kernel = kDecodeRows,
     .why = "one kernel for all of the layer, which copies states in bulk"},
    {.op = KernelOp::kRecurrentRows, .kernel = kUpdateStates, .why = "keeps states in registers"},
    {.op = KernelOp::kRecurrentChunks,
     .kernel = kChunkRows,
     .mode = RuleMode::kFast,
     .why = "computes 64 rows at a time with tensor cores"},
    {.op = KernelOp::kRecurrentChunks, .kernel = kUpdateStates, .why = "keeps states in registers"},
    {.op = KernelOp::kScan, .kernel = kScanStates, .why = "keeps states in registers"},

    {.op = KernelOp::kExpertScores,
     .kernel = kFewScores,
     .when = {AtMost(Property::kRows, 4)},
     .why = "less latency with few rows"},
    {.op = KernelOp::kExpertScores, .kernel = kScores, .why = "computes any number of rows"},

    {.op = KernelOp::kExperts,
     .kernel = kWgmmaExperts,
     .when = {AtLeast(Property::kPairs, 1, Property::kWgmmaPairs)},
     .why = "an expert has enough rows to fill its tiles"},
    {.op = KernelOp::kExperts,
     .kernel = kWgmmaFp8Experts,
     .when = {AtLeast(Property::kPairs, 1, Property::kWgmmaPairs)},
     .why = "an expert has enough rows to fill its tiles"},
    {.op = KernelOp::kExperts, .kernel = kGroupedGemm, .why = "computes any number of rows"},
    {.op = KernelOp::kExperts,
     .kernel = kPackedWgmmaExperts,
     .when = {AtLeast(Property::kPairs, 1, Property::kWgmmaPairs)},
     .why = "an expert has enough rows to fill its tiles"},
    {.op = KernelOp::kExperts, .kernel = kPackedExperts, .why = "computes any number of rows"},

    {.op = KernelOp::kSampling, .kernel = kSampling, .why = "samples in every way"},
};

}  // namespace

std::span<const KernelRule> KernelRules() {
  return kRules;
}

}  // namespace baton::cuda
