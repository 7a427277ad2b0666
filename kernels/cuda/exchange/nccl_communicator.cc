#include "kernels/cuda/exchange/nccl_communicator.h"

#include <vector>

#include "common/base/thread.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_memory.h"

namespace baton::cuda {
namespace {

constexpr size_t kWarmUpBytes = 1024;  // the size of each operation in WarmUp

// All ranks call this with their status. Returns `mine` if it is an error, and Unavailable if only
// another rank has an error.
Status Agree(Collective& host, const Status& mine) {
  float failed = mine.ok() ? 0.0f : 1.0f;
  BATON_RETURN_IF_ERROR(host.AllReduce({&failed, 1}));
  BATON_RETURN_IF_ERROR(mine);
  if (failed == 0.0f) return OkStatus();
  return MakeStatus(
      StatusCode::kUnavailable,
      "NCCL failed to start on another rank of the group; the log of that rank has the reason");
}

}  // namespace

StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(
    const StatusOr<const NcclLibrary*>& library, Collective& host, Duration limit) {
  BATON_RETURN_IF_ERROR(Agree(host, library.status()));
  std::unique_ptr<NcclCommunicator> result(new NcclCommunicator(**library, host, limit));
  BATON_RETURN_IF_ERROR(result->Connect());
  BATON_RETURN_IF_ERROR(result->WarmUp());
  return result;
}

NcclCommunicator::~NcclCommunicator() {
  // ncclCommDestroy could wait for ranks that are gone.
  if (communicator_ != nullptr) Abort();
}

Status NcclCommunicator::Connect() {
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device_));
  ncclUniqueId id{};
  Status made;
  if (rank() == 0) made = nccl_.ToStatus(nccl_.get_unique_id(&id), "ncclGetUniqueId");
  BATON_RETURN_IF_ERROR(Agree(host_, made));
  BATON_RETURN_IF_ERROR(host_.BroadcastFromFirst(std::as_writable_bytes(std::span(&id, 1))));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result =
      nccl_.comm_init_rank_config(&communicator_, size(), id, rank(), &config);
  return AwaitIssued(result, "ncclCommInitRankConfig");
}

Status NcclCommunicator::WarmUp() {
  const auto ranks = static_cast<size_t>(size());
  DeviceMemory memory;
  BATON_RETURN_IF_ERROR(memory.Reserve(2 * ranks * kWarmUpBytes));
  cudaStream_t stream = nullptr;
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    std::byte* const at = memory.at(2 * static_cast<size_t>(peer) * kWarmUpBytes);
    transfers.push_back({peer, true, at, kWarmUpBytes});
    transfers.push_back({peer, false, at + kWarmUpBytes, kWarmUpBytes});
  }
  Status status = AllGather(
      memory.at(static_cast<size_t>(rank()) * kWarmUpBytes), memory.at(), kWarmUpBytes, stream);
  if (status.ok()) status = Broadcast(memory.at(), kWarmUpBytes, stream);
  if (status.ok()) status = Exchange(transfers, stream);
  if (status.ok()) status = AwaitStream(stream);
  if (!status.ok()) Abort();
  cudaStreamDestroy(stream);
  return status;
}

Status NcclCommunicator::AwaitStream(cudaStream_t stream) const {
  const SteadyClock clock;
  const Time begin = clock.Now();
  cudaError_t error = cudaStreamQuery(stream);
  while (error == cudaErrorNotReady) {
    BATON_RETURN_IF_ERROR(host_.status());
    if (clock.Now() - begin > limit_) {
      return MakeStatus(StatusCode::kDeadlineExceeded,
                        "NCCL: the first exchange of {} ranks has not ended within {:.1f} s",
                        size(),
                        ToSeconds(limit_));
    }
    std::this_thread::yield();
    error = cudaStreamQuery(stream);
  }
  cudaGetLastError();  // clears cudaErrorNotReady
  return cuda::ToStatus(error, "the first exchange through NCCL");
}

Status NcclCommunicator::AllGather(const std::byte* mine,
                                   std::byte* all,
                                   size_t bytes,
                                   cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return nccl_.ToStatus(ncclInvalidUsage, "ncclAllGather after an abort");
  return AwaitIssued(nccl_.all_gather(mine, all, bytes, ncclUint8, communicator_, stream),
                     "ncclAllGather");
}

Status NcclCommunicator::Broadcast(std::byte* data, size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return nccl_.ToStatus(ncclInvalidUsage, "ncclBroadcast after an abort");
  return AwaitIssued(nccl_.broadcast(data, data, bytes, ncclUint8, 0, communicator_, stream),
                     "ncclBroadcast");
}

Status NcclCommunicator::Exchange(std::span<const Transfer> transfers, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return nccl_.ToStatus(ncclInvalidUsage, "ncclSend after an abort");
  ncclResult_t error = nccl_.group_start();
  for (const Transfer& transfer : transfers) {
    if (error != ncclSuccess && error != ncclInProgress) break;
    error =
        transfer.send
            ? nccl_.send(
                  transfer.data, transfer.bytes, ncclUint8, transfer.peer, communicator_, stream)
            : nccl_.receive(
                  transfer.data, transfer.bytes, ncclUint8, transfer.peer, communicator_, stream);
  }
  const ncclResult_t ended = nccl_.group_end();
  if (error != ncclSuccess && error != ncclInProgress)
    return nccl_.ToStatus(error, "ncclSend, ncclRecv");
  return AwaitIssued(ended, "ncclSend, ncclRecv");
}

Status NcclCommunicator::AwaitIssued(ncclResult_t result, std::string_view call) {
  if (result == ncclSuccess) return OkStatus();
  const SteadyClock clock;
  const Time begin = clock.Now();
  while (result == ncclInProgress) {
    result = nccl_.StateOf(communicator_);
    if (result != ncclInProgress) break;
    BATON_RETURN_IF_ERROR(host_.status());
    if (aborted_) return nccl_.ToStatus(ncclInvalidUsage, call);
    if (clock.Now() - begin > limit_) {
      return MakeStatus(StatusCode::kDeadlineExceeded,
                        "NCCL: {} of rank {} has waited {:.1f} s for the {} other ranks",
                        call,
                        rank(),
                        ToSeconds(limit_),
                        size() - 1);
    }
    std::this_thread::yield();
  }
  return nccl_.ToStatus(result, call);
}

Status NcclCommunicator::error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || aborted_) return OkStatus();
  return nccl_.ToStatus(nccl_.StateOf(communicator_), "an exchange");
}

void NcclCommunicator::Abort() {
  if (aborted_.exchange(true)) return;
  abort_ = StartThread("nccl abort", [this](const std::stop_token& /*stop*/) {
    cudaSetDevice(device_);
    nccl_.comm_abort(communicator_);
  });
}

}  // namespace baton::cuda
