#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "common/base/status.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/gemm/gemm_problem.h"
#include "kernels/cuda/table/kernel_table.h"

// The order of sums of GEMMs in deterministic mode: an accumulator adds its products in ascending
// k, 32 bytes (one instruction of the tensor cores) after the other. Kernels that do not split k
// nearly all do that, whatever their tiles: our own (OrderClass::kAscending), and cuBLASLt's
// (notes/deterministic.md). So each number of rows can use the kernel that suits it, and a row's
// bits are the same in all of them.
namespace baton::cuda {

// The kernel of ours that computes `problem` in this order: on Hopper the skinny GEMM with one warp
// group for a tile, else the portable GEMM. None for operands that no kernel multiplies on
// `device`, such as FP8 before sm_89. Operands in FP8 have no scales: the reader of `out` applies
// them, as after cuBLASLt.
std::optional<KernelId> SequentialKernel(const GemmProblem& problem,
                                         const DeviceProperties& device);

// Launches that kernel, for any number of rows. On Hopper a GEMM of few outputs
// (few_outputs_gemm.h) runs in place of the skinny GEMM if its tiles all run at a time; with more
// than 64 rows, the skinny GEMM reads the weight once for each 64 of them. Errors:
// cudaErrorNotSupported where there is no such kernel; those of the launch.
cudaError_t LaunchSequentialGemm(const GemmProblem& problem,
                                 const DeviceProperties& device,
                                 cudaStream_t stream);

// Shows whether other kernels keep the order. Another order of sums rounds differently in one of
// some thousands of outputs, so that many outputs of random rows are compared. Used on one stream.
class SequentialBits final {
 public:
  // Writes to problem.out, and returns whether that has worked.
  using Multiply = std::function<bool(const GemmProblem& problem)>;

  // For GEMMs of up to problem.rows rows with the weight of `problem`, which must outlive the
  // result. problem.x and problem.out are not used. Errors: ResourceExhausted.
  static StatusOr<std::unique_ptr<SequentialBits>> Create(const GemmProblem& problem,
                                                          const DeviceProperties& device,
                                                          cudaStream_t stream);

  // Whether `multiply` gives the bits of the sequential GEMM for any `rows` random rows. Waits for
  // the device. Errors: those of the device.
  StatusOr<bool> Match(int32_t rows, const Multiply& multiply);

 private:
  SequentialBits(const GemmProblem& problem, const DeviceProperties& device, cudaStream_t stream)
      : problem_(problem), device_(device), stream_(stream) {}
  // Computes want_ for the first `rows` of the random rows of `seed`, unless it is there.
  Status Want(int32_t rows, uint32_t seed);
  // Compares their outputs with those of `multiply`, and sets differs_ when they differ. Returns
  // whether `multiply` has worked.
  StatusOr<bool> Compare(int32_t rows, uint32_t seed, const Multiply& multiply);

  GemmProblem problem_;
  const DeviceProperties device_;
  const cudaStream_t stream_;
  DeviceMemory x_;
  DeviceMemory want_;
  uint32_t wanted_seed_ = 0;  // what want_ holds
  int32_t wanted_rows_ = 0;
  DeviceMemory out_;
  DeviceMemory differs_;  // one word
};

}  // namespace baton::cuda
