#include "kernels/cuda/exchange/group_exchange.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/exchange/gather_records.h"
#include "kernels/cuda/exchange/rank_sum.h"

namespace baton::cuda {
namespace {

// The time limit of the first step, during which other ranks may still load their weights.
constexpr Duration kFirstLimit = std::chrono::minutes(30);

size_t ElementBytes(const Tensor& x, int64_t elements) {
  return static_cast<size_t>(elements) * ShapeOf(x.dtype).bytes;
}

// A tensor of the shape of `x` that begins at `data` and has no gaps between its rows.
Tensor PackedAt(const Tensor& x, std::byte* data) {
  Tensor packed = x;
  packed.data = data;
  packed.stride = x.cols;
  return packed;
}

Status CopyRows(const Tensor& from, const Tensor& to, cudaStream_t stream) {
  BATON_CUDA_RETURN_IF_ERROR(cudaMemcpy2DAsync(to.data,
                                               ElementBytes(to, to.stride),
                                               from.data,
                                               ElementBytes(from, from.stride),
                                               ElementBytes(from, from.cols),
                                               static_cast<size_t>(from.rows),
                                               cudaMemcpyDeviceToDevice,
                                               stream));
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<GroupExchange>> GroupExchange::Create(const RankGroups& groups,
                                                               const DeviceProperties& device,
                                                               bool stage_slots) {
  std::unique_ptr<GroupExchange> result(new GroupExchange(groups));
  BATON_RETURN_IF_ERROR(result->Connect(device, stage_slots));
  GroupExchange& exchange = *result;
  result->watch_ = std::make_unique<ExchangeWatch>(
      ExchangeWatch::Options{.group_status = [&exchange] { return exchange.CheckGroup(); },
                             .abort = [&exchange] { exchange.Abort(); },
                             .limit = groups.limit,
                             .first_limit = kFirstLimit},
      exchange.clock_);
  return result;
}

Status GroupExchange::Connect(const DeviceProperties& device, bool stage_slots) {
  if (groups_.tensor != nullptr) {
    const StatusOr<const NcclLibrary*> library = NcclLibrary::Load();
    BATON_ASSIGN_OR_RETURN(tensor_,
                           NcclCommunicator::Create(library, *groups_.tensor, groups_.limit));
    auto peers = PeerExchange::Create(*groups_.tensor, device);
    why_nccl_ = peers.status();
    if (peers.ok()) peers_ = *std::move(peers);
    BATON_RETURN_IF_ERROR(groups_.tensor->status());
  }
  return groups_.pipeline == nullptr ? OkStatus() : ConnectStages(stage_slots);
}

// All ranks of the group must use the same way to exchange between stages. StageSlots::Create gives
// all stages of a tensor rank the same result. Here the tensor ranks of a stage agree.
Status GroupExchange::ConnectStages(bool with_slots) {
  StatusOr<std::unique_ptr<StageSlots>> slots =
      MakeStatus(StatusCode::kUnavailable, "slots between stages are switched off");
  if (with_slots) slots = StageSlots::Create(*groups_.pipeline);
  BATON_RETURN_IF_ERROR(groups_.pipeline->status());
  Status status = slots.status();
  if (groups_.tensor != nullptr) {
    BATON_ASSIGN_OR_RETURN(const auto all,
                           GatherRecords(*groups_.tensor, int32_t{status.ok() ? 1 : 0}));
    const auto without = std::ranges::find(all, 0);
    if (status.ok() && without != all.end()) {
      status = MakeStatus(StatusCode::kUnavailable,
                          "the stages of tensor rank {} cannot access each other's memory",
                          without - all.begin());
    }
  }
  if (status.ok()) {
    stages_ = *std::move(slots);
    return OkStatus();
  }
  if (why_nccl_.ok()) why_nccl_ = status;
  BATON_ASSIGN_OR_RETURN(
      pipeline_, NcclCommunicator::Create(NcclLibrary::Load(), *groups_.pipeline, groups_.limit));
  return OkStatus();
}

std::string GroupExchange::description() const {
  if (why_nccl_.ok()) return "through each other's memory";
  return fmt::format("through NCCL, which is slower: {}", Message(why_nccl_));
}

Status GroupExchange::CheckGroup() const {
  for (const Collective* group : {groups_.tensor, groups_.pipeline}) {
    if (group != nullptr) BATON_RETURN_IF_ERROR(group->status());
  }
  for (NcclCommunicator* ranks : {tensor_.get(), pipeline_.get()}) {
    if (ranks != nullptr) BATON_RETURN_IF_ERROR(ranks->error());
  }
  return OkStatus();
}

void GroupExchange::Abort() const {
  if (peers_ != nullptr) peers_->Abort();
  if (stages_ != nullptr) stages_->Abort();
  for (NcclCommunicator* ranks : {tensor_.get(), pipeline_.get()}) {
    if (ranks != nullptr) ranks->Abort();
  }
}

Status GroupExchange::Launch(const ExchangeOp& op, cudaStream_t stream) {
  BATON_RETURN_IF_ERROR(watch_->status());
  return std::visit(
      [&](const auto& one) -> Status {
        if constexpr (requires { one.slot_buffer; }) {
          if (one.slot_buffer != kThroughNccl) {
            BATON_CUDA_RETURN_IF_ERROR(peers_->Launch(one, stream));
            return OkStatus();
          }
        }
        return Run(one, stream);
      },
      op);
}

Status GroupExchange::Run(const ReduceOp& op, cudaStream_t stream) {
  if (op.two_shot) return ReduceTwoShot(op, stream);
  const size_t bytes = PackedBytes(op.x);
  const std::byte* mine = op.x.data;
  if (HasGaps(op.x)) {
    const Tensor packed = PackedAt(op.x, op.parts + static_cast<size_t>(tensor_->rank()) * bytes);
    BATON_RETURN_IF_ERROR(CopyRows(op.x, packed, stream));
    mine = packed.data;
  }
  BATON_RETURN_IF_ERROR(tensor_->AllGather(mine, op.parts, bytes, stream));
  if (op.gather_only) return OkStatus();
  BATON_CUDA_RETURN_IF_ERROR(LaunchRankSum(op.parts, op.ranks, op.x, stream));
  return OkStatus();
}

Status GroupExchange::Run(const PutOp& /*op*/, cudaStream_t /*stream*/) const {
  return MakeStatus(StatusCode::kInternal,
                    "a PutOp needs slots for its completion flags, but the ranks use NCCL");
}

Status GroupExchange::Run(const AwaitPutOp& op, cudaStream_t stream) const {
  BATON_CUDA_RETURN_IF_ERROR(peers_->Launch(op, stream));
  return OkStatus();
}

Status GroupExchange::ReduceTwoShot(const ReduceOp& op, cudaStream_t stream) {
  const int64_t elements = op.x.rows * op.x.cols / op.ranks;
  const size_t bytes = ElementBytes(op.x, elements);
  const auto slice = [&](std::byte* data, int rank) {
    return data + static_cast<size_t>(rank) * bytes;
  };
  const int me = tensor_->rank();
  transfers_.clear();
  for (int peer = 0; peer < op.ranks; ++peer) {
    if (peer == me) continue;
    transfers_.push_back({peer, true, slice(op.x.data, peer), bytes});
    transfers_.push_back({peer, false, slice(op.parts, peer), bytes});
  }
  BATON_RETURN_IF_ERROR(tensor_->Exchange(transfers_, stream));
  std::byte* const mine = slice(op.x.data, me);
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(slice(op.parts, me), mine, bytes, cudaMemcpyDeviceToDevice, stream));
  const Tensor sum = {
      .data = mine, .dtype = op.x.dtype, .rows = 1, .cols = elements, .stride = elements};
  BATON_CUDA_RETURN_IF_ERROR(LaunchRankSum(op.parts, op.ranks, sum, stream));
  return tensor_->AllGather(mine, op.x.data, bytes, stream);
}

Status GroupExchange::Run(const GatherColumnsOp& op, cudaStream_t stream) {
  const int me = tensor_->rank();
  const auto columns = [&](int rank) {
    const auto index = static_cast<size_t>(rank);
    const int64_t first = rank == 0 ? 0 : op.ends[index - 1];
    return op.whole.Columns(first, op.ends[index] - first);
  };
  // Scratch memory that holds the columns of one rank after those of lower ranks.
  const auto packed = [&](int rank) {
    const int64_t before = rank == 0 ? 0 : op.ends[static_cast<size_t>(rank) - 1];
    return PackedAt(columns(rank), op.packed + ElementBytes(op.whole, op.whole.rows * before));
  };
  const auto transfer = [&](int peer, bool send, const Tensor& x) {
    transfers_.push_back({peer, send, x.data, PackedBytes(x)});
  };
  transfers_.clear();
  const bool sends = op.to_all || me != 0;
  const bool receives = op.to_all || me == 0;
  if (sends) BATON_RETURN_IF_ERROR(CopyRows(columns(me), packed(me), stream));
  for (int peer = 0; peer < tensor_->size(); ++peer) {
    if (peer == me) continue;
    if (sends && (op.to_all || peer == 0)) transfer(peer, true, packed(me));
    if (receives) transfer(peer, false, packed(peer));
  }
  BATON_RETURN_IF_ERROR(tensor_->Exchange(transfers_, stream));
  for (int peer = 0; receives && peer < tensor_->size(); ++peer) {
    if (peer != me) BATON_RETURN_IF_ERROR(CopyRows(packed(peer), columns(peer), stream));
  }
  return OkStatus();
}

Status GroupExchange::Run(const BarrierOp& op, cudaStream_t stream) {
  // A rank has received all flags only when every rank has reached the barrier.
  return tensor_->AllGather(
      op.flags + static_cast<size_t>(tensor_->rank()) * kFlagBytes, op.flags, kFlagBytes, stream);
}

Status GroupExchange::AwaitMessage(cudaStream_t stream) const {
  for (;;) {
    BATON_RETURN_IF_ERROR(watch_->status());
    BATON_ASSIGN_OR_RETURN(const bool arrived, stages_->HasArrived(stream));
    if (arrived) return OkStatus();
  }
}

Status GroupExchange::Run(const StageOp& op, cudaStream_t stream) {
  if (op.through_slots) {
    BATON_CUDA_RETURN_IF_ERROR(op.send ? stages_->Send(op.x, stream)
                                       : stages_->Receive(op.x, stream));
    return OkStatus();
  }
  const bool gaps = op.packed != nullptr;
  const Tensor packed = gaps ? PackedAt(op.x, op.packed) : op.x;
  if (gaps && op.send) BATON_RETURN_IF_ERROR(CopyRows(op.x, packed, stream));
  const NcclCommunicator::Transfer transfer = {op.stage, op.send, packed.data, PackedBytes(packed)};
  BATON_RETURN_IF_ERROR(pipeline_->Exchange({&transfer, 1}, stream));
  if (gaps && !op.send) return CopyRows(packed, op.x, stream);
  return OkStatus();
}

Status GroupExchange::Run(const ShareTokensOp& op, cudaStream_t stream) {
  return tensor_->Broadcast(reinterpret_cast<std::byte*>(op.tokens),
                            static_cast<size_t>(op.count) * sizeof(int32_t),
                            stream);
}

}  // namespace baton::cuda
