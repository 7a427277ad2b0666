#include "kernels/cuda/table/experts_request.h"
#include "kernels/cuda/table/kernel_table.h"
#include "kernels/cuda/table/latent_request.h"
#include "kernels/cuda/table/recurrent_request.h"
#include "kernels/cuda/table/sampling_request.h"

// The rows of the table. A new kernel has its row and at least one rule here.
namespace baton::cuda {
namespace {

using enum KernelId;

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

constexpr int32_t kPortableBytes = 99 << 10;   // kPortableSharedBytes (launch.cuh)
constexpr int32_t kStreamedBytes = 208 << 10;  // SkinnyLimits and GatedLimits
constexpr int32_t kHopperBytes = 227 << 10;    // all that a thread block of sm_90 can have

constexpr EnumSet kOwnGemmOperands = SetOf(Operands::kBf16, Operands::kFp8Scaled);
constexpr EnumSet kBiasAndSilu = SetOf(Fusion::kBias, Fusion::kSiluMul);
constexpr EnumSet kSinglesAndFew = SetOf(KernelOp::kSingleRows, KernelOp::kFewRows);
constexpr EnumSet kAllAttention = kSinglesAndFew | SetOf(KernelOp::kChunks);
constexpr EnumSet kPagedKv = SetOf(Operands::kBf16, Operands::kFp8);
constexpr EnumSet kCapsAndSinks = SetOf(Fusion::kSoftCap, Fusion::kSinks);
constexpr EnumSet kBiasAndClampedGate = SetOf(Fusion::kExpertBias, Fusion::kClampedGate);

// TMA loads whole spans of 128 bytes from aligned rows; outputs are stored as vectors.
constexpr Conditions kSkinnyShape = {AtLeast(Property::kInputs, 1),
                                     AtLeast(Property::kOutputs, 1),
                                     MultipleOf(Property::kInputBytes, 128),
                                     AtLeast(Property::kOperandAlignment, 16),
                                     MultipleOf(Property::kOutputs, 8),
                                     MultipleOf(Property::kSiluOutputs, 16),
                                     AtLeast(Property::kOutAlignment, 4)};
// Heads of FlashAttention, and blocks whose distance fits 32 bits.
constexpr Conditions kFlashShape = {Equal(Property::kHeadDim, 64).Or(),
                                    Equal(Property::kHeadDim, 128).Or(),
                                    Equal(Property::kHeadDim, 256),
                                    AtMost(Property::kBlockNumbers, UINT32_MAX)};

constexpr KernelRow kRows[] = {
    {.id = kGemv,
     .name = "gemm/gemv",
     .ops = SetOf(KernelOp::kGemm),
     .family = KernelFamily::kHopper,
     .operands = SetOf(Operands::kBf16, Operands::kFp8Weight),
     .max_rows = 1,
     .fuses = SetOf(
         Fusion::kBias, Fusion::kNorm, Fusion::kSiluMul, Fusion::kAccumulate, Fusion::kF32Out),
     .not_both = kBiasAndSilu,
     .shared_bytes = (128 + 4) << 10,  // rings and barriers; the inputs lie beside them
     .shared_bytes_of_input = 2,
     // Whole chunks (gemv.cuh); in FP8, those of 512 numbers.
     .shape = {MultipleOf(Property::kInputs, 512).Or(),
               MultipleOf(Property::kInputs, 768).Or(),
               MultipleOf(Property::kInputs, 960),
               MultipleOf(Property::kInputs, 512).Or(),
               AtLeast(Property::kInputBytes, 2, Property::kInputs)}},
    {.id = kSkinnyGemm,
     .name = "gemm/skinny",
     .ops = SetOf(KernelOp::kGemm),
     .family = KernelFamily::kHopper,
     .operands = kOwnGemmOperands,
     .max_rows = 64,
     .fuses = SetOf(Fusion::kBias, Fusion::kSiluMul, Fusion::kAccumulate, Fusion::kF32Out),
     .not_both = kBiasAndSilu,
     .shared_bytes = kStreamedBytes,
     .shape = kSkinnyShape},
    {.id = kGatedGemm,
     .name = "gemm/gated",
     .ops = SetOf(KernelOp::kGemm),
     .family = KernelFamily::kHopper,
     .operands = kOwnGemmOperands,
     .max_rows = 256,
     .fuses = SetOf(Fusion::kSiluMul),
     .needs = SetOf(Fusion::kSiluMul),
     .shared_bytes = kStreamedBytes,
     .shape = {AtLeast(Property::kInputs, 1),
               AtLeast(Property::kOutputs, 1),
               MultipleOf(Property::kInputBytes, 128),
               AtLeast(Property::kOperandAlignment, 16),
               MultipleOf(Property::kOutputs, 16),
               AtLeast(Property::kOutAlignment, 2)}},
    {.id = kSequentialGemm,
     .name = "gemm/sequential",
     .ops = SetOf(KernelOp::kGemm),
     .family = KernelFamily::kHopper,
     .operands = SetOf(Operands::kBf16, Operands::kFp8),
     .fuses = SetOf(Fusion::kBias, Fusion::kAccumulate, Fusion::kF32Out),
     .order = OrderClass::kAscending,
     .shared_bytes = kStreamedBytes,
     .shape = kSkinnyShape},
    {.id = kPortableGemm,
     .name = "gemm/portable",
     .ops = SetOf(KernelOp::kGemm),
     .operands = SetOf(Operands::kBf16),
     .fuses = SetOf(Fusion::kBias, Fusion::kAccumulate, Fusion::kF32Out),
     .order = OrderClass::kAscending,
     .shared_bytes = kPortableBytes},
    {.id = kPortableFp8Gemm,
     .name = "gemm/portable, FP8",
     .ops = SetOf(KernelOp::kGemm),
     .family = KernelFamily::kFp8,
     .operands = SetOf(Operands::kFp8),
     .fuses = SetOf(Fusion::kBias, Fusion::kAccumulate, Fusion::kF32Out),
     .order = OrderClass::kAscending,
     .shared_bytes = kPortableBytes},
    {.id = kCublas,
     .name = "cuBLASLt",
     .ops = SetOf(KernelOp::kGemm),
     .operands = SetOf(Operands::kBf16),
     .fuses = SetOf(Fusion::kBias, Fusion::kAccumulate, Fusion::kF32Out),
     .order = OrderClass::kAlgorithm},
    {.id = kCublasFp8,
     .name = "cuBLASLt, FP8",
     .ops = SetOf(KernelOp::kGemm),
     .family = KernelFamily::kFp8,
     .operands = SetOf(Operands::kFp8),
     .fuses = SetOf(Fusion::kBias, Fusion::kAccumulate, Fusion::kF32Out),
     .order = OrderClass::kAlgorithm},
    {.id = kCublasScaled,
     .name = "cuBLASLt, FP8 with scales",
     .ops = SetOf(KernelOp::kGemm),
     .family = KernelFamily::kHopper,
     .operands = SetOf(Operands::kFp8Scaled)},
    {.id = kStreamK,
     .name = "attention/stream_k",
     .ops = SetOf(KernelOp::kSingleRows),
     .family = KernelFamily::kHopper,
     .operands = kPagedKv,
     .order = OrderClass::kFixedSplits,
     .shared_bytes = kHopperBytes,
     .shape = {AtLeast(Property::kClusters, 1),
               Equal(Property::kHeadDim, 128),
               AtMost(Property::kQueriesOfHead, 8),
               Equal(Property::kBlockTokens, 16),
               Equal(Property::kHeadBytes, int64_t{16} * 128, Property::kNumberBytes)}},
    {.id = kCluster,
     .name = "attention/cluster",
     .ops = SetOf(KernelOp::kSingleRows),
     .family = KernelFamily::kClusters,
     .operands = kPagedKv,
     .fuses = kCapsAndSinks,
     .order = OrderClass::kFixedSplits,
     .shared_bytes = 40 << 10,
     .shape = {AtLeast(Property::kClusters, 1),
               Equal(Property::kHeadDim, 64).Or(),
               Equal(Property::kHeadDim, 128),
               AtMost(Property::kQueriesOfHead, 8),
               MultipleOf(Property::kBlockTokens, 16)}},
    {.id = kFlash2Rows,
     .name = "attention/flash2, tiles of 16 rows",
     .ops = kSinglesAndFew,
     .operands = kPagedKv,
     .fuses = kCapsAndSinks,
     .order = OrderClass::kFixedSplits,
     .shared_bytes = kPortableBytes,
     .shape = kFlashShape},
    {.id = kFlash3,
     .name = "attention/flash3",
     .ops = SetOf(KernelOp::kChunks),
     .family = KernelFamily::kHopper,
     .operands = kPagedKv,
     .fuses = kCapsAndSinks,
     .order = OrderClass::kRowAlone,
     .shared_bytes = kHopperBytes,
     .shape = kFlashShape},
    {.id = kFlash2Chunks,
     .name = "attention/flash2, tiles of 64 and 128 rows",
     .ops = SetOf(KernelOp::kChunks),
     .operands = kPagedKv,
     .fuses = kCapsAndSinks,
     .order = OrderClass::kRowAlone,
     .shared_bytes = kPortableBytes,
     .shape = kFlashShape},
    {.id = kPortableAttention,
     .name = "attention/portable",
     .ops = kAllAttention,
     .operands = SetOf(Operands::kBf16, Operands::kFp8, Operands::kF16, Operands::kF32),
     .fuses = kCapsAndSinks,
     .order = OrderClass::kFixedSplits,
     .shape = {AtLeast(Property::kHeadDim, 8),
               AtMost(Property::kHeadDim, 256),
               MultipleOf(Property::kHeadDim, 8),
               AtLeast(Property::kNumberBytes, 2).Or(),
               MultipleOf(Property::kHeadDim, 16)}},
    {.id = kTiledLatents,
     .name = "latent/tiled_latents",
     .ops = SetOf(KernelOp::kLatents),
     .operands = SetOf(Operands::kBf16),
     .order = OrderClass::kFixedSplits,
     .shared_bytes = kPortableBytes,
     .shape = {Equal(Property::kHeadDim, kTiledWidth), Equal(Property::kLatentRank, kTiledRank)}},
    {.id = kPortableLatents,
     .name = "attention/portable, latents",
     .ops = SetOf(KernelOp::kLatents),
     .operands = SetOf(Operands::kBf16, Operands::kF16, Operands::kF32),
     .order = OrderClass::kFixedSplits,
     .shape = {MultipleOf(Property::kHeadDim, 8),
               MultipleOf(Property::kLatentRank, 2),
               AtMost(Property::kLatentRank, kMaxLatentNumbers)}},
    {.id = kHeadGemm,
     .name = "latent/head_gemm",
     .ops = SetOf(KernelOp::kHeadGemms),
     .operands = SetOf(Operands::kBf16),
     .order = OrderClass::kAscending,
     .shared_bytes = kPortableBytes,
     .shape = {AtMost(Property::kLatentHeads, kMaxLatentHeads)}},
    {.id = kDecodeRows,
     .name = "recurrent/decode_rows",
     .ops = SetOf(KernelOp::kRecurrentRows),
     .family = KernelFamily::kHopper,
     .operands = SetOf(Operands::kF32),
     .order = OrderClass::kRowAlone,
     .shared_bytes = 76 << 10,
     .shape = {AtLeast(Property::kDeltaRule, 1),
               Equal(Property::kStateRows, kDeltaStateDim),
               Equal(Property::kStateColumns, kDeltaStateDim),
               AtMost(Property::kConvolvedInputs, kMaxDeltaInputs),
               AtLeast(Property::kStateAlignment, kDecodeAlignment)}},
    {.id = kChunkRows,
     .name = "recurrent/chunk_rows",
     .ops = SetOf(KernelOp::kRecurrentChunks),
     .family = KernelFamily::kHopper,
     .operands = SetOf(Operands::kF32),
     .shared_bytes = 140 << 10,
     .shape = {Equal(Property::kDeltaRule, 1),
               Equal(Property::kStateRows, kDeltaStateDim),
               Equal(Property::kStateColumns, kDeltaStateDim),
               AtMost(Property::kConvolvedInputs, kMaxDeltaInputs)}},
    {.id = kUpdateStates,
     .name = "recurrent/update_states",
     .ops = SetOf(KernelOp::kRecurrent, KernelOp::kRecurrentRows, KernelOp::kRecurrentChunks),
     .operands = SetOf(Operands::kF32),
     .order = OrderClass::kRowAlone,
     .shape = {AtMost(Property::kStateRows, kMaxStateRows),
               AtMost(Property::kConvolvedInputs, kMaxConvolvedInputs)}},
    {.id = kScanStates,
     .name = "recurrent/scan",
     .ops = SetOf(KernelOp::kScan),
     .operands = SetOf(Operands::kF32),
     .order = OrderClass::kRowAlone,
     .shape = {AtMost(Property::kStateRows, kMaxScanRows),
               AtMost(Property::kConvolvedInputs, kMaxConvolvedInputs)}},
    {.id = kFewScores,
     .name = "experts/routing, without tensor cores",
     .ops = SetOf(KernelOp::kExpertScores),
     .operands = SetOf(Operands::kBf16)},
    {.id = kScores,
     .name = "experts/routing",
     .ops = SetOf(KernelOp::kExpertScores),
     .operands = SetOf(Operands::kBf16),
     .order = OrderClass::kAscending},
    {.id = kWgmmaExperts,
     .name = "experts/wgmma_gemm",
     .ops = SetOf(KernelOp::kExperts),
     .family = KernelFamily::kHopper,
     .operands = SetOf(Operands::kBf16),
     .fuses = kBiasAndClampedGate,
     .order = OrderClass::kAscending,
     .shared_bytes = kHopperBytes,
     .shape = {MultipleOf(Property::kExpertRowBytes, 128)}},
    // Converts x to FP8, too, which the kernel for few rows does not.
    {.id = kWgmmaFp8Experts,
     .name = "experts/wgmma_gemm, FP8",
     .ops = SetOf(KernelOp::kExperts),
     .family = KernelFamily::kHopper,
     .operands = SetOf(Operands::kFp8),
     .fuses = kBiasAndClampedGate,
     .shared_bytes = kHopperBytes,
     .shape = {MultipleOf(Property::kExpertRowBytes, 128)}},
    {.id = kGroupedGemm,
     .name = "experts/grouped_gemm",
     .ops = SetOf(KernelOp::kExperts),
     .operands = SetOf(Operands::kBf16, Operands::kFp8),
     .fuses = kBiasAndClampedGate,
     .order = OrderClass::kAscending,
     .shared_bytes = kPortableBytes,
     .shape = {MultipleOf(Property::kExpertSizes, kExpertSizeUnit),
               AtMost(Property::kExperts, kMaxExpertCount),
               AtMost(Property::kExpertsOfRow, kMaxExpertsOfRow)}},
    {.id = kSampling,
     .name = "sampling",
     .ops = SetOf(KernelOp::kSampling),
     .operands = SetOf(Operands::kF32),
     .order = OrderClass::kRowAlone,
     .shape = {AtLeast(Property::kVocabulary, 1),
               AtMost(Property::kVocabulary, kMaxSampledTokens)}},
};

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

    {.op = KernelOp::kSampling, .kernel = kSampling, .why = "samples in every way"},
};

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<size_t>(kRows[i].id) != i) return false;
  }
  return std::size(kRows) == static_cast<size_t>(kSampling) + 1;
}
static_assert(RowsAreInOrder());

}  // namespace

std::span<const KernelRow> KernelRows() {
  return kRows;
}

std::span<const KernelRule> KernelRules() {
  return kRules;
}

const KernelRow& RowOf(KernelId kernel) {
  return kRows[static_cast<size_t>(kernel)];
}

}  // namespace baton::cuda
