#include "kernels/cuda/table/kernel_request.h"

namespace baton::cuda {

std::string_view Name(KernelOp op) {
  constexpr std::array<std::string_view, 13> kNames = {"GEMM",
                                                       "attention of single rows",
                                                       "attention of a few rows",
                                                       "attention of prompt chunks",
                                                       "attention to latents",
                                                       "GEMMs of heads",
                                                       "recurrent layers",
                                                       "recurrent layers of single rows",
                                                       "recurrent layers of prompt chunks",
                                                       "selective scans",
                                                       "scores of experts",
                                                       "GEMMs of experts",
                                                       "sampling"};
  return kNames[static_cast<size_t>(op)];
}

std::string_view Name(Operands operands) {
  constexpr std::array<std::string_view, 8> kNames = {"bf16",
                                                      "fp8",
                                                      "fp8 with scales",
                                                      "an fp8 weight by bf16",
                                                      "f16",
                                                      "f32",
                                                      "a packed weight by bf16",
                                                      "mixed types"};
  return kNames[static_cast<size_t>(operands)];
}

Operands OperandsOf(DType kv) {
  switch (kv) {
    case DType::kBF16:
      return Operands::kBf16;
    case DType::kFp8:
      return Operands::kFp8;
    case DType::kF16:
      return Operands::kF16;
    case DType::kF32:
      return Operands::kF32;
    default:
      return Operands::kMixed;
  }
}

std::string_view Name(Fusion fusion) {
  constexpr std::array<std::string_view, kFusions> kNames = {"a bias",
                                                             "a norm",
                                                             "silu · up",
                                                             "accumulation",
                                                             "f32 outputs",
                                                             "a cap of logits",
                                                             "sinks",
                                                             "biases of experts",
                                                             "a clamped gate",
                                                             "experts without a gate",
                                                             "weighted inputs of experts",
                                                             "chunks of the context"};
  return kNames[static_cast<size_t>(fusion)];
}

std::string_view Name(Property property) {
  constexpr std::array<std::string_view, kProperties> kNames = {
      "1",
      "rows",
      "n",
      "n of gate and up",
      "k",
      "bytes of k",
      "alignment of the inputs in bytes",
      "alignment of the outputs",
      "head size",
      "query heads of a KV head",
      "bytes of a KV number",
      "tokens of a block",
      "bytes between heads",
      "numbers between blocks",
      "window",
      "longest context",
      "positions",
      "clusters",
      "thread blocks of a cluster",
      "splits",
      "positions of a split",
      "positions of an SM",
      "positions of a work tile",
      "2 · work tiles",
      "SMs",
      "numbers of a latent",
      "heads",
      "rows of a state",
      "columns of a state",
      "alignment of states in bytes",
      "number of the delta rule",
      "inputs of a convolution",
      "pairs of rows and experts",
      "pairs from which wgmma pays",
      "unit of expert rows in bytes",
      "common divisor of hidden size and expert width",
      "experts",
      "experts of a row",
      "tokens of the vocabulary"};
  return kNames[static_cast<size_t>(property)];
}

}  // namespace baton::cuda
