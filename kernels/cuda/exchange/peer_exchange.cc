#include "kernels/cuda/exchange/peer_exchange.h"

#include <utility>
#include <vector>

namespace baton::cuda {

StatusOr<std::unique_ptr<PeerExchange>> PeerExchange::Create(Collective& host,
                                                             const DeviceProperties& device) {
  BATON_ASSIGN_OR_RETURN(auto slots, PeerSlots::Create(host));
  BATON_ASSIGN_OR_RETURN(auto puts, PeerPuts::Create());
  return std::unique_ptr<PeerExchange>(
      new PeerExchange(std::move(slots), std::move(puts), host, device.sm_count));
}

cudaError_t PeerExchange::Launch(const ReduceOp& op, cudaStream_t stream) const {
  const PeerTargets to = slots_->Targets(op.slot_buffer);
  const PeerParts parts = slots_->Parts(op.slot_buffer);
  if (op.two_shot) return LaunchTwoShotSum(op.x, to, parts, sm_count_, stream);
  return LaunchOneShotSum(op.x, to, parts, sm_count_, stream);
}

cudaError_t PeerExchange::Launch(const PutOp& op, cudaStream_t stream) const {
  std::vector<ByteCopy> copies;
  copies.reserve(op.puts.size());
  for (const Put& put : op.puts) {
    copies.push_back({put.copy.from, slots_->PeerAddress(put.rank, put.copy.to), put.copy.bytes});
  }
  return puts_->Copy(copies, op.put_buffer, stream, [&](cudaStream_t put_stream) {
    return Copy({}, op.slot_buffer, put_stream);
  });
}

cudaError_t PeerExchange::Launch(const AwaitPutOp& op, cudaStream_t stream) const {
  return puts_->Await(op.put_buffer, op.copies, stream);
}

cudaError_t PeerExchange::Launch(const GatherColumnsOp& op, cudaStream_t stream) const {
  const auto columns = [&](int rank) -> PeerRows {
    const auto index = static_cast<size_t>(rank);
    const int64_t first = rank == 0 ? 0 : op.ends[index - 1];
    const auto bytes = static_cast<int64_t>(ShapeOf(op.whole.dtype).bytes);
    return {.data = op.whole.data + first * bytes,
            .rows = op.whole.rows,
            .row_bytes = (op.ends[index] - first) * bytes,
            .stride = op.whole.stride * bytes};
  };
  PeerCopy copy;
  if (op.to_all || rank_ != 0) copy.own = columns(rank_);
  if (op.mine.data != nullptr) {
    copy.kept = copy.own;
    copy.own.data = op.mine.data;
    copy.own.stride = op.mine.stride * static_cast<int64_t>(ShapeOf(op.mine.dtype).bytes);
    if (op.silu_mul) {
      copy.up = copy.own;
      copy.up.data += copy.own.row_bytes;
    }
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    copy.sends[PeerIndex(rank)] = copy.own.data != nullptr && (op.to_all || rank == 0);
    if (op.to_all || rank_ == 0) copy.from[PeerIndex(rank)] = columns(rank);
  }
  return Copy(copy, op.slot_buffer, stream);
}

cudaError_t PeerExchange::Launch(const BarrierOp& op, cudaStream_t stream) const {
  return Copy({}, op.slot_buffer, stream);
}

cudaError_t PeerExchange::Launch(const ShareTokensOp& op, cudaStream_t stream) const {
  const int64_t bytes = op.count * static_cast<int64_t>(sizeof(int32_t));
  const PeerRows tokens = {.data = reinterpret_cast<std::byte*>(op.tokens),
                           .rows = 1,
                           .row_bytes = bytes,
                           .stride = bytes};
  // kNoToken has the bits of an empty slot. With the sign bit flipped, no token has them.
  PeerCopy copy;
  copy.flip = 0x80000000;
  if (rank_ == 0) {
    copy.own = tokens;
    copy.sends.fill(true);
  } else {
    copy.from[PeerIndex(0)] = tokens;
  }
  return Copy(copy, op.slot_buffer, stream);
}

cudaError_t PeerExchange::Copy(const PeerCopy& copy, int slot_buffer, cudaStream_t stream) const {
  return LaunchPeerCopy(
      copy, slots_->Targets(slot_buffer), slots_->Parts(slot_buffer), sm_count_, stream);
}

}  // namespace baton::cuda
