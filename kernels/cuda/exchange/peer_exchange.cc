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
  const PeerTargets to = slots_->Targets(op.half);
  const PeerParts parts = slots_->Parts(op.half);
  if (op.two_shot) return LaunchTwoShotSum(op.x, to, parts, sm_count_, stream);
  return LaunchOneShotSum(op.x, to, parts, sm_count_, stream);
}

cudaError_t PeerExchange::Launch(const PutOp& op, cudaStream_t stream) const {
  std::vector<ByteCopy> copies;
  copies.reserve(op.puts.size());
  for (const Put& put : op.puts) {
    copies.push_back({put.copy.from, slots_->Of(put.rank, put.copy.to), put.copy.bytes});
  }
  return puts_->Copy(copies, op.place, stream, [&](auto side) { return Copy({}, op.half, side); });
}

cudaError_t PeerExchange::Launch(const AwaitPutOp& op, cudaStream_t stream) const {
  return puts_->Await(op.place, op.copies, stream);
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
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    copy.sends[PlaceOf(rank)] = copy.own.data != nullptr && (op.to_all || rank == 0);
    if (op.to_all || rank_ == 0) copy.from[PlaceOf(rank)] = columns(rank);
  }
  return Copy(copy, op.half, stream);
}

cudaError_t PeerExchange::Launch(const BarrierOp& op, cudaStream_t stream) const {
  return Copy({}, op.half, stream);
}

cudaError_t PeerExchange::Launch(const ShareTokensOp& op, cudaStream_t stream) const {
  const int64_t bytes = op.count * static_cast<int64_t>(sizeof(int32_t));
  const PeerRows tokens = {.data = reinterpret_cast<std::byte*>(op.tokens),
                           .rows = 1,
                           .row_bytes = bytes,
                           .stride = bytes};
  // No token has these bits with another sign, but kNoToken has those of an empty slot.
  PeerCopy copy;
  copy.flip = 0x80000000;
  if (rank_ == 0) {
    copy.own = tokens;
    copy.sends.fill(true);
  } else {
    copy.from[PlaceOf(0)] = tokens;
  }
  return Copy(copy, op.half, stream);
}

cudaError_t PeerExchange::Copy(const PeerCopy& copy, int half, cudaStream_t stream) const {
  return LaunchPeerCopy(copy, slots_->Targets(half), slots_->Parts(half), sm_count_, stream);
}

}  // namespace baton::cuda
