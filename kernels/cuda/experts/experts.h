#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/device/device_properties.h"
#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/table/experts_request.h"
#include "kernels/ops.h"

namespace baton::cuda {

struct ExpertsOptions {
  // A row's bits do not depend on the number of rows: the same kernels without wgmma compute any
  // number of rows.
  bool deterministic = false;
  // From this mean number of rows per expert on, the GEMMs use wgmma.
  int64_t wgmma_rows = kWgmmaMeanRows;
};

// Mixture-of-experts layers: routing, then two GEMMs grouped by expert. The experts' matrices are
// in bf16 or in FP8. Routing stays on the device: the host never reads its result. A row's bits do
// not depend on the other rows; unless `deterministic`, they depend on the number of rows. Used by
// one thread, on one stream.
class Experts final {
 public:
  // For the current device.
  static StatusOr<std::unique_ptr<Experts>> Create(const DeviceProperties& device,
                                                   const ExpertsOptions& options);
  ~Experts();

  // Uploads the addresses and tensor maps of the experts' matrices (once for each layer, which is
  // recognised by the addresses in `args`). The result has no scratch memory yet. The experts
  // of `args` are those from number `first` on; with fewer than the router scores, the result of a
  // row lacks the others. Must not be called while a graph is captured. Errors: InvalidArgument for
  // shapes that do not match, sizes that are not multiples of 8, a router in FP8, or experts that
  // are stored in different types; ResourceExhausted.
  StatusOr<PreparedExperts> Prepare(const ExpertArgs& args, int32_t first = 0);
  // The bytes of PreparedExperts::scratch that Launch needs for `rows` rows.
  static size_t ScratchBytes(const PreparedExperts& experts, int64_t rows);
  // `x` and `out` are [rows][hidden] in bf16, with rows aligned to 16 bytes; `out` may be float32,
  // for a rank's part of a sum. Launches kernels only,
  // so that a graph can capture it. If `out` has no data, the results are not added up: ResultsOf
  // says where they are.
  cudaError_t Launch(const Tensor& x,
                     const PreparedExperts& experts,
                     const Tensor& out,
                     cudaStream_t stream);
  // Where Launch leaves the results for `rows` rows, until the next Launch. Null for more rows than
  // are computed at once.
  static ExpertResults ResultsOf(const PreparedExperts& experts, int64_t rows);

 private:
  class Impl;
  explicit Experts(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cuda
