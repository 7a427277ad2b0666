#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "kernels/tensor.h"

// The exchanges of a step as data (step/step_ops.h).
namespace baton::cuda {

// The bytes of the numbers of `x` without the gaps between its rows.
inline size_t PackedBytes(const Tensor& x) {
  return static_cast<size_t>(x.rows * x.cols) * ShapeOf(x.dtype).bytes;
}
inline bool HasGaps(const Tensor& x) {
  return x.rows > 1 && x.stride != x.cols;
}

// The `half` of an exchange between tensor ranks: the half of the slots (PeerSlots) through which
// it moves the numbers, without scratch memory, or this.
inline constexpr int32_t kThroughNccl = -1;

// x = the sum of all tensor ranks' x. The numbers are added in float32 as a tree (TreeSum) and the
// sum is rounded once. Neither ncclAllReduce nor ncclReduceScatter promises that: their
// order depends on size, algorithm and number of ranks. So NCCL, or a kernel that pushes, only
// moves the numbers, and a kernel adds them. All ways give the same bits.
struct ReduceOp {
  Tensor x;
  int32_t ranks = 0;
  int32_t half = kThroughNccl;
  // Scratch memory: [ranks][rows][cols], by rank.
  std::byte* parts = nullptr;
  // Every rank adds one slice of the numbers and the ranks gather the slices, which moves less than
  // gathering all parts does when there are more than two ranks. Through NCCL, `x` has no gaps and
  // equal slices. Through slots, a slice has at least one vector of 16 bytes.
  bool two_shot = false;
  // Through NCCL: only the parts are gathered, because the next op adds them.
  bool gather_only = false;
  bool operator==(const ReduceOp&) const = default;
};

struct ByteCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t bytes = 0;
  bool operator==(const ByteCopy&) const = default;
};

// A copy into the memory of another tensor rank. Its destination is a symmetric address, as in
// NVSHMEM: `copy.to` is an address of this rank's memory (PeerSlots), and means the same place in
// the memory of `rank`.
struct Put {
  ByteCopy copy;
  int32_t rank = 0;
  bool operator==(const Put&) const = default;
};

// Copy engines make these copies beside the ops that follow. All tensor ranks issue the op, each
// for the others.
struct PutOp {
  std::vector<Put> puts;
  int32_t place = 0;  // PeerSlots::Place, to which the rows go
  int32_t half = 0;   // of the slots, for the marks that tell the other ranks that all has arrived
  bool operator==(const PutOp&) const = default;
};

// Later ops run when the other ranks' copies to a place have arrived, and what this rank has sent
// may be overwritten. `copies` follow.
struct AwaitPutOp {
  int32_t place = 0;
  std::vector<ByteCopy> copies = {};
  bool operator==(const AwaitPutOp&) const = default;
};

// Tensor rank r has columns ends[r − 1] … ends[r] − 1 of `whole`. Gathers all columns on tensor
// rank 0, or on all tensor ranks.
struct GatherColumnsOp {
  Tensor whole;
  Tensor mine = {};  // this rank's columns, through slots; without data: they are in `whole`
  std::vector<int64_t> ends;
  bool to_all = false;
  int32_t half = kThroughNccl;
  std::byte* packed = nullptr;  // scratch memory of the size of `whole` without gaps
  bool operator==(const GatherColumnsOp&) const = default;
};

// Later ops run when all tensor ranks have finished their earlier ones.
struct BarrierOp {
  int32_t half = kThroughNccl;
  std::byte* marks = nullptr;  // scratch memory, kMarkBytes for each rank
  bool operator==(const BarrierOp&) const = default;
};
inline constexpr size_t kMarkBytes = 16;

// Sends `x` to another stage, or receives it.
struct StageOp {
  Tensor x;
  int32_t stage = 0;
  bool send = false;
  bool through_slots = false;   // StageSlots; false: NCCL
  std::byte* packed = nullptr;  // NCCL: scratch memory when `x` has gaps between its rows
  bool operator==(const StageOp&) const = default;
};

// Gives the tokens that tensor rank 0 sampled to the other tensor ranks, which embed them in the
// next step.
struct ShareTokensOp {
  int32_t* tokens = nullptr;
  int32_t count = 0;
  int32_t half = kThroughNccl;
  bool operator==(const ShareTokensOp&) const = default;
};

using ExchangeOp =
    std::variant<ReduceOp, PutOp, AwaitPutOp, GatherColumnsOp, BarrierOp, StageOp, ShareTokensOp>;

}  // namespace baton::cuda
