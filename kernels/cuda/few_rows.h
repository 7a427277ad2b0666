#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/few_rows_plan.h"
#include "kernels/cuda/product.h"

namespace baton::cuda {

// Whether LaunchFewRows can do `product`, on a device of compute capability 9.0: operands of one
// type, in E4M3 with scales for both; at most 64 rows that need no norm, k in whole pieces of 128
// bytes, a number of outputs that 8 divides, and memory aligned to 16 bytes.
bool FewRowsTakes(const Product& product);

// A product of few rows: bound by reading the weight once. Weights stream through a ring of shared
// memory that fills before the predecessor has finished. Equal products give equal bits.
cudaError_t LaunchFewRows(const Product& product, int processors, cudaStream_t stream);

// The same with a plan for this product and device.
cudaError_t LaunchFewRows(const Product& product, const FewRowsPlan& plan, cudaStream_t stream);

// What the current device allows, of which `processors` multiprocessors are to be used.
FewRowsLimits FindFewRowsLimits(int processors);

}  // namespace baton::cuda
