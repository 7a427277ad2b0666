#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "common/base/check.h"
#include "kernels/tensor.h"
#include "tests/unit/model/step_runner.h"

namespace baton {

// Copies float32 logits [rows][vocab] from the current GPU.
inline std::vector<Logits> ReadDevice(const Tensor& logits) {
  std::vector<Logits> result(static_cast<size_t>(logits.rows),
                             Logits(static_cast<size_t>(logits.cols)));
  for (size_t row = 0; row < result.size(); ++row) {
    const auto* from =
        reinterpret_cast<const float*>(logits.data) + static_cast<int64_t>(row) * logits.stride;
    const cudaError_t error = cudaMemcpy(
        result[row].data(), from, result[row].size() * sizeof(float), cudaMemcpyDeviceToHost);
    BATON_CHECK(error == cudaSuccess, "{}", cudaGetErrorString(error));
  }
  return result;
}

}  // namespace baton
