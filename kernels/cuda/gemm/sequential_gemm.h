#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/gemm/gemm_problem.h"

// The order of sums of GEMMs in deterministic mode: an accumulator adds its products in ascending
// k, 32 bytes (one instruction of the tensor cores) after the other. Hopper's kernels that do not
// split k all do that, whatever their tiles: our own with one warp group for a tile, and cuBLASLt's
// (notes/deterministic.md). So each number of rows can use the kernel that suits it, and a row's
// bits are the same in all of them.
namespace baton::cuda {

// Whether LaunchSequentialGemm can compute `problem` on a device of compute capability 9.0: the
// conditions of SkinnyGemmSupports, for any number of rows, without fused operations. Operands in
// FP8 have no scales: the reader of `out` applies them, as after cuBLASLt.
bool SequentialGemmSupports(const GemmProblem& problem);

// Launches a GEMM of few outputs (few_outputs_gemm.h) if its tiles all run at a time, else skinny
// GEMMs that keep the order. With more than 64 rows, these read the weight once for each 64 rows.
cudaError_t LaunchSequentialGemm(const GemmProblem& problem, int sm_count, cudaStream_t stream);

// Shows whether other kernels keep the order. Another order of sums rounds differently in some of
// the thousands of outputs of random rows. Used on one stream.
class SequentialBits final {
 public:
  // Writes to problem.out, and returns whether that has worked.
  using Multiply = std::function<bool(const GemmProblem& problem)>;

  // Computes the outputs of problem.rows random rows with the weight of `problem`, which must
  // outlive the result. problem.x and problem.out are not used. Errors: ResourceExhausted; those of
  // the device.
  static StatusOr<std::unique_ptr<SequentialBits>> Create(const GemmProblem& problem,
                                                          int sm_count,
                                                          cudaStream_t stream);

  // Whether `multiply` gives the same bits for the first `rows` of these rows. Waits for the
  // device. Errors: those of the device.
  StatusOr<bool> Match(int32_t rows, const Multiply& multiply);

 private:
  SequentialBits(const GemmProblem& problem, cudaStream_t stream)
      : problem_(problem), stream_(stream) {}

  GemmProblem problem_;
  const cudaStream_t stream_;
  DeviceMemory x_;
  DeviceMemory want_;
  DeviceMemory out_;
  DeviceMemory differs_;  // one word
};

}  // namespace baton::cuda
