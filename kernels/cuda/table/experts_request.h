#pragma once

#include <cstdint>

#include "kernels/cuda/table/kernel_request.h"
#include "kernels/dtype.h"

// The requests of a mixture of experts to the kernel table.
namespace baton::cuda {

// What the kernels of experts take.
inline constexpr int64_t kMaxExpertCount = 512;
inline constexpr int64_t kMaxExpertsOfRow = 32;
// Hidden size and width of an expert are multiples of this.
inline constexpr int64_t kExpertSizeUnit = 8;

// From this mean number of rows per expert on, wgmma pays.
inline constexpr int64_t kWgmmaMeanRows = 8;
// The same with packed weights.
inline constexpr int64_t kPackedWgmmaMeanRows = 24;

struct ExpertShape {
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t hidden = 0;
  int64_t width = 0;
  DType gate_up = DType::kBF16;
  DType down = DType::kBF16;
  bool packed = false;  // at least one of the matrices (packed_format.h)
  bool bias = false;
  bool clamped_gate = false;
  bool ungated = false;
  bool weighted_inputs = false;
};

KernelRequest ExpertsRequest(const ExpertShape& shape, int64_t rows, bool deterministic);
KernelRequest ExpertScoresRequest(int64_t rows, bool deterministic);

}  // namespace baton::cuda
