#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/cuda/table/kernel_request.h"

// The requests of GEMMs to the kernel table.
namespace baton::cuda {

struct GemmShape {
  static constexpr int64_t kMaxAlignment = 256;

  int64_t rows = 0;
  int64_t n = 0;  // outputs; with Fusion::kSiluMul those of gate and up together
  int64_t k = 0;  // inputs
  Operands operands = Operands::kBf16;
  EnumSet fusions = 0;  // of Fusion
  // Matrices that a step allocates are aligned to more than any kernel needs.
  int64_t operand_alignment = kMaxAlignment;  // in bytes
  int64_t out_alignment = kMaxAlignment;      // in numbers

  bool operator==(const GemmShape&) const = default;
};

KernelRequest GemmRequest(const GemmShape& shape, bool deterministic);

// A GEMM of a model: out = W x (+ bias), or silu · up of the outputs.
struct ModelGemm {
  int64_t n = 0;
  int64_t k = 0;
  bool fp8 = false;  // the weight is stored in FP8
  bool bias = false;
  bool silu_mul = false;
  bool f32_out = false;
};

// A way to compute a ModelGemm: the request to the table, and what other kernels do.
struct GemmForm {
  KernelRequest request = {};
  std::string_view others = {};  // empty: nothing
};
// The ways in the order in which a step tries them. The first whose request some kernel computes is
// taken.
std::vector<GemmForm> FormsOf(const ModelGemm& gemm, int64_t rows, bool deterministic);

}  // namespace baton::cuda
