#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "kernels/tensor.h"

// The exchanges of a step as data (graph/step_ops.h).
namespace baton::cuda {

// The bytes of the elements of `x`, without the gaps between its rows.
inline size_t PackedBytes(const Tensor& x) {
  return static_cast<size_t>(x.rows * x.cols) * ShapeOf(x.dtype).bytes;
}
inline bool HasGaps(const Tensor& x) {
  return x.rows > 1 && x.stride != x.cols;
}

// The `slot_buffer` of an op that NCCL runs. An op with another value runs through the slot buffer
// with this index (PeerSlots) and needs no scratch memory.
inline constexpr int32_t kThroughNccl = -1;

// All-reduce: x = the sum of all tensor ranks' x. A kernel adds the elements in float32 as a tree
// (TreeSum) and rounds the sum once. ncclAllReduce and ncclReduceScatter promise no order: theirs
// depends on the size, the algorithm and the number of ranks. So NCCL, or a kernel that pushes,
// only moves the elements. The bits are the same either way.
struct ReduceOp {
  Tensor x;
  int32_t ranks = 0;
  int32_t slot_buffer = kThroughNccl;
  // Scratch memory: [ranks][rows][cols], by rank.
  std::byte* parts = nullptr;
  // Two-shot: each rank adds one slice of the elements, then the ranks all-gather the sums. With
  // three or more ranks this moves fewer bytes than one-shot. Through NCCL, `x` must have no gaps
  // and its slices must be equal. Through slots, a slice must have at least one 16-byte vector.
  bool two_shot = false;
  // Through NCCL: gathers the parts without adding them, because the next op does.
  bool gather_only = false;
  bool operator==(const ReduceOp&) const = default;
};

struct ByteCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t bytes = 0;
  bool operator==(const ByteCopy&) const = default;
};

// A copy into the memory of another tensor rank. The destination is a symmetric address, as in
// NVSHMEM: `copy.to` points into this rank's own PeerSlots memory, and the copy writes to the same
// offset in the memory of `rank`.
struct Put {
  ByteCopy copy;
  int32_t rank = 0;
  bool operator==(const Put&) const = default;
};

// Copy engines make these copies while later ops run. All tensor ranks issue the op at the same
// position of the step, each with its own puts.
struct PutOp {
  std::vector<Put> puts;
  int32_t put_buffer = 0;   // PeerSlots::PutBuffer, which receives the rows
  int32_t slot_buffer = 0;  // carries the flags that report completion to the other ranks
  bool operator==(const PutOp&) const = default;
};

// Later ops wait until the other ranks' puts into `put_buffer` have arrived and this rank's own
// puts have been read from their source. Then `copies` run.
struct AwaitPutOp {
  int32_t put_buffer = 0;
  std::vector<ByteCopy> copies = {};
  bool operator==(const AwaitPutOp&) const = default;
};

// Gathers the columns of `whole` on tensor rank 0, or on all tensor ranks. Tensor rank r has
// columns ends[r − 1] … ends[r] − 1.
struct GatherColumnsOp {
  Tensor whole;
  Tensor mine = {};       // through slots: this rank's columns; without data, they are in `whole`
  bool silu_mul = false;  // `mine` is [gate | up]; this rank's columns are silu(gate) · up
  std::vector<int64_t> ends;
  bool to_all = false;
  int32_t slot_buffer = kThroughNccl;
  std::byte* packed = nullptr;  // scratch memory of the size of `whole` without gaps
  bool operator==(const GatherColumnsOp&) const = default;
};

// Later ops run when all tensor ranks have finished their earlier ones.
struct BarrierOp {
  int32_t slot_buffer = kThroughNccl;
  std::byte* flags = nullptr;  // scratch memory, kFlagBytes for each rank
  bool operator==(const BarrierOp&) const = default;
};
inline constexpr size_t kFlagBytes = 16;

// Sends `x` to another stage, or receives `x` from it.
struct StageOp {
  Tensor x;
  int32_t stage = 0;
  bool send = false;
  bool through_slots = false;   // StageSlots; false: NCCL
  std::byte* packed = nullptr;  // NCCL: scratch memory when `x` has gaps between its rows
  bool operator==(const StageOp&) const = default;
};

// Broadcasts the tokens that tensor rank 0 sampled to the other tensor ranks, which embed the
// tokens in the next step.
struct ShareTokensOp {
  int32_t* tokens = nullptr;
  int32_t count = 0;
  int32_t slot_buffer = kThroughNccl;
  bool operator==(const ShareTokensOp&) const = default;
};

using ExchangeOp =
    std::variant<ReduceOp, PutOp, AwaitPutOp, GatherColumnsOp, BarrierOp, StageOp, ShareTokensOp>;

}  // namespace baton::cuda
