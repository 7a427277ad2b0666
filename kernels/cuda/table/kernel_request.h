#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/dtype.h"

// What a caller of the kernel table asks for: an op, its types, the ops that should be fused into
// it, and numbers that describe its shape and the step.
namespace baton::cuda {

enum class KernelOp : uint8_t {
  kGemm,
  kSingleRows,       // attention of sequences with one row in the step
  kFewRows,          // attention of sequences with a few rows
  kChunks,           // attention of prompt chunks
  kLatents,          // attention to latents
  kHeadGemms,        // the products of each head before and after it
  kRecurrent,        // recurrent layers of all rules but that of the scan
  kRecurrentRows,    // the same where each sequence has one row
  kRecurrentChunks,  // the same of sequences with many rows
  kScan,             // RecurrentRule::kSelectiveScan
  kExpertScores,     // the router of a mixture of experts
  kExperts,          // the two GEMMs of the experts
  kSampling,
};
std::string_view Name(KernelOp op);

// How the inputs of an op are stored: both operands of a GEMM, the KV cache of attention, the
// weights of experts.
enum class Operands : uint8_t {
  kBf16,
  kFp8,        // scales are applied by another op
  kFp8Scaled,  // a GEMM that applies the scales of both operands
  kFp8Weight,  // an FP8 weight with its scales, and inputs in bf16
  kF16,
  kF32,
  kPacked,  // a packed weight (packed_format.h), and inputs in bf16
  kMixed,   // no kernel takes it
};
std::string_view Name(Operands operands);
// Those of an op that reads a KV cache of type `kv`.
Operands OperandsOf(DType kv);

// A set of enumerators.
using EnumSet = uint32_t;
template <class... E>
constexpr EnumSet SetOf(E... members) {
  return (EnumSet{0} | ... | (EnumSet{1} << static_cast<unsigned>(members)));
}

// What a GEMM does besides the product, attention besides the softmax of scaled logits, and experts
// besides silu(gate) · up.
enum class Fusion : uint8_t {
  kBias,
  kNorm,        // normalises its input
  kSiluMul,     // the outputs are [gate | up]; stores silu(gate) · up
  kAccumulate,  // adds to the output
  kF32Out,
  kSoftCap,         // AttentionArgs::cap
  kSinks,           // AttentionArgs::sinks
  kExpertBias,      // ExpertArgs::gate_up_bias and down_bias
  kClampedGate,     // ExpertArgs::gate with a limit
  kUngated,         // ExpertGate::ungated
  kWeightedInputs,  // RouterArgs::weighted_inputs
  kContextChunks,   // AttentionArgs::chunk
};
inline constexpr size_t kFusions = static_cast<size_t>(Fusion::kContextChunks) + 1;
std::string_view Name(Fusion fusion);

// The numbers on which a choice may depend.
enum class Property : uint8_t {
  kOne,   // always 1, for conditions on a single property
  kRows,  // rows of the op; of attention, sequences
  // GEMM: n outputs, k inputs.
  kOutputs,
  kSiluOutputs,       // n with silu · up, else 0
  kInputs,            // k
  kInputBytes,        // of a row of the operands
  kOperandAlignment,  // bytes to which both operands and the rows of the inputs are aligned
  kOutAlignment,      // numbers to which the output and its rows are aligned
  // Attention: the shape.
  kHeadDim,
  kQueriesOfHead,  // query heads that share a KV head
  kNumberBytes,    // of a number in the KV cache
  kBlockTokens,
  kHeadBytes,     // between the heads of a block
  kBlockNumbers,  // numbers between two blocks
  kWindow,        // positions of the sliding window; many when there is none
  // Attention: the step.
  kLongest,         // the most positions that a row sees
  kPositions,       // positions that all rows see
  kClusters,        // 1 when clusters of every size are resident
  kClusterSplits,   // the largest cluster with which all rows are resident at once; 0: none
  kSplits,          // of the longest row for a cluster
  kSplitPositions,  // positions of one of these splits
  kFairPositions,   // positions of all rows and KV heads over the SMs
  kWorkTile,        // positions of a work tile of stream-K
  kTwiceWorkTiles,  // two times the tiles of rows and query heads of prompt chunks
  kSms,             // SMs of the device
  // Latents. Their width is the head size.
  kLatentRank,
  kLatentHeads,
  // Recurrent layers.
  kStateRows,        // key_dim
  kStateColumns,     // value_dim
  kStateAlignment,   // bytes to which states and their blocks are aligned
  kDeltaRule,        // 1 with kDelta, 2 with kChannelDelta, else 0
  kConvolvedInputs,  // RecurrentShape::kernel
  // Experts.
  kPairs,           // rows · experts of a row
  kWgmmaPairs,      // the pairs from which wgmma pays
  kExpertRowBytes,  // the largest number of bytes that divides the rows of both matrices
  kExpertSizes,     // the largest number that divides hidden size and width of an expert
  kExperts,
  kExpertsOfRow,
  kVocabulary,  // tokens among which sampling chooses
};
inline constexpr size_t kProperties = static_cast<size_t>(Property::kVocabulary) + 1;
std::string_view Name(Property property);

struct KernelRequest {
  KernelOp op = KernelOp::kGemm;
  Operands operands = Operands::kBf16;
  EnumSet fusions = 0;  // of Fusion
  bool deterministic = false;
  std::array<int64_t, kProperties> values = {1};

  int64_t& operator[](Property property) { return values[static_cast<size_t>(property)]; }
  int64_t operator[](Property property) const { return values[static_cast<size_t>(property)]; }
};

}  // namespace baton::cuda
