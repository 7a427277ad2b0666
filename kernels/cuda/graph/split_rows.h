#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/exchange/peer_slots.h"
#include "kernels/cuda/graph/step_ops.h"

// Hides the sums of tensor ranks in long prompts, and divides the norms after them. The ops
// between two attention ops treat rows independently, so they run for one half of the rows while
// rows of the other half are in flight. Copy engines move rows (PutOp), because every SM
// multiplies.
//
// Each rank adds up and normalises one slice of a half's rows. It receives the other ranks' parts
// of this slice (where ranks gather columns, ExchangeMode::kGather, their columns of it), and sends
// the normalised rows to the other ranks, whose GEMMs read all rows of the half (sequence
// parallelism, arXiv 2205.05198). The norm has the bits of an exchange and a NormOp of all rows.
// The residual of a slice is up to date on its rank alone; the ranks exchange the slices before an
// op that reads the residual.
namespace baton::cuda {

struct RowSplit {
  int32_t rank = 0;  // of the tensor ranks
  int32_t ranks = 1;
  // Where the other ranks put rows. Each half of the rows has one for parts of sums and one for
  // normalised rows.
  std::array<std::byte*, PeerSlots::kPutBuffers> put_buffers = {};
  size_t put_buffer_bytes = 0;  // 0: nothing is split
  float* scales = nullptr;      // of a step's rows in FP8, PeerSlots::kMaxScales

  static RowSplit Between(const GroupExchange& ranks);
};

// Splits the ops of a step of `rows` rows before they are fused. A step of few rows, and ops whose
// rows the put buffers cannot hold, stay as they are. The choice depends on shapes alone, so that
// all ranks make the same.
void SplitRows(std::vector<StepOp>& ops, int64_t rows, const RowSplit& split);

}  // namespace baton::cuda
