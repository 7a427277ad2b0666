#pragma once

#include "kernels/cuda/device/device_properties.h"
#include "kernels/cuda/gemm/gemm_problem.h"

// Chooses between our own kernels and cuBLASLt, by measurements on an H200. Pure.
namespace baton::cuda {

enum class GemmKernel {
  kCublas,  // every GEMM without fused operations, on every device
  kGemv,    // one row
  kSkinny,  // few rows
  kGated,   // up to kGatedMaxRows rows, with silu_mul
};

// The kernel outside deterministic mode. Our own kernels are Hopper's.
GemmKernel ChooseGemmKernel(const GemmProblem& problem, const DeviceProperties& device);

}  // namespace baton::cuda
