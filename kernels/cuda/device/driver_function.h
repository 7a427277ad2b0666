#pragma once

#include <cuda_runtime_api.h>

namespace baton::cuda {

// The function `name` of the driver as CUDA `version` (1000 · major + 10 · minor) declares it,
// looked up at run time, because nothing links to the driver library. Null if the driver is older.
template <class Function>
Function FindDriverFunction(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Function>(found);
}

}  // namespace baton::cuda
