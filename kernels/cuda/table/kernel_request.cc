#include "kernels/cuda/table/kernel_request.h"

namespace baton::cuda {

std::string_view Name(KernelOp op) {
  constexpr std::array<std::string_view, 7> kNames = {"GEMM",
                                                      "attention of single rows",
                                                      "attention of a few rows",
                                                      "attention of prompt chunks",
                                                      "scores of experts",
                                                      "GEMMs of experts",
                                                      "sampling"};
  return kNames[static_cast<size_t>(op)];
}

std::string_view Name(Operands operands) {
  constexpr std::array<std::string_view, 7> kNames = {
      "bf16", "fp8", "fp8 with scales", "an fp8 weight by bf16", "f16", "f32", "mixed types"};
  return kNames[static_cast<size_t>(operands)];
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
                                                             "a clamped gate"};
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
