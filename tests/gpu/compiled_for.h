#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace baton::cuda {

// What the code of this test that runs on the current device was compiled for.
struct CompiledFor {
  int32_t architecture = 0;         // 90 for sm_90
  int32_t has_hopper_features = 0;  // sm_90a's instructions; 0 or 1
};
cudaError_t FindCompiledFor(CompiledFor* result);

}  // namespace baton::cuda
