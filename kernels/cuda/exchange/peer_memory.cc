#include "kernels/cuda/exchange/peer_memory.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/process_id.h"
#include "kernels/cuda/exchange/gather_records.h"

namespace baton::cuda {

struct PeerMemory::Address {
  uint64_t process = 0;         // ranks may be threads of one process
  std::byte* memory = nullptr;  // valid in that process
  int32_t device = 0;           // the device's index in that process
  int32_t allocated = 0;
  cudaIpcMemHandle_t handle = {};
};

PeerMemory::~PeerMemory() {
  for (std::byte* const memory : imported_) cudaIpcCloseMemHandle(memory);
  cudaFree(own_);
}

StatusOr<std::unique_ptr<PeerMemory>> PeerMemory::Create(
    Collective& host, size_t bytes, const std::function<Status(std::byte*)>& initialize) {
  std::unique_ptr<PeerMemory> result(new PeerMemory());
  result->peers_.resize(static_cast<size_t>(host.size()));
  Status status = result->Allocate(bytes, initialize);
  Address mine = {.process = ProcessId(),
                  .memory = result->own_,
                  .device = result->device_,
                  .allocated = status.ok() ? 1 : 0};
  if (status.ok()) status = ToStatus(cudaIpcGetMemHandle(&mine.handle, result->own_), "exporting");
  BATON_ASSIGN_OR_RETURN(const auto addresses, GatherRecords(host, mine));
  for (int rank = 0; rank < host.size() && status.ok(); ++rank) {
    if (rank == host.rank()) continue;
    const auto index = static_cast<size_t>(rank);
    const auto memory = result->Open(addresses[index]);
    if (memory.ok()) {
      result->peers_[index] = *memory;
    } else {
      status = Annotate(memory.status(), fmt::format("the memory of rank {}", rank));
    }
  }
  // No rank accesses the memory of other ranks before all ranks can do so.
  BATON_ASSIGN_OR_RETURN(const auto all_can, GatherRecords(host, int32_t{status.ok() ? 1 : 0}));
  BATON_RETURN_IF_ERROR(status);
  for (size_t rank = 0; rank < all_can.size(); ++rank) {
    if (all_can[rank] == 0) {
      return MakeStatus(
          StatusCode::kUnavailable, "rank {} cannot access the memory of the other ranks", rank);
    }
  }
  return result;
}

Status PeerMemory::Allocate(size_t bytes, const std::function<Status(std::byte*)>& initialize) {
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device_));
  BATON_RETURN_IF_ERROR(aborted_.Reserve(sizeof(int32_t)));
  std::memset(aborted_.data(), 0, sizeof(int32_t));
  BATON_CUDA_RETURN_IF_ERROR(cudaMalloc(reinterpret_cast<void**>(&own_), bytes));
  BATON_RETURN_IF_ERROR(initialize(own_));
  // The stores of other ranks are not ordered after the default stream of this rank.
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(nullptr));
  return OkStatus();
}

StatusOr<std::byte*> PeerMemory::Open(const Address& peer) {
  if (peer.allocated == 0) return Status(StatusCode::kUnavailable, "could not be allocated");
  if (peer.process == ProcessId()) {
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer.device, 0);
    cudaGetLastError();  // clears the error of an access that was enabled before
    if (error != cudaErrorPeerAccessAlreadyEnabled) BATON_CUDA_RETURN_IF_ERROR(error);
    return peer.memory;
  }
  void* memory = nullptr;
  const cudaError_t error =
      cudaIpcOpenMemHandle(&memory, peer.handle, cudaIpcMemLazyEnablePeerAccess);
  cudaGetLastError();  // clears the error
  BATON_CUDA_RETURN_IF_ERROR(error);
  imported_.push_back(static_cast<std::byte*>(memory));
  return imported_.back();
}

void PeerMemory::Abort() const {
  std::atomic_ref<int32_t>(*reinterpret_cast<int32_t*>(aborted_.data())).store(1);
}

}  // namespace baton::cuda
